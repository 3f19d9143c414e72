"""What a check has found: fine, worth a look, or wrong; in words, with what to do."""

from __future__ import annotations

from typing import NamedTuple

FINE, WARNING, PROBLEM = "fine", "warning", "problem"


class Finding(NamedTuple):
    level: str
    check: str  # a stable name, for scripts
    words: str


def fine(check: str, words: str) -> Finding:
    return Finding(FINE, check, words)


def warning(check: str, words: str) -> Finding:
    return Finding(WARNING, check, words)


def problem(check: str, words: str) -> Finding:
    return Finding(PROBLEM, check, words)
