"""One response is one unbroken row, or ends before the gap."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ister.dispatch.tests.kit import partition
from ister.dispatch.verify import Gap, verified
from ister.wal.partition import Hole
from ister.wal.reader import CACHE, Chunk
from ister.wal.tests.batches import make_batch


def batch(base: int, count: int) -> bytes:
    raw = bytearray(make_batch([b"v"] * count))
    raw[:8] = base.to_bytes(8, "big")
    return bytes(raw)


def chunk_of(*buffers: bytes, first: int, following: int) -> Chunk:
    return Chunk([*buffers], sum(map(len, buffers)), first, following, CACHE)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=6), st.data())
def test_a_row_without_gaps_passes_as_it_is(counts: list[int], data: st.DataObject) -> None:
    """However the batches lie in buffers, from any offset of the first batch."""
    base, batches = 10, []
    for count in counts:
        batches.append(batch(base, count))
        base += count
    offset = data.draw(st.integers(10, 9 + counts[0]))
    joined = data.draw(st.booleans())
    buffers = [b"".join(batches)] if joined else batches
    chunk = chunk_of(*buffers, first=10, following=base)
    assert verified(chunk, partition(), offset) == (chunk, None)


@pytest.mark.parametrize("joined", [False, True])
def test_what_stands_before_a_gap_is_all_that_is_left(joined: bool) -> None:
    """Never delivered past."""
    good, after = [batch(0, 2), batch(2, 3)], batch(7, 1)
    buffers = [b"".join([*good, after])] if joined else [*good, after]
    left, gap = verified(chunk_of(*buffers, first=0, following=8), partition(), 0)
    assert gap == Gap(5, 7)
    assert b"".join(left.buffers) == b"".join(good)
    assert (left.size, left.first_offset, left.next_offset) == (sum(map(len, good)), 0, 5)


@pytest.mark.parametrize("base", [4, 7])
def test_the_first_batch_must_hold_the_offset(base: int) -> None:
    """Neither behind it nor before it."""
    left, gap = verified(chunk_of(batch(base, 2), first=base, following=base + 2), partition(), 6)
    assert gap == Gap(6, base)
    assert left.size == 0
    assert left.next_offset == 6


def test_a_known_hole_is_no_gap() -> None:
    """At the beginning, and inside."""
    here = partition()
    here.holes = (Hole(3, 5, "damage"), Hole(8, 8, "damage"))
    chunk = chunk_of(batch(6, 2), batch(9, 1), first=6, following=10)
    assert verified(chunk, here, 4) == (chunk, None)


def test_doubled_batches_are_a_gap_too() -> None:
    left, gap = verified(chunk_of(batch(0, 2), batch(0, 2), first=0, following=2), partition(), 0)
    assert gap == Gap(2, 0)
    assert left.next_offset == 2


def test_a_ring_may_skip_to_its_first_batch() -> None:
    """Non-reliable: what was dropped is counted elsewhere; inside it is dense."""
    here = partition()
    here.settings = replace(here.settings, reliable=False)
    chunk = chunk_of(batch(50, 2), first=50, following=52)
    assert verified(chunk, here, 6) == (chunk, None)
    left, gap = verified(chunk_of(batch(50, 2), batch(53, 1), first=50, following=54), here, 6)
    assert gap == Gap(52, 53)
    assert left.next_offset == 52
