"""Fixtures of all cases: the two brokers, once per run, and names that nobody else uses.

    def test_something(broker, names): ...        # runs on Ister and on Kafka
    def test_compared(both, names): ...           # gets both at once

Everything below `compat_tests` that asks for a broker is marked `compat`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests import brokers
from compat_tests.brokers import Both, RunningBroker
from compat_tests.differential.play import wait_until_usable
from compat_tests.names import Names

_BROKERS = ("ister", "kafka")
_LOGS = pytest.StashKey[list[Path]]()


@pytest.fixture
def names() -> Names:
    return Names(os.urandom(6).hex())


@pytest.fixture(scope="session")
def ister_broker(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[RunningBroker]:
    with brokers.ister(tmp_path_factory.mktemp("ister")) as running:
        pytestconfig.stash[_LOGS].append(running.log)
        wait_until_usable(running)
        yield running


@pytest.fixture(scope="session")
def kafka_broker(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[RunningBroker]:
    with brokers.kafka(tmp_path_factory.mktemp("kafka")) as running:
        pytestconfig.stash[_LOGS].append(running.log)
        wait_until_usable(running)
        yield running


@pytest.fixture(params=_BROKERS)
def broker(request: pytest.FixtureRequest) -> RunningBroker:
    """Each of the two in turn."""
    found: RunningBroker = request.getfixturevalue(f"{request.param}_broker")
    return found


@pytest.fixture
def both(ister_broker: RunningBroker, kafka_broker: RunningBroker) -> Both:
    return Both(ister_broker, kafka_broker)


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_LOGS] = []


def pytest_itemcollected(item: pytest.Item) -> None:
    used = set(getattr(item, "fixturenames", ()))
    if used & {"broker", "both", "ister_broker", "kafka_broker"}:
        item.add_marker("compat")


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if terminalreporter.stats.get("failed") or terminalreporter.stats.get("error"):
        for path in config.stash[_LOGS]:
            terminalreporter.write_line(f"what the broker said: {path}")
