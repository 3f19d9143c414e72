"""Evidence of what was sent: ranges, who they belong to, bounds."""

from __future__ import annotations

import random

import pytest

from ister.dispatch.attribution import AMBIGUOUS, NO_GROUP, Attribution, Certainty, Holding
from ister.dispatch.sent import CLOSE_EVERY_S, FORGET_AFTER_S, Sent, SentRange
from ister.metadata.catalog import Catalog
from ister.metadata.memory import MemoryStore
from ister.wal.clock import ManualClock
from ister.wal.partition import Partition
from ister.wal.settings import TopicSettings

HOST = "10.0.0.1"


class Bench:
    def __init__(self, rows_max: int = 100) -> None:
        store, rng = MemoryStore(), random.Random(1)
        catalog = Catalog.open(store, rng)
        topic = catalog.commit(store, catalog.create("t", 3, {}, 1, rng))
        self.clock = ManualClock()
        self.attribution = Attribution()
        self.sent = Sent(self.attribution, catalog, self.clock, rows_max)
        self.closed: list[SentRange] = []
        self.sent.on_closed = self.closed.append
        self.partition = Partition(topic.id, 0, TopicSettings())

    def send(self, first: int, following: int, client_id: str = "app") -> None:
        row = self.sent.fetched(client_id, HOST, self.partition)
        self.sent.sent(row, first, following)

    def ranges(self) -> list[tuple[int, int, int]]:
        self.sent.close_all()
        return [(each.first, each.last, each.fetches) for each in self.closed]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_what_goes_on_is_one_range(bench: Bench) -> None:
    """Coalesced per client and partition."""
    for first in range(0, 100, 10):
        bench.send(first, first + 10)
    assert bench.closed == []
    assert bench.ranges() == [(0, 99, 10)]
    assert bench.ranges() == [(0, 99, 10)]  # closed once


def test_a_seek_begins_another_range(bench: Bench) -> None:
    """What was sent twice is in two ranges."""
    bench.send(0, 10)
    bench.send(5, 10)
    bench.send(50, 60)
    assert bench.ranges() == [(0, 9, 1), (5, 9, 1), (50, 59, 1)]


def test_ranges_are_closed_by_time(bench: Bench) -> None:
    bench.send(0, 10)
    bench.sent.tick()
    assert not bench.closed
    bench.clock.advance(CLOSE_EVERY_S)
    bench.sent.tick()
    bench.send(10, 20)
    assert bench.ranges() == [(0, 9, 1), (10, 19, 1)]
    assert bench.closed[1].since_ms == bench.closed[0].since_ms + 1000


def test_a_range_belongs_to_who_held_the_partition_when_it_began(bench: Bench) -> None:
    """A rebalance ends it; nothing is attributed afterwards."""
    bench.send(0, 10)
    bench.attribution.set_group("g", [Holding("m", "app", HOST, [("t", 0)])])
    bench.send(10, 20)
    bench.attribution.set_group("h", [Holding("n", "app", HOST, [("t", 0)])])
    bench.send(20, 30)
    bench.ranges()
    told = [each.attributed for each in bench.closed]
    assert told[0] == NO_GROUP
    assert (told[1].certainty, told[1].group, told[1].member_id) == (Certainty.GROUP, "g", "m")
    assert told[2] == AMBIGUOUS
    assert bench.sent.unattributed == 2


def test_another_groups_change_does_not_cut_a_range(bench: Bench) -> None:
    bench.send(0, 10)
    bench.attribution.set_group("other", [Holding("m", "x", HOST, [("t", 1)])])
    bench.send(10, 20)
    assert bench.ranges() == [(0, 19, 2)]


def test_rows_are_bounded_and_forgotten(bench: Bench) -> None:
    small = Bench(rows_max=3)
    for number in range(10):
        small.send(0, 1, f"c{number}")
    assert len(small.sent) == 3
    assert len(small.ranges()) == 10  # what was evicted was closed, not lost
    bench.send(0, 1)
    bench.clock.advance(FORGET_AFTER_S + 1)
    bench.sent.tick()
    assert len(bench.sent) == 0


def test_a_topic_takes_its_rows_along(bench: Bench) -> None:
    bench.send(0, 1)
    bench.sent.forget_topic(bench.partition.topic_id)
    assert len(bench.sent) == 0
    assert len(bench.closed) == 1
