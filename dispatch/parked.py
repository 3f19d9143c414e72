"""Parked reads: who waits for more, and when they stop waiting.

A read that has less than it wants registers itself on its partitions and waits.
A wake-up is a hint: the woken read looks again, and either answers or stays.
Registering looks at the heads once more after it is done, so that a record that
became durable between the look and the registration is not slept over; such a race
is counted.

Every read is kept with the head at which it was last evaluated, partition by
partition: that integer is all that the heartbeat needs to find who was forgotten. A
read that found nothing where something is was not evaluated at the head but where it
stands. One that raised is *broken*: a wake-up passes it by, and the heartbeat starts it
again from its last good position, a bounded number of times.

One heap holds all deadlines and one timer serves the earliest; a read that is woken
before leaves its entry behind, and that is skipped. All reads that one pass wakes on a
partition may keep in `shared` what is the same for each of them.

Owner's thread only. Who wakes is `notifier.py` and `heartbeat.py`; what a read does when
woken is its own; this knows no wire.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterable, Sequence
from enum import Enum
from typing import Any, Protocol

import structlog

from ister.wal.clock import Clock
from ister.wal.partition import Partition

Call = Callable[[], None]

# Starts of a broken read before its client is told; each comes one heartbeat after the last.
RECREATIONS_MAX = 3

log = structlog.get_logger()


class Timer(Protocol):
    """The loop's clockwork."""

    def soon(self, call: Call) -> None:
        """After what is running now."""

    def later(self, delay_s: float, call: Call) -> None:
        """Once, about then."""


class Waker(Enum):
    """Who made a read look again."""

    NOTIFIER = "notifier"
    HEARTBEAT = "heartbeat"


class ParkedRead:
    """Base of a read that can wait; the subclass reads and answers."""

    __slots__ = (
        "broken",
        "client_id",
        "deadline",
        "empty",
        "heads",
        "host",
        "parked",
        "partitions",
        "recreations",
    )

    def __init__(self, client_id: str = "", host: str = "") -> None:
        self.client_id = client_id
        self.host = host
        self.parked = False
        self.broken = False  # the last look raised
        self.recreations = 0
        self.empty = False  # the last look found nothing where something is
        self.deadline = 0.0  # on the monotonic clock
        self.partitions: Sequence[Partition] = ()
        self.heads: Sequence[int] = ()  # up to where it has looked, one a partition

    @property
    def paused(self) -> bool:
        """Its client takes nothing at the moment: it waits for itself."""
        return False

    def look(self) -> bool:
        """Read again; True: it has answered, False: it waits on, with `heads` up to date."""
        raise NotImplementedError

    def recreate(self) -> None:
        """Forget everything but the position it was asked to read from."""
        raise NotImplementedError

    def expire(self) -> None:
        """The time is up: answer with what there is."""
        raise NotImplementedError

    def fail(self, error: Exception) -> None:
        """It cannot be read: end this read, and nobody else's."""
        raise NotImplementedError


class Waiting:
    """Who waits on one partition."""

    __slots__ = ("low", "moved_at", "reads")

    def __init__(self, low: int) -> None:
        self.reads: dict[ParkedRead, int] = {}  # with the head at which it was evaluated
        # No read was evaluated at a lower head, and none is broken unless this is below all heads.
        self.low = low
        self.moved_at: float | None = None  # when the head moved first since the last pass

    def measure(self) -> int:
        """Set `low` to what it is."""
        reads = self.reads
        self.low = -1 if any(read.broken for read in reads) else min(reads.values(), default=-1)
        return self.low


class Observer(Protocol):
    """Who counts."""

    def woken(
        self, read: ParkedRead, partition: Partition, by: Waker, answered: bool, stall_s: float
    ) -> None:
        """A read looked again; `stall_s` since the partition moved."""

    def raced(self, read: ParkedRead, partition: Partition) -> None:
        """A head moved while the read was being registered."""

    def recreated(self, read: ParkedRead, error: Exception) -> None:
        """A look raised; the heartbeat starts it again."""


