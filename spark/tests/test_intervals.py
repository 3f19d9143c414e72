"""Arithmetic of ranges against sets of numbers."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from ister.spark import intervals

ranges = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=8)


def numbers(found: list[tuple[int, int]]) -> list[int]:
    return [n for first, end in found for n in range(first, end)]


@given(ranges, ranges)
def test_as_sets(left: list[tuple[int, int]], right: list[tuple[int, int]]) -> None:
    """Union, difference and overlap say the same as sets do, sorted and without doubles."""
    assert numbers(intervals.union(left)) == sorted(set(numbers(left)))
    rest = intervals.subtract(left, right)
    assert numbers(rest) == sorted(set(numbers(left)) - set(numbers(right)))
    twice = sorted(n for n, times in Counter(numbers(left)).items() if times > 1)
    assert numbers(intervals.overlaps(left)) == twice
    assert intervals.size(intervals.union(left)) == len(set(numbers(left)))
