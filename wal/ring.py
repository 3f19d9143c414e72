"""The partition of a non-reliable topic: the newest batches, in memory, and nothing else.

No journal, no replay. Batches are stamped, copied once into objects of their own and kept
until newer ones need the room (`ister.ring.bytes`). Earliest = latest = `head` for
everybody who asks; a reader that is already somewhere gets what is still kept from there,
or the oldest kept batch and the number of records that it missed.

Offsets are never given twice, not even after a crash that nobody saw coming: they come
from blocks that metadata reserved durably. The ring asks (`needs_block`, `block_end`), the
caller reserves and tells it (`extend`). After a restart a new ring starts at the end of
the last reserved block with a higher leader epoch: offsets skip, records before are gone.

Pure: no clock, no files; the owner thread alone touches it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import NamedTuple

from ister.wal.batch import BatchHeader, stamp
from ister.wal.errors import BatchTooLarge, OffsetOutOfRange, StorageError
from ister.wal.fs import Buffer

OFFSET_BLOCK = 1_000_000  # offsets a reservation: one metadata write for a million records
BATCH_OVERHEAD_BYTES = 64  # what a small batch costs beside its bytes; counted in the limit
_COMPACT_MIN = 64  # dropped slots before the index is shortened


class RingRead(NamedTuple):
    """Batches from the ring; `dropped` records lay between the offset asked for and the first."""

    buffers: list[bytes]
    size: int
    first_offset: int
    next_offset: int
    dropped: int


class Ring:
    """The kept batches of one partition.

    Invariants: `_offsets[i]` is the base offset of `_batches[i]`; slots below `_first` are
    dropped and hold empty bytes; kept batches are dense up to `head`; `head` never passes
    `reserved_to`; `kept_bytes` never passes `bytes_max`.
    """

    __slots__ = (
        "_batches",
        "_first",
        "_offsets",
        "_wanted",
        "bytes_max",
        "dropped_records",
        "head",
        "kept_bytes",
        "leader_epoch",
        "reserved_to",
        "start",
    )

    def __init__(self, start: int, reserved_to: int, leader_epoch: int, bytes_max: int) -> None:
        assert start <= reserved_to
        self.start = start  # first offset of this run
        self.head = start  # next offset; also the high watermark
        self.reserved_to = reserved_to
        self.leader_epoch = leader_epoch
        self.bytes_max = bytes_max
        self.kept_bytes = 0
        self.dropped_records = 0  # missed by readers, in all
        self._offsets = array("q")
        self._batches: list[bytes] = []
        self._first = 0
        self._wanted = 0  # records of the largest batch refused for want of a block

    @property
    def oldest(self) -> int:
        """Base offset of the oldest kept batch; the head if there is none."""
        return self._offsets[self._first] if self._first < len(self._offsets) else self.head

    @property
    def batch_count(self) -> int:
        return len(self._batches) - self._first

    def append(self, header: BatchHeader, data: Buffer, append_time_ms: int | None = None) -> int:
        """Stamp and keep a checked batch: its base offset. The oldest go to make room.

        BatchTooLarge if it never fits; StorageError (retriable) until a block is reserved.
        """
        cost = len(data) + BATCH_OVERHEAD_BYTES
        if cost > self.bytes_max:
            raise BatchTooLarge(len(data), self.bytes_max - BATCH_OVERHEAD_BYTES)
        base_offset = self.head
        if header.count > self.reserved_to - base_offset:
            self._wanted = max(self._wanted, header.count)
            raise StorageError("no offsets reserved for this batch yet: try again")
        # A view would pin the frame it came in: what is kept is a copy, and counted exactly.
        kept = bytes(stamp(data, base_offset, self.leader_epoch, append_time_ms))
        self.kept_bytes += cost
        while self.kept_bytes > self.bytes_max:
            self._drop_oldest()
        self._offsets.append(base_offset)
        self._batches.append(kept)
        self.head = base_offset + header.count
        return base_offset

    def needs_block(self) -> bool:
        """Whether to reserve up to `block_end()` now: half a block left, or a batch was refused."""
        left = self.reserved_to - self.head
        return left < OFFSET_BLOCK // 2 or left < self._wanted

    def block_end(self) -> int:
        """Up to which offset to reserve."""
        return self.head + max(OFFSET_BLOCK, self._wanted)

    def extend(self, reserved_to: int) -> None:
        """A block is durable in metadata; an older answer changes nothing."""
        self.reserved_to = max(self.reserved_to, reserved_to)
        if self._wanted <= self.reserved_to - self.head:
            self._wanted = 0

    def read(self, offset: int, max_bytes: int) -> RingRead:
        """Batches from the one that holds `offset`, the first whole however large it is.

        Below what is kept: from the oldest kept batch, with what was missed counted as far
        as it is known (records of this run). At the head, or with nothing kept: empty.
        """
        if offset < 0 or offset > self.head:
            raise OffsetOutOfRange(offset, self.oldest, self.head)
        if offset == self.head or self._first == len(self._offsets):
            return RingRead([], 0, offset, offset, 0)
        oldest = self._offsets[self._first]
        dropped = 0
        index = self._first
        if offset < oldest:
            dropped = oldest - max(offset, self.start)
            self.dropped_records += dropped
        else:
            index = bisect_right(self._offsets, offset, self._first) - 1
        end = index + 1
        size = len(self._batches[index])
        while end < len(self._batches) and size + len(self._batches[end]) <= max_bytes:
            size += len(self._batches[end])
            end += 1
        next_offset = self._offsets[end] if end < len(self._offsets) else self.head
        return RingRead(self._batches[index:end], size, self._offsets[index], next_offset, dropped)

    def check(self) -> None:
        """The invariants, for tests."""
        assert len(self._offsets) == len(self._batches)
        kept = self._batches[self._first :]
        assert all(kept)
        assert not any(self._batches[: self._first])
        assert sum(map(len, kept)) + BATCH_OVERHEAD_BYTES * len(kept) == self.kept_bytes
        assert self.kept_bytes <= self.bytes_max
        assert self.start <= self.oldest <= self.head <= self.reserved_to
        assert self._first <= max(_COMPACT_MIN, len(self._batches) // 2 + 1)

    def _drop_oldest(self) -> None:
        first = self._first
        self.kept_bytes -= len(self._batches[first]) + BATCH_OVERHEAD_BYTES
        self._batches[first] = b""
        self._first = first = first + 1
        if first >= _COMPACT_MIN and first * 2 >= len(self._batches):
            del self._batches[:first]
            del self._offsets[:first]
            self._first = 0
