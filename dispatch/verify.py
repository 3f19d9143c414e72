"""Offset verification: what one response says must be one unbroken row.

From the offset that was asked for to the first batch, and from each batch to the next,
offsets continue, or the gap is a known hole. It is read from the batches themselves, not
from an index, because it is the batches that the client gets. Nothing is compared across
fetches: clients may seek.

A gap is never delivered past: what stands before it is good, and is all that is left of
the chunk. Pure; who counts, logs and reads again is the caller. A non-reliable topic may
skip from the offset to its first batch, and is checked inside only.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from ister.wal.fs import Buffer
from ister.wal.partition import Partition
from ister.wal.reader import Chunk, behind_holes

# Reads of one position that may show a gap before the client is told to try again.
REREADS_MAX = 3

_BATCH: Final = Struct(">qi11xi")  # base offset, length, ..., last offset delta
_LENGTH_END: Final = 12  # the length counts from here


class Gap(NamedTuple):
    """`found` stands where `expected` should be."""

    expected: int
    found: int


def verified(chunk: Chunk, partition: Partition, offset: int) -> tuple[Chunk, Gap | None]:
    """The chunk as far as it is unbroken, and the first gap."""
    expected = offset
    holes = partition.holes
    first = True
    position = 0  # of good bytes
    for number, buffer in enumerate(chunk.buffers):
        at, end = 0, len(buffer)
        while at < end:
            base, length, delta = _BATCH.unpack_from(buffer, at)
            following = base + delta + 1
            if first:
                first = False
                continues = base <= expected < following or not partition.settings.reliable
            else:
                continues = base == expected
            if not continues and base != behind_holes(holes, expected):
                return _before(chunk, number, at, position + at, expected), Gap(expected, base)
            expected = following
            at += _LENGTH_END + length
        position += end
    return chunk, None


def _before(chunk: Chunk, number: int, at: int, size: int, following: int) -> Chunk:
    """What stands before the gap, which is in buffer `number` at `at`."""
    good: Sequence[Buffer] = chunk.buffers[:number]
    buffers = [*good, memoryview(chunk.buffers[number])[:at]] if at else [*good]
    return Chunk(buffers, size, chunk.first_offset if size else following, following, chunk.source)
