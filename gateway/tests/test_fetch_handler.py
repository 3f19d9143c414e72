"""Fetch over TCP: batches, limits, waiting, errors in their layout, sessions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ister.gateway.broker import Broker
from ister.gateway.protocol import fetch as codec
from ister.gateway.protocol.api import ApiKey
from ister.gateway.protocol.messages import delete_topics
from ister.gateway.tests.wire_kit import Part, Running, Wire, fetch_body, read_fetched
from ister.wal.batch import walk
from ister.wal.errors import LogError, StorageError
from ister.wal.partition import Partition
from ister.wal.reader import Chunk
from ister.wal.records import records
from ister.wal.tests.batches import make_batch

VERSIONS = range(codec.VERSION_MIN, codec.VERSION_MAX + 1)
each_version = pytest.mark.parametrize("version", VERSIONS)
LONG_MS = 60_000
Answer = Callable[[Chunk | None, LogError | None], None]


def values(data: bytes) -> list[bytes | None]:
    return [
        record.value
        for position, size, _ in walk(data)
        for record in records(data[position : position + size])
    ]


def delete(wire: Wire, name: str) -> None:
    answer = wire.request(
        delete_topics,
        ApiKey.DELETE_TOPICS,
        5,
        delete_topics.DeleteTopicsRequest(topic_names=(name,), timeout_ms=30_000),
    )
    assert [each.error_code for each in answer.responses] == [0]


class Unreachable:
    """A cold reader whose sources are all away."""

    def read(self, partition: Partition, offset: int, max_bytes: int, done: Answer) -> None:
        done(None, StorageError("the bucket cannot be reached"))


@each_version
def test_every_version_gets_its_records(wire: Wire, version: int) -> None:
    """Pitfall 3: from 13 on by the id of Metadata, which is not zero."""
    topic_id = wire.create("t", 2)
    assert topic_id != bytes(16)
    (told,) = wire.metadata("t").topics
    assert told.topic_id == topic_id
    wire.produce("t", make_batch([b"a", b"b"]))
    topic: str | bytes = topic_id if version >= 13 else "t"
    answer = wire.fetch([(topic, [Part(0), Part(1)])], version=version)
    assert (answer.error, answer.session_id) == (0, 0)
    assert values(answer.partitions[topic, 0].records) == [b"a", b"b"]
    assert answer.partitions[topic, 0].high_watermark == 2
    assert answer.partitions[topic, 1].records == b""


@each_version
def test_errors_have_the_layout_of_their_version(wire: Wire, version: int) -> None:
    """Pitfall 5: kio reads every one of them, with Kafka's number."""
    topic_id = wire.create("t")
    known: str | bytes = topic_id if version >= 13 else "t"
    unknown: str | bytes = b"?" * 16 if version >= 13 else "nobody"
    answer = wire.fetch([(known, [Part(0, 99), Part(7)]), (unknown, [Part(0)])], version=version)
    errors = {key: each.error for key, each in answer.partitions.items()}
    assert errors == {
        (known, 0): 1,  # OFFSET_OUT_OF_RANGE
        (known, 7): 3,  # UNKNOWN_TOPIC_OR_PARTITION
        (unknown, 0): 100 if version >= 13 else 3,
    }
    if version >= 9:
        fenced = wire.fetch([(known, [Part(0, leader_epoch=5)])], version=version)
        assert fenced.partitions[known, 0].error == 75  # UNKNOWN_LEADER_EPOCH


def test_inside_a_batch_the_whole_batch_comes(wire: Wire) -> None:
    """Pitfall 10: the batch that contains the offset, not the one behind it."""
    wire.create("t")
    wire.produce("t", make_batch([b"0", b"1", b"2"]))
    wire.produce("t", make_batch([b"3"]))
    got = wire.fetch([("t", [Part(0, 2)])]).partitions["t", 0]
    assert values(got.records) == [b"0", b"1", b"2", b"3"]


