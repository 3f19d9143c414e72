"""What is wrong with a broker, in plain words: for `/readyz` and at the top of the console.

An `error` means that clients are not served as they should be, and `/readyz` says no; a
`warning` means that somebody should look. Read on the broker's thread, from memory.
"""

from __future__ import annotations

from typing import NamedTuple

from ister.gateway.broker import Broker

ERROR, WARNING = "error", "warning"
# Backlogs older than this many times the set age are worth a word.
_LATE_TIMES = 5
_DISK_LOW_SHARE = 0.1  # at 0.05 the journal takes no new file


class Problem(NamedTuple):
    severity: str
    words: str


def problems(core: Broker) -> list[Problem]:
    """Errors first."""
    storage = core.storage
    found = []
    if core.closing:
        found.append(Problem(ERROR, "the broker is stopping"))
    elif not core.listeners:
        found.append(Problem(ERROR, "the broker does not listen yet"))
    failed = storage.log.journal.failed
    if failed is not None:
        found.append(Problem(ERROR, f"{failed}; nothing can be written until a restart"))
    full = storage.log.files.full
    if full:
        found.append(Problem(ERROR, f"there is no room for new data: {full}"))
    return [*found, *_warnings(core)]


def not_ready(core: Broker) -> list[str]:
    """Why clients cannot be served; empty: they can."""
    return [each.words for each in problems(core) if each.severity == ERROR]


def disk(core: Broker) -> tuple[int, int]:
    """(free, in all) of the data directory's disk; zeros if it cannot be looked at."""
    try:
        return core.storage.fs.free_bytes(core.storage.options.data)
    except OSError:
        return 0, 0


def _warnings(core: Broker) -> list[Problem]:
    storage = core.storage
    found = []
    free, total = disk(core)
    if not total:
        words = f"the data directory {storage.options.data} cannot be looked at: is it still there?"
        found.append(Problem(WARNING, words))
    elif free < total * _DISK_LOW_SHARE:
        words = f"the disk is nearly full: {free / 1e9:.1f} of {total / 1e9:.1f} GB are free"
        found.append(Problem(WARNING, words))
    if storage.bucket_lost:
        found.append(Problem(WARNING, storage.bucket_lost))
    if storage.handoff.fenced is not None:
        words = f"the bucket belongs to another run of this broker: {storage.handoff.fenced}"
        found.append(Problem(WARNING, words))
    age_ms = storage.handoff.oldest_age_ms()
    if age_ms > _LATE_TIMES * storage.options.log.handoff_ms and storage.handoff.errors:
        words = f"the bucket has taken nothing for {age_ms // 1000} s; the journal grows meanwhile"
        found.append(Problem(WARNING, words))
    paused = storage.housekeeping.clock.paused_because
    if paused:
        found.append(Problem(WARNING, f"retention by time is paused: {paused}"))
    for damage in storage.opened.report.damages:
        found.append(Problem(WARNING, f"damage was found at the start: {damage}"))
    return found
