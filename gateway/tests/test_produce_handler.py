"""Produce over TCP: what is taken, what is refused with which number, and what acks mean."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from ister.gateway.protocol import produce as codec
from ister.gateway.protocol.api import ApiKey
from ister.gateway.protocol.messages import delete_topics, init_producer_id
from ister.gateway.tests.wire_kit import (
    Part,
    Running,
    Wire,
    produce_body,
    read_produced,
)
from ister.wal.batch import walk
from ister.wal.clock import SystemClock
from ister.wal.records import records
from ister.wal.tests.batches import make_batch

VERSIONS = range(codec.VERSION_MIN, codec.VERSION_MAX + 1)
each_version = pytest.mark.parametrize("version", VERSIONS)
ZSTD = 4


def counted(sequence: int, values: int = 1, epoch: int = 0, producer_id: int = 77) -> bytes:
    return make_batch(
        [b"v"] * values, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
    )


@each_version
def test_every_version_appends(wire: Wire, version: int) -> None:
    """Pitfall 9: offsets count records, not batches, without holes; in one partition or many."""
    topic_id = wire.create("t", 2)
    topic: str | bytes = topic_id if version >= 13 else "t"
    assert wire.produce(topic, make_batch([b"a"] * 3), version=version).base_offset == 0
    assert wire.produce(topic, make_batch([b"b"] * 2), version=version).base_offset == 3
    rows = [(0, make_batch([b"c"])), (1, make_batch([b"d"])), (9, make_batch([b"e"]))]
    answer = read_produced(
        version, wire.call(ApiKey.PRODUCE, version, produce_body(version, [(topic, rows)]))
    )
    assert [answer[topic, n].base_offset for n in (0, 1, 9)] == [5, 0, -1]
    assert [answer[topic, n].error for n in (0, 1, 9)] == [0, 0, 3]
    if version >= 5:
        assert answer[topic, 0].log_start == 0


@each_version
def test_unknown_topics_in_the_layout_of_their_version(wire: Wire, version: int) -> None:
    """Pitfall 5: 3 for a name, 100 for an id."""
    topic: str | bytes = b"?" * 16 if version >= 13 else "nobody"
    refused = wire.produce(topic, make_batch([b"v"]), version=version)
    assert refused.error == (100 if version >= 13 else 3)
    assert refused.base_offset == -1


def broken_crc() -> bytes:
    batch = bytearray(make_batch([b"v"]))
    batch[-1] ^= 1
    return bytes(batch)


def patched(position: int, layout: str, value: int) -> bytes:
    """A batch with one field of its header changed, under a right checksum."""
    batch = bytearray(make_batch([b"v"]))
    struct.pack_into(layout, batch, position, value)
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    return bytes(batch)


REFUSED: dict[str, tuple[bytes | None, int]] = {
    "null": (None, 87),
    "empty": (b"", 87),
    "magic 0": (b"\0" * 12 + struct.pack(">IbbqiI", 0, 0, 0, 0, 0, 0) + b"\0" * 60, 87),
    "magic 1": (b"\0" * 16 + b"\x01" + b"\0" * 60, 87),
    "checksum": (broken_crc(), 2),
    "cut short": (make_batch([b"v" * 100])[:-10], 87),
    "two batches": (make_batch([b"1"]) + make_batch([b"2"]), 87),
    "no records": (patched(57, ">i", 0), 87),
    "count is not the delta": (patched(57, ">i", 2), 87),
    "control batch": (make_batch([b"v"], attributes=0x20), 87),
    "transactional": (make_batch([b"v"], attributes=0x10), 53),
    "no sequence": (make_batch([b"v"], producer_id=5, producer_epoch=0), 87),
    "append time from a client": (make_batch([b"v"], attributes=0x08), 32),
    "a time to come": (make_batch([b"v"], base_timestamp=2**45), 32),
    "too large": (make_batch([b"x" * 1_100_000]), 10),
    "no such codec": (patched(21, ">h", 7), 76),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_not_a_batch_of_a_client(wire: Wire, what: str) -> None:
    """G18: Kafka's number and words for it; the next batch is appended as if nothing was."""
    data, code = REFUSED[what]
    wire.create("t")
    refused = wire.produce("t", data)
    assert refused.error == code
    assert refused.message or code in (2, 10)  # beside these Kafka has no words
    assert refused.base_offset == -1
    assert wire.produce("t", make_batch([b"v"])).base_offset == 0


@pytest.mark.parametrize("acks", [2, -2, 32767])
def test_acks_that_do_not_exist(wire: Wire, acks: int) -> None:
    """G18: 21 for every partition."""
    wire.create("t")
    assert wire.produce("t", make_batch([b"v"]), acks=acks).error == 21
    assert wire.produce("t", make_batch([b"v"]), acks=1).base_offset == 0