def test_the_first_batch_comes_however_small_the_limits(wire: Wire) -> None:
    """A consumer with a small limit is never stuck."""
    wire.create("t")
    wire.produce("t", make_batch([b"x" * 5000]))
    wire.produce("t", make_batch([b"y" * 5000]))
    got = wire.fetch([("t", [Part(0, 0, max_bytes=1)])], max_bytes=1).partitions["t", 0]
    assert values(got.records) == [b"x" * 5000]


def test_the_budget_goes_to_what_was_asked_for_first(wire: Wire) -> None:
    """Without a session partitions are served strictly in the order asked."""
    wire.create("t", 10)
    for index in range(10):
        wire.produce("t", make_batch([b"x" * 1000]), partition=index)
    for first in (0, 0, 3, 7):
        asked = [index % 10 for index in range(first, first + 10)]
        answer = wire.fetch([("t", [Part(index) for index in asked])], max_bytes=500)
        assert [index for _, index in answer.partitions] == asked
        assert [index for (_, index), each in answer.partitions.items() if each.records] == [first]


def test_the_budget_goes_around_in_a_session(wire: Wire) -> None:
    """Pitfall 18: the same, with requests that name nothing."""
    wire.create("t", 5)
    for index in range(5):
        wire.produce("t", make_batch([b"x" * 1000]), partition=index)
    opened = wire.fetch([("t", [Part(n) for n in range(5)])], session=(0, 0), max_bytes=500)
    served = [index for (_, index), each in opened.partitions.items() if each.records]
    for epoch in range(1, 5):
        again = wire.fetch([], session=(opened.session_id, epoch), max_bytes=500)
        served += [index for (_, index), each in again.partitions.items() if each.records]
    assert sorted(served) == list(range(5))


def test_a_fetch_waits_for_min_bytes(running: Running) -> None:
    """Pitfall 18: woken by the first record it waits on, answered by the one that is enough."""
    with running.connect() as reader, running.connect() as writer:
        writer.create("t")
        body = fetch_body(12, [("t", [Part(0)])], max_wait_ms=LONG_MS, min_bytes=1000)
        reader.ask(ApiKey.FETCH, 12, body)
        running.until(lambda broker: broker.parked.count == 1)
        writer.produce("t", make_batch([b"small"]))
        running.until(lambda broker: broker.parked.wakes >= 1)
        assert running.on_loop(lambda broker: broker.parked.count) == 1
        writer.produce("t", make_batch([b"x" * 1000]))
        got = read_fetched(12, reader.answer()[1]).partitions["t", 0]
        assert values(got.records) == [b"small", b"x" * 1000]


def test_the_wait_ends_with_what_there_is(wire: Wire) -> None:
    """Pitfall 6: max_wait over; the answer is in full and not throttled."""
    wire.create("t", 2)
    wire.produce("t", make_batch([b"v"]))
    answer = wire.fetch([("t", [Part(0), Part(1)])], max_wait_ms=50, min_bytes=1_000_000)
    assert values(answer.partitions["t", 0].records) == [b"v"]
    assert answer.partitions["t", 1].error == 0


def test_read_committed(wire: Wire) -> None:
    """Pitfall 16: last stable offset is the high watermark, the list of aborted ones is empty."""
    wire.create("t")
    wire.produce("t", make_batch([b"v"]))
    got = wire.fetch([("t", [Part(0)])], isolation=1).partitions["t", 0]
    assert (got.last_stable, got.high_watermark, got.aborted) == (1, 1, ())
    assert values(got.records) == [b"v"]
    plain = wire.fetch([("t", [Part(0)])], isolation=0).partitions["t", 0]
    assert plain.aborted is None


def test_a_topic_that_is_deleted_wakes_who_waits(running: Running) -> None:
    """Nobody waits out a long poll on a topic that is gone."""
    with running.connect() as reader, running.connect() as writer:
        topic_id = writer.create("t")
        body = fetch_body(13, [(topic_id, [Part(0)])], max_wait_ms=LONG_MS)
        reader.ask(ApiKey.FETCH, 13, body)
        running.until(lambda broker: broker.parked.count == 1)
        delete(writer, "t")
        got = read_fetched(13, reader.answer()[1])
        assert got.partitions[topic_id, 0].error == 100


