"""Fixtures of the tests of the wire."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ister.gateway.tests.wire_kit import Running, Wire


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    """A broker with the settings that users have."""
    with Running(tmp_path / "data") as broker:
        yield broker


@pytest.fixture
def wire(running: Running) -> Iterator[Wire]:
    """One connection to it."""
    with running.connect() as connection:
        yield connection
