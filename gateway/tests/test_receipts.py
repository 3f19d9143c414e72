"""Receipts over the wire: the internal topic, who may do what with it, and the command."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator

import pytest
from typer.testing import CliRunner

from ister.gateway.broker import Broker as Core
from ister.gateway.cli.main import app
from ister.gateway.internal_topics import RECEIPTS
from ister.gateway.protocol.api import ApiKey
from ister.gateway.protocol.error_codes import ErrorCode
from ister.gateway.protocol.messages import (
    alter_configs,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_configs,
    incremental_alter_configs,
    offset_commit,
)
from ister.gateway.protocol.writer import ZERO_UUID
from ister.gateway.tests.wire_kit import Part, Wire
from ister.testing import Broker
from ister.wal.tests.batches import make_batch

pytestmark = pytest.mark.slow


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(settings={"ister.handoff.ms": 3_600_000}) as running:
        yield running


@pytest.fixture
def wire(broker: Broker) -> Iterator[Wire]:
    with Wire(broker.port) as connected:
        yield connected


def flush(broker: Broker) -> None:
    """What a second would do."""

    def now(core: Core) -> None:
        core.sent.close_all()
        core.receipts.flush()

    broker.call(now)


def consumed(broker: Broker, wire: Wire) -> None:
    """Ten records were read and half of them committed by a group without members."""
    wire.create("t")
    wire.produce("t", make_batch([b"v"] * 10))
    wire.fetch([("t", [Part(0)])])
    commit = offset_commit.OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=(
            offset_commit.OffsetCommitRequestTopic(
                name="t",
                partitions=(
                    offset_commit.OffsetCommitRequestPartition(
                        partition_index=0, committed_offset=5, committed_metadata=""
                    ),
                ),
            ),
        ),
    )
    wire.request(offset_commit, ApiKey.OFFSET_COMMIT, 8, commit)
    flush(broker)
    until(broker, _written)


def _written(core: Core) -> bool:
    """The topic is there and its receipts are durable."""
    topic = core.storage.catalog.topics_by_name.get(RECEIPTS)
    partition = None if topic is None else core.log.partitions.get((topic.id, 0))
    return partition is not None and partition.high_watermark >= 2


def until(broker: Broker, holds: Callable[[Core], bool]) -> None:
    pause = threading.Event()
    for _ in range(3000):
        if broker.call(holds):
            return
        pause.wait(0.01)
    raise AssertionError("it never came to hold")


def run(broker: Broker, *arguments: str) -> str:
    result = CliRunner().invoke(app, ["receipts", *arguments, "--bootstrap", broker.bootstrap])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_sent_and_committed_are_answered_apart(broker: Broker, wire: Wire) -> None:
    """A client that is in no group: sent to it, and a commit that names the group."""
    consumed(broker, wire)
    found = json.loads(run(broker, "t", "0", "4", "--json"))
    assert found["times_sent"] == 1
    [sent] = found["sent"]
    assert (sent["attribution"], sent["client_id"], sent["peer"]) == (
        "no group",
        "test",
        "127.0.0.1",
    )
    [committed] = found["committed"]
    assert (committed["group"], committed["offset"]) == ("g", 5)
    assert json.loads(run(broker, "t", "0", "5", "--json"))["committed"] == []
    words = run(broker, "t", "0", "4")
    assert "sent once" in words
    assert "(no group)" in words
    assert "group g" in words


def test_no_receipt_proves_nothing(broker: Broker, wire: Wire) -> None:
    wire.create("t")
    assert "does not prove" in run(broker, "t", "0", "3")


def test_reading_receipts_makes_none(broker: Broker, wire: Wire) -> None:
    consumed(broker, wire)
    made = broker.call(lambda core: core.receipts.made)
    for _ in range(3):
        wire.fetch([(RECEIPTS, [Part(0)])])
    flush(broker)
    assert broker.call(lambda core: core.receipts.made) == made


def test_clients_can_read_it_and_nothing_else(broker: Broker, wire: Wire) -> None:
    """Not write, not delete, not prune, not make; and it is marked as internal."""
    consumed(broker, wire)
    assert wire.produce(RECEIPTS, make_batch([b"forged"])).error == (
        ErrorCode.INVALID_TOPIC_EXCEPTION
    )
    gone = wire.request(
        delete_topics,
        ApiKey.DELETE_TOPICS,
        6,
        delete_topics.DeleteTopicsRequest(
            topics=(delete_topics.DeleteTopicState(name=RECEIPTS, topic_id=ZERO_UUID),),
            timeout_ms=1000,
        ),
    )
    assert gone.responses[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    pruned = wire.request(
        delete_records,
        ApiKey.DELETE_RECORDS,
        2,
        delete_records.DeleteRecordsRequest(
            topics=(
                delete_records.DeleteRecordsTopic(
                    name=RECEIPTS,
                    partitions=(
                        delete_records.DeleteRecordsPartition(partition_index=0, offset=-1),
                    ),
                ),
            ),
            timeout_ms=1000,
        ),
    )
    assert pruned.topics[0].partitions[0].error_code == ErrorCode.POLICY_VIOLATION
    made = wire.request(
        create_topics,
        ApiKey.CREATE_TOPICS,
        7,
        create_topics.CreateTopicsRequest(
            timeout_ms=1000,
            topics=(
                create_topics.CreatableTopic(
                    name="__ister_mine",
                    num_partitions=1,
                    replication_factor=1,
                    assignments=(),
                    configs=(),
                ),
            ),
        ),
    )
    assert made.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    (described,) = wire.metadata(RECEIPTS).topics
    assert described.is_internal
    assert wire.fetch([(RECEIPTS, [Part(0)])]).partitions[RECEIPTS, 0].records


def retention(wire: Wire) -> str | None:
    asked = describe_configs.DescribeConfigsRequest(
        resources=(
            describe_configs.DescribeConfigsResource(
                resource_type=2, resource_name=RECEIPTS, configuration_keys=("retention.ms",)
            ),
        )
    )
    answer = wire.request(describe_configs, ApiKey.DESCRIBE_CONFIGS, 4, asked)
    (config,) = answer.results[0].configs
    value: str | None = config.value
    return value


def test_it_keeps_seven_days_whatever_the_broker_keeps() -> None:
    """Its retention is its own, not the default of topics that set nothing."""
    with (
        Broker(settings={"log.retention.ms": 60_000, "ister.handoff.ms": 3_600_000}) as broker,
        Wire(broker.port) as wire,
    ):
        consumed(broker, wire)
        assert retention(wire) == str(7 * 24 * 3_600_000)


def test_clients_cannot_configure_or_grow_it(broker: Broker, wire: Wire) -> None:
    """A shorter retention would be a way to delete, and so would be no settings at all."""
    consumed(broker, wire)
    before = retention(wire)
    one = incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=(
            incremental_alter_configs.AlterConfigsResource(
                resource_type=2,
                resource_name=RECEIPTS,
                configs=(
                    incremental_alter_configs.AlterableConfig(
                        name="retention.ms", config_operation=0, value="1000"
                    ),
                ),
            ),
        ),
        validate_only=False,
    )
    got = wire.request(incremental_alter_configs, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, one)
    assert got.responses[0].error_code == ErrorCode.POLICY_VIOLATION
    whole = alter_configs.AlterConfigsRequest(
        resources=(
            alter_configs.AlterConfigsResource(resource_type=2, resource_name=RECEIPTS, configs=()),
        ),
        validate_only=False,
    )
    got = wire.request(alter_configs, ApiKey.ALTER_CONFIGS, 2, whole)
    assert got.responses[0].error_code == ErrorCode.POLICY_VIOLATION
    more = create_partitions.CreatePartitionsRequest(
        topics=(create_partitions.CreatePartitionsTopic(name=RECEIPTS, count=3, assignments=None),),
        timeout_ms=1000,
        validate_only=False,
    )
    got = wire.request(create_partitions, ApiKey.CREATE_PARTITIONS, 3, more)
    assert got.results[0].error_code == ErrorCode.POLICY_VIOLATION
    assert retention(wire) == before
    assert len(wire.metadata(RECEIPTS).topics[0].partitions) == 1


def test_receipts_may_be_off() -> None:
    with (
        Broker(settings={"ister.receipts.enable": False}) as broker,
        Wire(broker.port) as wire,
    ):
        wire.create("t")
        wire.produce("t", make_batch([b"v"]))
        wire.fetch([("t", [Part(0)])])
        flush(broker)
        assert broker.call(lambda core: RECEIPTS in core.storage.catalog.topics_by_name) is False
        assert broker.call(lambda core: core.receipts.made) == 0
