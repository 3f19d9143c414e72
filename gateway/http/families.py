"""Metric families as plain values: made on the broker's thread, written out on another.

A family with labels has at most `ROWS_MAX` rows; what is beyond them is added up in one
row whose labels all say `other`, so that a scrape stays bounded whatever clients do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from ister.wal.histogram import Histogram

ROWS_MAX = 2_000
OTHER = "other"
COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"


class Family(NamedTuple):
    name: str
    kind: str
    help: str
    labels: tuple[str, ...]
    rows: Sequence[tuple[tuple[str, ...], float]] = ()
    histograms: Sequence[tuple[tuple[str, ...], list[tuple[float, int]], float]] = ()


def counter(name: str, help: str, value: float) -> Family:
    return Family(name, COUNTER, help, (), [((), value)])


def gauge(name: str, help: str, value: float) -> Family:
    return Family(name, GAUGE, help, (), [((), value)])


def rows(
    name: str,
    kind: str,
    help: str,
    labels: tuple[str, ...],
    values: Iterable[tuple[tuple[str, ...], float]],
    rows_max: int = ROWS_MAX,
) -> Family:
    """One value a row; those beyond the limit are added up, to what is `other` already."""
    kept: list[tuple[tuple[str, ...], float]] = []
    other = (OTHER,) * len(labels)
    rest = 0.0
    beyond = False
    for labelled in values:
        if len(kept) < rows_max and labelled[0] != other:
            kept.append(labelled)
        else:
            rest += labelled[1]
            beyond = True
    if beyond:
        kept.append((other, rest))
    return Family(name, kind, help, labels, kept)


def histograms(
    name: str,
    help: str,
    labels: tuple[str, ...],
    values: Iterable[tuple[tuple[str, ...], Histogram]],
) -> Family:
    taken = [(each, histogram.cumulative(), histogram.sum) for each, histogram in values]
    return Family(name, HISTOGRAM, help, labels, (), taken)


def metric(family: Family) -> Metric:
    """As prometheus-client wants it."""
    if family.kind == HISTOGRAM:
        made = HistogramMetricFamily(family.name, family.help, labels=family.labels)
        for labels, buckets, total in family.histograms:
            told = [(_bound(bound), count) for bound, count in buckets]
            made.add_metric(labels, told, total)
        return made
    kind = CounterMetricFamily if family.kind == COUNTER else GaugeMetricFamily
    plain = kind(family.name, family.help, labels=family.labels)
    for labels, value in family.rows:
        plain.add_metric(labels, value)
    return plain


def _bound(value: float) -> str:
    return "+Inf" if value == float("inf") else repr(float(value))
