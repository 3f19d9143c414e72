"""The list of promised metrics, and the page made from it."""

from __future__ import annotations

import pytest

from deploy import metrics

pytestmark = pytest.mark.product


def test_the_page_is_fresh() -> None:
    """`python -m deploy.metrics` would change nothing."""
    assert metrics.PAGE.read_text() == metrics.page()


@pytest.mark.parametrize("metric", metrics.promised(), ids=lambda metric: metric.name)
def test_names_follow_their_kind(metric: metrics.Metric) -> None:
    """Counters end in _total and nothing else does; our prefix is on everything."""
    assert metric.name.startswith("ister_")
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert metric.kind in ("counter", "gauge", "histogram")


def test_a_histogram_is_three_series() -> None:
    """Only the buckets have a bound."""
    series = metrics.series()
    assert series["ister_read_seconds_bucket"] == ("source", "le")
    assert series["ister_read_seconds_count"] == series["ister_read_seconds_sum"] == ("source",)
    assert "ister_read_seconds" not in series
