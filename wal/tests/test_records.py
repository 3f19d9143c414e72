"""Records: round trips against make_batch and a foreign reader, look-ups by time, garbage."""

from __future__ import annotations

import contextlib
import random

import pytest
from aiokafka.record.default_records import (
    DefaultRecordBatch,
    DefaultRecordBatchBuilder,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from ister.wal.batch import LOG_APPEND_TIME, check, stamp
from ister.wal.errors import CorruptBatch, UnsupportedCodec
from ister.wal.records import (
    first_at_or_after,
    max_timestamp_record,
    null_keys,
    records,
)
from ister.wal.tests.batches import make_batch, make_record, seal, varint

Row = tuple[bytes | None, bytes | None, list[tuple[bytes, bytes | None]], int]

nullable = st.none() | st.binary(max_size=200)
header_lists = st.lists(st.tuples(st.binary(max_size=10), nullable), max_size=3)
rows = st.lists(
    st.tuples(nullable, nullable, header_lists, st.integers(0, 2**45)), min_size=1, max_size=12
)
BASE = 1_700_000_000_000


@given(rows=rows, codec=st.integers(0, 4), base_offset=st.integers(0, 2**60))
@settings(max_examples=80, deadline=None)
def test_every_record_comes_back(rows: list[Row], codec: int, base_offset: int) -> None:
    """Offset, timestamp, key, value and headers, in every codec, from any buffer."""
    keys, values, headers, times = zip(*rows, strict=True)
    batch = make_batch(
        values,
        keys=keys,
        headers=headers,
        timestamps=times,
        base_timestamp=BASE,
        codec=codec,
        base_offset=base_offset,
    )
    expected = [
        (base_offset + index, time, key, value, tuple(header_list))
        for index, (key, value, header_list, time) in enumerate(rows)
    ]
    assert list(records(batch)) == expected
    assert list(records(memoryview(bytearray(batch)))) == expected
    assert null_keys(batch) == [place for place, key in enumerate(keys) if key is None]


@given(rows=rows, codec=st.integers(0, 4), target=st.integers(0, 2**45))
@settings(max_examples=80, deadline=None)
def test_time_look_ups_compare_records(rows: list[Row], codec: int, target: int) -> None:
    """The first record at or after a time, and the first with the largest one."""
    times = [row[3] for row in rows]
    batch = make_batch([row[1] for row in rows], timestamps=times, codec=codec, base_offset=50)
    for wanted in (target, *times):
        found = [(50 + i, time) for i, time in enumerate(times) if time >= wanted]
        assert first_at_or_after(batch, wanted) == (found[0] if found else None)
    assert max_timestamp_record(batch) == (50 + times.index(max(times)), max(times))


def test_the_header_is_not_believed_about_time() -> None:
    """A client's max timestamp may be too small or too large: records decide."""
    body = make_record(0, 5, None, b"a") + make_record(1, 9, None, b"b")
    for claimed in (0, 7, 1000):
        batch = seal(body, 2, base_timestamp=0, max_timestamp=claimed)
        assert first_at_or_after(batch, 6) == (1, 9)
        assert first_at_or_after(batch, 10) is None
        assert max_timestamp_record(batch) == (1, 9)


@pytest.mark.parametrize("codec", range(5))
def test_log_append_time_holds_for_all_records(codec: int) -> None:
    """All records have the max timestamp, and look-ups do not open the body."""
    batch = make_batch([b"a", b"b", b"c"], timestamps=[1, 99, 3], base_timestamp=1, codec=codec)
    stamped = stamp(batch, 10, 0, 50)
    assert [(r.offset, r.timestamp) for r in records(stamped)] == [(10, 50), (11, 50), (12, 50)]
    assert first_at_or_after(stamped, 50) == (10, 50)
    assert first_at_or_after(stamped, 51) is None
    assert max_timestamp_record(stamped) == (10, 50)
    nonsense = seal(b"nonsense", 1, attributes=LOG_APPEND_TIME, max_timestamp=7)
    assert first_at_or_after(nonsense, 7) == (0, 7)


def test_a_batch_without_timestamps_has_minus_one() -> None:
    """Old clients send -1: it stays -1."""
    batch = make_batch([b"a", b"b"], base_timestamp=-1)
    assert [record.timestamp for record in records(batch)] == [-1, -1]


def test_records_are_decoded_as_they_are_asked_for() -> None:
    """What is broken behind the record that was asked for does not matter yet."""
    body = make_record(0, 0, None, b"good") + b"\x0e" + b"\xff" * 7
    iterator = records(seal(body, 2))
    assert next(iterator).value == b"good"
    with pytest.raises(CorruptBatch):
        next(iterator)


GOOD = make_record(0, 0, b"k", b"v", [(b"h", b"x")])


@pytest.mark.parametrize(
    ("body", "count"),
    [
        (b"", 1),
        (GOOD, 2),
        (GOOD + b"\0", 1),
        (GOOD + GOOD, 2),  # offset delta 0 twice
        (GOOD, 2**31 - 1),
        (make_record(1, 0, None, None), 1),
        (make_record(-1, 0, None, None), 1),
        (make_record(0, 2**62, None, None) + make_record(1, 0, None, None)[:-1], 2),
        (varint(-1) + bytes(10), 1),
        (varint(2**31 - 1) + bytes(10), 1),
        (varint(6) + b"\0\0\0" + varint(-2) + b"\1\0", 1),  # key length -2
        (varint(6) + b"\0\0\0\x7e\1\0", 1),  # key longer than the record
        (varint(6) + b"\0\0\0\1\1" + varint(-1), 1),  # header count -1
        (varint(6) + b"\0\0\0\1\1" + varint(63), 1),  # headers that are not there
        (varint(8) + b"\0\0\0\1\1" + varint(1) + varint(-1) + b"\1", 1),  # header without a name
        (varint(7) + b"\0\0\0\1\1\0\0", 1),  # a byte behind the headers
        (b"\xff" * 11, 1),  # varint without an end
        (b"\xff\xff\xff\xff\x1f" + bytes(9), 1),  # 33 bits
        (b"\x80\x80\x80\x80\x80\x00" + bytes(9), 1),  # six bytes for zero
        (varint(15) + b"\0" + b"\xff" * 10 + b"\0\1\1\0", 1),  # timestamp of 70 bits
    ],
)
def test_a_broken_body_is_corrupt(body: bytes, count: int) -> None:
    """Every length and number is checked, also by readers that skip keys and values."""
    with pytest.raises(CorruptBatch):
        list(records(seal(body, count)))


def test_a_timestamp_beyond_64_bits_is_corrupt() -> None:
    """Base and delta are each in range, their sum is not."""
    batch = seal(make_record(0, 2**62, None, None), 1, base_timestamp=2**62)
    with pytest.raises(CorruptBatch, match="64 bits"):
        max_timestamp_record(batch)


def test_what_is_not_exactly_one_batch_is_corrupt() -> None:
    """Cut, doubled, or with counts that contradict each other."""
    batch = make_batch([b"a"])
    for bad in (b"", batch[:-1], batch + batch, seal(b"", 0), batch[:16] + b"\1" + batch[17:]):
        with pytest.raises(CorruptBatch):
            list(records(bad))


def _try_all(batch: bytes) -> None:
    for read in (
        lambda: list(records(batch, 100_000)),
        lambda: first_at_or_after(batch, 5, 100_000),
        lambda: max_timestamp_record(batch, 100_000),
        lambda: null_keys(batch, 100_000),
    ):
        with contextlib.suppress(CorruptBatch, UnsupportedCodec):
            read()


@given(body=st.binary(max_size=200), count=st.integers(-1, 20), attributes=st.integers(0, 63))
@settings(max_examples=300, deadline=None)
def test_arbitrary_bodies_raise_nothing_else(body: bytes, count: int, attributes: int) -> None:
    """A right header before garbage: records or one of two errors."""
    plain = seal(body, count, attributes=attributes & ~7)
    _try_all(plain)
    _try_all(plain[:22] + bytes([attributes]) + plain[23:])  # says compressed, is not
    if attributes & 7 <= 4:
        _try_all(seal(body, count, attributes=attributes))


@given(data=st.binary(max_size=150))
@settings(max_examples=200)
def test_arbitrary_bytes_raise_nothing_else(data: bytes) -> None:
    """Not even the header need be one."""
    _try_all(data)


@pytest.mark.parametrize("codec", range(5))
def test_changed_bytes_raise_nothing_else(codec: int) -> None:
    """Every single byte of a valid batch changed to a few other values."""
    generator = random.Random(codec)
    batch = make_batch(
        [b"value", None] * 3, keys=[b"key", None] * 3, headers=[[(b"h", b"x")]] * 6, codec=codec
    )
    for position in range(len(batch)):
        for value in (0, 0x7F, 0x80, 0xFF, generator.randrange(256)):
            _try_all(batch[:position] + bytes([value]) + batch[position + 1 :])


@pytest.mark.parametrize("codec", range(5))
def test_another_implementation_agrees(codec: int) -> None:
    """aiokafka's writer is read here, our test batches are read by aiokafka."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=5,
        producer_epoch=1,
        base_sequence=7,
        batch_size=1 << 20,
    )
    rows = [(BASE + i, b"k%d" % i, b"v" * i, [("name", b"x" * i)]) for i in range(300)]
    for index, (time, key, value, headers) in enumerate(rows):
        builder.append(index, time, key, value, headers)
    theirs = bytes(builder.build())
    header = check(theirs, len(theirs))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 1, 7)
    assert [(r.timestamp, r.key, r.value) for r in records(theirs)] == [row[:3] for row in rows]
    assert next(iter(records(theirs))).headers == ((b"name", b""),)
    ours = make_batch([b"v1", b"v2"], keys=[b"k", None], timestamps=[BASE, BASE + 9], codec=codec)
    reader = DefaultRecordBatch(bytearray(ours))
    assert reader.validate_crc()
    assert [(r.offset, r.timestamp, r.key, r.value) for r in reader] == [
        (0, BASE, b"k", b"v1"),
        (1, BASE + 9, None, b"v2"),
    ]
