"""Batches: what is taken, what is refused and why, and the stamp."""

from __future__ import annotations

import contextlib
import struct

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from ister.wal.batch import (
    CONTROL,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    BatchHeader,
    check,
    crc_holds,
    read_header,
    stamp,
    walk,
)
from ister.wal.errors import (
    BatchTooLarge,
    CorruptBatch,
    InvalidBatch,
    InvalidTimestamp,
    LogError,
    UnsupportedCodec,
)
from ister.wal.fs import Buffer
from ister.wal.tests.batches import make_batch, seal

SIZE_MAX = 1_000_000


def changed(data: bytes, form: str, position: int, value: int, *, crc: bool = True) -> bytes:
    """The batch with one field replaced, its checksum made right again unless told not to."""
    out = bytearray(data)
    struct.pack_into(form, out, position, value)
    if crc:
        struct.pack_into(">I", out, 17, crc32c(bytes(out[21:])))
    return bytes(out)


@given(
    values=st.lists(st.binary(max_size=50), min_size=1, max_size=20),
    codec=st.integers(0, 4),
    producer=st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 32767), st.integers(0, 2**31 - 1)),
)
@settings(max_examples=60, deadline=None)
def test_a_good_batch_gives_its_header(
    values: list[bytes], codec: int, producer: tuple[int, int, int]
) -> None:
    """Every field stands in the header, whatever kind of buffer holds the batch."""
    data = make_batch(
        values,
        codec=codec,
        base_timestamp=5,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
    )
    header = check(data, len(data))
    assert header == check(bytearray(data), len(data)) == check(memoryview(data), len(data))
    assert (header.size, header.count, header.codec) == (len(data), len(values), codec)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == producer
    assert header.next_offset == header.last_offset + 1 == len(values)
    assert header.max_timestamp == 5
    assert not header.is_log_append_time


GOOD = make_batch([b"a", b"b"])


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        (b"", InvalidBatch, "empty"),
        (GOOD[:60], CorruptBatch, "less than a batch header"),
        (GOOD[:16], CorruptBatch, "less than a batch header"),
        (GOOD[:-1], CorruptBatch, "says"),
        (GOOD + b"\0", InvalidBatch, "exactly one"),
        (GOOD + GOOD, InvalidBatch, "exactly one"),
        (changed(GOOD, ">i", 8, -1), CorruptBatch, "says"),
        (changed(GOOD, ">i", 8, 2**31 - 1), CorruptBatch, "says"),
        (changed(GOOD, ">i", 8, 48), CorruptBatch, "says"),
        (changed(GOOD, ">b", 16, 0), InvalidBatch, "magic 0"),
        (changed(GOOD, ">b", 16, 1), InvalidBatch, "magic 1"),
        (changed(GOOD, ">b", 16, 1)[:30], InvalidBatch, "magic 1"),
        (changed(GOOD, ">b", 16, 3), CorruptBatch, "magic 3"),
        (changed(GOOD, ">b", len(GOOD) - 1, 1, crc=False), CorruptBatch, "checksum"),
        (changed(GOOD, ">i", 57, 0), InvalidBatch, "count"),
        (changed(GOOD, ">i", 57, -2), InvalidBatch, "count"),
        (changed(GOOD, ">i", 57, 3), InvalidBatch, "last offset delta"),
        (changed(GOOD, ">i", 23, -1), InvalidBatch, "last offset delta"),
        (changed(GOOD, ">h", 21, CONTROL), InvalidBatch, "control"),
        (changed(GOOD, ">h", 21, CONTROL | TRANSACTIONAL), InvalidBatch, "control"),
        (changed(GOOD, ">h", 21, TRANSACTIONAL), InvalidBatch, "transactions"),
        (changed(GOOD, ">h", 21, LOG_APPEND_TIME), InvalidTimestamp, "LogAppendTime"),
        (changed(GOOD, ">h", 21, 5), UnsupportedCodec, "codec 5"),
        (changed(GOOD, ">h", 21, 7), UnsupportedCodec, "codec 7"),
        (changed(GOOD, ">q", 43, 9), InvalidBatch, "producer 9"),
        (make_batch([b"a"], producer_id=9, producer_epoch=0), InvalidBatch, "sequence -1"),
        (make_batch([b"a"], producer_id=9, base_sequence=0), InvalidBatch, "epoch -1"),
        (seal(b"", 0), InvalidBatch, "count"),
    ],
)
def test_a_bad_batch_is_refused_in_words(data: bytes, error: type[LogError], words: str) -> None:
    """Each rule has its error class and says what was wrong."""
    with pytest.raises(error, match=words) as caught:
        check(data, SIZE_MAX)
    assert caught.type is error


