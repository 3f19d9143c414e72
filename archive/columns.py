"""Record batches v2, many at a time, as columns of Arrow: decoded by vectors, not by a loop.

The bodies of a group of batches are laid one behind the other. One short loop steps from
record to record by their lengths; after that every field of all records is decoded at
once: a varint is a gather of bytes at an array of positions. Keys and values are not cut
out one by one either: positions turn the whole body into an Arrow array of gaps and
fields, and Arrow's `take` copies the fields out of it.

Everything that `ister.wal.records` checks is checked here too. When something does not
hold, that reader, which knows where and what, goes over the batches and raises; the two
never disagree about which batches are good. Why not a compiled reader:
docs/decisions/0020-arrow-decoding.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ister.wal.batch import HEADER_SIZE, BatchHeader, read_header
from ister.wal.compression import DECOMPRESSED_BYTES_MAX, decompress
from ister.wal.errors import CorruptBatch
from ister.wal.fs import Buffer
from ister.wal.records import RECORD_SIZE_MIN, records

GROUP_BYTES = 4 * 1024 * 1024  # of plain bodies in one Arrow batch, unless one alone is larger
_PAD = bytes(16)  # a gather at the very end finds zeros, which end every number
_MICROSECONDS_MS_MAX = (2**63 - 1) // 1000
_INT32_BITS, _INT64_BITS = 32, 64

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


class _Malformed(Exception):
    """Some batch of the group does not hold; which one, the careful reader says."""


class _Opened(NamedTuple):
    header: BatchHeader
    body: Buffer


def schema(headers: bool = False) -> pa.Schema:
    """The columns of Spark's Kafka source, all nullable as there."""
    fields = [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("timestampType", pa.int32()),
    ]
    if headers:
        fields.append(pa.field("headers", _HEADERS_TYPE))
    return pa.schema(fields)


_HEADERS_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def arrow_batches(
    batches: Sequence[Buffer], topic: str, partition: int, *, headers: bool = False
) -> Iterator[pa.RecordBatch]:
    """The records of whole, checksummed batches in order; CorruptBatch if one is nonsense."""
    group: list[_Opened] = []
    size = 0
    first = 0
    for index, batch in enumerate(batches):
        opened = _open(batch)
        if group and size + len(opened.body) > GROUP_BYTES:
            yield _decode(group, batches[first:index], topic, partition, headers)
            group, size, first = [], 0, index
        group.append(opened)
        size += len(opened.body)
    if group:
        yield _decode(group, batches[first:], topic, partition, headers)


def _open(batch: Buffer) -> _Opened:
    header = read_header(batch)
    if header.count <= 0 or header.last_offset_delta + 1 != header.count:
        raise CorruptBatch(
            f"{header.count} records with last offset delta {header.last_offset_delta}"
        )
    body: Buffer = memoryview(batch)[HEADER_SIZE:]
    if header.codec:
        body = decompress(header.codec, body, DECOMPRESSED_BYTES_MAX)
    if header.count > len(body) // RECORD_SIZE_MIN:
        raise CorruptBatch(f"{header.count} records cannot lie in {len(body)} bytes")
    return _Opened(header, body)


def _decode(
    group: list[_Opened], batches: Sequence[Buffer], topic: str, partition: int, headers: bool
) -> pa.RecordBatch:
    try:
        return _columns(group, topic, partition, headers)
    except (_Malformed, IndexError):
        for batch in batches:
            for record in records(batch):
                if abs(record.timestamp) > _MICROSECONDS_MS_MAX:
                    raise CorruptBatch(
                        f"timestamp {record.timestamp} of offset {record.offset} is beyond "
                        "what microseconds can say"
                    ) from None
        raise


def _columns(group: list[_Opened], topic: str, partition: int, headers: bool) -> pa.RecordBatch:
    body = b"".join([*(opened.body for opened in group), _PAD])
    begins = _begins(body, group)
    ends = np.append(begins[1:], len(body) - len(_PAD))
    data = np.frombuffer(body, np.uint8)
    length, start = _varint(data, begins, _INT32_BITS)
    _require(start + length == ends)
    _require(length >= RECORD_SIZE_MIN - 1)
    delta, position = _varint(data, start + 1, _INT64_BITS)
    index, position = _varint(data, position, _INT32_BITS)
    counts = [opened.header.count for opened in group]
    number = np.arange(len(begins)) - np.repeat(np.cumsum(counts) - counts, counts)
    _require(index == number)
    key_start, key_end, key_null = _field(data, position, ends)
    value_start, value_end, value_null = _field(data, key_end, ends)
    header_count, position = _varint(data, value_end, _INT32_BITS)
    _require((header_count >= 0) & (header_count <= ends - position))
    found = _headers(data, header_count, position, ends)
    timestamps, types = _timestamps(group, counts, delta)
    rows = len(begins)
    columns = [
        _binary(body, key_start, key_end, key_null),
        _binary(body, value_start, value_end, value_null),
        pa.repeat(pa.scalar(topic, pa.string()), rows),
        pa.repeat(pa.scalar(partition, pa.int32()), rows),
        pa.array(np.repeat([opened.header.base_offset for opened in group], counts) + number),
        pa.array(timestamps * 1000).cast(pa.timestamp("us", tz="UTC")),
        pa.array(types, pa.int32()),
    ]
    if headers:
        columns.append(_headers_column(body, header_count, found))
    return pa.RecordBatch.from_arrays(columns, schema=schema(headers))


