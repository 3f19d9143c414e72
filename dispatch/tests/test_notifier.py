"""The fast path: it wakes behind the commit, dies in the open, and begins again."""

from __future__ import annotations

import random
from collections.abc import Iterable

from ister.dispatch.notifier import RESTART_LAST_S, STUCK_S, Notifier
from ister.dispatch.tests.kit import Bench, append, partition
from ister.wal.partition import Partition


def notifier_of(bench: Bench, queue_max: int = 1000) -> Notifier:
    return Notifier(
        bench.parked.wake,
        bench.parked.waiting,
        bench.clock,
        bench.timer,
        random.Random(1),
        queue_max=queue_max,
    )


def broken(_: Iterable[Partition]) -> None:
    raise RuntimeError("a bug")


def test_wakes_in_a_call_of_its_own() -> None:
    """Nothing happens inside the commit; one pass for many commits."""
    bench, here = Bench(), partition()
    notifier, read = notifier_of(bench), bench.park(here, min_records=3)
    for _ in range(3):
        append(here)
        notifier.notify([here])
    assert read.looks == 0
    bench.timer.turn()
    looks: int = read.looks
    assert looks == 1
    assert read.answered
    assert notifier.notifications == 3


def test_partitions_that_nobody_waits_on_cost_nothing() -> None:
    bench = Bench()
    notifier = notifier_of(bench)
    notifier.notify([partition()])
    assert notifier.notifications == 0
    assert notifier._asked_at is None


def test_a_failure_never_reaches_the_commit() -> None:
    """Not when hints come, not when readers are woken: it is a death, with its reason."""
    bench, here = Bench(), partition()
    notifier = notifier_of(bench)
    bench.park(here)
    notifier.wake = broken
    notifier.notify([here])
    bench.timer.turn()
    assert not notifier.alive
    assert notifier.deaths == 1
    assert notifier.last_death == "RuntimeError: a bug"
    notifier.notify([here])
    assert notifier.lost == 1
    second = notifier_of(bench)
    second.notify(None)  # type: ignore[arg-type]
    assert second.deaths == 1


def test_it_begins_again_and_works() -> None:
    """What came meanwhile is lost to it; what comes now is not."""
    bench, here = Bench(), partition()
    notifier, read = notifier_of(bench), bench.park(here)
    real, notifier.wake = notifier.wake, broken
    append(here)
    notifier.notify([here])
    bench.timer.turn()
    notifier.wake = real
    bench.timer.advance(RESTART_LAST_S)
    assert notifier.alive
    assert not read.looks
    append(here)
    notifier.notify([here])
    bench.timer.turn()
    assert read.answered


def test_each_death_in_a_row_waits_longer_up_to_a_limit() -> None:
    bench, here = Bench(), partition()
    notifier = notifier_of(bench)
    bench.park(here, wait_s=10_000)
    notifier.wake = broken
    pauses = []
    for _ in range(12):
        notifier.notify([here])
        bench.timer.turn()
        died_at = bench.clock.monotonic()
        while not notifier.alive:
            bench.timer.advance(0.01)
        pauses.append(bench.clock.monotonic() - died_at)
    assert pauses[0] < 0.2
    assert RESTART_LAST_S / 2 <= pauses[-1] <= RESTART_LAST_S + 0.1
    assert notifier.deaths == 12


def test_the_queue_is_bounded() -> None:
    """Hints above it are lost, and counted."""
    bench = Bench()
    notifier = notifier_of(bench, queue_max=2)
    places = [partition(index) for index in range(5)]
    reads = [bench.park(place) for place in places]
    for place in places:
        append(place)
    notifier.notify(places)
    bench.timer.turn()
    assert [read.answered for read in reads] == [True, True, False, False, False]
    assert notifier.lost == 3


def test_a_turn_that_never_comes_is_a_death() -> None:
    """Watched from outside; a late turn of the former life does nothing."""
    bench, here = Bench(), partition()
    notifier, read = notifier_of(bench), bench.park(here)
    append(here)
    notifier.notify([here])
    bench.clock.advance(STUCK_S + 1)
    notifier.watch()
    assert notifier.deaths == 1
    assert notifier.last_death.startswith("NotifierStuck")
    bench.timer.turn()
    assert not read.looks