def test_zstd_needs_version_7(wire: Wire) -> None:
    """G18: 76 below, taken from 7 on."""
    wire.create("t")
    batch = make_batch([b"v"], codec=ZSTD)
    assert wire.produce("t", batch, version=6).error == 76
    assert wire.produce("t", batch, version=7).error == 0


@pytest.mark.parametrize("compression", range(5))
def test_codecs_pass_through(wire: Wire, compression: int) -> None:
    """Pitfall 29, G21: what was sent is what comes back, byte for byte behind the stamp."""
    wire.create("t")
    batch = make_batch([b"value" * 50], codec=compression)
    wire.produce("t", batch)
    got = wire.fetch([("t", [Part(0)])]).partitions["t", 0].records
    assert got[16:] == batch[16:]


def test_log_append_time(wire: Wire) -> None:
    """G19: the broker's time in the answer and in the batch, with a right checksum."""
    wire.create("t", message_timestamp_type="LogAppendTime")
    before = SystemClock().wall_ms()
    done = wire.produce("t", make_batch([b"a", b"b"], base_timestamp=2**45))
    assert before <= done.log_append_time_ms <= SystemClock().wall_ms()
    data = wire.fetch([("t", [Part(0)])]).partitions["t", 0].records
    ((_, _, header),) = walk(data)
    assert header.max_timestamp == done.log_append_time_ms
    assert header.is_log_append_time
    assert [record.timestamp for record in records(data)] == [done.log_append_time_ms] * 2


def test_create_time_is_told_as_minus_one(wire: Wire) -> None:
    """G19."""
    wire.create("t")
    assert wire.produce("t", make_batch([b"v"])).log_append_time_ms == -1


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_compacted_topics_want_keys(wire: Wire, policy: str) -> None:
    """Pitfall 28, G18: 87 without a key, one of many is enough; order is kept."""
    wire.create("t", 2, cleanup_policy=policy)
    assert wire.produce("t", make_batch([b"v"])).error == 87
    large = make_batch([b"v"] * 500, keys=[b"k"] * 499 + [None], codec=1)
    assert wire.produce("t", large).error == 87
    asked = []
    for count in (400, 1, 300, 2):
        batch = make_batch([b"v"] * count, keys=[b"k"] * count, codec=1 if count > 100 else 0)
        asked.append(wire.ask(ApiKey.PRODUCE, 9, produce_body(9, [("t", [(0, batch)])])))
    answers = [wire.answer() for _ in asked]
    assert [correlation for correlation, _ in answers] == asked
    offsets = [read_produced(9, body)["t", 0].base_offset for _, body in answers]
    assert offsets == [0, 400, 401, 701]
    rows = [(0, make_batch([b"v"])), (1, make_batch([b"v"], keys=[b"k"]))]
    both = read_produced(9, wire.call(ApiKey.PRODUCE, 9, produce_body(9, [("t", rows)])))
    assert (both["t", 0].error, both["t", 1].error) == (87, 0)


def test_a_million_records_without_a_key(wire: Wire) -> None:
    """A small batch does not make a large answer."""
    wire.create("t", cleanup_policy="compact")
    count = 100_000
    batch = make_batch([None] * count, codec=1)
    body = produce_body(9, [("t", [(0, batch)])])
    answer = wire.call(ApiKey.PRODUCE, 9, body)
    assert read_produced(9, answer)["t", 0].error == 87
    assert len(answer) < 100_000


def test_acks_0_on_a_compacted_topic(wire: Wire) -> None:
    """No answer either way; an error ends the connection."""
    wire.create("t", cleanup_policy="compact")
    good = make_batch([b"v"] * 100, keys=[b"k"] * 100, codec=1)
    wire.ask(ApiKey.PRODUCE, 9, produce_body(9, [("t", [(0, good)])], acks=0))
    assert wire.produce("t", make_batch([b"v"], keys=[b"k"])).base_offset == 100
    bad = make_batch([b"v"] * 100, codec=1)
    wire.ask(ApiKey.PRODUCE, 9, produce_body(9, [("t", [(0, bad)])], acks=0))
    assert wire.is_closed_by_peer()


@pytest.mark.parametrize("topic", ["nobody", "t"])
def test_an_error_under_acks_0_ends_the_connection(wire: Wire, topic: str) -> None:
    """G20: there is no other way to tell."""
    wire.create("t")
    wire.ask(ApiKey.PRODUCE, 9, produce_body(9, [(topic, [(0, b"rubbish")])], acks=0))
    assert wire.is_closed_by_peer()


# -- idempotence -----------------------------------------------------------------------


def test_duplicates_get_the_offset_of_the_original(wire: Wire) -> None:
    """G22: the last five batches; success, and nothing is appended."""
    wire.create("t")
    for number in range(5):
        assert wire.produce("t", counted(number * 2, 2)).base_offset == number * 2
    for number in range(5):
        assert wire.produce("t", counted(number * 2, 2)).base_offset == number * 2
    assert wire.produce("t", counted(10)).base_offset == 10


