"""Retention, deletion by time, merging, snapshots: what the log does for itself now and then."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

import pytest

from ister.metadata.catalog import Catalog, Topic
from ister.metadata.errors import StoreOverloaded, StoreUnavailable
from ister.wal.errors import Contradiction, OffsetOutOfRange, StorageFull
from ister.wal.log import Appended
from ister.wal.partition import Partition
from ister.wal.snapshot import read_snapshot
from ister.wal.tests.broker_kit import Broker
from ister.wal.tests.harness import SMALL
from ister.wal.tier.faulty import FaultyStore
from ister.wal.tier.manifest import key as manifest_key
from ister.wal.tier.memory import MemoryStore
from ister.wal.tier.moves import load

HOUR_S = 3600
HOUR_MS = HOUR_S * 1000
SETTINGS = replace(
    SMALL,
    handoff_bytes=1,
    retention_grace_ms=60_000,
    bucket_delete_grace_ms=2 * HOUR_MS,
    housekeeping_interval_ms=1000,
)


def opened(configs: Mapping[str, str] | None = None) -> tuple[Broker, Topic, Partition]:
    broker = Broker(settings=SETTINGS, bucket=FaultyStore(MemoryStore(), random.Random(1))).open()
    topic = broker.create("orders", 1, configs)
    return broker, topic, broker.partition(0, topic.id)


def hand_off(broker: Broker, topic: Topic, *values: bytes) -> None:
    """One batch for each value, each in an object of its own."""
    for value in values:
        broker.append(value, topic_id=topic.id)
        broker.run()
        broker.service.seal()
        broker.run()
        broker.ticks(2, 1)


def objects(broker: Broker) -> int:
    return sum(1 for prefix in ("segments/", "shared/") for _ in broker.bucket.list(prefix))


def copy_of(bucket: MemoryStore) -> MemoryStore:
    """What the bucket holds now, in another one."""
    other = MemoryStore()
    other._objects = dict(bucket._objects)
    other._registers = dict(bucket._registers)
    other._last_version = bucket._last_version
    return other


# -- retention -------------------------------------------------------------------------


def test_old_records_go_first_here_then_from_the_manifest_then_from_the_bucket() -> None:
    """Log start durable, told, copied to the manifest; objects after the grace time."""
    broker, topic, partition = opened({"retention.ms": str(HOUR_MS)})
    hand_off(broker, topic, b"a", b"b")
    broker.clock.advance(HOUR_S / 2)
    hand_off(broker, topic, b"c")
    assert objects(broker) == 3
    bucket = broker.bucket
    assert isinstance(bucket, FaultyStore)
    durable_at_move: list[int] = []

    def watch(when: str, operation: str, name: str) -> None:
        if (when, operation, name) == ("before", "swap", manifest_key(topic.id, 0)):
            durable_at_move.append(broker.crash().open_partition(topic.id).log_start)
        if when == "before" and operation == "delete":
            assert name not in load(bucket.inner, topic.id, 0).manifest.objects  # type: ignore[union-attr]

    bucket.crash = watch
    broker.tick(HOUR_S / 2)
    assert (partition.log_start, broker.pruned) == (2, [(partition, 0, 2)])
    with pytest.raises(OffsetOutOfRange):
        broker.read(1, topic_id=topic.id)
    broker.ticks(3, 1)
    assert durable_at_move == [2]
    moved = load(bucket.inner, topic.id, 0)
    assert moved is not None
    assert (moved.manifest.log_start, len(moved.manifest.entries)) == (2, 1)
    assert objects(broker) == 3  # readers of the older manifest finish
    broker.tick(2 * HOUR_S - 10)
    assert objects(broker) == 3
    broker.ticks(4, 10)
    bucket.crash = None
    assert broker.errors == []
    # What is left is "c", old by now as well and waiting for its own grace time.
    assert objects(broker) == 1
    assert broker.crash().open_partition(topic.id).log_start == partition.log_start


def test_what_was_never_handed_over_goes_too() -> None:
    """With the bucket down retention frees the journal by itself."""
    broker, topic, partition = opened({"retention.ms": str(HOUR_MS)})
    bucket = broker.bucket
    assert isinstance(bucket, FaultyStore)
    bucket.down()
    for _ in range(3):
        broker.append(b"x", topic_id=topic.id)
        broker.run()
        broker.service.seal()
        broker.run()
        broker.tick(1)
    broker.tick(2 * HOUR_S)
    assert partition.log_start == 3
    assert [news[1:] for news in broker.pruned] == [(0, 3)]
    bucket.up()
    broker.ticks(4, 31)
    assert broker.log.sealed == {}
    assert objects(broker) == 0


def test_records_with_old_timestamps_stay_for_the_grace_time() -> None:
    """Nothing goes by time right after its append."""
    broker, topic, partition = opened({"retention.ms": str(HOUR_MS)})
    broker.append(b"x", topic_id=topic.id, base_timestamp=1)
    broker.run()
    broker.service.seal()
    broker.run()
    broker.ticks(50, 1)
    assert partition.log_start == 0
    broker.ticks(2, 10)
    assert partition.log_start == 1


def test_size_takes_whole_extents_from_the_front() -> None:
    """At least retention.bytes stay."""
    broker, topic, partition = opened({"retention.ms": "-1", "retention.bytes": "2500"})
    hand_off(broker, topic, *[bytes([number]) * 1000 for number in range(6)])
    broker.ticks(3, 1)
    assert partition.log_start == 3  # three batches of 1070 bytes are enough, two are not
    assert [value[0] for value in broker.values(3, topic_id=topic.id)] == [3, 4, 5]


def test_compact_topics_and_unlimited_ones_lose_nothing() -> None:
    """Until compaction exists everything stays."""
    for configs in (
        {"cleanup.policy": "compact", "retention.ms": "1", "retention.bytes": "1"},
        {"retention.ms": "-1"},
    ):
        broker, topic, partition = opened(configs)
        hand_off(broker, topic, b"a", b"b")
        broker.ticks(3, 100 * HOUR_S)
        assert partition.log_start == 0
        assert broker.pruned == []
        assert broker.values(topic_id=topic.id) == [b"a", b"b"]


def test_a_clock_that_jumps_deletes_nothing() -> None:
    """After an hour of agreement it goes on."""
    broker, topic, partition = opened({"retention.ms": str(HOUR_MS)})
    hand_off(broker, topic, b"a")
    broker.clock.jump(1000 * HOUR_MS)
    broker.ticks(3, 60)
    assert partition.log_start == 0
    assert broker.housekeeping.clock.paused_because is not None
    broker.ticks(70, 60)
    assert partition.log_start == 1


def test_a_clock_that_jumps_forgets_no_producer_and_clears_no_bucket() -> None:
    """A retry is still a duplicate, and what left a manifest keeps its grace."""
    broker, topic, partition = opened({"retention.bytes": "1"})

    def send() -> Appended:
        return broker.append(
            b"sent", topic_id=topic.id, producer_id=7, producer_epoch=0, base_sequence=0
        )

    assert not send().duplicate
    hand_off(broker, topic, b"a")
    hand_off(broker, topic, b"b")
    broker.ticks(4, 61)
    gone = broker.create("gone")
    hand_off(broker, gone, b"x")
    broker.delete(gone)
    broker.ticks(3, 2)
    assert partition.manifest is not None
    doomed = partition.manifest.to_delete
    assert doomed
    before = objects(broker)
    broker.clock.jump(10_000 * HOUR_MS)
    broker.ticks(10, 60)
    assert partition.manifest.to_delete == doomed
    assert objects(broker) == before
    assert gone.id in broker.catalog.tombstones
    assert send().duplicate
    broker.ticks(80, 60)
    broker.ticks(10, 2)
    assert not {*doomed} & {*partition.manifest.to_delete}
    assert objects(broker) < before
    assert broker.errors == []


def test_a_jump_while_the_broker_was_down_is_seen() -> None:
    """The last time is stored, and compared at start."""
    broker, topic, _ = opened({"retention.ms": str(HOUR_MS)})
    hand_off(broker, topic, b"a")
    broker.ticks(2, 61)
    left = broker.crash()
    left.clock.jump(1000 * HOUR_MS)
    left.open()
    left.ticks(3, 60)
    assert left.partition(0, topic.id).log_start == 0
    assert left.housekeeping.clock.paused_because is not None


def test_idle_producers_expire_also_where_nothing_is_left() -> None:
    """Rings and emptied partitions have producers too."""
    broker, topic, partition = opened({"retention.ms": str(HOUR_MS)})
    ring = broker.create("ring", 1, {"ister.dispatch.mode": "non-reliable"})
    for made in (topic, ring):
        broker.append(b"x", topic_id=made.id, producer_id=7, producer_epoch=0, base_sequence=0)
    broker.run()
    for checked in (partition, broker.partition(0, ring.id)):
        assert checked.producers is not None
        assert 7 in checked.producers
    broker.ticks(30, HOUR_S)
    for checked in (partition, broker.partition(0, ring.id)):
        assert checked.producers is not None
        assert 7 not in checked.producers


def test_no_room_in_the_journal_is_counted_and_tried_again() -> None:
    """Retention must not end the tick."""
    broker, topic, partition = opened({"retention.ms": str(HOUR_MS)})
    hand_off(broker, topic, b"a")
    broker.clock.advance(2 * HOUR_S)
    reserve = broker.log.journal.reserve

    def full(size: int) -> object:
        raise StorageFull("no room")

    broker.log.journal.reserve = full  # type: ignore[method-assign, assignment]
    broker.tick(1)
    assert broker.housekeeping.errors == 1
    broker.log.journal.reserve = reserve  # type: ignore[method-assign]
    broker.tick(1)
    assert partition.log_start == 1


# -- manifests that were not compared yet ------------------------------------------------


def test_a_bucket_that_was_set_back_never_replaces_what_is_known() -> None:
    """Housekeeping compares first: a contradiction, and the checkpoint's manifest stays."""
    broker, topic, _ = opened({"retention.ms": str(HOUR_MS)})
    hand_off(broker, topic, b"a")
    bucket = broker.bucket
    assert isinstance(bucket, FaultyStore)
    assert isinstance(bucket.inner, MemoryStore)
    older = copy_of(bucket.inner)
    broker.clock.advance(HOUR_S / 2)
    hand_off(broker, topic, b"b")
    broker.tick(HOUR_S / 2 + 5)  # "a" goes, its object is doomed
    broker.ticks(3, 1)
    known = broker.partition(0, topic.id).manifest
    assert known is not None
    assert known.to_delete
    broker.opened.checkpointer.request()
    broker.run()
    left = broker.crash()
    left.bucket = older
    left.open()
    left.ticks(10, HOUR_S)
    partition = left.partition(0, topic.id)
    assert partition.manifest == known
    assert partition.tiered_end == 2
    assert left.errors
    assert all(isinstance(error, Contradiction) for error in left.errors)
    found = load(older, topic.id, 0)
    assert found is not None
    assert found.manifest.tiered_end == 1  # untouched