def _begins(body: bytes, group: list[_Opened]) -> Ints:
    """Where each record begins, with the number that is its length: the one loop per record."""
    begins: list[int] = []
    append = begins.append
    position = 0
    batch_end = 0
    for opened in group:
        batch_end += len(opened.body)
        for _ in range(opened.header.count):
            append(position)
            number = body[position]
            position += 1
            if number & 1:
                raise _Malformed  # a negative length
            if number >= 0x80:
                number &= 0x7F
                shift = 7
                while (byte := body[position]) >= 0x80:
                    number |= (byte & 0x7F) << shift
                    shift += 7
                    position += 1
                number |= byte << shift
                position += 1
            position += number >> 1
        if position != batch_end:  # lengths are not negative: none can have gone beyond and back
            raise _Malformed
    return np.array(begins, np.int64)


def _varint(data: Bytes, position: Ints, bits: int) -> tuple[Ints, Ints]:
    """A zigzag varint at each position, and where the next field begins."""
    first = data[position]
    after = position + 1
    number = first.astype(np.uint64)
    longer = np.flatnonzero(first >= 0x80)
    if longer.size:
        number &= np.uint64(0x7F)
        shift = 7
        while longer.size:
            byte = data[after[longer]]
            after[longer] += 1
            if shift + 7 > _INT64_BITS:  # the tenth byte has room for one bit
                _require(byte <= 1)
            number[longer] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
            shift += 7
            if bits < _INT64_BITS:
                _require(number[longer] >> np.uint64(bits) == 0)
            if shift > bits + 7:
                raise _Malformed
            longer = longer[byte >= 0x80]
    value = (number >> np.uint64(1)).astype(np.int64) ^ -(number & np.uint64(1)).astype(np.int64)
    return value, after


def _field(data: Bytes, position: Ints, ends: Ints) -> tuple[Ints, Ints, npt.NDArray[np.bool_]]:
    """Where each field starts and ends, and which are null."""
    length, start = _varint(data, position, _INT32_BITS)
    null = length < 0
    if null.any():
        _require(length >= -1)
        length[null] = 0
    end = start + length
    _require(end <= ends)
    return start, end, null


def _timestamps(
    group: list[_Opened], counts: list[int], delta: Ints
) -> tuple[Ints, npt.NDArray[np.int32]]:
    """Milliseconds and timestamp type (0: CreateTime, 1: LogAppendTime) of each record."""
    base = np.repeat([opened.header.base_timestamp for opened in group], counts)
    stamps = base + delta
    _require(((base ^ stamps) & (delta ^ stamps)) >= 0)  # no overflow
    ours = [opened.header.is_log_append_time for opened in group]
    if any(ours):
        at = np.repeat([opened.header.max_timestamp for opened in group], counts)
        stamps = np.where(np.repeat(ours, counts), at, stamps)
    _require((stamps <= _MICROSECONDS_MS_MAX) & (stamps >= -_MICROSECONDS_MS_MAX))
    return stamps, np.repeat(np.array(ours, np.int32), counts)


class _Headers(NamedTuple):
    """Names and values of all headers, in the order of records and then of headers."""

    name_start: Ints
    name_end: Ints
    value_start: Ints
    value_end: Ints
    value_null: npt.NDArray[np.bool_]


def _headers(data: Bytes, counts: Ints, position: Ints, ends: Ints) -> _Headers | None:
    """Round after round the next header of each record that has one more; None: no headers."""
    rounds: list[tuple[Ints, _Headers]] = []
    position = position.copy()
    rows = np.flatnonzero(counts)
    done = 0
    while rows.size:
        name_start, name_end, name_null = _field(data, position[rows], ends[rows])
        _require(~name_null)
        value_start, value_end, value_null = _field(data, name_end, ends[rows])
        position[rows] = value_end
        rounds.append((rows, _Headers(name_start, name_end, value_start, value_end, value_null)))
        done += 1
        rows = rows[counts[rows] > done]
    _require(position == ends)
    if not rounds:
        return None
    order = np.argsort(np.concatenate([rows for rows, _ in rounds]), kind="stable")
    parts = zip(*(found for _, found in rounds), strict=True)
    return _Headers(*(np.concatenate(part)[order] for part in parts))


def _headers_column(body: bytes, counts: Ints, found: _Headers | None) -> pa.Array:
    if found is None:
        return pa.nulls(len(counts), _HEADERS_TYPE)
    never = np.zeros(len(found.name_start), np.bool_)
    names = _text(_binary(body, found.name_start, found.name_end, never))
    values = _binary(body, found.value_start, found.value_end, found.value_null)
    items = pa.StructArray.from_arrays([names, values], ["key", "value"])
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return pa.ListArray.from_arrays(
        pa.array(offsets), items, type=_HEADERS_TYPE, mask=pa.array(counts == 0)
    )


def _text(names: pa.Array) -> pa.Array:
    """Names of headers; what is no UTF-8 is replaced, as Kafka's own clients do."""
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([name.as_py().decode(errors="replace") for name in names], pa.string())


def _binary(body: bytes, starts: Ints, ends: Ints, null: npt.NDArray[np.bool_]) -> pa.Array:
    """The fields as a column: the body seen as gap, field, gap, field..., every second taken."""
    count = len(starts)
    if null.all():
        return pa.nulls(count, pa.binary())
    cuts = np.empty(2 * count + 1, np.int32)
    cuts[0] = 0
    cuts[1::2] = starts
    cuts[2::2] = ends
    pieces = pa.Array.from_buffers(
        pa.binary(), 2 * count, [None, pa.py_buffer(cuts), pa.py_buffer(body)]
    )
    second = np.arange(1, 2 * count, 2, dtype=np.int32)
    return pieces.take(pa.array(second, mask=null if null.any() else None))


def _require(holds: npt.NDArray[np.bool_]) -> None:
    if not holds.all():
        raise _Malformed
