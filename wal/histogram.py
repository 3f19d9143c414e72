"""A histogram of plain integers: what is measured adds one, a scrape reads the list."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

# From one turn of the loop to far beyond what a client waits.
SECONDS_BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 30)
COUNT_BOUNDS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


class Histogram:
    """Counts by upper bound; the last count is of what is above all bounds."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float] = SECONDS_BOUNDS) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        return sum(self.counts)

    def cumulative(self) -> list[tuple[float, int]]:
        """(upper bound, observations up to it); the last bound is infinite."""
        total = 0
        found = []
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            total += count
            found.append((bound, total))
        return found
