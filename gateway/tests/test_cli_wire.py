"""Commands that talk to a broker: topics, groups, produce, consume."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from ister.gateway.cli.main import app
from ister.gateway.protocol.api import ApiKey
from ister.gateway.protocol.messages import join_group, offset_commit
from ister.gateway.tests.wire_kit import Wire
from ister.testing import Broker


class Cli:
    """The command `ister` against one broker."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def run(self, *arguments: str, stdin: str | bytes | None = None) -> Result:
        environment = {"ISTER_BOOTSTRAP": self._bootstrap}
        return CliRunner().invoke(app, arguments, input=stdin, env=environment)

    def ok(self, *arguments: str, stdin: str | bytes | None = None) -> str:
        result = self.run(*arguments, stdin=stdin)
        assert result.exit_code == 0, result.output
        return result.stdout

    def json(self, *arguments: str) -> Any:
        return json.loads(self.ok(*arguments, "--json"))

    def fails(self, *arguments: str, stdin: str | None = None, code: int = 1) -> str:
        result = self.run(*arguments, stdin=stdin)
        assert result.exit_code == code, result.output
        assert "Traceback" not in result.output
        return result.stderr


@pytest.fixture
def cli(ister: Broker) -> Cli:
    return Cli(ister.bootstrap)


def commit(broker: Broker, group: str, topic: str, offset: int) -> None:
    """As a consumer that manages its partitions itself."""
    with Wire(broker.port) as wire:
        wire.request(
            offset_commit,
            ApiKey.OFFSET_COMMIT,
            8,
            offset_commit.OffsetCommitRequest(
                group_id=group,
                member_id="",
                topics=(
                    offset_commit.OffsetCommitRequestTopic(
                        name=topic,
                        partitions=(
                            offset_commit.OffsetCommitRequestPartition(
                                partition_index=0, committed_offset=offset, committed_metadata=""
                            ),
                        ),
                    ),
                ),
            ),
        )


# -- topics ----------------------------------------------------------------------------


def test_the_life_of_a_topic(cli: Cli) -> None:
    """Created, listed, described, configured, deleted."""
    assert cli.ok("topic", "create", "t", "-p", "2", "-c", "retention.ms=1000") == (
        "created t with 2 partitions\n"
    )
    assert [row["topic"] for row in cli.json("topic", "list")] == ["t"]
    cli.ok("produce", "t", "a", "b", "--partition", "1")
    described = cli.json("topic", "describe", "t")
    assert [row["records"] for row in described["partitions"]] == [0, 2]
    text = cli.ok("topic", "describe", "t")
    assert "retention.ms=1000" in text
    assert "max.message.bytes" not in text
    cli.ok("topic", "configure", "t", "retention.ms=2000", "max.message.bytes=99999")
    cli.ok("topic", "configure", "t", "--unset", "retention.ms", "--partitions", "3")
    configs = {row["name"]: row for row in cli.json("topic", "configure", "t")}
    assert configs["retention.ms"]["default"] is True
    assert configs["max.message.bytes"]["value"] == "99999"
    assert len(cli.json("topic", "describe", "t")["partitions"]) == 3
    assert cli.ok("topic", "delete", "t", "--yes") == "deleted t\n"
    assert cli.json("topic", "list") == []


def test_tables_are_for_people(cli: Cli) -> None:
    """Titles, and numbers to the right."""
    cli.ok("topic", "create", "orders")
    title, row = cli.ok("topic", "list").splitlines()
    assert title.split() == ["TOPIC", "PARTITIONS", "ID"]
    assert row.startswith("orders           1  ")


def test_what_the_broker_refuses_is_said(cli: Cli) -> None:
    """Exit 1, the broker's words and the name of the error."""
    cli.ok("topic", "create", "t")
    assert "TOPIC_ALREADY_EXISTS" in cli.fails("topic", "create", "t")
    assert "INVALID_TOPIC_EXCEPTION" in cli.fails("topic", "create", "a b")
    assert "INVALID_CONFIG" in cli.fails("topic", "configure", "t", "retention.ms=soon")
    assert "INVALID_PARTITIONS" in cli.fails("topic", "configure", "t", "-p", "1")
    assert "there is no topic x" in cli.fails("topic", "describe", "x")
    assert "x was not deleted" in cli.fails("topic", "delete", "x", "-y")


def test_deleting_asks_first(cli: Cli) -> None:
    """Without a terminal nothing is deleted unless --yes says so."""
    cli.ok("topic", "create", "t")
    assert "--yes" in cli.fails("topic", "delete", "t")
    assert [row["topic"] for row in cli.json("topic", "list")] == ["t"]


def test_bad_arguments_exit_2(cli: Cli) -> None:
    """Before anything is asked of a broker."""
    cli.fails("topic", "create", "t", "-c", "retention", code=2)
    cli.fails("topic", "configure", "t", "=1", code=2)
    cli.fails("consume", "t", "--count", "0", code=2)
    cli.fails("topic", "create", code=2)


