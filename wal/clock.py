"""Time, as a thing that is passed in.

Nothing else in the broker reads a clock: whoever needs time gets a `Clock`, so
that tests move it by hand. `wall_ms` is the calendar (record timestamps,
retention); `monotonic` measures durations and never goes back.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def wall_ms(self) -> int: ...

    def monotonic(self) -> float: ...


class SystemClock:
    """The machine's clocks."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    # The function itself: every request asks twice.
    monotonic = staticmethod(time.monotonic)


class ManualClock:
    """A clock that stands still until a test moves it."""

    def __init__(self, wall_ms: int = 1_700_000_000_000, monotonic: float = 1000.0) -> None:
        self._wall_ms = wall_ms
        self._monotonic = monotonic

    def wall_ms(self) -> int:
        return self._wall_ms

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Time passes: both clocks move together."""
        self._monotonic += seconds
        self._wall_ms += int(seconds * 1000)

    def jump(self, wall_ms: int) -> None:
        """Somebody set the calendar: only the wall clock moves."""
        self._wall_ms += wall_ms
