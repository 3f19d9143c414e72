"""A Kafka record batch v2: its header, whether we take it, and the stamp that makes it ours.

    position  size  field                  position  size  field
           0     8  base offset      *           27     8  base timestamp
           8     4  length (from 12)             35     8  max timestamp     +
          12     4  leader epoch     *           43     8  producer id
          16     1  magic (2)                    51     2  producer epoch
          17     4  crc32c from 21   +           53     4  base sequence
          21     2  attributes       +           57     4  count of records
          23     4  last offset delta            61        records (may be compressed)

`stamp` writes what is marked: `*` lies outside the checksum and costs nothing, `+` only
for LogAppendTime. The body is never opened here and never encoded again: `records.py`
reads it. Attributes: bits 0-2 codec, 3 LogAppendTime, 4 transactional, 5 control.

`check` and `stamp` run for every batch that arrives. `check` is one unpack, one checksum
and one comparison for the good case; what exactly is wrong is found out by `_refuse`,
which may take its time. Nothing is trusted behind the header: the count is what the
header says, and `CreateTime` bounds are settings of the topic, so the caller's.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple, NoReturn

from crc32c import crc32c

from ister.wal.errors import (
    BatchTooLarge,
    CorruptBatch,
    InvalidBatch,
    InvalidTimestamp,
    UnsupportedCodec,
)
from ister.wal.fs import Buffer

HEADER_SIZE = 61
LENGTH_END = 12  # the length field counts from here
MAGIC = 2

CODEC_MASK = 0x07
CODEC_MAX = 4  # none, gzip, snappy, lz4, zstd
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20

_MAGIC_AT = 16
_CRC_AT = 17
_CRC_FROM = 21
_MAX_TIMESTAMP_AT = 35
_NOT_FROM_CLIENTS = LOG_APPEND_TIME | TRANSACTIONAL | CONTROL

_HEADER = struct.Struct(">qiibIhiqqqhii")
_unpack_header = _HEADER.unpack_from
_PREFIX = struct.Struct(">qii")
_pack_prefix = _PREFIX.pack
_pack_prefix_into = _PREFIX.pack_into
_INT16 = struct.Struct(">h")
_INT64 = struct.Struct(">q")
_UINT32 = struct.Struct(">I")
_new = tuple.__new__


class BatchHeader(NamedTuple):
    """The 61 bytes, as they stand there."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody needs

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.length + LENGTH_END

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME)


def check(data: Buffer, size_max: int) -> BatchHeader:
    """The header of what a client sent, or the error that says why we do not take it."""
    size = len(data)
    if size < HEADER_SIZE or size > size_max:
        _refuse_size(data, size_max)
    header = _new(BatchHeader, _unpack_header(data))
    (
        _,
        length,
        _,
        magic,
        crc,
        attributes,
        last_delta,
        _,
        _,
        producer_id,
        epoch,
        sequence,
        count,
    ) = header
    if (
        length != size - LENGTH_END
        or magic != MAGIC
        or crc32c(memoryview(data)[_CRC_FROM:]) != crc
        or count <= 0
        or last_delta != count - 1
        or attributes & _NOT_FROM_CLIENTS
        or attributes & CODEC_MASK > CODEC_MAX
        or (producer_id >= 0 and (sequence < 0 or epoch < 0))
    ):
        _refuse(data, header)
    return header