def test_no_broker_there() -> None:
    """Exit 1 with a hint."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        errors = Cli(f"127.0.0.1:{bound.getsockname()[1]}").fails("topic", "list")
    assert "nothing listens" in errors
    assert "ister doctor" in errors
    assert "is not HOST:PORT" in Cli("a:b:c").fails("group", "list")


# -- produce and consume ---------------------------------------------------------------


def test_lines_go_in_and_come_out(cli: Cli) -> None:
    """The last line needs no end; a line end of Windows is not part of the value."""
    result = cli.run("produce", "t", stdin="one\r\ntwo\n\nthree")
    assert (result.exit_code, result.stderr) == (0, "4 records written\n")
    assert cli.ok("consume", "t") == "one\ntwo\n\nthree\n"


def test_keys_headers_and_bytes(cli: Cli) -> None:
    """JSON shows all of a record; what is no text comes as base64."""
    cli.ok("produce", "t", "v", "--key", "k", "--header", "a=1")
    cli.ok("produce", "t", "-K", ":", stdin=b"key:\xff\xfe\n")
    one, two = map(json.loads, cli.ok("consume", "t", "--json").splitlines())
    assert (one["offset"], one["key"], one["value"]) == (0, "k", "v")
    assert one["headers"] == [{"name": "a", "value": "1"}]
    assert (two["key"], two["value_base64"]) == ("key", "//4=")
    assert "has no ':'" in cli.fails("produce", "t", "-K", ":", stdin="nothing\n")


def test_where_to_begin_and_when_to_stop(cli: Cli) -> None:
    """An offset, the last few, the end, so many."""
    cli.ok("produce", "t", stdin="".join(f"{number}\n" for number in range(10)))
    assert cli.ok("consume", "t", "--from", "7") == "7\n8\n9\n"
    assert cli.ok("consume", "t", "--from", "-2") == "8\n9\n"
    assert cli.ok("consume", "t", "--from", "latest") == ""
    assert cli.ok("consume", "t", "--from", "-100", "--count", "2") == "0\n1\n"
    assert cli.ok("consume", "t", "--follow", "--count", "10").count("\n") == 10
    assert "--from x" in cli.fails("consume", "t", "--from", "x")
    assert "there is no topic" in cli.fails("consume", "nothing")


def test_one_key_is_one_partition(cli: Cli) -> None:
    """And without a key all partitions get something, batch by batch."""
    cli.ok("topic", "create", "t", "-p", "3")
    for number in range(4):
        cli.ok("produce", "t", str(number), "--key", "same")
    rows = [json.loads(line) for line in cli.ok("consume", "t", "--json").splitlines()]
    assert len({row["partition"] for row in rows}) == 1
    only = str(rows[0]["partition"])
    assert cli.ok("consume", "t", "-p", only) == "0\n1\n2\n3\n"
    assert "has no partition 9" in cli.fails("consume", "t", "-p", "9")


def test_much_goes_in_batches(cli: Cli) -> None:
    """More than one batch holds, and more than one fetch brings."""
    lines = "".join(f"{number:0100}\n" for number in range(20_000))
    cli.ok("produce", "t", stdin=lines)
    assert cli.ok("consume", "t") == lines


# -- groups ----------------------------------------------------------------------------


def test_the_life_of_a_group(ister: Broker, cli: Cli) -> None:
    """Listed, described with its lag, reset, deleted."""
    cli.ok("produce", "t", stdin="a\nb\nc\n")
    commit(ister, "g", "t", 1)
    assert [row["group"] for row in cli.json("group", "list")] == ["g"]
    (row,) = cli.json("group", "describe", "g")["offsets"]
    assert (row["offset"], row["latest"], row["lag"]) == (1, 3, 2)
    assert "Empty" in cli.ok("group", "describe", "g")
    cli.ok("group", "reset", "g", "--topic", "t", "--to", "latest", "--yes")
    assert cli.json("group", "describe", "g")["offsets"][0]["lag"] == 0
    assert cli.ok("group", "delete", "g", "--yes") == "deleted g\n"
    assert "there is no group g" in cli.fails("group", "describe", "g")
    assert "GROUP_ID_NOT_FOUND" in cli.fails("group", "delete", "g", "--yes")


@pytest.mark.parametrize(
    ("to", "offset"),
    [("earliest", 0), ("latest", 3), ("2", 2), ("99", 3), ("2001-01-01", 0), ("2999-01-01", 3)],
)
def test_where_a_group_goes(ister: Broker, cli: Cli, to: str, offset: int) -> None:
    """Never outside of what there is; a dry run changes nothing."""
    cli.ok("produce", "t", stdin="a\nb\nc\n")
    commit(ister, "g", "t", 1)
    arguments = ("group", "reset", "g", "-t", "t", "--to", to)
    (row,) = cli.json(*arguments, "--dry-run")
    assert (row["offset"], row["new_offset"]) == (1, offset)
    assert "--yes" in cli.fails(*arguments)
    assert cli.json("group", "describe", "g")["offsets"][0]["offset"] == 1
    cli.ok(*arguments, "--yes")
    assert cli.json("group", "describe", "g")["offsets"][0]["offset"] == offset


def test_a_group_with_members_is_left_alone(ister: Broker, cli: Cli) -> None:
    """Somebody would overwrite it a moment later."""
    cli.ok("produce", "t", "a")
    with Wire(ister.port) as wire:
        request = join_group.JoinGroupRequest(
            group_id="g",
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            member_id="",
            protocol_type="consumer",
            protocols=(join_group.JoinGroupRequestProtocol(name="range", metadata=b""),),
        )
        joined = wire.request(join_group, ApiKey.JOIN_GROUP, 3, request)
        assert joined.error_code == 0
        errors = cli.fails("group", "reset", "g", "-t", "t", "--to", "earliest", "--yes")
        assert "has members" in errors
        assert "NON_EMPTY_GROUP" in cli.fails("group", "delete", "g", "--yes")


def test_a_time_that_is_none(cli: Cli) -> None:
    """Said before anything moves."""
    cli.ok("produce", "t", "a")
    errors = cli.fails("group", "reset", "g", "-t", "t", "--to", "yesterday", "--yes")
    assert "--to yesterday" in errors
