"""Fakes for delivery: a timer that runs by hand, partitions of integers, reads that note."""

from __future__ import annotations

import heapq
from collections import deque

from ister.dispatch.parked import Call, ParkedRead, ParkedReads
from ister.wal.clock import ManualClock
from ister.wal.partition import Partition
from ister.wal.settings import TopicSettings

TOPIC = bytes(16)


class FakeTimer:
    """Calls in order; time passes only in `advance`."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._soon: deque[Call] = deque()
        self._later: list[tuple[float, int, Call]] = []
        self._count = 0

    def soon(self, call: Call) -> None:
        self._soon.append(call)

    def later(self, delay_s: float, call: Call) -> None:
        self._count += 1
        heapq.heappush(self._later, (self._clock.monotonic() + delay_s, self._count, call))

    def turn(self) -> None:
        """What is due now, and what that brings with it."""
        while True:
            now = self._clock.monotonic()
            while self._later and self._later[0][0] <= now + 1e-9:
                self._soon.append(heapq.heappop(self._later)[2])
            if not self._soon:
                return
            self._soon.popleft()()

    def advance(self, seconds: float) -> None:
        """Time passes, from one call to the next."""
        until = self._clock.monotonic() + seconds
        self.turn()
        while self._later and self._later[0][0] <= until + 1e-9:
            self._clock.advance(max(0.0, self._later[0][0] - self._clock.monotonic()))
            self.turn()
        self._clock.advance(max(0.0, until - self._clock.monotonic()))


class Read(ParkedRead):
    """A read of one or more partitions that wants `min_records` from where it stands."""

    def __init__(self, *partitions: Partition, min_records: int = 1, wait_s: float = 30.0) -> None:
        super().__init__("client", "127.0.0.1")
        self.partitions = partitions
        self.positions = [each.high_watermark for each in partitions]
        self.heads = list(self.positions)
        self.min_records = min_records
        self.wait_s = wait_s
        self.looks = 0
        self.answered = False
        self.expired = False
        self.failed: Exception | None = None
        self.raises: Exception | None = None
        self.recreated = 0
        self.is_paused = False
        self.empty_looks = 0

    @property
    def paused(self) -> bool:
        return self.is_paused

    def look(self) -> bool:
        self.looks += 1
        if self.raises is not None:
            raise self.raises
        if self.empty_looks:
            self.empty_looks -= 1
            self.heads = list(self.positions)
            self.empty = True
            return False
        self.heads = [each.high_watermark for each in self.partitions]
        self.empty = False
        found = sum(self.heads) - sum(self.positions)
        self.answered = found >= self.min_records
        return self.answered

    def recreate(self) -> None:
        self.recreated += 1

    def expire(self) -> None:
        self.expired = True

    def fail(self, error: Exception) -> None:
        self.failed = error


class Bench:
    """A clock, a timer and parked reads."""

    def __init__(self, parked_max: int = 1000) -> None:
        self.clock = ManualClock()
        self.timer = FakeTimer(self.clock)
        self.parked = ParkedReads(self.clock, self.timer, parked_max)

    def park(self, *partitions: Partition, min_records: int = 1, wait_s: float = 30.0) -> Read:
        read = Read(*partitions, min_records=min_records, wait_s=wait_s)
        read.deadline = self.clock.monotonic() + wait_s
        assert self.parked.park(read)
        return read


def partition(index: int = 0, heartbeat_ms: int = 500, head: int = 0) -> Partition:
    made = Partition(TOPIC, index, TopicSettings(heartbeat_interval_ms=heartbeat_ms))
    made.high_watermark = made.log_end = head
    return made


def append(to: Partition, records: int = 1) -> None:
    to.log_end += records
    to.high_watermark = to.log_end