class ParkedReads:
    """All reads that wait."""

    def __init__(
        self, clock: Clock, timer: Timer, parked_max: int, observer: Observer | None = None
    ) -> None:
        self._clock = clock
        self._timer = timer
        self._parked_max = parked_max
        self.observer = observer
        self.waiting: dict[Partition, Waiting] = {}
        self._heap: list[tuple[float, int, ParkedRead]] = []
        self._entries = 0
        self._armed_for: float | None = None
        # For the reads of one pass: what is the same for all of them. None: no pass.
        self.shared: dict[Hashable, Any] | None = None
        self.on_first: Callable[[Partition], None] = _nothing  # somebody waits here now
        self.on_last: Callable[[Partition], None] = _nothing  # nobody waits here any more
        self.count = 0
        self.races = 0
        self.wakes = 0

    def park(self, read: ParkedRead) -> bool:
        """Wait on `read.partitions` until `read.deadline`; False: too many wait already."""
        if self.count >= self._parked_max:
            return False
        self.count += 1
        read.parked = True
        for partition, head in zip(read.partitions, read.heads, strict=True):
            waiting = self.waiting.get(partition)
            if waiting is None:
                waiting = self.waiting[partition] = Waiting(head)
                self.on_first(partition)
            waiting.reads[read] = head
            if head < waiting.low:
                waiting.low = head
        self._entries += 1
        heapq.heappush(self._heap, (read.deadline, self._entries, read))
        if self._armed_for is None or read.deadline < self._armed_for:
            self._arm()
        if not read.empty:
            self._check_race(read)
        return True

    def _check_race(self, read: ParkedRead) -> None:
        for partition, head in zip(read.partitions, read.heads, strict=True):
            if partition.high_watermark != head:
                self.races += 1
                if self.observer is not None:
                    self.observer.raced(read, partition)
                self._look(read)
                return

    def leave(self, read: ParkedRead) -> None:
        """It waits no longer: answered, or its client is gone."""
        if not read.parked:
            return
        read.parked = False
        self.count -= 1
        for partition in read.partitions:
            waiting = self.waiting.get(partition)
            if waiting is not None:
                waiting.reads.pop(read, None)
                if not waiting.reads:
                    del self.waiting[partition]
                    self.on_last(partition)
        self._tidy()

    # -- what wakes --------------------------------------------------------------------

    def moved(self, partitions: Iterable[Partition]) -> None:
        """A commit is durable: note since when somebody waits. Wakes nobody."""
        if not self.waiting:
            return
        now = self._clock.monotonic()
        for partition in partitions:
            waiting = self.waiting.get(partition)
            if waiting is not None and waiting.moved_at is None:
                waiting.moved_at = now

    def wake(self, partitions: Iterable[Partition]) -> None:
        """Everybody who has not seen the heads of these looks again: one pass a partition.

        A read of many partitions that move together looks once, not once for each."""
        for partition in partitions:
            waiting = self.waiting.get(partition)
            if waiting is not None:
                head = partition.high_watermark
                reads = [
                    read
                    for read, evaluated in waiting.reads.items()
                    if evaluated < head and not read.broken
                ]
                self.wake_reads(partition, reads, Waker.NOTIFIER)

    def wake_reads(
        self, partition: Partition, reads: Iterable[ParkedRead], by: Waker
    ) -> list[ParkedRead]:
        """These look again, because of this partition; those that have answered."""
        waiting = self.waiting.get(partition)
        moved_at = None if waiting is None else waiting.moved_at
        now = self._clock.monotonic()
        stall_s = 0.0 if moved_at is None else now - moved_at
        answered = []
        self.shared = {}
        try:
            for read in reads:
                if read.parked:
                    done = self._look(read)
                    if done:
                        answered.append(read)
                    if self.observer is not None:
                        self.observer.woken(read, partition, by, done, stall_s)
        finally:
            self.shared = None
        if waiting is not None and waiting.measure() >= partition.high_watermark:
            waiting.moved_at = None
        return answered

    def wake_topic(self, topic_id: bytes) -> None:
        """The topic was deleted: whoever waits on it must hear of it, notifier or not."""

        def tell() -> None:
            for partition in [each for each in self.waiting if each.topic_id == topic_id]:
                waiting = self.waiting.get(partition)
                if waiting is not None:
                    self.wake_reads(partition, list(waiting.reads), Waker.NOTIFIER)

        self._timer.soon(tell)

    def wake_all(self) -> None:
        """The broker stops: everybody answers with what there is."""
        for waiting in list(self.waiting.values()):
            for read in list(waiting.reads):
                self._expire(read)

    def recreate(self, read: ParkedRead) -> bool:
        """Start a broken read again from its last good position; True: it has answered."""
        read.broken = False
        try:
            read.recreate()
        except Exception as error:
            self._broke(read, error)
            return False
        return self._look(read)

    def _look(self, read: ParkedRead) -> bool:
        """True: it waits no longer."""
        self.wakes += 1
        try:
            done = read.look()
        except Exception as error:  # the next reader must not pay for it
            self._broke(read, error)
            return not read.parked
        if done:
            self.leave(read)
            return True
        for partition, head in zip(read.partitions, read.heads, strict=True):
            waiting = self.waiting.get(partition)
            if waiting is not None and read in waiting.reads:
                waiting.reads[read] = head
                if head < waiting.low:
                    waiting.low = head
        return False

    def _broke(self, read: ParkedRead, error: Exception) -> None:
        """The heartbeat takes it up again, but not for ever."""
        read.recreations += 1
        if read.recreations > RECREATIONS_MAX:
            self.leave(read)
            read.fail(error)
            return
        read.broken = True
        for partition in read.partitions:
            waiting = self.waiting.get(partition)
            if waiting is not None:
                waiting.low = -1
        log.error("parked_read_failed", client_id=read.client_id, peer=read.host, exc_info=error)
        if self.observer is not None:
            self.observer.recreated(read, error)

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
        reads = {read for waiting in self.waiting.values() for read in waiting.reads}
        assert all(read.parked for read in reads)
        for waiting in self.waiting.values():
            assert waiting.reads
            assert waiting.low <= min(waiting.reads.values())
            assert waiting.low == -1 or not any(read.broken for read in waiting.reads)
        assert len(reads) <= self.count


def _nothing(_: Partition) -> None:
    pass
