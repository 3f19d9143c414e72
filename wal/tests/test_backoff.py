"""Backoff: later each time, with jitter, and at once again after a success."""

from __future__ import annotations

import random

from ister.wal.backoff import FIRST_S, LAST_S, Backoff


def test_it_is_due_until_something_failed() -> None:
    """The first try does not wait."""
    assert Backoff(random.Random(1)).is_due(0.0)


def test_pauses_double_up_to_a_limit() -> None:
    """Each pause is between half and all of its step."""
    backoff = Backoff(random.Random(1))
    step = FIRST_S
    for _ in range(20):
        pause = backoff.failed(100.0)
        assert step / 2 <= pause <= step
        assert not backoff.is_due(100.0 + pause * 0.99)
        assert backoff.is_due(100.0 + pause)
        step = min(LAST_S, step * 2)
    assert step == LAST_S


def test_a_success_forgets_the_failures() -> None:
    """It is due at once, and the next failure costs little again."""
    backoff = Backoff(random.Random(1))
    for _ in range(10):
        backoff.failed(0.0)
    backoff.succeeded()
    assert backoff.is_due(0.0)
    assert backoff.failed(0.0) <= FIRST_S


def test_many_brokers_do_not_come_back_at_once() -> None:
    """Other randomness, other pauses."""
    pauses = {Backoff(random.Random(seed)).failed(0.0) for seed in range(20)}
    assert len(pauses) == 20


def test_a_very_long_outage_does_not_overflow() -> None:
    """Weeks of failures still mean the same pause."""
    backoff = Backoff(random.Random(1))
    for _ in range(5000):
        assert backoff.failed(0.0) <= LAST_S
