"""`ister topic`, `group`, `produce` and `consume` are for any broker, so they run on both."""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka import Consumer, Message
from typer.testing import CliRunner, Result

from compat_tests.brokers import RunningBroker
from compat_tests.names import Names
from compat_tests.waiting import wait_for
from ister.gateway.cli.main import app

SECONDS_MAX = 60


class Cli:
    def __init__(self, broker: RunningBroker) -> None:
        self.bootstrap = broker.bootstrap

    def ok(self, *arguments: str, stdin: str | None = None) -> str:
        result = self.run(*arguments, stdin=stdin)
        assert result.exit_code == 0, result.output
        return result.stdout

    def fails(self, *arguments: str) -> str:
        result = self.run(*arguments)
        assert result.exit_code == 1, result.output
        return result.stderr

    def json(self, *arguments: str) -> Any:
        return json.loads(self.ok(*arguments, "--json"))

    def run(self, *arguments: str, stdin: str | None = None) -> Result:
        environment = {"ISTER_BOOTSTRAP": self.bootstrap}
        return CliRunner().invoke(app, arguments, input=stdin, env=environment)


def consumer_of(cli: Cli, group: str, topic: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": cli.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    return consumer


def take(consumer: Consumer, count: int) -> list[Message]:
    found: list[Message] = []
    while len(found) < count:
        found += consumer.consume(count - len(found), SECONDS_MAX)
    assert [each.error() for each in found] == [None] * count
    return found


@pytest.fixture
def cli(broker: RunningBroker) -> Cli:
    return Cli(broker)


def test_topics(cli: Cli, names: Names) -> None:
    """Created, listed, described, configured, grown, deleted; Kafka's changes come round late."""
    topic = names("topic")
    cli.ok("topic", "create", topic, "-p", "2", "-c", "retention.ms=100000")
    assert topic in [row["topic"] for row in cli.json("topic", "list")]
    cli.ok("topic", "configure", topic, "max.message.bytes=99999", "--partitions", "3")
    changed = {"retention.ms": "100000", "max.message.bytes": "99999"}
    wait_for(lambda: _own(cli, topic) == (3, changed), "the changes")
    cli.ok("topic", "configure", topic, "--unset", "retention.ms")
    wait_for(lambda: _own(cli, topic) == (3, {"max.message.bytes": "99999"}), "the change")
    assert "TOPIC_ALREADY_EXISTS" in cli.fails("topic", "create", topic)
    assert cli.ok("topic", "delete", topic, "--yes") == f"deleted {topic}\n"
    wait_for(lambda: cli.run("topic", "describe", topic).exit_code == 1, "the deletion")


def _own(cli: Cli, topic: str) -> tuple[int, dict[str, str]]:
    """Partitions, and settings that are not defaults; nothing while leaders are chosen."""
    result = cli.run("topic", "describe", topic, "--json")
    if result.exit_code:
        return 0, {}
    described = json.loads(result.stdout)
    own = {row["name"]: row["value"] for row in described["configs"] if not row["default"]}
    return len(described["partitions"]), own


def test_records(cli: Cli, names: Names) -> None:
    """What one command writes another reads, and so does a consumer of another hand."""
    topic = names("topic")
    cli.ok("topic", "create", topic)
    cli.ok("produce", topic, "-K", ":", "-H", "a=1", stdin="k:one\nk:two\nl:three\n")
    rows = [json.loads(line) for line in cli.ok("consume", topic, "--json").splitlines()]
    assert [(row["key"], row["value"]) for row in rows] == [
        ("k", "one"),
        ("k", "two"),
        ("l", "three"),
    ]
    assert rows[0]["headers"] == [{"name": "a", "value": "1"}]
    assert cli.ok("consume", topic, "--from", "-1") == "three\n"
    consumer = consumer_of(cli, names("group"), topic)
    found = [each.value() for each in take(consumer, 3)]
    consumer.close()
    assert found == [b"one", b"two", b"three"]


def test_groups(cli: Cli, names: Names) -> None:
    """A group of a real consumer is listed, described, moved and deleted."""
    topic, group = names("topic"), names("group")
    cli.ok("topic", "create", topic)
    cli.ok("produce", topic, stdin="1\n2\n3\n")
    consumer = consumer_of(cli, group, topic)
    consumer.commit(take(consumer, 1)[0], asynchronous=False)
    described = cli.json("group", "describe", group)
    assert described["state"] == "Stable"
    assert len(described["members"]) == 1
    reset = ("group", "reset", group, "-t", topic, "--to", "latest", "--yes")
    assert "has members" in cli.fails(*reset)
    consumer.close()
    assert cli.json("group", "describe", group)["offsets"][0]["lag"] == 2
    cli.ok(*reset)
    assert cli.json("group", "describe", group)["offsets"][0]["lag"] == 0
    assert group in [row["group"] for row in cli.json("group", "list")]
    assert cli.ok("group", "delete", group, "--yes") == f"deleted {group}\n"


def test_the_doctor_finds_nothing(cli: Cli) -> None:
    """A broker that is well."""
    assert "problem" not in cli.ok("doctor", cli.bootstrap, "--http", "off")
