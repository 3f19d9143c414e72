"""Cursors live as long as their topic, unless `offsets.retention.minutes` says otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest

from ister.gateway.http.tests.test_subscriptions import commit
from ister.gateway.tests.wire_kit import Running
from ister.wal.clock import ManualClock

pytestmark = pytest.mark.slow

HOUR_S = 3600.0


def test_off_unless_it_is_set(tmp_path: Path) -> None:
    """A week after its last commit the group still has its place."""
    clock = ManualClock()
    with Running(tmp_path / "data", clock=clock) as running:
        with running.connect() as wire:
            wire.create("t", 2)
            commit(wire, "g", 0)
        running.on_loop(lambda _: clock.advance(7 * 24 * HOUR_S))
        running.on_loop(lambda broker: broker.tick())
        assert running.on_loop(lambda broker: broker.cursors.has("g"))


def test_a_group_that_is_empty_for_so_long_is_forgotten(tmp_path: Path) -> None:
    clock = ManualClock()
    settings = {"offsets.retention.minutes": "60"}
    with Running(tmp_path / "data", settings, clock) as running:
        with running.connect() as wire:
            wire.create("t", 2)
            commit(wire, "g", 0)
        running.on_loop(lambda _: clock.advance(HOUR_S / 2))
        running.on_loop(lambda broker: broker.tick())
        assert running.on_loop(lambda broker: broker.cursors.has("g"))
        running.on_loop(lambda _: clock.advance(HOUR_S))
        running.until(lambda broker: not broker.cursors.has("g"))
        assert running.on_loop(lambda broker: broker.passed.expired) == 2
