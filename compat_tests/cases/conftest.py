"""`client`: every client in turn, against every broker, that can do what the case needs.

    @needs("delete_records")
    def test_something(client, names): ...

    @choices("assignor", ["range", "sticky"])          # each that the client has
    def test_something(client, names, assignor): ...

A client that lacks something (`clients.KINDS` says what) does not get the case; it is not
skipped, for nothing is missing on this machine. Runners are processes that live as long as
the run; `another` starts one more of the same kind, to be killed.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from compat_tests.brokers import RunningBroker
from compat_tests.clients import KINDS, Client, Kind, Runner

# How many of the clients take a case to the oracle, in turn; with ISTER_LONG=1 all of them do. What
# is asked there is whether the case is right, and that does not hang on who plays it.
CLIENTS_ON_ORACLE = 1


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "kind" not in metafunc.fixturenames:
        return
    marks = metafunc.definition.iter_markers("needs")
    needs = {need for mark in marks for need in mark.args}
    choices = metafunc.definition.get_closest_marker("choices")
    argument, values = choices.args if choices else (None, [None])
    rows = []
    for value in values:
        able = [kind for kind in KINDS if kind.can(needs | {value})]
        chosen = _on_oracle(able, f"{metafunc.function.__name__}-{value}")
        for broker, kinds in (("ister", able), ("kafka", chosen)):
            for kind in kinds:
                row = (broker, kind, value) if argument else (broker, kind)
                words = (broker, kind.name, value) if value else (broker, kind.name)
                rows.append(pytest.param(*row, id="-".join(words)))
    arguments = ("broker_name", "kind", argument) if argument else ("broker_name", "kind")
    metafunc.parametrize(arguments, rows)


def _on_oracle(kinds: list[Kind], case: str) -> list[Kind]:
    if os.environ.get("ISTER_LONG") == "1":
        return kinds
    first = zlib.crc32(case.encode()) % len(kinds)
    return [(kinds * 2)[first + step] for step in range(min(CLIENTS_ON_ORACLE, len(kinds)))]


@pytest.fixture
def broker(broker_name: str, request: pytest.FixtureRequest) -> RunningBroker:
    found: RunningBroker = request.getfixturevalue(f"{broker_name}_broker")
    return found


@pytest.fixture(scope="session")
def runner_logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("clients")


@pytest.fixture(scope="session")
def runners(runner_logs: Path) -> Iterator[dict[str, Runner]]:
    """One process per client and run, started when first used."""
    with ExitStack() as stack:
        made = {kind.name: Runner(kind, runner_logs / f"{kind.name}.log") for kind in KINDS}
        for runner in made.values():
            stack.callback(runner.close)
        yield made


@pytest.fixture
def client(kind: Kind, broker: RunningBroker, runners: dict[str, Runner]) -> Client:
    runners[kind.name].prepare()
    return Client(runners[kind.name], broker.bootstrap, broker.name == "kafka")


@pytest.fixture
def another(kind: Kind, broker: RunningBroker, runner_logs: Path) -> Iterator[Callable[[], Client]]:
    """A second process of the same client, that the case may kill."""
    with ExitStack() as stack:

        def start() -> Client:
            runner = Runner(kind, runner_logs / f"{kind.name}-another.log")
            stack.callback(runner.kill)
            return Client(runner, broker.bootstrap)

        yield start


@pytest.fixture
def joined(client: Client) -> Iterator[Callable[..., str]]:
    """Join a group; whoever has not left by the end of the case leaves then."""
    with ExitStack() as stack:

        def join(member: str, group: str, topics: list[str], **options: object) -> str:
            client.join(member, group, topics, **options)
            stack.callback(_leave, client, member)
            return member

        yield join


def _leave(client: Client, member: str) -> None:
    if member in client.do("members")["names"]:
        client.leave(member)