def test_a_sweep_after_a_restart_compares_and_goes_on() -> None:
    """The usual case: the bucket is as it was left."""
    broker, topic, _ = opened({"retention.ms": str(HOUR_MS)})
    hand_off(broker, topic, b"a")
    broker.clock.advance(HOUR_S / 2)
    hand_off(broker, topic, b"b")
    broker.tick(HOUR_S / 2 + 5)
    broker.ticks(3, 1)
    broker.opened.checkpointer.request()
    broker.run()
    broker = broker.crash().open()
    assert broker.partition(0, topic.id).manifest_version == -1
    assert objects(broker) == 2
    broker.ticks(2, HOUR_S)
    broker.ticks(6, 2)
    assert objects(broker) == 1
    assert broker.partition(0, topic.id).manifest_version > 0
    assert broker.errors == []


# -- jobs do not get in each other's way -----------------------------------------------------


def test_many_small_objects_are_merged() -> None:
    """However idle a partition is, its manifest stays short; every record stays readable."""
    broker, topic, partition = opened({"retention.ms": "-1"})
    broker.handoff.target_bytes = 1 << 20
    values = [b"%d" % number for number in range(40)]
    hand_off(broker, topic, *values)
    broker.ticks(20, 2)
    assert partition.manifest is not None
    assert len(partition.manifest.entries) <= 17
    assert broker.values(topic_id=topic.id, max_bytes=1) == values
    assert broker.errors == []


