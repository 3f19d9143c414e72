"""The list of promised metrics, and the page made from it."""

from __future__ import annotations

import pytest

from deploy import metrics
from ister.gateway.http.metrics import collect
from ister.testing import Broker

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


def test_what_a_broker_exports_is_as_promised() -> None:
    """By name, kind and labels: what is scraped is what rules and dashboard are checked against."""
    promised = {metric.name: metric for metric in metrics.promised()}
    with Broker() as broker:
        families = broker.call(collect)
    exported = {family.name: family for family in families}
    assert set(exported) == set(promised)
    for name, family in exported.items():
        assert (family.kind, family.labels) == (promised[name].kind, promised[name].labels), name
