"""Waiting: who is woken, who stays, who gives up."""

from __future__ import annotations

from ister.dispatch.parked import RECREATIONS_MAX, ParkedRead, Waker
from ister.dispatch.tests.kit import Bench, Read, append, partition
from ister.wal.partition import Partition


def test_a_woken_read_answers_or_stays() -> None:
    """A wake-up is a hint."""
    bench, here = Bench(), partition()
    eager, patient = bench.park(here), bench.park(here, min_records=3)
    append(here)
    bench.parked.wake([here])
    assert eager.answered
    assert not eager.parked
    assert patient.parked
    assert patient.looks == 1
    append(here, 2)
    bench.parked.wake([here])
    assert patient.answered
    assert bench.parked.count == 0
    bench.parked.check()


def test_a_record_that_comes_while_registering_is_not_slept_over() -> None:
    """The head is looked at again after registering; the race is counted."""
    bench, here = Bench(), partition()
    read = Read(here)
    append(here)
    read.deadline = bench.clock.monotonic() + 30
    assert bench.parked.park(read)
    assert read.answered
    assert bench.parked.races == 1
    assert bench.parked.count == 0


def test_a_read_of_many_partitions_parks_once() -> None:
    """One entry, one deadline; any of its partitions wakes it, and it leaves all."""
    bench = Bench()
    places = [partition(index) for index in range(100)]
    read = bench.park(*places)
    assert bench.parked.count == 1
    assert len(bench.parked.waiting) == 100
    append(places[57])
    bench.parked.wake([places[57]])
    assert read.looks == 1
    assert read.answered
    assert not bench.parked.waiting
    bench.parked.check()


def test_a_commit_over_many_of_its_partitions_is_one_look() -> None:
    """It saw all heads at the first; it is not asked again for each of the others."""
    bench = Bench()
    places = [partition(index) for index in range(100)]
    read = bench.park(*places, min_records=1000)
    for place in places:
        append(place)
    bench.parked.wake(places)
    assert read.looks == 1
    assert read.parked


def test_deadlines_come_in_their_order() -> None:
    """One timer serves the earliest."""
    bench, here = Bench(), partition()
    late, early = bench.park(here, wait_s=2), bench.park(here, wait_s=1)
    bench.timer.advance(1)
    assert early.expired
    assert not late.expired
    bench.timer.advance(1)
    assert late.expired
    assert bench.parked.count == 0


def test_who_leaves_is_not_woken() -> None:
    """A client that is gone costs nothing more."""
    bench, here = Bench(), partition()
    read = bench.park(here)
    bench.parked.leave(read)
    append(here)
    bench.parked.wake([here])
    bench.timer.advance(60)
    assert not read.looks
    assert not read.expired


def test_there_is_a_limit() -> None:
    """One read too many is not parked."""
    bench, here = Bench(parked_max=1), partition()
    bench.park(here)
    assert not bench.parked.park(Read(here))


def test_entries_of_those_that_left_do_not_pile_up() -> None:
    """Ten thousand short waits leave no ten thousand entries."""
    bench, here = Bench(), partition()
    for _ in range(10_000):
        bench.parked.leave(bench.park(here))
    assert len(bench.parked._heap) < 3_000


def test_one_pass_shares_what_is_the_same() -> None:
    """Thousands on one partition: `shared` lives exactly as long as the pass."""
    bench, here = Bench(parked_max=5_000), partition()
    seen: list[int] = []

    class Sharing(Read):
        def look(self) -> bool:
            shared = bench.parked.shared
            assert shared is not None
            shared.setdefault("region", object())
            seen.append(id(shared["region"]))
            return super().look()

    for _ in range(3_000):
        read = Sharing(here)
        read.deadline = bench.clock.monotonic() + 30
        assert bench.parked.park(read)
    append(here)
    bench.parked.wake([here])
    assert len(seen) == 3_000
    assert len(set(seen)) == 1
    assert bench.parked.shared is None
    assert bench.parked.count == 0


def test_a_read_that_raises_costs_nobody_else() -> None:
    """It is broken, wake-ups pass it by, and after some starts its client is told."""
    bench, here = Bench(), partition()
    bad, good = bench.park(here), bench.park(here)
    bad.raises = OSError("gone")
    append(here)
    bench.parked.wake([here])
    assert good.answered
    assert bad.broken
    append(here)
    bench.parked.wake([here])
    assert bad.looks == 1
    for _ in range(RECREATIONS_MAX - 1):
        bench.parked.recreate(bad)
        assert bad.failed is None
    bench.parked.recreate(bad)
    assert bad.failed is bad.raises
    assert bench.parked.count == 0
    bench.parked.check()


def test_a_broken_read_goes_on_when_its_source_is_back() -> None:
    """Created again from its last good position, not poked."""
    bench, here = Bench(), partition()
    read = bench.park(here)
    read.raises = OSError("gone")
    append(here)
    bench.parked.wake([here])
    read.raises = None
    assert bench.parked.recreate(read)
    assert read.recreated == 1
    assert read.answered


def test_deleting_a_topic_wakes_without_a_notifier() -> None:
    """Whoever waits on it must hear of it."""
    bench, here = Bench(), partition()
    read = bench.park(here)
    bench.parked.wake_topic(here.topic_id)
    bench.timer.turn()
    assert read.looks == 1


def test_the_stall_is_counted_from_the_commit() -> None:
    """From the first commit that it slept over to its answer."""
    told: list[tuple[Waker, bool, float]] = []

    class Observing:
        def woken(
            self, read: ParkedRead, partition: Partition, by: Waker, answered: bool, stall_s: float
        ) -> None:
            told.append((by, answered, stall_s))

        def raced(self, read: ParkedRead, partition: Partition) -> None: ...

        def recreated(self, read: ParkedRead, error: Exception) -> None: ...

    bench, here = Bench(), partition()
    bench.parked.observer = Observing()
    bench.park(here, min_records=2)
    append(here)
    bench.parked.moved([here])
    bench.clock.advance(0.25)
    bench.parked.wake([here])  # not enough yet: it waits rightly, and the stall begins anew
    append(here)
    bench.parked.moved([here])
    bench.clock.advance(0.5)
    bench.parked.wake([here])
    assert told == [(Waker.NOTIFIER, False, 0.25), (Waker.NOTIFIER, True, 0.5)]
