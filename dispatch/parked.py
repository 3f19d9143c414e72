"""Parked reads: who waits for more, what wakes them, and when they stop waiting.

A read that has less than it wants registers itself on its partitions and waits.
A wake-up is a hint: the woken read looks again, and either answers or stays.
Registering looks at the heads once more after it is done, so that a record that
became durable between the look and the registration is not slept over; such a race
is counted.

The listener of the log only notes which partitions moved (`notify`); the readers
are woken in a call of their own (`soon`), so that nothing that happens here reaches
the commit. One heap holds all deadlines and one timer serves the earliest; a read
that is woken before leaves its entry behind, and that is skipped.

Owner's thread only. What a read does when woken is its own; this knows no wire.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from ister.wal.clock import Clock
from ister.wal.partition import Partition

Call = Callable[[], None]


class Timer(Protocol):
    """The loop's clockwork."""

    def soon(self, call: Call) -> None:
        """After what is running now."""

    def later(self, delay_s: float, call: Call) -> None:
        """Once, about then."""


class ParkedRead:
    """Base of a read that can wait; the subclass reads and answers."""

    __slots__ = ("deadline", "heads", "parked", "partitions")

    def __init__(self) -> None:
        self.parked = False
        self.deadline = 0.0  # on the monotonic clock
        self.partitions: Sequence[Partition] = ()
        self.heads: Sequence[int] = ()  # high watermarks when it looked last, one a partition

    def look(self) -> bool:
        """Read again; True: it has answered, False: it waits on, with `heads` up to date."""
        raise NotImplementedError

    def expire(self) -> None:
        """The time is up: answer with what there is."""
        raise NotImplementedError

    def fail(self, error: Exception) -> None:
        """`look` or `expire` raised: end this read, and nobody else's."""
        raise NotImplementedError


class ParkedReads:
    """All reads that wait."""

    def __init__(self, clock: Clock, timer: Timer, parked_max: int) -> None:
        self._clock = clock
        self._timer = timer
        self._parked_max = parked_max
        self._waiting: dict[Partition, dict[ParkedRead, None]] = {}
        self._heap: list[tuple[float, int, ParkedRead]] = []
        self._entries = 0
        self._armed_for: float | None = None
        self._moved: dict[Partition, None] = {}
        self.count = 0
        self.races = 0
        self.wakes = 0

    def park(self, read: ParkedRead) -> bool:
        """Wait on `read.partitions` until `read.deadline`; False: too many wait already."""
        if self.count >= self._parked_max:
            return False
        self.count += 1
        read.parked = True
        for partition in read.partitions:
            waiting = self._waiting.get(partition)
            if waiting is None:
                self._waiting[partition] = {read: None}
            else:
                waiting[read] = None
        self._entries += 1
        heapq.heappush(self._heap, (read.deadline, self._entries, read))
        if self._armed_for is None or read.deadline < self._armed_for:
            self._arm()
        for partition, head in zip(read.partitions, read.heads, strict=True):
            if partition.high_watermark != head:
                self.races += 1
                self._wake(read)
                break
        return True

    def leave(self, read: ParkedRead) -> None:
        """It waits no longer: answered, or its client is gone."""
        if not read.parked:
            return
        read.parked = False
        self.count -= 1
        for partition in read.partitions:
            waiting = self._waiting.get(partition)
            if waiting is not None:
                waiting.pop(read, None)
                if not waiting:
                    del self._waiting[partition]
        self._tidy()

    # -- what wakes --------------------------------------------------------------------

    def notify(self, partitions: Iterable[Partition]) -> None:
        """For the log's listener: these moved. Wakes nobody yet."""
        if not self._waiting:
            return
        scheduled = bool(self._moved)
        for partition in partitions:
            if partition in self._waiting:
                self._moved[partition] = None
        if self._moved and not scheduled:
            self._timer.soon(self._deliver)

    def notify_topic(self, topic_id: bytes) -> None:
        """The topic was deleted: whoever waits on it must hear of it."""
        self.notify([each for each in self._waiting if each.topic_id == topic_id])

    def wake_all(self) -> None:
        """The broker stops: everybody answers with what there is."""
        for waiting in list(self._waiting.values()):
            for read in list(waiting):
                self._expire(read)

    def _deliver(self) -> None:
        moved, self._moved = self._moved, {}
        for partition in moved:
            for read in list(self._waiting.get(partition, ())):
                if read.parked:
                    self._wake(read)

    def _wake(self, read: ParkedRead) -> None:
        self.wakes += 1
        try:
            if read.look():
                self.leave(read)
        except Exception as error:  # the next reader must not pay for it
            self.leave(read)
            read.fail(error)

    # -- deadlines ---------------------------------------------------------------------

    def sweep(self) -> None:
        """End the wait of everybody whose time is up."""
        self._armed_for = None
        now = self._clock.monotonic()
        while self._heap and self._heap[0][0] <= now:
            self._expire(heapq.heappop(self._heap)[2])
        self._arm()

    def _expire(self, read: ParkedRead) -> None:
        if not read.parked:
            return
        self.leave(read)
        try:
            read.expire()
        except Exception as error:  # the next reader must not pay for it
            read.fail(error)

    def _arm(self) -> None:
        while self._heap and not self._heap[0][2].parked:
            heapq.heappop(self._heap)
        if not self._heap:
            return
        deadline = self._heap[0][0]
        if self._armed_for is None or deadline < self._armed_for:
            self._armed_for = deadline
            self._timer.later(max(0.0, deadline - self._clock.monotonic()), self.sweep)

    def _tidy(self) -> None:
        """Entries of reads that left never outnumber those that wait by more than this."""
        if len(self._heap) > 1024 + 4 * self.count:
            self._heap = [entry for entry in self._heap if entry[2].parked]
            heapq.heapify(self._heap)

    def check(self) -> None:
        """What must hold; for tests."""
        waiting = {read for reads in self._waiting.values() for read in reads}
        assert all(read.parked for read in waiting)
        assert all(self._waiting.values())
        assert len(waiting) <= self.count
