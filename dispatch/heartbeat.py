"""The heartbeat: whatever happens to the notifier, nobody waits longer than one interval.

Each beat compares the parked reads of the partitions that are due with the durable heads
(`lag.py`: integers, no lock, no I/O). Who looks forgotten is asked again one turn of the
loop later, so that a wake-up that was already on its way is not counted as missed; who
still is looks again, and if that gave it an answer it had missed a wake-up, which is
counted. A read that is broken is started again from its last good position.

It shares nothing with the notifier but the read itself. Subscriptions are compared by
whoever is given as `compare`, at the same beats.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import structlog

from ister.dispatch.lag import Beats, still_forgotten, suspects
from ister.dispatch.parked import ParkedRead, ParkedReads, Timer, Waker
from ister.wal.clock import Clock
from ister.wal.partition import Partition

# Between two lines in the log about wake-ups that were missed.
TELL_EVERY_S = 10.0

log = structlog.get_logger()

_Suspect = tuple[Partition, ParkedRead, int]


class Heartbeat:
    """Runs from the first partition that is watched until `close`."""

    def __init__(
        self,
        parked: ParkedReads,
        clock: Clock,
        timer: Timer,
        compare: Callable[[Sequence[Partition], int], None] | None = None,
    ) -> None:
        self._parked = parked
        self._clock = clock
        self._timer = timer
        self._compare = compare
        self._beats = Beats()
        self._keep: Callable[[Partition], bool] = lambda _: False
        self._armed_for_ms: int | None = None
        self._closed = False
        self.beats = 0
        self.polls = 0  # looks that it asked for
        self.missed = 0  # of those, wake-ups that had been lost
        self.failures = 0  # of its own
        self._told = 0  # missed wake-ups that the log was told of
        self._told_at: float | None = None
        parked.on_first = self.watch
        parked.on_last = self._left

    def keep(self, keep: Callable[[Partition], bool]) -> None:
        """Who else wants a partition to be compared when nobody waits on it."""
        self._keep = keep

    def watch(self, partition: Partition) -> None:
        self._beats.watch(partition, self._now_ms())
        self._arm()

    def unwatch(self, partition: Partition) -> None:
        """Nobody is interested any more, unless somebody is parked there."""
        if partition not in self._parked.waiting:
            self._beats.unwatch(partition)

    def close(self) -> None:
        self._closed = True

    def _left(self, partition: Partition) -> None:
        if not self._keep(partition):
            self._beats.unwatch(partition)

    def _now_ms(self) -> int:
        return round(self._clock.monotonic() * 1000)

    def _arm(self) -> None:
        due_ms = self._beats.next_due_ms
        if due_ms is None or self._closed:
            return
        if self._armed_for_ms is None or due_ms < self._armed_for_ms:
            self._armed_for_ms = due_ms
            delay_s = max(0.0, due_ms / 1000 - self._clock.monotonic())
            self._timer.later(delay_s, lambda: self._beat(due_ms))

    def _beat(self, due_ms: int) -> None:
        if self._closed or self._armed_for_ms != due_ms:
            return  # an earlier one was asked for meanwhile
        self._armed_for_ms = None
        try:
            self._compare_due()
        except Exception as error:  # the next beat must come
            self.failures += 1
            log.error("heartbeat_failed", exc_info=error)
        self._arm()

    def _compare_due(self) -> None:
        now_ms = self._now_ms()
        due = self._beats.due(now_ms)
        if not due:
            return
        self.beats += 1
        found = suspects(due, self._parked.waiting)
        if found:
            self._timer.soon(lambda: self._ask_again(found))
        if self._compare is not None:
            self._compare(due, now_ms)

    def _ask_again(self, found: Sequence[_Suspect]) -> None:
        waiting = self._parked.waiting
        forgotten: dict[Partition, list[ParkedRead]] = {}
        for partition, read, evaluated in found:
            if still_forgotten(partition, read, evaluated, waiting):
                if read.broken:
                    self._parked.recreate(read)
                else:
                    forgotten.setdefault(partition, []).append(read)
        for partition, reads in forgotten.items():
            self.polls += len(reads)
            self.missed += len(self._parked.wake_reads(partition, reads, Waker.HEARTBEAT))
        if self.missed != self._told:
            self._tell()

    def _tell(self) -> None:
        """An operator should know, but not every half second."""
        now = self._clock.monotonic()
        if self._told_at is None or now - self._told_at >= TELL_EVERY_S:
            log.warning("wake_ups_missed", count=self.missed - self._told, in_all=self.missed)
            self._told, self._told_at = self.missed, now
