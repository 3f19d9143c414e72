"""Where the batches of one partition lie in one journal file: flat arrays, no object per batch.

Filled while the file is open; when the file is sealed the same arrays go into
its sidecar (`sidecar.py`) and, from there, come back for cold readers.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from typing import NamedTuple


class Slice(NamedTuple):
    """Consecutive batches in a file, as runs of bytes that lie together there."""

    first_offset: int
    next_offset: int
    size: int
    runs: list[tuple[int, int]]  # (position, size)


class TailIndex:
    """Base offset, file position, size and largest timestamp of each batch, in order."""

    __slots__ = ("bases", "next_offset", "positions", "sizes", "timestamps")

    def __init__(self) -> None:
        self.bases = array("q")
        self.positions = array("q")
        self.sizes = array("I")
        self.timestamps = array("q")
        self.next_offset = 0  # behind the last batch

    def __len__(self) -> int:
        return len(self.bases)

    def add(self, base: int, next_offset: int, position: int, size: int, timestamp: int) -> None:
        self.bases.append(base)
        self.positions.append(position)
        self.sizes.append(size)
        self.timestamps.append(timestamp)
        self.next_offset = next_offset

    @property
    def first_offset(self) -> int:
        return self.bases[0]

    @property
    def data_bytes(self) -> int:
        return sum(self.sizes)

    def find(self, offset: int) -> int:
        """Number of the batch that contains `offset`, or of the first one behind it."""
        at = bisect_right(self.bases, offset) - 1
        return max(at, 0)

    def slice(self, offset: int, max_bytes: int, below: int) -> Slice | None:
        """From the batch that contains `offset`, whole batches up to `max_bytes`, at least one,
        none at or above the offset `below`."""
        start = self.find(offset)
        stop = bisect_left(self.bases, below)
        if start >= stop:
            return None
        runs: list[tuple[int, int]] = []
        size = 0
        at = start
        run_position = run_size = 0
        while at < stop and (size == 0 or size + self.sizes[at] <= max_bytes):
            position, length = self.positions[at], self.sizes[at]
            if run_size and position == run_position + run_size:
                run_size += length
            else:
                if run_size:
                    runs.append((run_position, run_size))
                run_position, run_size = position, length
            size += length
            at += 1
        runs.append((run_position, run_size))
        return Slice(self.bases[start], self.next_of(at - 1), size, runs)

    def next_of(self, number: int) -> int:
        """The offset behind batch `number`; also while another thread adds batches."""
        last = self.next_offset  # first: behind the look at the length it may be another batch's
        following = number + 1
        return self.bases[following] if following < len(self.bases) else last

    def at_or_after(self, timestamp: int) -> int | None:
        """Number of the first batch that may hold a record at or after `timestamp`."""
        for number, largest in enumerate(self.timestamps):
            if largest >= timestamp:
                return number
        return None

    def max_timestamp(self) -> tuple[int, int]:
        """(largest timestamp, number of the first batch that has it)."""
        largest = max(self.timestamps)
        return largest, self.timestamps.index(largest)
