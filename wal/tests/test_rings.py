"""Non-reliable topics from end to end: rings, offset blocks, restarts."""

from __future__ import annotations

from itertools import pairwise

import pytest

from ister.metadata.catalog import Catalog, Topic
from ister.metadata.memory import MemoryStore
from ister.wal.errors import OffsetOutOfRange, StorageError
from ister.wal.log import Appended
from ister.wal.partition import Partition
from ister.wal.ring import OFFSET_BLOCK
from ister.wal.tests.broker_kit import Broker

CONFIGS = {"ister.dispatch.mode": "non-reliable", "ister.ring.bytes": "4096"}


def opened(**configs: str) -> tuple[Broker, Topic, Partition]:
    broker = Broker().open()
    topic = broker.create("news", 1, {**CONFIGS, **configs})
    return broker, topic, broker.partition(0, topic.id)


def test_it_begins_at_0_and_keeps_the_newest() -> None:
    """Earliest = latest = head; a fetch in the ring is served and nothing is written."""
    broker, topic, partition = opened()
    files = broker.log.journal.position
    answers: list[object] = []
    for number in range(3):
        broker.append(b"%d" % number, topic_id=topic.id, done=answers.append)
    broker.run()
    assert answers == [None] * 3
    assert partition.log_start == partition.high_watermark == partition.log_end == 3
    chunk = broker.read(1, topic_id=topic.id)
    assert list(broker.in_chunk(chunk, 1)) == [(1, b"1"), (2, b"2")]
    assert not broker.read(3, topic_id=topic.id).buffers
    with pytest.raises(OffsetOutOfRange):
        broker.read(4, topic_id=topic.id)
    assert broker.log.journal.position == files


def test_what_was_dropped_is_counted() -> None:
    """Below the ring: the oldest kept batch, and the records that are gone are counted."""
    broker, topic, partition = opened()
    for number in range(20):
        broker.append(bytes([number]) * 500, topic_id=topic.id)
    assert partition.ring is not None
    oldest = partition.ring.oldest
    assert oldest > 0
    assert broker.read(0, topic_id=topic.id).first_offset == oldest
    assert broker.log.rings.dropped == oldest
    partition.ring.check()


def test_the_listener_hears_of_a_moved_head() -> None:
    """Readers that wait at the head are told, as for any other topic."""
    broker, topic, partition = opened()
    heard: list[list[Partition]] = []
    broker.log.listener = heard.append
    broker.append(b"x", topic_id=topic.id)
    broker.run()
    assert heard == [[partition]]


@pytest.mark.parametrize("checkpointed", [False, True])
def test_a_restart_goes_on_at_the_next_block_with_a_higher_epoch(checkpointed: bool) -> None:
    """No offset comes twice, and epochs rise with every run, whatever the checkpoint knows."""
    broker, topic, partition = opened()
    seen = [(partition.leader_epoch, broker.append(b"x", topic_id=topic.id).base_offset)]
    for _ in range(4):
        if checkpointed:
            broker.opened.checkpointer.request()
            broker.run()
        broker = broker.crash().open()
        partition = broker.partition(0, topic.id)
        offset = broker.append(b"y", topic_id=topic.id).base_offset
        assert partition.log_start == partition.high_watermark == offset + 1
        seen.append((partition.leader_epoch, offset))
    assert all(before[0] < after[0] for before, after in pairwise(seen))
    assert [offset for _, offset in seen] == [n * OFFSET_BLOCK for n in range(5)]
    assert broker.errors == []


def test_a_reader_of_the_last_run_gets_what_there_is() -> None:
    """Its position is below the ring: it goes on with the oldest kept batch."""
    broker, topic, _ = opened()
    broker.append(b"x", topic_id=topic.id)
    broker = broker.crash().open()
    broker.append(b"y", topic_id=topic.id)
    chunk = broker.read(1, topic_id=topic.id)
    assert list(broker.in_chunk(chunk, 0)) == [(OFFSET_BLOCK, b"y")]


def test_offsets_are_used_only_once_their_block_is_durable() -> None:
    """Without metadata there are no offsets; it goes on by itself when the store answers."""
    broker, topic, partition = opened()
    assert partition.ring is not None
    partition.ring.head = partition.ring.reserved_to - 1
    broker.append(b"last", topic_id=topic.id)
    with pytest.raises(StorageError):
        broker.append(b"too early", topic_id=topic.id)
    broker.run()
    assert broker.append(b"now", topic_id=topic.id).base_offset == OFFSET_BLOCK
    assert Catalog.load(broker.store).reserved_offsets(topic.id, 0) > OFFSET_BLOCK


def test_a_lost_reply_of_the_store_skips_and_never_reuses() -> None:
    """The block may or may not be reserved: the catalog is read anew and the next one is asked."""
    store = MemoryStore()
    broker = Broker(store=store).open()
    topic = broker.create("news", 1, CONFIGS)
    broker.append(b"x", topic_id=topic.id)
    left = broker.crash()
    left.store.lose_next_reply()
    left.open()
    assert len(left.errors) == 1
    with pytest.raises(StorageError):
        left.append(b"y", topic_id=topic.id)
    left.clock.advance(6)
    with pytest.raises(StorageError):
        left.read(0, topic_id=topic.id)  # a reader asks for the block too
    left.run()
    assert left.append(b"y", topic_id=topic.id).base_offset == 2 * OFFSET_BLOCK


def test_a_retry_gets_the_append_time_of_the_original() -> None:
    """LogAppendTime: a duplicate is answered with offset and time of the first."""
    broker, topic, _ = opened(**{"message.timestamp.type": "LogAppendTime"})

    def send() -> Appended:
        return broker.append(
            b"a", topic_id=topic.id, producer_id=5, producer_epoch=0, base_sequence=0
        )

    first = send()
    broker.clock.advance(5)
    again = send()
    assert again == first._replace(duplicate=True)
    assert again.append_time_ms == broker.clock.wall_ms() - 5000


def test_the_size_of_the_ring_can_be_changed() -> None:
    """`ister.ring.bytes` counts from the next append on."""
    broker, topic, partition = opened()
    for _ in range(10):
        broker.append(bytes(500), topic_id=topic.id)
    assert partition.ring is not None
    before = partition.ring.kept_bytes
    broker.admin.configure(topic, {**CONFIGS, "ister.ring.bytes": "1500"}, lambda _: None)
    broker.run()
    broker.append(bytes(500), topic_id=topic.id)
    assert partition.ring.kept_bytes <= 1500 < before
    partition.ring.check()


def test_a_deleted_ring_is_gone_and_the_next_one_begins_at_0() -> None:
    """Another id, another ring: nothing of the old one is met."""
    broker, topic, _ = opened()
    broker.append(b"old", topic_id=topic.id)
    broker.delete(topic)
    again = broker.create("news", 1, CONFIGS)
    assert again.id != topic.id
    assert broker.append(b"new", topic_id=again.id).base_offset == 0
    broker = broker.crash().open()
    assert broker.append(b"new", topic_id=again.id).base_offset == OFFSET_BLOCK
