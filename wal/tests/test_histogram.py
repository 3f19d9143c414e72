"""Histograms: where an observation is counted."""

from __future__ import annotations

import math

from ister.wal.histogram import Histogram


def test_bounds_are_inclusive_and_the_last_one_is_infinite() -> None:
    """As Prometheus reads them: `le`."""
    histogram = Histogram((1, 5))
    for value in (0.5, 1, 1.5, 5, 6, 100):
        histogram.observe(value)
    assert histogram.cumulative() == [(1, 2), (5, 4), (math.inf, 6)]
    assert histogram.count == 6
    assert histogram.sum == 114
