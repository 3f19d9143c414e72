"""Logs of a broker process: JSON, repeats held back, libraries included."""

from __future__ import annotations

import io
import json
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from ister.gateway import logs
from ister.wal.clock import ManualClock


class Lines(io.StringIO):
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.getvalue().splitlines()]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def lines(clock: ManualClock) -> Iterator[Lines]:
    """Configured for one test, and then as it was."""
    before, handlers = structlog.get_config(), logging.getLogger().handlers
    level = logging.getLogger().level
    stream = Lines()
    logs.configure(stream, clock)
    yield stream
    structlog.configure(**before)
    logging.getLogger().handlers = handlers
    logging.getLogger().setLevel(level)
    logging.captureWarnings(False)


def test_an_event_is_one_line_of_json(lines: Lines) -> None:
    """Its name, its level, its time and its facts."""
    structlog.get_logger().warning("connection_dropped", peer="1.2.3.4:5", reason="bad\nframe")
    (event,) = lines.events()
    assert event.pop("timestamp")
    assert event == {
        "event": "connection_dropped",
        "level": "warning",
        "peer": "1.2.3.4:5",
        "reason": "bad\nframe",
    }


def test_our_own_mistakes_come_with_a_traceback(lines: Lines) -> None:
    """One line all the same."""
    try:
        raise KeyError("ours")
    except KeyError as error:
        structlog.get_logger().error("connection_failed", peer="p", exc_info=error)
    (event,) = lines.events()
    assert "Traceback" in event["exception"]
    assert "KeyError: 'ours'" in event["exception"]


def test_repeats_are_held_back_and_counted(lines: Lines, clock: ManualClock) -> None:
    """Of each event by itself; the next window says how many were left out."""
    log = structlog.get_logger()
    for number in range(logs.BURST + 7):
        log.warning("again", number=number)
    log.info("another")
    log.error("again")
    assert len(lines.events()) == logs.BURST + 2
    clock.advance(logs.WINDOW_S)
    log.warning("again", number=-1)
    last = lines.events()[-1]
    assert (last["number"], last["left_out"]) == (-1, 7)
    log.warning("again", number=-2)
    assert "left_out" not in lines.events()[-1]


def test_many_names_take_bounded_memory(clock: ManualClock) -> None:
    """Whoever makes them up."""
    limit = logs.RepeatLimit(clock)
    for number in range(3 * logs.EVENTS_MAX):
        limit(None, "info", {"event": f"name-{number}"})
    assert len(limit._seen) <= logs.EVENTS_MAX


def test_libraries_speak_json_too(lines: Lines) -> None:
    """With what was raised; what is below a warning is not for operators."""
    log = logging.getLogger("some.library")
    log.info("not this")
    log.warning("careful: %s", "hot")
    try:
        raise ValueError("oh no")
    except ValueError:
        log.exception("failed")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old", UserWarning, stacklevel=1)
    careful, failed, warned = lines.events()
    assert (careful["event"], careful["logger"]) == ("library_message", "some.library")
    assert careful["message"] == "careful: hot"
    assert "ValueError: oh no" in failed["exception"]
    assert failed["level"] == "error"
    assert "old" in warned["message"]