def stamp(data: Buffer, base_offset: int, leader_epoch: int, append_time_ms: int | None) -> Buffer:
    """Give a checked batch its place: in a writable buffer in place, otherwise as new bytes.

    With an append time the batch becomes LogAppendTime: attributes, max timestamp and crc.
    """
    if append_time_ms is not None:
        return _stamp_time(data, base_offset, leader_epoch, append_time_ms)
    length = len(data) - LENGTH_END
    if type(data) is bytes or (type(data) is memoryview and data.readonly):
        return _pack_prefix(base_offset, length, leader_epoch) + data[_MAGIC_AT:]
    _pack_prefix_into(data, 0, base_offset, length, leader_epoch)
    return data


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header of a stored batch at `position`, once it is seen to lie whole in the buffer."""
    if position < 0 or len(buffer) - position < HEADER_SIZE:
        raise CorruptBatch(f"no whole batch header at {position} of {len(buffer)} bytes")
    header = _new(BatchHeader, _unpack_header(buffer, position))
    size = header.length + LENGTH_END
    if size < HEADER_SIZE or size > len(buffer) - position:
        raise CorruptBatch(
            f"batch at {position} says {size} bytes, {len(buffer) - position} are there"
        )
    if header.magic != MAGIC:
        raise CorruptBatch(f"batch at {position} has magic {header.magic}, not {MAGIC}")
    return header


def walk(buffer: Buffer) -> Iterator[tuple[int, int, BatchHeader]]:
    """(position, size, header) of concatenated batches; CorruptBatch where one is not whole.

    Checksums are not computed: who doubts the bytes asks `crc_holds`.
    """
    position = 0
    end = len(buffer)
    while position < end:
        header = read_header(buffer, position)
        size = header.length + LENGTH_END
        yield position, size, header
        position += size


def crc_holds(batch: Buffer) -> bool:
    """Whether the checksum of exactly one batch matches its bytes."""
    if len(batch) < HEADER_SIZE:
        return False
    view = memoryview(batch)
    return bool(crc32c(view[_CRC_FROM:]) == _UINT32.unpack_from(view, _CRC_AT)[0])


def _stamp_time(data: Buffer, base_offset: int, leader_epoch: int, append_time_ms: int) -> Buffer:
    """The stamp that reaches under the checksum."""
    as_bytes = type(data) is bytes or (type(data) is memoryview and data.readonly)
    target: Buffer = bytearray(data) if as_bytes else data
    _pack_prefix_into(target, 0, base_offset, len(target) - LENGTH_END, leader_epoch)
    attributes = _INT16.unpack_from(target, _CRC_FROM)[0] | LOG_APPEND_TIME
    _INT16.pack_into(target, _CRC_FROM, attributes)
    _INT64.pack_into(target, _MAX_TIMESTAMP_AT, append_time_ms)
    _UINT32.pack_into(target, _CRC_AT, crc32c(memoryview(target)[_CRC_FROM:]))
    return bytes(target) if as_bytes else target


def _refuse_size(data: Buffer, size_max: int) -> NoReturn:
    """Too small to be a batch, or larger than the topic allows."""
    size = len(data)
    if size > size_max:
        raise BatchTooLarge(size, size_max)
    if size == 0:
        raise InvalidBatch("no batch: the records are empty")
    if size > _MAGIC_AT:
        _refuse_magic(data[_MAGIC_AT])
    raise CorruptBatch(f"{size} bytes are less than a batch header of {HEADER_SIZE}")


def _refuse_magic(magic: int) -> None:
    if magic in (0, 1):
        raise InvalidBatch(
            f"message format v{magic} (magic {magic}) is not taken: send record batches v2"
        )


def _refuse(data: Buffer, header: BatchHeader) -> NoReturn:
    """Say which of the conditions of `check` does not hold; damage before meaning."""
    size = len(data)
    _refuse_magic(header.magic)
    if header.magic != MAGIC:
        raise CorruptBatch(f"magic {header.magic} is not known")
    if header.size > size or header.size < HEADER_SIZE:
        raise CorruptBatch(f"batch says {header.size} bytes, {size} are there")
    if header.size < size:
        raise InvalidBatch(f"{size - header.size} bytes behind the batch: send exactly one")
    if not crc_holds(data):
        raise CorruptBatch("checksum of the batch does not match its bytes")
    if header.count <= 0:
        raise InvalidBatch(f"count of records is {header.count}")
    if header.last_offset_delta + 1 != header.count:
        raise InvalidBatch(
            f"last offset delta {header.last_offset_delta} with {header.count} records"
        )
    if header.attributes & CONTROL:
        raise InvalidBatch("a client may not write control batches")
    if header.attributes & TRANSACTIONAL:
        raise InvalidBatch("transactions are not supported")
    if header.attributes & LOG_APPEND_TIME:
        raise InvalidTimestamp("a client may not set the timestamp type to LogAppendTime")
    if header.codec > CODEC_MAX:
        raise UnsupportedCodec(f"codec {header.codec} is not known")
    raise InvalidBatch(
        f"producer {header.producer_id} with epoch {header.producer_epoch} "
        f"and sequence {header.base_sequence}"
    )
