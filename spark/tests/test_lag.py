"""Known histories with known answers."""

from __future__ import annotations

import pytest

from ister.spark import lag
from ister.spark.lag import Sample


def history(*rows: tuple[int, int, int]) -> list[Sample]:
    """(second, head, committed of g)."""
    return [Sample(at * 1000, "t", 0, head, {"g": committed}) for at, head, committed in rows]


def test_throughput() -> None:
    """Records by the time that passed, whatever samples are missing, in any order."""
    (flow,) = lag.flows(history((10, 300, 0), (0, 100, 0), (2, 140, 0)))
    assert (flow.records, flow.seconds, flow.per_second) == (200, 10.0, 20.0)


def test_a_head_that_went_back() -> None:
    """The topic was made again: what it has since counts from 0."""
    (flow,) = lag.flows(history((0, 100, 0), (1, 110, 0), (2, 5, 0), (3, 8, 0)))
    assert flow.records == 10 + 5 + 3


def test_lag_in_seconds() -> None:
    """The head was at 150, where the group is, half way between two samples."""
    (found,) = lag.lags(history((0, 100, 0), (10, 200, 100), (20, 200, 150)))
    assert (found.records, found.seconds, found.at_least) == (50, 15.0, False)


def test_lag_older_than_the_first_sample() -> None:
    (found,) = lag.lags(history((0, 100, 10), (10, 100, 20)))
    assert (found.records, found.seconds, found.at_least) == (80, 10.0, True)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (((0, 100, 0), (10, 100, 50)), 10.0),  # 5 a second, 50 left
        (((0, 100, 0), (10, 200, 50)), None),  # falls behind
        (((0, 100, 90), (10, 100, 100)), 0.0),  # is there
        (((0, 100, 90),), None),  # one sample says nothing
    ],
)
def test_time_to_drain(rows: tuple[tuple[int, int, int], ...], expected: float | None) -> None:
    (found,) = lag.lags(history(*rows))
    assert found.drain_seconds == expected


def test_hot_partitions() -> None:
    """More than twice the fair share."""
    samples = [
        Sample(at, "t", number, 0 if at == 0 else count)
        for number, count in enumerate((100, 10, 10))
        for at in (0, 1000)
    ]
    assert [flow.hot for flow in lag.flows(samples)] == [True, False, False]


def test_percentiles() -> None:
    values = [float(n) for n in range(1, 101)]
    assert lag.percentile(values, 0.5) == 50
    assert lag.percentile(values, 0.99) == 99
    assert lag.percentile([7.0], 0.99) == 7
    assert lag.percentile([], 0.5) is None
