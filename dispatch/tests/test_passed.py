"""Retention under a cursor: marked while members live, rewritten once the group is empty."""

from __future__ import annotations

import pytest

from ister.dispatch.cursors import Place
from ister.dispatch.events import CURSOR_ADJUSTED, Events
from ister.dispatch.passed import RETRY_EVERY_S, PassedCursors
from ister.dispatch.tests.test_cursors import Bench as CursorBench
from ister.metadata.cursors import Cursor
from ister.metadata.memory import MemoryStore
from ister.wal.clock import ManualClock
from ister.wal.partition import Partition
from ister.wal.settings import TopicSettings

MINUTE_MS = 60_000


class Bench(CursorBench):
    def __init__(self) -> None:
        super().__init__()
        self.place = Place(self.topic("t").id, 0)
        self.partition = Partition(*self.place, TopicSettings())
        self.partition.high_watermark = self.partition.log_end = 1000
        self.clock = ManualClock()
        self.events = Events(self.clock)
        self.live = {"g"}
        self.passed = PassedCursors(
            self.cursors,
            {self.place: self.partition},
            self.catalog,
            self.clock,
            self.events,
            self.live.__contains__,
        )

    def prune(self, log_start: int) -> None:
        self.partition.log_start = log_start
        self.passed.moved([self.partition])

    def left(self) -> None:
        self.live.discard("g")
        self.passed.group_changed("g")

    def cursor(self) -> Cursor:
        found = self.cursors.fetch("g", self.place)
        assert found is not None
        return found


@pytest.fixture
def bench() -> Bench:
    made = Bench()
    made.commit("g", (made.place, 10))
    made.run()
    return made


def test_while_members_live_the_cursor_stays(bench: Bench) -> None:
    """Marked and counted once; the wire is Kafka's."""
    bench.prune(50)
    bench.prune(60)
    bench.run()
    assert bench.cursor().offset == 10
    assert bench.passed.is_marked("g", bench.place)
    assert bench.passed.adjustments == 1


def test_once_the_group_is_empty_it_is_rewritten_durably(bench: Bench) -> None:
    """To the log start, with where it was, and logged once with what was passed."""
    bench.prune(50)
    bench.left()
    bench.passed.group_changed("g")
    bench.run()
    assert (bench.cursor().offset, bench.cursor().adjusted_from) == (50, 10)
    assert not bench.passed.is_marked("g", bench.place)
    assert bench.reopened().offset("g", bench.place) == 50
    [event] = [each for each in bench.events.kept if each.name == CURSOR_ADJUSTED]
    assert (event.fields["adjusted_from"], event.fields["records_passed"]) == (10, 40)
    assert bench.cursors.rewinds == 0


def test_an_empty_group_is_moved_at_once(bench: Bench) -> None:
    bench.live.clear()
    bench.prune(50)
    bench.run()
    assert bench.cursor().offset == 50
    assert bench.passed.adjustments == 1


def test_a_commit_on_its_way_decides_first(bench: Bench) -> None:
    """A member's last commit is not overwritten by a cursor that was already passed."""
    bench.prune(50)
    bench.commit("g", (bench.place, 100))
    bench.left()
    bench.run()
    assert bench.cursor().offset == 100
    bench.clock.advance(RETRY_EVERY_S)
    bench.passed.tick(None, None)
    bench.run()
    assert bench.cursor().offset == 100
    assert not bench.passed.is_marked("g", bench.place)


def test_a_log_start_that_moves_on_meanwhile(bench: Bench) -> None:
    bench.live.clear()
    bench.prune(50)
    bench.partition.log_start = 70
    bench.run()
    assert bench.cursor().offset == 70


def test_a_write_that_failed_is_tried_again(bench: Bench) -> None:
    bench.live.clear()
    assert isinstance(bench.store, MemoryStore)
    bench.store.lose_next_reply()
    bench.prune(50)
    bench.run()
    assert bench.passed.is_marked("g", bench.place)
    assert bench.cursors.write_errors == 1
    bench.clock.advance(RETRY_EVERY_S)
    bench.passed.tick(None, None)
    bench.run()
    assert bench.cursor().offset == 50


def test_after_a_crash_between_log_start_and_cursor(bench: Bench) -> None:
    """The log start was durable, the cursor was not moved: opening finds it."""
    bench.live.clear()
    bench.partition.log_start = 50
    bench.passed.hydrate()
    bench.run()
    assert bench.cursor().offset == 50


def test_cursors_ahead_of_the_log_start_stay(bench: Bench) -> None:
    bench.live.clear()
    bench.prune(10)
    bench.run()
    assert bench.cursor().offset == 10
    assert bench.passed.adjustments == 0


def test_cursors_live_as_long_as_their_topic_unless_told(bench: Bench) -> None:
    """Expiry only if it is set, only of groups without members, from when they were empty."""
    bench.left()
    empty_ms = bench.clock.wall_ms()
    year_ms = 365 * 24 * 60 * MINUTE_MS
    bench.clock.advance(3600)
    bench.passed.tick(empty_ms + year_ms, None)
    bench.passed.tick(None, MINUTE_MS)  # the clock stands
    bench.run()
    assert bench.cursors.has("g")
    bench.passed.expire(empty_ms + MINUTE_MS - 1, MINUTE_MS)
    bench.run()
    assert bench.cursors.has("g")
    bench.passed.expire(empty_ms + MINUTE_MS, MINUTE_MS)
    bench.run()
    assert not bench.cursors.has("g")
    assert bench.passed.expired == 1


def test_a_live_group_never_expires(bench: Bench) -> None:
    bench.passed.expire(bench.clock.wall_ms() + 1000 * MINUTE_MS, MINUTE_MS)
    bench.run()
    assert bench.cursors.has("g")
