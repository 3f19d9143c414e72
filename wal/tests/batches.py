"""Valid record batches v2 for tests, in pure Python."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from crc32c import crc32c

from ister.wal.compression import compress

_HEAD = struct.Struct(">qiibI")
_REST = struct.Struct(">hiqqqhii")

Headers = Sequence[tuple[bytes, bytes | None]]


def varint(value: int) -> bytes:
    """Zigzag varint, as records have it."""
    number = (value << 1) ^ (value >> 63)
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def make_record(
    offset_delta: int,
    timestamp_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Headers = (),
) -> bytes:
    """One record with its length in front."""
    parts = [b"\0", varint(timestamp_delta), varint(offset_delta), _field(key), _field(value)]
    parts.append(varint(len(headers)))
    for name, content in headers:
        parts += [_field(name), _field(content)]
    body = b"".join(parts)
    return varint(len(body)) + body


def make_batch(
    values: Sequence[bytes | None],
    *,
    base_timestamp: int = 1_700_000_000_000,
    codec: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    keys: Sequence[bytes | None] | None = None,
    headers: Sequence[Headers] | None = None,
    timestamps: Sequence[int] | None = None,
    base_offset: int = 0,
    leader_epoch: int = -1,
    attributes: int = 0,
) -> bytes:
    """One batch; without `timestamps` all have `base_timestamp`; `headers` are per record."""
    count = len(values)
    times = timestamps or [base_timestamp] * count
    body = b"".join(
        make_record(
            index,
            times[index] - base_timestamp,
            keys[index] if keys else None,
            value,
            headers[index] if headers else (),
        )
        for index, value in enumerate(values)
    )
    return seal(
        body,
        count,
        attributes=attributes | codec,
        base_timestamp=base_timestamp,
        max_timestamp=max(times, default=base_timestamp),
        producer=(producer_id, producer_epoch, base_sequence),
        base_offset=base_offset,
        leader_epoch=leader_epoch,
    )


def seal(
    body: bytes,
    count: int,
    *,
    attributes: int = 0,
    base_timestamp: int = 0,
    max_timestamp: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytes:
    """Put a header with a right checksum before any body (compressed here if attributes say so)."""
    if attributes & 7:
        body = compress(attributes & 7, body)
    rest = _REST.pack(attributes, count - 1, base_timestamp, max_timestamp, *producer, count) + body
    return _HEAD.pack(base_offset, len(rest) + 9, leader_epoch, 2, crc32c(rest)) + rest


def _field(content: bytes | None) -> bytes:
    return varint(-1) if content is None else varint(len(content)) + content
