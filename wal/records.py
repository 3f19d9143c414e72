"""The records inside a batch, read one by one, with every length checked before it is used.

    record: length varint, attributes 1 byte, timestamp delta varlong, offset delta varint,
            key length varint, key, value length varint, value, header count varint,
            (name length, name, value length, value) per header; length -1 is null

Varints are zigzag. The body is decompressed whole (bounded, see `compression.py`), its
records are decoded as they are asked for. Whatever the bytes are, the only errors are
CorruptBatch and UnsupportedCodec: clients fill bodies and `batch.check` does not open
them, so a stored batch with a right checksum may still hold nonsense.

Look-ups by time compare records: the max timestamp in the header is what a client
claimed. In a LogAppendTime batch all records have it, and it is ours. Pure Python, about
1-4 us a record: for look-ups and tools, off the event loop. The checksum is the caller's.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from ister.wal.batch import HEADER_SIZE, BatchHeader, read_header
from ister.wal.compression import DECOMPRESSED_BYTES_MAX, decompress
from ister.wal.errors import CorruptBatch
from ister.wal.fs import Buffer

NULL_KEYS_MAX = 1000
RECORD_SIZE_MIN = 7  # seven fields of at least one byte

_INT32_BITS = 32
_INT64_BITS = 64
_INT64_MAX = 2**63 - 1
_INT64_MIN = -(2**63)


class Record(NamedTuple):
    """One record; header values may be null, names may not."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...]


class _Outline(NamedTuple):
    """A record of which only the fixed part is decoded: its key begins at `position`."""

    offset: int
    timestamp: int
    position: int
    end: int


def records(batch: Buffer, limit: int = DECOMPRESSED_BYTES_MAX) -> Iterator[Record]:
    """Every record of one batch in order; CorruptBatch at the first one that is not right."""
    header, body = _open(batch, limit)
    for outline in _outlines(header, body):
        yield _finish(body, outline)


def first_at_or_after(
    batch: Buffer, timestamp: int, limit: int = DECOMPRESSED_BYTES_MAX
) -> tuple[int, int] | None:
    """(offset, timestamp) of the first record that is not older than `timestamp`."""
    header = _whole_header(batch)
    if header.is_log_append_time:
        if header.max_timestamp < timestamp:
            return None
        return header.base_offset, header.max_timestamp
    header, body = _open(batch, limit)
    for outline in _outlines(header, body):
        if outline.timestamp >= timestamp:
            return outline.offset, outline.timestamp
    return None


def max_timestamp_record(batch: Buffer, limit: int = DECOMPRESSED_BYTES_MAX) -> tuple[int, int]:
    """(offset, timestamp) of the first record with the largest timestamp in the batch."""
    header = _whole_header(batch)
    if header.is_log_append_time:
        return header.base_offset, header.max_timestamp
    header, body = _open(batch, limit)
    # max() keeps the first of equals, as Kafka does
    newest = max(_outlines(header, body), key=lambda outline: outline.timestamp)
    return newest.offset, newest.timestamp


def null_keys(batch: Buffer, limit: int = DECOMPRESSED_BYTES_MAX) -> list[int]:
    """Which records, counted from 0, have no key: a compacted topic takes no such batch.

    The first `NULL_KEYS_MAX`: a small batch may hold millions, and each is told to the client."""
    header, body = _open(batch, limit)
    found = (
        number
        for number, item in enumerate(_outlines(header, body))
        if _field(body, item.position, item.end)[0] is None
    )
    return list(islice(found, NULL_KEYS_MAX))


def _whole_header(batch: Buffer) -> BatchHeader:
    header = read_header(batch)
    if header.size != len(batch):
        raise CorruptBatch(f"{len(batch) - header.size} bytes behind the batch")
    if header.count <= 0 or header.last_offset_delta + 1 != header.count:
        raise CorruptBatch(
            f"{header.count} records with last offset delta {header.last_offset_delta}"
        )
    return header


def _open(batch: Buffer, limit: int) -> tuple[BatchHeader, bytes]:
    """The header and the plain body."""
    header = _whole_header(batch)
    body = decompress(header.codec, memoryview(batch)[HEADER_SIZE:], limit)
    if header.count > len(body) // RECORD_SIZE_MIN:
        raise CorruptBatch(f"{header.count} records cannot lie in {len(body)} bytes")
    return header, body


def _outlines(header: BatchHeader, body: bytes) -> Iterator[_Outline]:
    """Walk the records by their lengths; offsets are dense and nothing is left at the end."""
    base_offset = header.base_offset
    base_timestamp = header.base_timestamp
    fixed_timestamp = header.max_timestamp if header.is_log_append_time else None
    position = 0
    size = len(body)
    for index in range(header.count):
        length, position = _varint(body, position, size, _INT32_BITS)
        end = position + length
        if length < RECORD_SIZE_MIN - 1 or end > size:
            raise CorruptBatch(f"record {index} of {length} bytes at {position} of {size}")
        delta, position = _varint(body, position + 1, end, _INT64_BITS)
        offset_delta, position = _varint(body, position, end, _INT32_BITS)
        if offset_delta != index:
            raise CorruptBatch(f"record {index} has offset delta {offset_delta}")
        timestamp = base_timestamp + delta if fixed_timestamp is None else fixed_timestamp
        if not _INT64_MIN <= timestamp <= _INT64_MAX:
            raise CorruptBatch(f"record {index} has a timestamp beyond 64 bits")
        yield _Outline(base_offset + index, timestamp, position, end)
        position = end
    if position != size:
        raise CorruptBatch(f"{size - position} bytes behind the last record")


def _finish(body: bytes, outline: _Outline) -> Record:
    """Key, value and headers; they end exactly where the record does."""
    end = outline.end
    key, position = _field(body, outline.position, end)
    value, position = _field(body, position, end)
    count, position = _varint(body, position, end, _INT32_BITS)
    if count < 0 or count > end - position:
        raise CorruptBatch(f"{count} headers in {end - position} bytes")
    headers = []
    for _ in range(count):
        name, position = _field(body, position, end)
        if name is None:
            raise CorruptBatch("a header without a name")
        content, position = _field(body, position, end)
        headers.append((name, content))
    if position != end:
        raise CorruptBatch(f"{end - position} bytes behind the fields of a record")
    return Record(outline.offset, outline.timestamp, key, value, tuple(headers))


def _field(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    """Bytes with their length in front, or null."""
    length, position = _varint(data, position, end, _INT32_BITS)
    if length < 0:
        if length != -1:
            raise CorruptBatch(f"length {length} at {position}")
        return None, position
    if length > end - position:
        raise CorruptBatch(f"{length} bytes at {position}, {end - position} are there")
    return data[position : position + length], position + length


def _varint(data: bytes, position: int, end: int, bits: int) -> tuple[int, int]:
    """A zigzag varint of at most `bits` bits, inside `end`."""
    if position >= end:
        raise CorruptBatch(f"the record ends at {end}, in a number")
    byte = data[position]
    position += 1
    if byte < 0x80:  # nearly always
        return (byte >> 1) ^ -(byte & 1), position
    number = byte & 0x7F
    shift = 7
    while byte >= 0x80:
        if position >= end:
            raise CorruptBatch(f"the record ends at {end}, in a number")
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if number >> bits or shift > bits + 7:
            raise CorruptBatch(f"number of more than {bits} bits at {position}")
    return (number >> 1) ^ -(number & 1), position
