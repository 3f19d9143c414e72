"""Many callbacks, one answer: for requests that name several things."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Gather:
    """`done` once everything that was expected has been told, and `begun` was called."""

    def __init__(self, done: Callable[[], None]) -> None:
        self._done = done
        self._left = 1  # the last one is `begun`, so that `done` is called once

    def expect(self, tell: Callable[..., None]) -> Callable[..., None]:
        """A callback that passes on to `tell` and counts."""
        self._left += 1

        def told(*values: Any) -> None:
            tell(*values)
            self.begun()

        return told

    def begun(self) -> None:
        """Everything was asked for."""
        self._left -= 1
        if self._left == 0:
            self._done()
