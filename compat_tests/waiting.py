"""Waiting for a condition: the one way in which cases let time pass."""

from __future__ import annotations

import time
from collections.abc import Callable

from ister.wal.clock import SystemClock

STEP_S = 0.02
DEADLINE_S = 60.0  # generous: what is waited for takes milliseconds on a machine that is idle


def wait_for(condition: Callable[[], bool], what: str, deadline_s: float = DEADLINE_S) -> None:
    """Return once `condition()` holds; AssertionError naming `what` if it never does."""
    clock = SystemClock()
    until = clock.monotonic() + deadline_s
    while not condition():
        assert clock.monotonic() < until, f"{what}: not within {deadline_s:.0f} s"
        time.sleep(STEP_S)
