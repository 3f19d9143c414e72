"""When to try again what failed for a passing reason: later each time, with jitter.

Pure: the caller says what time it is and asks whether it is due. Nothing sleeps here.
"""

from __future__ import annotations

import random

FIRST_S = 0.2  # a single lost reply costs next to nothing
LAST_S = 30.0  # a bucket that comes back after an hour is used again within this


class Backoff:
    """Doubles the pause up to a limit; jitter keeps many brokers from coming back at once."""

    def __init__(
        self, rng: random.Random, first_s: float = FIRST_S, last_s: float = LAST_S
    ) -> None:
        self._rng = rng
        self._first_s = first_s
        self._last_s = last_s
        self._due = 0.0
        self.failures = 0  # in a row

    def failed(self, now: float) -> float:
        """One more failure at monotonic time `now`; the seconds until the next try."""
        pause = min(self._last_s, self._first_s * 2.0 ** min(self.failures, 30))
        pause *= 0.5 + self._rng.random() / 2
        self.failures += 1
        self._due = now + pause
        return pause

    def succeeded(self) -> None:
        self.failures = 0
        self._due = 0.0

    def is_due(self, now: float) -> bool:
        return now >= self._due