def test_a_session_over_the_wire(running: Running) -> None:
    """Opened, waited in, woken with the one partition that has something, and closed."""
    with running.connect() as reader, running.connect() as writer:
        topic_id = writer.create("t", 3)
        opened = reader.fetch([(topic_id, [Part(n) for n in range(3)])], version=16, session=(0, 0))
        session = opened.session_id
        assert session > 0
        assert len(opened.partitions) == 3
        quiet = reader.fetch([], version=16, session=(session, 1))
        assert (quiet.session_id, quiet.partitions) == (session, {})
        body = fetch_body(16, [], session=(session, 2), max_wait_ms=LONG_MS)
        reader.ask(ApiKey.FETCH, 16, body)
        running.until(lambda broker: broker.parked.count == 1)
        writer.produce("t", make_batch([b"v"]), partition=1)
        woken = read_fetched(16, reader.answer()[1])
        assert [key for key in woken.partitions] == [(topic_id, 1)]
        assert values(woken.partitions[topic_id, 1].records) == [b"v"]
        assert reader.fetch([], version=16, session=(session, 9)).error == 71
        closed = reader.fetch([], version=16, session=(session, -1))
        assert (closed.error, closed.session_id) == (0, 0)
        assert reader.fetch([], version=16, session=(session, 3)).error == 70
        assert running.on_loop(lambda broker: len(broker.fetch_sessions)) == 0


def test_a_session_ends_with_its_topic(wire: Wire) -> None:
    """By name: error 3 while it is gone, 106 once the name is another topic. By id: 100."""
    topic_id = wire.create("t")
    by_name = wire.fetch([("t", [Part(0)])], session=(0, 0)).session_id
    by_id = wire.fetch([(topic_id, [Part(0)])], version=13, session=(0, 0)).session_id
    delete(wire, "t")
    assert wire.fetch([], session=(by_name, 1)).partitions["t", 0].error == 3
    wire.create("t")
    assert wire.fetch([], session=(by_name, 2)).error == 106
    gone = wire.fetch([], version=13, session=(by_id, 1))
    assert gone.partitions[topic_id, 0].error == 100


def test_what_left_memory_is_read_from_files(running: Running) -> None:
    """Pitfall 12: behind the cache comes the journal; many cold partitions all have their turn."""
    with running.connect() as wire:
        wire.create("t", 12)
        for index in range(12):
            wire.produce("t", make_batch([b"v%d" % index]), partition=index)

        def forget(broker: object) -> None:
            for partition in running.broker.storage.log.partitions.values():
                partition.cached = None

        seen: dict[int, list[bytes | None]] = {}
        while len(seen) < 12:
            running.on_loop(forget)
            before = len(seen)
            parts = [Part(n, 1 if n in seen else 0) for n in range(12)]
            answer = wire.fetch([("t", parts)], max_wait_ms=LONG_MS)
            for (_, index), each in answer.partitions.items():
                assert each.error == 0
                if each.records:
                    seen[index] = values(each.records)
            assert len(seen) > before
        assert seen == {index: [b"v%d" % index] for index in range(12)}


def test_what_cannot_be_read_is_an_error(running: Running) -> None:
    """Pitfall 13: data that exists and cannot be had is 56, never an empty success."""
    with running.connect() as wire:
        wire.create("t", 2)
        wire.produce("t", make_batch([b"v"]))

        def lose(broker: Broker) -> None:
            for partition in broker.storage.log.partitions.values():
                partition.cached = None
            broker.context.reader = Unreachable()  # type: ignore[assignment]

        running.on_loop(lose)
        answer = wire.fetch([("t", [Part(0), Part(1)])], max_wait_ms=LONG_MS)
        assert answer.partitions["t", 0].error == 56
        assert answer.partitions["t", 1].error == 0
