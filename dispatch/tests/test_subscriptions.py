"""What is known of each subscription, from the first moment on."""

from __future__ import annotations

import pytest

from ister.dispatch.attribution import Attribution, Holding
from ister.dispatch.counts import Counts
from ister.dispatch.cursors import Place
from ister.dispatch.events import CURSOR_SET, Events
from ister.dispatch.heartbeat import Heartbeat
from ister.dispatch.passed import PassedCursors
from ister.dispatch.sent import Sent
from ister.dispatch.subscriptions import STALLED_AFTER_S, Subscriptions, SubscriptionView
from ister.dispatch.tests.kit import Bench as ParkedBench
from ister.dispatch.tests.test_cursors import Bench as CursorBench
from ister.wal.partition import Partition
from ister.wal.settings import TopicSettings

HOST = "10.0.0.1"


class Bench(CursorBench):
    def __init__(self) -> None:
        super().__init__()
        topic = self.topic("t")
        self.place = Place(topic.id, 0)
        self.partition = Partition(*self.place, TopicSettings())
        self.partition.high_watermark = self.partition.log_end = 100
        self.parked = ParkedBench()
        self.begin()

    def begin(self) -> None:
        """What a new process makes of the store."""
        clock = self.parked.clock
        self.attribution = Attribution()
        self.events = Events(clock)
        self.sent = Sent(self.attribution, self.catalog, clock)
        partitions: dict[tuple[bytes, int], Partition] = {self.place: self.partition}
        passed = PassedCursors(
            self.cursors, partitions, self.catalog, clock, self.events, lambda _: True
        )
        self.subscriptions = Subscriptions(
            self.cursors,
            partitions,
            self.catalog,
            self.attribution,
            self.sent,
            passed,
            self.parked.parked,
            Counts(),
            self.events,
            clock,
        )
        parked = self.parked
        self.heartbeat = Heartbeat(parked.parked, clock, parked.timer, self.subscriptions.compare)
        self.subscriptions.begin(self.heartbeat)

    def member(self, group: str = "g", client_id: str = "app") -> None:
        held = Holding(f"{group}-m", client_id, HOST, [("t", 0)])
        self.attribution.set_group(group, [held], self.parked.clock.monotonic())

    def view(self, group: str = "g") -> SubscriptionView:
        [view] = self.subscriptions.of_group(group)
        return view


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_lag_is_right_from_the_first_moment(bench: Bench) -> None:
    """Pitfall 37: before the first commit after a restart the loaded cursor counts."""
    bench.commit("g", (bench.place, 40))
    bench.run()
    bench.begin()
    assert bench.view().lag == 60
    assert bench.view().committed == bench.view().persisted == 40
    assert dict(bench.subscriptions.lags()) == {("g", "t", "0"): 60}


def test_a_member_without_a_cursor_is_a_subscription(bench: Bench) -> None:
    """`auto.offset.reset` decides where it begins; until it commits nobody knows its lag."""
    bench.member()
    view = bench.view()
    assert (view.member, view.committed, view.lag, view.sent) == ("g-m", None, None, None)


def test_what_was_sent_is_shown_where_it_is_certain(bench: Bench) -> None:
    bench.member()
    bench.commit("g", (bench.place, 10))
    bench.run()
    row = bench.sent.fetched("app", HOST, bench.partition)
    bench.sent.sent(row, 10, 30)
    view = bench.view()
    assert (view.sent, view.sent_to, view.persisted_lag) == (29, "group", 20)
    bench.member("h")
    for group in ("g", "h"):
        view = bench.view(group)
        assert (view.sent, view.sent_to, view.stalled) == (None, "ambiguous", None)
    bench.attribution.remove_group("g")
    assert bench.view("g").sent_to == "no group"


def test_a_member_that_asks_for_nothing_is_stalled(bench: Bench) -> None:
    """Alive, something to read, no fetch; parked at the head is not stalled."""
    bench.member()
    bench.commit("g", (bench.place, 10))
    bench.run()
    assert bench.view().stalled is False
    bench.parked.clock.advance(STALLED_AFTER_S + 1)
    assert bench.view().stalled is True
    bench.sent.fetched("app", HOST, bench.partition)
    assert bench.view().stalled is False
    bench.parked.clock.advance(STALLED_AFTER_S + 1)
    read = bench.parked.park(bench.partition)
    read.client_id, read.host = "app", HOST
    assert bench.view().stalled is False
    bench.parked.parked.leave(read)
    bench.commit("g", (bench.place, 100))
    bench.run()
    assert bench.view().stalled is False


def test_every_beat_compares_every_cursor(bench: Bench) -> None:
    """Also where nobody is parked; what it keeps is since when it is behind."""
    bench.commit("g", (bench.place, 100))
    bench.run()
    bench.parked.timer.advance(1)
    assert bench.view().behind_s == 0
    bench.partition.high_watermark = bench.partition.log_end = 150
    bench.parked.timer.advance(0.5)
    bench.parked.timer.advance(2)
    assert bench.view().behind_s == 2.0
    assert bench.heartbeat.missed == 0
    bench.commit("g", (bench.place, 150))
    bench.run()
    assert bench.view().behind_s == 0


def test_of_two_groups_only_one_is_behind(bench: Bench) -> None:
    """Heads that go on do not change since when; who was level is found behind at its beat."""
    bench.commit("late", (bench.place, 40))
    bench.commit("level", (bench.place, 100))
    bench.run()
    bench.parked.timer.advance(0.5)
    assert [bench.view(group).behind_s for group in ("late", "level")] == [0, 0]
    bench.parked.timer.advance(1)
    assert [bench.view(group).behind_s for group in ("late", "level")] == [1.0, 0]
    for head in (101, 102):
        bench.partition.high_watermark = bench.partition.log_end = head
        bench.parked.timer.advance(0.5)
    assert [bench.view(group).behind_s for group in ("late", "level")] == [2.0, 0.5]
    bench.commit("level", (bench.place, 102))
    bench.run()
    bench.parked.timer.advance(0.5)
    assert [bench.view(group).behind_s for group in ("late", "level")] == [2.5, 0]


def test_every_commit_is_an_event_with_offsets(bench: Bench) -> None:
    bench.commit("g", (bench.place, 5))
    bench.commit("g", (bench.place, 7))
    bench.run()
    told = [each.fields for each in bench.events.kept if each.name == CURSOR_SET]
    assert [(each["before"], each["offset"]) for each in told] == [(None, 5), (5, 7)]


def test_a_deleted_cursor_is_no_longer_compared(bench: Bench) -> None:
    bench.commit("g", (bench.place, 5))
    bench.run()
    assert len(bench.subscriptions) == 1
    bench.cursors.delete_group("g", bench.answers.append)
    bench.run()
    assert len(bench.subscriptions) == 0
    assert list(bench.subscriptions.views()) == []


def test_a_deleted_topic_takes_its_subscriptions_along(bench: Bench) -> None:
    bench.commit("g", (bench.place, 5))
    bench.run()
    bench.subscriptions.forget_topic(bench.place.topic_id)
    assert len(bench.subscriptions) == 0
