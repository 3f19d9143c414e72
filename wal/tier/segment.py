"""The segment format: what the objects in the bucket are made of.

An object is one or more *sections*, one behind the other; an object of its own
has one, a shared object has one for each partition in it. A section holds a
contiguous range of offsets of one partition. All numbers are big endian.

    section
      data       record batches v2, byte for byte as in the journal
      blocks     one row of 28 bytes for each block of data, in order:
                   0   8  base offset of the first batch of the block
                   8   8  position of the block, from the start of the section
                  16   8  largest timestamp of all batches up to the end of the block
                  24   4  crc32c of the block
      producers  producer state after the last batch (opaque here; may be empty)
      footer     116 bytes:
                   0   4  crc32c of bytes 4..116 of the footer
                   4  16  topic id
                  20   4  partition
                  24   8  first offset
                  32   8  last offset
                  40   8  records
                  48   8  largest timestamp (-1: none)
                  56   8  sealed: wall clock in ms, not before the append of the last batch
                  64   8  bytes of data
                  72   8  bytes of producer state
                  80   8  number of blocks
                  88   4  crc32c of the data
                  92   4  crc32c of blocks and producers
                  96   4  reserved, zero
                 100   4  size of the footer
                 104   4  format version
                 108   8  magic "ISTRSEGM"

A block ends before the batch that would take it over 64 KiB; a larger batch is a
block of its own. So a block is always whole batches, the rows are offset index and
time index in one, and a reader of any range can check every byte that it uses:
the batch's own CRC leaves out its offset, length and leader epoch.

The last 16 bytes stay where they are in every version: they say how to read the
rest. The footer gives the size of its section, so an object can be walked from its
end without a manifest (`sections_of`).

A section is valid if footer, table and data have their checksums and the footer is
what the manifest entry says. There is no torn tail: an object is there whole or not
at all, so anything that does not hold is damage, and is said, never skipped.

`SectionWriter` streams in constant memory (28 bytes for each 64 KiB). Fetching
bytes is not done here; see `chunk_cache`.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from crc32c import crc32c

from ister.wal.errors import Contradiction, Damaged, NewerFormat
from ister.wal.fs import Buffer

MAGIC = b"ISTRSEGM"
FORMAT_VERSION = 1
BLOCK_BYTES = 64 * 1024  # one row of 28 bytes each: the table of a 64 MiB section is 28 KiB

# A block takes 6 us; to let go of the interpreter lock and wait for it takes up to 500.
_KEEP_LOCK = 0

_FOOTER = struct.Struct(">I16sIqqqqqQQQIII")
_TRAILER = struct.Struct(">II8s")
_ROW = struct.Struct(">qqqI")
_BATCH_START = struct.Struct(">qi")
_BATCH_LENGTH_END = 12  # the length field of a batch counts from behind itself
FOOTER_SIZE = _FOOTER.size + _TRAILER.size
TRAILER_SIZE = _TRAILER.size
NO_TIMESTAMP = -1
# One batch in a run of raw batches: base offset, count of records, bytes, max timestamp.
BatchEntry = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Footer:
    topic_id: bytes
    partition: int
    first_offset: int
    last_offset: int
    records: int
    max_timestamp: int
    sealed_ms: int
    data_size: int
    producers_size: int
    block_count: int
    data_crc: int
    table_crc: int

    @property
    def section_size(self) -> int:
        return self.data_size + self.tail_size

    @property
    def tail_size(self) -> int:
        return self.block_count * _ROW.size + self.producers_size + FOOTER_SIZE


class SectionWriter:
    """Makes a section while its batches pass through; `finish` gives what comes behind them."""

    def __init__(self, topic_id: bytes, partition: int, sealed_ms: int) -> None:
        self._topic_id = topic_id
        self._partition = partition
        self._sealed_ms = sealed_ms
        self._rows = bytearray()
        self._block_offset = 0
        self._block_position = 0
        self._block_size = 0
        self._block_crc = 0
        self.first_offset = -1
        self.next_offset = -1
        self.records = 0
        self.max_timestamp = NO_TIMESTAMP
        self.data_size = 0
        self._data_crc = 0
        self.size = 0  # of the whole section, after `finish`
        self.crc = 0  # of the whole section, after `finish`

    def add(self, buffer: Buffer, entries: Sequence[BatchEntry]) -> Buffer:
        """Take a run of whole batches that follow the last ones; gives the buffer back to be sent.

        `entries` are (base offset, count, size, max timestamp). A run that does not
        continue the section, or whose bytes are not what the entries say, is a
        Contradiction: nothing of it may reach a bucket.
        """
        view = memoryview(buffer)
        position = start = 0
        for base_offset, count, size, max_timestamp in entries:
            self._check_next(view, position, base_offset, size)
            if self._block_size and self._block_size + size > BLOCK_BYTES:
                self._block_crc = crc32c(view[start:position], self._block_crc, _KEEP_LOCK)
                start = position
                self._end_block()
            if not self._block_size:
                self._block_offset = base_offset
                self._block_position = self.data_size + position
            self._block_size += size
            self.next_offset = base_offset + count
            self.records += count
            if max_timestamp > self.max_timestamp:
                self.max_timestamp = max_timestamp
            position += size
        if position != len(view):
            raise Contradiction(
                f"a run of batches of {self._topic_id.hex()}/{self._partition} has {len(view)} "
                f"bytes, its entries say {position}"
            )
        self._block_crc = crc32c(view[start:position], self._block_crc, _KEEP_LOCK)
        self._data_crc = crc32c(view, self._data_crc)
        self.data_size += position
        return buffer

    def finish(self, producers: bytes = b"") -> bytes:
        """Table, producer state and footer. The writer is done after this."""
        if self.first_offset < 0:
            raise Contradiction("a section without a batch")
        self._end_block()
        table = bytes(self._rows) + producers
        footer = Footer(
            topic_id=self._topic_id,
            partition=self._partition,
            first_offset=self.first_offset,
            last_offset=self.next_offset - 1,
            records=self.records,
            max_timestamp=self.max_timestamp,
            sealed_ms=self._sealed_ms,
            data_size=self.data_size,
            producers_size=len(producers),
            block_count=len(self._rows) // _ROW.size,
            data_crc=self._data_crc,
            table_crc=crc32c(table),
        )
        tail = table + encode_footer(footer)
        self.size = self.data_size + len(tail)
        self.crc = crc32c(tail, self._data_crc)
        return tail

    def _check_next(self, view: memoryview, position: int, base_offset: int, size: int) -> None:
        if position + _BATCH_START.size > len(view):
            raise Contradiction("a run of batches is shorter than its entries say")
        stamped, length = _BATCH_START.unpack_from(view, position)
        if stamped != base_offset or length + _BATCH_LENGTH_END != size:
            raise Contradiction(
                f"expected a batch of {size} bytes at offset {base_offset} of "
                f"{self._topic_id.hex()}/{self._partition}, found one of "
                f"{length + _BATCH_LENGTH_END} bytes at {stamped}"
            )
        if self.first_offset < 0:
            self.first_offset = base_offset
        elif base_offset != self.next_offset:
            raise Contradiction(
                f"batch at {base_offset} of {self._topic_id.hex()}/{self._partition} does not "
                f"follow {self.next_offset - 1}"
            )

    def _end_block(self) -> None:
        if self._block_size:
            self._rows += _ROW.pack(
                self._block_offset, self._block_position, self.max_timestamp, self._block_crc
            )
        self._block_size = 0
        self._block_crc = 0


class Section:
    """Footer, block table and producer state of a section that was read and found sound."""

    __slots__ = ("_crcs", "footer", "offsets", "positions", "producers", "times")

    def __init__(self, footer: Footer, table: bytes) -> None:
        self.footer = footer
        rows_size = footer.block_count * _ROW.size
        self.producers = table[rows_size:]
        columns = list(zip(*_ROW.iter_unpack(table[:rows_size]), strict=True))
        self.offsets = array("q", columns[0])
        self.positions = array("q", columns[1])
        self.times = array("q", columns[2])
        self._crcs = array("Q", columns[3])
        self.positions.append(footer.data_size)  # so that block i ends where i + 1 starts

    @property
    def memory_bytes(self) -> int:
        return 32 * len(self.offsets) + len(self.producers) + 500

    def locate(self, offset: int) -> int:
        """The block that holds the batch with `offset` (which must be in the section)."""
        return max(0, bisect_right(self.offsets, offset) - 1)

    def locate_time(self, timestamp_ms: int) -> int | None:
        """The block of the first batch whose max timestamp is not below; None: there is none."""
        block = bisect_left(self.times, timestamp_ms)
        return block if block < len(self.times) else None

    def position(self, block: int) -> int:
        """Where the block starts; for the number of blocks: where the data ends."""
        return int(self.positions[block])

    def check_blocks(self, first: int, last: int, data: Buffer, where: str, start: int) -> None:
        """Damaged unless `data` is exactly the blocks `first`..`last` as they were written."""
        base = self.positions[first]
        if len(data) != self.positions[last + 1] - base:
            raise Damaged(where, start + base, f"{len(data)} bytes came back, some are missing")
        view = memoryview(data)
        for block in range(first, last + 1):
            begin, end = self.positions[block] - base, self.positions[block + 1] - base
            if crc32c(view[begin:end]) != self._crcs[block]:
                raise Damaged(
                    where,
                    start + base + begin,
                    f"the checksum of the block of offset {self.offsets[block]} does not hold",
                )


def encode_footer(footer: Footer) -> bytes:
    fields = (
        footer.topic_id,
        footer.partition,
        footer.first_offset,
        footer.last_offset,
        footer.records,
        footer.max_timestamp,
        footer.sealed_ms,
        footer.data_size,
        footer.producers_size,
        footer.block_count,
        footer.data_crc,
        footer.table_crc,
        0,
    )
    body = _FOOTER.pack(0, *fields)[4:] + _TRAILER.pack(FOOTER_SIZE, FORMAT_VERSION, MAGIC)
    return struct.pack(">I", crc32c(body)) + body


def read_footer(data: Buffer, where: str, end: int) -> Footer:
    """The footer from the last bytes of a section that ends at `end` of object `where`."""
    if len(data) < TRAILER_SIZE:
        raise Damaged(where, end, "too short for a footer")
    footer_size, version, magic = _TRAILER.unpack_from(data, len(data) - TRAILER_SIZE)
    if magic != MAGIC:
        raise Damaged(where, end - len(MAGIC), "no footer of a section ends here")
    if version != FORMAT_VERSION or footer_size != FOOTER_SIZE:
        _refuse_version(data, where, end, footer_size, version)
    if len(data) < FOOTER_SIZE:
        raise Damaged(where, end, "too short for a footer")
    raw = bytes(data[len(data) - FOOTER_SIZE :])
    crc, *fields, _reserved = _FOOTER.unpack_from(raw)
    if crc32c(raw[4:]) != crc:
        raise Damaged(where, end - FOOTER_SIZE, "the checksum of the footer does not hold")
    return Footer(*fields)


def _refuse_version(data: Buffer, where: str, end: int, footer_size: int, version: int) -> None:
    """A flipped bit in the size or the version is damage; a sound footer is a newer format."""
    raw = bytes(data[max(0, len(data) - footer_size) :])
    if version > FORMAT_VERSION and len(raw) == footer_size > TRAILER_SIZE:
        (crc,) = struct.unpack_from(">I", raw)
        if crc == crc32c(raw[4:]):
            raise NewerFormat(
                f"{where} has a section of format version {version}, this program reads up to "
                f"{FORMAT_VERSION}: use the version of ister that wrote it, or a newer one"
            )
    raise Damaged(where, end - TRAILER_SIZE, "the checksum of the footer does not hold")


def read_section(tail: Buffer, where: str, end: int) -> Section:
    """A section from everything behind its data (`Footer.tail_size` bytes)."""
    footer = read_footer(tail, where, end)
    if footer.tail_size != len(tail) or footer.block_count < 1:
        raise Damaged(
            where, end - len(tail), f"{footer.tail_size} bytes behind the data, not {len(tail)}"
        )
    table = bytes(tail[: len(tail) - FOOTER_SIZE])
    if crc32c(table) != footer.table_crc:
        raise Damaged(where, end - len(tail), "the checksum of the block table does not hold")
    return Section(footer, table)


def sections_of(
    get: Callable[[int, int], bytes], size: int, where: str
) -> Iterator[tuple[int, Footer]]:
    """(start, footer) of every section of an object of `size` bytes, last one first.

    `get(start, size)` reads of the object. Needs no manifest: for tools and verification.
    """
    end = size
    while end > 0:
        got = min(FOOTER_SIZE, end)
        footer = read_footer(get(end - got, got), where, end)
        if footer.section_size > end:
            raise Damaged(where, end - FOOTER_SIZE, "a section that starts before the object")
        end -= footer.section_size
        yield end, footer
