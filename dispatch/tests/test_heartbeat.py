"""Bounded delivery, to the millisecond, on a clock that is moved by hand."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from ister.dispatch.heartbeat import Heartbeat
from ister.dispatch.notifier import Notifier
from ister.dispatch.tests.kit import Bench, Read, append, partition


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def heartbeat(bench: Bench) -> Heartbeat:
    return Heartbeat(bench.parked, bench.clock, bench.timer)


@pytest.mark.parametrize("interval_ms", [50, 100, 500, 1000])
@pytest.mark.parametrize("after_ms", [0, 1, 49])
def test_nobody_waits_longer_than_one_interval(
    bench: Bench, heartbeat: Heartbeat, interval_ms: int, after_ms: int
) -> None:
    """Promise 3: every notification is lost, and the record is there within the interval."""
    here = partition(heartbeat_ms=interval_ms)
    read = bench.park(here)
    bench.timer.advance(after_ms / 1000)
    append(here)
    bench.timer.advance((interval_ms - after_ms - 1) / 1000)
    assert not read.answered
    bench.timer.advance(0.001)
    assert read.answered
    assert (heartbeat.polls, heartbeat.missed) == (1, 1)


def test_the_bound_holds_at_every_beat(bench: Bench, heartbeat: Heartbeat) -> None:
    """Ten minutes in, at any moment between two beats."""
    rng = random.Random(7)
    here = partition()
    for _ in range(200):
        read = bench.park(here, wait_s=3600)
        bench.timer.advance(rng.randrange(6000) / 1000)
        append(here)
        bench.timer.advance(0.5)
        assert read.answered


def test_off_means_off_and_may_be_changed(bench: Bench, heartbeat: Heartbeat) -> None:
    """With 0 nothing comes before max_wait; set live, it comes."""
    here = partition(heartbeat_ms=0)
    read = bench.park(here, wait_s=100)
    append(here)
    bench.timer.advance(50)
    assert not read.looks
    here.settings = replace(here.settings, heartbeat_interval_ms=50)
    bench.timer.advance(1.1)
    assert read.answered


def test_enough_is_not_there_so_nothing_was_missed(bench: Bench, heartbeat: Heartbeat) -> None:
    """A fetch that waits rightly for its min_bytes is no lag, however often the head moves."""
    here = partition()
    read = bench.park(here, min_records=1000)
    for _ in range(10):
        append(here)
        bench.timer.advance(0.5)
    assert read.parked
    assert heartbeat.missed == 0
    looks = read.looks
    bench.timer.advance(5)
    assert read.looks == looks  # the head stands still: not even a look


def test_a_wake_up_on_its_way_is_not_missed(bench: Bench, heartbeat: Heartbeat) -> None:
    """The commit and the beat fall together: the notifier delivers, nothing is counted."""
    here = partition()
    notifier = Notifier(
        bench.parked.wake, bench.parked.waiting, bench.clock, bench.timer, random.Random(1)
    )
    read = bench.park(here)
    bench.clock.advance(0.5)
    append(here)
    notifier.notify([here])
    bench.timer.turn()
    assert read.answered
    assert heartbeat.missed == heartbeat.polls == 0


def test_a_paused_client_waits_for_itself(bench: Bench, heartbeat: Heartbeat) -> None:
    here = partition()
    read = bench.park(here)
    read.is_paused = True
    append(here)
    bench.timer.advance(5)
    assert not read.looks
    read.is_paused = False
    bench.timer.advance(0.5)
    assert read.answered


def test_an_empty_first_read_is_made_good(bench: Bench, heartbeat: Heartbeat) -> None:
    """It found nothing where something is, so it was not evaluated at the head."""
    here = partition()
    read = bench.park(here)
    read.empty_looks = 1
    append(here)
    bench.parked.wake([here])
    assert not read.answered
    bench.timer.advance(0.5)
    assert read.answered
    assert heartbeat.missed == 1


def test_a_broken_read_is_created_again_not_poked(bench: Bench, heartbeat: Heartbeat) -> None:
    """Pitfall 35."""
    here = partition()
    read = bench.park(here)
    read.raises = OSError("the source is gone")
    append(here)
    bench.parked.wake([here])
    assert read.broken
    read.raises = None
    bench.timer.advance(0.5)
    assert read.recreated == 1
    assert read.answered


def test_a_broken_read_does_not_go_on_for_ever(bench: Bench, heartbeat: Heartbeat) -> None:
    here = partition()
    read = bench.park(here)
    read.raises = OSError("the source is gone")
    append(here)
    bench.parked.wake([here])
    bench.timer.advance(5)
    assert isinstance(read.failed, OSError)
    assert read.looks == 4
    assert bench.parked.count == 0


def test_thousands_are_found_in_one_beat(bench: Bench, heartbeat: Heartbeat) -> None:
    here = partition()
    reads: list[Read] = [bench.park(here) for _ in range(900)]
    append(here)
    bench.timer.advance(0.5)
    assert all(read.answered for read in reads)
    assert heartbeat.beats == 1


def test_a_beat_that_fails_is_not_the_last(bench: Bench) -> None:
    """Its own failure is counted, and the next beat comes."""

    def compare(*_: object) -> None:
        raise RuntimeError("a bug")

    heartbeat = Heartbeat(bench.parked, bench.clock, bench.timer, compare)
    here = partition()
    read = bench.park(here)
    bench.timer.advance(1)
    assert heartbeat.failures == 2
    append(here)
    bench.timer.advance(0.5)
    assert read.answered


def test_it_rests_when_nobody_waits(bench: Bench, heartbeat: Heartbeat) -> None:
    here = partition()
    bench.parked.leave(bench.park(here))
    bench.timer.advance(10)
    assert heartbeat.beats == 0
    read = bench.park(here)
    append(here)
    bench.timer.advance(0.5)
    assert read.answered
