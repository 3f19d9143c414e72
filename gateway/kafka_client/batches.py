"""Record batches v2 from records: what a producer sends."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from crc32c import crc32c

_HEAD = struct.Struct(">qiibI")
_REST = struct.Struct(">hiqqqhii")
_LENGTH_FROM = 12  # bytes of offset and length, which the length does not count
_NO_PRODUCER = (-1, -1, -1)


class NewRecord(NamedTuple):
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: tuple[tuple[bytes, bytes | None], ...] = ()


def encode(records: Sequence[NewRecord]) -> bytes:
    """One batch, not compressed, without a producer id."""
    assert records
    base = records[0].timestamp_ms
    body = b"".join(_record(number, each, base) for number, each in enumerate(records))
    highest = max(each.timestamp_ms for each in records)
    rest = _REST.pack(0, len(records) - 1, base, highest, *_NO_PRODUCER, len(records)) + body
    length = _HEAD.size - _LENGTH_FROM + len(rest)
    return _HEAD.pack(0, length, -1, 2, crc32c(rest)) + rest


def size_of(record: NewRecord) -> int:
    """About how many bytes a record takes; never less than it does."""
    headers = sum(len(name) + len(value or b"") + 10 for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers + 40


def _record(number: int, record: NewRecord, base_ms: int) -> bytes:
    parts = [
        b"\0",
        _varint(record.timestamp_ms - base_ms),
        _varint(number),
        _field(record.key),
        _field(record.value),
        _varint(len(record.headers)),
    ]
    for name, value in record.headers:
        parts += [_field(name), _field(value)]
    content = b"".join(parts)
    return _varint(len(content)) + content


def _field(value: bytes | None) -> bytes:
    return _varint(-1) if value is None else _varint(len(value)) + value


def _varint(value: int) -> bytes:
    number = (value << 1) ^ (value >> 63)
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
