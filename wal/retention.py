"""Retention: which prefix of a partition may go, and whether the clock can be believed.

Pure decisions. A partition is a row of *extents* (entries of its manifest, then sealed
journal files); retention takes whole extents from the front and never one from behind
another that stays. The caller makes the new log start durable before anything goes.

Time: an extent goes when its largest record timestamp is older than `retention.ms` and
its last append was at least `ister.retention.grace.ms` ago, so that records that carry
old timestamps are there for a while too. Size: extents go while what is left is still
at least `retention.bytes`. Compact topics lose nothing until compaction exists.

`RetentionClock` is the wall clock as far as it can be trusted: checked against the
monotonic clock and against the last time that was stored. After a jump of more than ten
minutes it gives no time at all, and goes on after an hour in which both clocks agreed,
or on an operator's word. Everything that deletes by time asks it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ister.wal.clock import Clock
from ister.wal.tier.manifest import Entry

NO_LIMIT = -1
JUMP_MS = 10 * 60 * 1000
AGREEMENT_S = 3600.0
STORE_EVERY_S = 60.0  # far below the jump that a restart would take for one


class Extent(NamedTuple):
    """Offsets that go together or stay together."""

    first_offset: int
    last_offset: int
    size: int
    max_timestamp: int  # -1: none of its records has one
    sealed_ms: int


class Decision(NamedTuple):
    log_start: int
    by_time: int  # bytes that go because of their age
    by_size: int  # bytes that go because there is too much


def extents_of(entries: Iterable[Entry]) -> list[Extent]:
    return [
        Extent(
            entry.first_offset,
            entry.last_offset,
            entry.data_size,
            entry.max_timestamp,
            entry.sealed_ms,
        )
        for entry in entries
    ]


def decide(
    extents: Iterable[Extent],
    log_start: int,
    *,
    now_ms: int | None,
    retention_ms: int,
    retention_bytes: int,
    grace_ms: int,
    open_bytes: int = 0,
    compact: bool = False,
) -> Decision:
    """The new log start (or the old one). `now_ms` None: the clock is paused, size alone counts.

    `open_bytes` is what lies behind the extents and cannot go; it counts for the size.
    """
    row = [extent for extent in extents if extent.last_offset >= log_start]
    left = sum(extent.size for extent in row) + open_bytes
    by_time = by_size = 0
    start = log_start
    if compact:
        return Decision(start, 0, 0)
    for extent in row:
        if _is_old(extent, now_ms, retention_ms, grace_ms):
            by_time += extent.size
        elif retention_bytes != NO_LIMIT and left - extent.size >= retention_bytes:
            by_size += extent.size
        else:
            break
        left -= extent.size
        start = extent.last_offset + 1
    return Decision(start, by_time, by_size)


def _is_old(extent: Extent, now_ms: int | None, retention_ms: int, grace_ms: int) -> bool:
    if now_ms is None or retention_ms == NO_LIMIT:
        return False
    stamp = extent.max_timestamp if extent.max_timestamp >= 0 else extent.sealed_ms
    return now_ms - stamp > retention_ms and now_ms - extent.sealed_ms >= grace_ms


class RetentionClock:
    """Gives the time, or None while it cannot be believed."""

    def __init__(self, clock: Clock, stored_ms: int | None) -> None:
        self._clock = clock
        self._anchor = (clock.wall_ms(), clock.monotonic())
        self._agreed_since = clock.monotonic()
        self._stored_at: float | None = None
        self.paused_because: str | None = None
        self.jumps = 0
        if stored_ms is not None and abs(clock.wall_ms() - stored_ms) > JUMP_MS:
            self._pause(clock.wall_ms() - stored_ms, "the time that was stored last")

    def now_ms(self) -> int | None:
        """The wall clock; None while paused. Ask often: jumps are seen only when asked."""
        wall_ms, monotonic = self._clock.wall_ms(), self._clock.monotonic()
        passed_ms = (monotonic - self._anchor[1]) * 1000
        jump_ms = int(wall_ms - self._anchor[0] - passed_ms)
        if abs(jump_ms) > JUMP_MS:
            self._pause(jump_ms, "the monotonic clock")
        elif passed_ms >= AGREEMENT_S * 1000:
            # Two clocks drift apart by seconds in a day: only steps inside an hour count.
            self._anchor = (wall_ms, monotonic)
        if self.paused_because and monotonic - self._agreed_since >= AGREEMENT_S:
            self.resume()
        return None if self.paused_because else wall_ms

    def resume(self) -> None:
        """An operator says that the wall clock is right; or it was long enough."""
        self.paused_because = None
        self._anchor = (self._clock.wall_ms(), self._clock.monotonic())

    def to_store(self) -> int | None:
        """The time that should be made durable now; None: not due, or not to be believed."""
        now_ms = self.now_ms()
        monotonic = self._clock.monotonic()
        if now_ms is None:
            return None
        if self._stored_at is not None and monotonic - self._stored_at < STORE_EVERY_S:
            return None
        self._stored_at = monotonic
        return now_ms

    def _pause(self, jump_ms: int, against: str) -> None:
        self._anchor = (self._clock.wall_ms(), self._clock.monotonic())
        self._agreed_since = self._anchor[1]
        self.jumps += 1
        self.paused_because = (
            f"the wall clock went {abs(jump_ms) // 1000} s "
            f"{'forward' if jump_ms > 0 else 'back'} against {against}: nothing is deleted by "
            f"time for the next {int(AGREEMENT_S // 60)} minutes"
        )
