"""Faults of delivery, for tests: wrappers at the seams, none of them inside the parts.

The broker hands the hints of a commit to `hints`, the notifier wakes through its `wake`,
and reads come through the log's `read_now`; each is an attribute that holds a callable, and
`install` puts a wrapper there. What the wrappers do is set by the knobs, which may be
turned at any time and stay turned when the broker starts again. Chance comes from the
generator that is passed in.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Protocol

from ister.dispatch.notifier import Notifier, Wake
from ister.wal.log import Listener, Log
from ister.wal.partition import Partition
from ister.wal.reader import LIVE, Chunk

_Read = Callable[[Partition, int, int], Chunk | None]


class NotifierKilled(Exception):
    """Raised in the notifier by a fault."""


class Delivering(Protocol):
    """What the faults reach into: a broker."""

    hints: Listener
    notifier: Notifier

    @property
    def log(self) -> Log: ...


class DeliveryFaults:
    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._drop = 0.0
        self._coalesce = 1
        self._silent = False
        self._kills_left: int | None = 0  # None: every time
        self._empty_reads_left = 0
        self._skips: set[int] = set()
        self._held = 0
        self.dropped = 0  # notifications that were lost
        self.kills = 0

    # -- knobs -------------------------------------------------------------------------

    def drop_notifications(self, probability: float) -> None:
        """Each commit's hints are lost with this probability; 1.0: all of them."""
        self._drop = probability

    def coalesce_notifications(self, every: int) -> None:
        """Of so many commits only the last one's hint arrives, as one permit would do it."""
        self._coalesce = every

    def silence_notifier(self) -> None:
        """It takes every hint, and does nothing."""
        self._silent = True

    def kill_notifier(self, *, hold_restart: bool = False) -> None:
        """The next hint kills it; with `hold_restart` so does every one behind it."""
        self._kills_left = None if hold_restart else 1

    def empty_reads(self, count: int) -> None:
        """The next reads from memory that would find something come back empty."""
        self._empty_reads_left = count

    def lose_batch(self, base_offset: int) -> None:
        """Memory gives out chunks without the batch that begins there."""
        self._skips.add(base_offset)

    def clear(self) -> None:
        """All knobs back."""
        self._drop, self._coalesce, self._silent = 0.0, 1, False
        self._kills_left = self._empty_reads_left = 0
        self._skips.clear()

    # -- the wrappers ------------------------------------------------------------------

    def install(self, core: Delivering) -> None:
        """Into a broker that begins."""
        core.hints = self._faulty_hints(core.hints)
        core.notifier.wake = self._faulty_wake(core.notifier.wake)
        core.log.read_now = self._faulty_read(core.log.read_now)  # type: ignore[assignment, method-assign]

    def _faulty_hints(self, real: Listener) -> Listener:
        def hints(partitions: list[Partition]) -> None:
            self._held += 1
            lost = self._drop and self._rng.random() < self._drop
            if lost or self._held % self._coalesce:
                self.dropped += 1
            else:
                real(partitions)

        return hints

    def _faulty_wake(self, real: Wake) -> Wake:
        def wake(partitions: Iterable[Partition]) -> None:
            if self._kills_left is None or self._kills_left:
                self.kills += 1
                if self._kills_left is not None:
                    self._kills_left -= 1
                raise NotifierKilled("by a fault")
            if self._silent:
                self.dropped += 1
            else:
                real(partitions)

        return wake

    def _faulty_read(self, real: _Read) -> _Read:
        def read_now(partition: Partition, offset: int, max_bytes: int) -> Chunk | None:
            chunk = real(partition, offset, max_bytes)
            if chunk is None or not chunk.size:
                return chunk
            if self._empty_reads_left:
                self._empty_reads_left -= 1
                return Chunk([], 0, offset, offset, LIVE)
            return self._without_lost(chunk) if self._skips else chunk

        return read_now

    def _without_lost(self, chunk: Chunk) -> Chunk:
        kept = [
            each
            for each in chunk.buffers
            if int.from_bytes(each[:8], "big", signed=True) not in self._skips
        ]
        return chunk._replace(buffers=kept, size=sum(map(len, kept)))
