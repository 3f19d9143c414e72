"""Any order of appends, lost and late wake-ups, deaths and waits: nobody waits beyond the bound.

Seeded walks over notifier, heartbeat and parked reads on a manual clock, against what must
hold: a parked read whose minimum has been there for longer than the interval of its topic
does not exist. A failure names its seed.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable

import pytest

from ister.dispatch.heartbeat import Heartbeat
from ister.dispatch.notifier import Notifier
from ister.dispatch.tests.kit import Bench, Read, append, partition
from ister.wal.partition import Partition

PARTITIONS = 4
STEPS = 400
SEEDS = 2_000 if os.environ.get("ISTER_LONG") == "1" else 20


class Walk:
    """One walk: what may happen, and what must hold after each step."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        interval_ms = self.rng.choice([50, 100, 500, 1000])
        self.interval_s = interval_ms / 1000
        self.bench = Bench(parked_max=50)
        self.partitions = [partition(index, interval_ms) for index in range(PARTITIONS)]
        self.heartbeat = Heartbeat(self.bench.parked, self.bench.clock, self.bench.timer)
        self.deadly = False
        self.loss = self.rng.random()
        self.notifier = Notifier(
            self._wake, self.bench.parked.waiting, self.bench.clock, self.bench.timer, self.rng
        )
        self.since: dict[Read, float] = {}  # when the minimum was there
        self.reads: list[Read] = []

    def _wake(self, moved: Iterable[Partition]) -> None:
        if self.deadly:
            raise RuntimeError("a bug")
        self.bench.parked.wake(moved)

    def _some(self) -> list[Partition]:
        return self.rng.sample(self.partitions, self.rng.randint(1, PARTITIONS))

    def park(self) -> None:
        read = Read(*self._some(), min_records=self.rng.randint(1, 5))
        read.deadline = self.bench.clock.monotonic() + 1e6
        if self.bench.parked.park(read):
            self.reads.append(read)

    def commit(self) -> None:
        moved = self._some()
        for each in moved:
            append(each, self.rng.randint(1, 3))
        self.bench.parked.moved(moved)
        if self.rng.random() >= self.loss:
            self.notifier.notify(moved)

    def turn(self) -> None:
        self.bench.timer.turn()

    def wait(self) -> None:
        self.bench.timer.advance(self.rng.randint(1, 700) / 1000)

    def break_or_mend_the_notifier(self) -> None:
        self.deadly = not self.deadly

    def come_back_empty(self) -> None:
        """It is asked again at the next beat: so much later may it answer."""
        if self.reads:
            read = self.rng.choice(self.reads)
            read.empty_looks = 1
            self.since.pop(read, None)

    def go_away(self) -> None:
        if self.reads:
            self.bench.parked.leave(self.rng.choice(self.reads))

    def check(self) -> None:
        now = self.bench.clock.monotonic()
        for read in self.reads:
            heads = sum(each.high_watermark for each in read.partitions)
            due = heads - sum(read.positions) >= read.min_records
            if not read.parked or not due or read.empty_looks:
                self.since.pop(read, None)
                continue
            since = self.since.setdefault(read, now)
            assert now - since <= self.interval_s + 1e-6, "forgotten"
        self.reads = [read for read in self.reads if read.parked]
        self.bench.parked.check()
        assert self.heartbeat.failures == 0
        assert self.heartbeat.missed <= self.heartbeat.polls


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nobody_waits_beyond_the_bound(seed: int) -> None:
    walk = Walk(seed)
    steps = (
        *(walk.park, walk.park, walk.commit, walk.commit, walk.turn, walk.wait, walk.wait),
        *(walk.break_or_mend_the_notifier, walk.come_back_empty, walk.go_away),
    )
    for _ in range(STEPS):
        walk.rng.choice(steps)()
        walk.check()
    assert walk.heartbeat.missed > 0
