"""The notifier: the fast path between the log's listener and the parked reads.

The listener hands it the partitions of a commit (`notify`). They go into a queue of its
own, in which a partition stands once however often it moves, and one call behind the
commit wakes who waits on them. Nothing here is data: a hint that is lost costs time, and
`heartbeat.py`, which shares nothing with this, finds who was forgotten.

So a failure may never reach the commit. Whatever is raised here ends the notifier: it is
dead, its queue is gone, the reason is logged and counted, and a while later it begins
again, later each time until it works. A call that does not come within `STUCK_S` (asked
for by `watch`, now and then) is a death too.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Container, Iterable

import structlog

from ister.dispatch.parked import Timer
from ister.wal.backoff import Backoff
from ister.wal.clock import Clock
from ister.wal.partition import Partition

# Partitions that moved and whose readers were not woken yet; above it hints are dropped.
QUEUE_MAX = 100_000
RESTART_FIRST_S = 0.1
RESTART_LAST_S = 5.0
# The call that wakes comes in the loop's next turn; one that is missing for so long is lost.
STUCK_S = 5.0

Wake = Callable[[Iterable[Partition]], None]

log = structlog.get_logger()


class NotifierStuck(Exception):
    """The call that was asked for did not come."""


class Notifier:
    """See the module. `wake` may be wrapped: it is the seam for faults."""

    def __init__(
        self,
        wake: Wake,
        waiting: Container[Partition],
        clock: Clock,
        timer: Timer,
        rng: random.Random,
        *,
        queue_max: int = QUEUE_MAX,
    ) -> None:
        self.wake = wake
        self._waiting = waiting
        self._clock = clock
        self._timer = timer
        self._backoff = Backoff(rng, RESTART_FIRST_S, RESTART_LAST_S)
        self._queue_max = queue_max
        self._queue: dict[Partition, None] = {}
        self._asked_at: float | None = None  # for the call that wakes
        self._life = 0  # a call that was asked for in an earlier one does nothing
        self.alive = True
        self.notifications = 0  # commits that had news for somebody
        self.deaths = 0
        self.lost = 0  # hints that came while it was dead, or found the queue full
        self.last_death = ""

    def notify(self, partitions: Iterable[Partition]) -> None:
        """These moved. Wakes nobody yet, and never raises."""
        try:
            self._take(partitions)
        except Exception as error:
            self._die(error)

    def watch(self) -> None:
        """Now and then: a call that is missing for too long is a death."""
        asked_at = self._asked_at
        if asked_at is not None and self._clock.monotonic() - asked_at > STUCK_S:
            self._die(NotifierStuck(f"no turn for {STUCK_S:g} s"))

    def _take(self, partitions: Iterable[Partition]) -> None:
        queue, waiting = self._queue, self._waiting
        wanted = [each for each in partitions if each in waiting]
        if not wanted:
            return
        if not self.alive:
            self.lost += len(wanted)
            return
        self.notifications += 1
        for partition in wanted:
            if len(queue) >= self._queue_max and partition not in queue:
                self.lost += 1
            else:
                queue[partition] = None
        if self._asked_at is None:
            self._asked_at = self._clock.monotonic()
            life = self._life
            self._timer.soon(lambda: self._run(life))

    def _run(self, life: int) -> None:
        if life != self._life:
            return
        self._asked_at = None
        moved, self._queue = self._queue, {}
        try:
            self.wake(moved)
        except Exception as error:
            self._die(error)
        else:
            self._backoff.succeeded()

    def _die(self, error: Exception) -> None:
        if not self.alive:
            return
        self.alive = False
        self._life += 1
        self.deaths += 1
        self.lost += len(self._queue)
        self._queue = {}
        self._asked_at = None
        self.last_death = f"{type(error).__name__}: {error}"
        pause_s = self._backoff.failed(self._clock.monotonic())
        log.error("notifier_died", reason=self.last_death, restart_in_s=round(pause_s, 3))
        self._timer.later(pause_s, self._restart)

    def _restart(self) -> None:
        self.alive = True
        log.info("notifier_restarted", deaths=self.deaths)
