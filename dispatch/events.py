"""What happened to cursors, lately: a bounded list of events that carry offsets.

`cursor_set`, `cursor_adjusted` and `group_resumed`. Every commit is an event, and there are
thousands a second, so they are kept here and counted; only what an operator should read
goes to the log too.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Any, NamedTuple

import structlog

from ister.wal.clock import Clock

KEPT_MAX = 1_000

CURSOR_SET = "cursor_set"
CURSOR_ADJUSTED = "cursor_adjusted"
GROUP_RESUMED = "group_resumed"

log = structlog.get_logger()


class Event(NamedTuple):
    name: str
    time_ms: int
    fields: dict[str, Any]


class Events:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.kept: deque[Event] = deque(maxlen=KEPT_MAX)
        self.counts: Counter[str] = Counter()

    def note(self, name: str, **fields: Any) -> None:
        """Keep it."""
        self.counts[name] += 1
        self.kept.append(Event(name, self._clock.wall_ms(), fields))

    def tell(self, name: str, **fields: Any) -> None:
        """Keep it, and say it in the log."""
        self.note(name, **fields)
        log.info(name, **fields)

    def warn(self, name: str, **fields: Any) -> None:
        """Keep it, and say it in the log as something to look at."""
        self.note(name, **fields)
        log.warning(name, **fields)
