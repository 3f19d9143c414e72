"""Which partitions are compared when: intervals, beats, changes while running."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ister.dispatch.lag import REVIEW_MS, Beats, interval_problem
from ister.dispatch.tests.kit import partition


@pytest.mark.parametrize("interval", [0, 50, 100, 500, 1000])
def test_intervals_that_may_be_set(interval: int) -> None:
    assert interval_problem(interval) is None


@pytest.mark.parametrize("interval", [-1, 1, 49, 1001, 60_000])
def test_intervals_that_may_not(interval: int) -> None:
    assert "between 50 and 1000" in str(interval_problem(interval))


def test_each_interval_has_its_own_beat() -> None:
    """A topic at 50 ms does not make the others be compared more often."""
    beats, fast, slow = Beats(), partition(0, 50), partition(1, 1000)
    beats.watch(fast, 0)
    beats.watch(slow, 0)
    seen: list[int] = []
    for now in range(0, 1001, 10):
        due = beats.due(now)
        seen += [now for each in due if each is slow]
    assert seen == [1000]
    assert beats.next_due_ms == 1050
    beats.check()


def test_a_change_counts_while_running() -> None:
    """At the beat of the old interval; from off within the review."""
    beats, here = Beats(), partition(0, 1000)
    beats.watch(here, 0)
    here.settings = replace(here.settings, heartbeat_interval_ms=0)
    beats.due(1000)
    assert beats.due(1999) == []
    here.settings = replace(here.settings, heartbeat_interval_ms=50)
    assert beats.due(1000 + REVIEW_MS) == []
    assert beats.due(1000 + REVIEW_MS + 50) == [here]
    beats.check()


def test_beats_that_were_missed_are_not_made_up_for() -> None:
    beats, here = Beats(), partition(0, 50)
    beats.watch(here, 0)
    assert beats.due(10_000) == [here]
    assert beats.due(10_049) == []
    assert beats.due(10_050) == [here]


def test_nobody_watched_means_no_beat() -> None:
    beats, here = Beats(), partition()
    beats.watch(here, 0)
    beats.watch(here, 400)
    assert beats.next_due_ms == 500
    beats.unwatch(here)
    beats.unwatch(here)
    assert beats.next_due_ms is None
    assert len(beats) == 0
    beats.check()