def test_the_size_limit_counts_the_whole_batch() -> None:
    """At the limit it is taken, one above it is not, before anything is read."""
    check(GOOD, len(GOOD))
    with pytest.raises(BatchTooLarge) as caught:
        check(GOOD, len(GOOD) - 1)
    assert (caught.value.size, caught.value.limit) == (len(GOOD), len(GOOD) - 1)
    with pytest.raises(BatchTooLarge):
        check(bytes(100), 99)


@given(data=st.binary(max_size=200))
@settings(max_examples=300)
def test_arbitrary_bytes_raise_only_errors_of_the_log(data: bytes) -> None:
    """No struct.error, no IndexError."""
    with contextlib.suppress(LogError):
        check(data, SIZE_MAX)
    with contextlib.suppress(CorruptBatch):
        list(walk(data))
    crc_holds(data)


def test_every_flipped_byte_under_the_checksum_is_corrupt() -> None:
    """Behind the checksum field no byte may change unnoticed."""
    for position in range(17, len(GOOD)):
        bad = bytearray(GOOD)
        bad[position] ^= 0x40
        with pytest.raises(CorruptBatch, match="checksum"):
            check(bad, SIZE_MAX)
        assert not crc_holds(bad)


@given(offset=st.integers(0, 2**63 - 1), epoch=st.integers(0, 2**31 - 1))
def test_a_stamp_touches_base_offset_and_epoch_alone(offset: int, epoch: int) -> None:
    """The checksum still holds; writable buffers are stamped in place, others copied."""
    kinds: list[Buffer] = [bytearray(GOOD), memoryview(bytearray(GOOD)), GOOD, memoryview(GOOD)]
    for data in kinds:
        out = stamp(data, offset, epoch, None)
        header = read_header(out)
        assert (header.base_offset, header.leader_epoch) == (offset, epoch)
        assert bytes(out[16:]) == GOOD[16:]
        assert bytes(out[8:12]) == GOOD[8:12]
        assert crc_holds(out)
        writable = isinstance(data, bytearray) or not memoryview(data).readonly
        assert (out is data) == writable
    assert read_header(GOOD).base_offset == 0


@given(time_ms=st.integers(0, 2**62))
def test_an_append_time_is_stamped_under_a_new_checksum(time_ms: int) -> None:
    """LogAppendTime: attribute bit, max timestamp, crc; base timestamp and body stay."""
    for data in (bytearray(GOOD), GOOD, memoryview(bytearray(GOOD)), memoryview(GOOD)):
        out = stamp(data, 7, 2, time_ms)
        header = read_header(out)
        before = read_header(GOOD)
        assert crc_holds(out)
        assert header == before._replace(
            base_offset=7,
            leader_epoch=2,
            crc=header.crc,
            attributes=LOG_APPEND_TIME,
            max_timestamp=time_ms,
        )
        assert header.is_log_append_time
        assert bytes(out[HEADER_SIZE:]) == GOOD[HEADER_SIZE:]
    assert crc_holds(GOOD)


def test_a_view_into_a_larger_frame_is_stamped_there() -> None:
    """The batch of a request frame is a view: nothing around it changes."""
    frame = bytearray(b"head" + GOOD + b"tail")
    view = memoryview(frame)[4:-4]
    assert stamp(view, 99, 1, 5) is view
    assert frame.startswith(b"head")
    assert frame.endswith(b"tail")
    assert read_header(frame, 4).base_offset == 99


@given(sizes=st.lists(st.integers(0, 60), max_size=8))
def test_walk_names_every_batch(sizes: list[int]) -> None:
    """Positions and sizes cover the buffer; a cut anywhere inside a batch is found."""
    batches = [make_batch([bytes(size)], base_offset=index) for index, size in enumerate(sizes)]
    joined = b"".join(batches)
    seen = list(walk(joined))
    assert [joined[position : position + size] for position, size, _ in seen] == batches
    assert [header.base_offset for _, _, header in seen] == list(range(len(sizes)))
    assert all(isinstance(header, BatchHeader) for _, _, header in seen)
    if joined:
        with pytest.raises(CorruptBatch):
            list(walk(joined[:-1]))


def test_walk_refuses_what_is_no_batch() -> None:
    """A length below the header or another magic ends the walk with an error, never a loop."""
    for bad in (changed(GOOD, ">i", 8, -12), changed(GOOD, ">i", 8, 0), changed(GOOD, ">b", 16, 1)):
        with pytest.raises(CorruptBatch):
            list(walk(GOOD + bad))
    with pytest.raises(CorruptBatch):
        read_header(GOOD, -1)
