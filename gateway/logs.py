"""Log lines of a broker process: one event per fact, to stderr, coloured or JSON.

An event has a stable name and its facts as fields; nothing is logged per request. What
repeats is held back: of one event and level `BURST` lines in `WINDOW_S`, and the first line
of the next window says how many were left out. What libraries log by Python's own `logging`
becomes the event `library_message`, so that a reader of JSON never meets another format.

For `ister serve` alone: in somebody else's process nothing is configured.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any, TextIO

import structlog

from ister.wal.clock import Clock, SystemClock

BURST = 20
WINDOW_S = 10.0
EVENTS_MAX = 1_000  # names that are counted at a time; they are few, but libraries have theirs


def configure(stream: TextIO | None = None, clock: Clock | None = None) -> None:
    """Logs of this process from now on."""
    stream = stream or sys.stderr
    # Coloured lines print a traceback by themselves; JSON has it as the field `exception`.
    ending: list[structlog.types.Processor] = (
        [structlog.dev.ConsoleRenderer()]
        if stream.isatty()
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            RepeatLimit(clock or SystemClock()),
            structlog.processors.TimeStamper(fmt="iso"),
            *ending,
        ],
        logger_factory=structlog.PrintLoggerFactory(stream),
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    root.handlers = [_Bridge(logging.WARNING)]
    logging.captureWarnings(True)


class RepeatLimit:
    """A processor of structlog that lets only so many lines of one kind through."""

    def __init__(self, clock: Clock, burst: int = BURST, window_s: float = WINDOW_S) -> None:
        self._clock = clock
        self._burst = burst
        self._window_s = window_s
        self._seen: dict[tuple[str, str], _Seen] = {}

    def __call__(
        self, logger: Any, method: str, event: MutableMapping[str, Any]
    ) -> Mapping[str, Any]:
        now = self._clock.monotonic()
        key = (method, str(event.get("event")))
        seen = self._seen.get(key)
        if seen is None or now - seen.since >= self._window_s:
            if seen is None and len(self._seen) >= EVENTS_MAX:
                self._seen.clear()
            if seen is not None and seen.left_out:
                event["left_out"] = seen.left_out
            self._seen[key] = _Seen(now)
        elif seen.count >= self._burst:
            seen.left_out += 1
            raise structlog.DropEvent
        else:
            seen.count += 1
        return event


class _Seen:
    __slots__ = ("count", "left_out", "since")

    def __init__(self, since: float) -> None:
        self.since = since
        self.count = 1
        self.left_out = 0


class _Bridge(logging.Handler):
    """Python's own logging, as events."""

    def emit(self, record: logging.LogRecord) -> None:
        log = structlog.get_logger()
        told: dict[str, Any] = {"logger": record.name, "message": record.getMessage()}
        if record.exc_info:
            told["exception"] = logging.Formatter().formatException(record.exc_info)
        if record.levelno >= logging.ERROR:
            log.error("library_message", **told)
        else:
            log.warning("library_message", **told)