def test_a_job_that_fails_does_not_keep_the_others() -> None:
    """A merge that cannot be done again and again: the snapshot is written all the same."""
    broker, topic, _ = opened({"retention.ms": "-1"})
    broker.handoff.target_bytes = 1 << 20
    hand_off(broker, topic, *[b"%d" % number for number in range(16)])
    broker.tick(61)
    assert read_snapshot(broker.bucket) is not None
    before = read_snapshot(broker.bucket)
    bucket = broker.bucket
    assert isinstance(bucket, FaultyStore)
    assert before is not None
    fault = bucket.fail("get", "s[eh]*", error=lambda name: Contradiction(name))
    hand_off(broker, topic, *[b"%d" % number for number in range(20)])
    broker.ticks(120, 1)
    after = read_snapshot(broker.bucket)
    assert after is not None
    assert after.taken_ms > before.taken_ms
    assert 0 < fault.hits < 30  # it waits longer each time
    fault.clear()
    broker.ticks(40, 5)
    assert broker.partition(0, topic.id).manifest is not None
    assert len(broker.partition(0, topic.id).manifest.entries) <= 17  # type: ignore[union-attr]


def test_a_tombstone_that_waits_does_not_keep_the_others() -> None:
    """A deleted topic waits a day for its objects; snapshots go on meanwhile."""
    broker, topic, _ = opened()
    other = broker.create("other")
    hand_off(broker, topic, b"a")
    broker.delete(topic)
    broker.ticks(5, 1)
    before = read_snapshot(broker.bucket)
    hand_off(broker, other, b"a")
    broker.ticks(4, 61)
    after = read_snapshot(broker.bucket)
    assert after is not None
    assert before is None or after.taken_ms > before.taken_ms
    assert topic.id in broker.catalog.tombstones


# -- the time that is stored -------------------------------------------------------------


def test_a_store_that_fails_is_told_and_the_time_is_stored_later() -> None:
    """Also when the reply was lost: the next one does not conflict for ever."""
    broker, _, _ = opened()
    broker.store.lose_next_reply()
    broker.tick(61)
    assert [type(error) for error in broker.errors] == [StoreUnavailable]
    assert broker.housekeeping.errors == 1
    broker.tick(61)
    assert len(broker.errors) == 1
    assert Catalog.load(broker.store).wall_time_ms == broker.clock.wall_ms()


def test_a_store_with_too_much_to_do_is_told() -> None:
    """The tick goes on."""
    broker, _, _ = opened()
    broker.commits._waiting_max = 0
    broker.tick(61)
    assert [type(error) for error in broker.errors] == [StoreOverloaded]
    broker.commits._waiting_max = 100
    broker.tick(61)
    assert len(broker.errors) == 1
    assert Catalog.load(broker.store).wall_time_ms == broker.clock.wall_ms()