def test_out_of_order_and_stale(wire: Wire) -> None:
    """Pitfall 15: a gap is 45, never a duplicate; an older epoch is 47; a new one begins at 0."""
    wire.create("t")
    wire.produce("t", counted(0))
    assert wire.produce("t", counted(2)).error == 45
    assert wire.produce("t", counted(1)).error == 0
    assert wire.produce("t", counted(5, epoch=1)).error == 45
    assert wire.produce("t", counted(0, epoch=1)).error == 0
    assert wire.produce("t", counted(2, epoch=0)).error == 47


def test_sequences_wrap(wire: Wire) -> None:
    """G22: from 2^31-1 to 0; who is not known may begin anywhere."""
    wire.create("t")
    assert wire.produce("t", counted(2**31 - 2, 2)).error == 0
    assert wire.produce("t", counted(0)).base_offset == 2


def test_a_duplicate_waits_for_the_original(wire: Wire) -> None:
    """Sent twice in one breath: both answers say the same, and in order."""
    wire.create("t")
    body = produce_body(9, [("t", [(0, counted(0))])])
    asked = [wire.ask(ApiKey.PRODUCE, 9, body) for _ in range(2)]
    answers = [wire.answer() for _ in asked]
    assert [number for number, _ in answers] == asked
    assert [read_produced(9, body)["t", 0].base_offset for _, body in answers] == [0, 0]


@pytest.mark.parametrize("version", range(6))
def test_producer_ids(wire: Wire, version: int) -> None:
    """Pitfall 15, G23: fresh with epoch 0 for everybody; with a transactional id 53, for good."""

    def ask(**values: Any) -> Any:
        request = init_producer_id.InitProducerIdRequest(transaction_timeout_ms=1000, **values)
        return wire.request(init_producer_id, ApiKey.INIT_PRODUCER_ID, version, request)

    first, second = (ask(transactional_id=None) for _ in range(2))
    assert (first.error_code, first.producer_epoch) == (0, 0)
    assert first.producer_id != second.producer_id
    refused = ask(transactional_id="tx")
    assert (refused.error_code, refused.producer_id, refused.producer_epoch) == (53, -1, -1)


def test_producer_ids_are_never_given_twice(tmp_path: Path) -> None:
    """Not behind a restart either."""
    seen = []
    for _ in range(3):
        with Running(tmp_path / "d") as running, running.connect() as wire:
            for _ in range(3):
                request = init_producer_id.InitProducerIdRequest(
                    transactional_id=None, transaction_timeout_ms=1000
                )
                answer = wire.request(init_producer_id, ApiKey.INIT_PRODUCER_ID, 4, request)
                seen.append(answer.producer_id)
    assert len(set(seen)) == 9


def test_a_transactional_id_is_refused(wire: Wire) -> None:
    """53, which clients do not repeat."""
    wire.create("t")
    body = produce_body(9, [("t", [(0, make_batch([b"v"]))])], transactional_id="tx")
    answer = read_produced(9, wire.call(ApiKey.PRODUCE, 9, body))
    assert answer["t", 0].error == 53


# -- the disk is full ------------------------------------------------------------------------


def test_behind_a_batch_without_room_nothing_is_appended(tmp_path: Path) -> None:
    """56 for all that was under way behind it, although there is room again."""
    settings = {"ister.disk.limit.bytes": str(6 << 20)}
    with Running(tmp_path / "d", settings) as running, running.connect() as wire:
        wire.create("t", 2)
        large, small = make_batch([b"x" * 900_000]), make_batch([b"v"])
        offset = 0
        while (done := wire.produce("t", large)).error == 0:
            offset = done.base_offset + 1
        assert done.error == 56
        asked = [
            wire.ask(ApiKey.PRODUCE, 9, produce_body(9, [("t", [(0, batch)])]))
            for batch in (large, small, small)
        ]
        errors = [read_produced(9, wire.answer()[1])["t", 0].error for _ in asked]
        assert errors[0] == 56
        if errors[1] == 56:  # all three were in hand at once; else the answer had left before
            assert errors[2] == 56
        assert wire.produce("t", small).base_offset >= offset


def test_a_topic_that_is_deleted_meanwhile(running: Running) -> None:
    """By name 3, by id 100; never an offset."""
    with running.connect() as wire:
        topic_id = wire.create("t")
        wire.request(
            delete_topics,
            ApiKey.DELETE_TOPICS,
            5,
            delete_topics.DeleteTopicsRequest(topic_names=("t",), timeout_ms=30_000),
        )
        assert wire.produce("t", make_batch([b"v"])).error == 3
        assert wire.produce(topic_id, make_batch([b"v"]), version=13).error == 100
