"""Recent batches in memory, shared by all readers, bounded in bytes.

Each partition keeps its newest batches in flat lists; the cache keeps, per
commit, which partitions it fed and what it weighs, and evicts whole commits,
oldest first. So there is no object per batch for the garbage collector, and a
reader gets references, never copies: an evicted batch lives on for as long as
a reply holds it. A view pins the buffer behind it and is weighed as that.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ister.wal.fs import Buffer

if TYPE_CHECKING:
    from ister.wal.partition import Partition

_COMPACT_AT = 256  # evicted places in a run before its lists are moved together


class CachedRun:
    """The newest batches of one partition, without a gap between them."""

    __slots__ = ("bases", "buffers", "ends", "ends_before", "next_offset", "start")

    def __init__(self) -> None:
        self.bases = array("q")
        self.ends = array("q")  # running sum of sizes, for a bisect on max_bytes
        self.ends_before = 0  # what that sum was before the first place
        self.buffers: list[Buffer | None] = []
        self.start = 0  # places before it are evicted
        self.next_offset = 0

    def add(self, base: int, next_offset: int, buffer: Buffer) -> None:
        bases, ends = self.bases, self.ends
        assert not bases or base == self.next_offset  # offsets are dense while a run lasts
        bases.append(base)
        ends.append((ends[-1] if ends else self.ends_before) + len(buffer))
        self.buffers.append(buffer)
        self.next_offset = next_offset

    def read(
        self, offset: int, max_bytes: int, below: int
    ) -> tuple[list[Buffer], int, int, int] | None:
        """(buffers, size, first offset, next offset) from the batch with `offset`; None: colder."""
        bases, ends, start = self.bases, self.ends, self.start
        first = bisect_right(bases, offset, start) - 1
        if first < start or offset >= self.next_offset:
            return None
        stop = bisect_left(bases, below, first)
        before = ends[first - 1] if first else self.ends_before
        last = min(max(bisect_right(ends, before + max_bytes, first, stop), first + 1), stop)
        if last <= first:
            return None
        buffers: list[Buffer] = self.buffers[first:last]  # type: ignore[assignment]
        following = bases[last] if last < len(bases) else self.next_offset
        return buffers, ends[last - 1] - before, bases[first], following

    def evict_first(self) -> None:
        if self.start < len(self.buffers):
            self.buffers[self.start] = None
            self.start += 1
            if self.start >= _COMPACT_AT and self.start * 2 >= len(self.buffers):
                self._compact()

    def _compact(self) -> None:
        start = self.start
        self.ends_before = self.ends[start - 1]
        del self.bases[:start], self.ends[:start], self.buffers[:start]
        self.start = 0


class _Cached(NamedTuple):
    runs: Sequence[CachedRun]
    weight: int


class Cache:
    """All cached runs together."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._commits: deque[_Cached] = deque()
        self.bytes = 0

    def add_commit(self, runs: Sequence[CachedRun], weight: int) -> None:
        """One commit's batches were added to `runs`, one element a batch."""
        self._commits.append(_Cached(runs, weight))
        self.bytes += weight
        while self.bytes > self._bytes_max and self._commits:
            self._evict()

    def evict_all(self) -> None:
        while self._commits:
            self._evict()

    def _evict(self) -> None:
        commit = self._commits.popleft()
        self.bytes -= commit.weight
        for run in commit.runs:
            run.evict_first()


def cached_run(partition: Partition) -> CachedRun:
    run = partition.cached
    if run is None:
        run = partition.cached = CachedRun()
    return run


def weight_of(buffer: Buffer) -> int:
    """What keeping this buffer keeps: a view pins all that lies behind it."""
    if isinstance(buffer, memoryview):
        behind = buffer.obj
        return len(behind) if isinstance(behind, bytes | bytearray) else buffer.nbytes
    return len(buffer)
