"""Non-reliable topics over the wire: a ring in memory, earliest = latest = head, no replay."""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ister.gateway.kafka_client import data
from ister.gateway.kafka_client.cluster import Cluster
from ister.gateway.protocol.api import ApiKey
from ister.gateway.protocol.error_codes import ErrorCode
from ister.gateway.protocol.messages import incremental_alter_configs as alter
from ister.gateway.tests.wire_kit import FetchAnswer, Part, Wire
from ister.testing import Broker
from ister.wal.partition import Partition
from ister.wal.tests.batches import make_batch

pytestmark = pytest.mark.slow

TOPIC = "events"
_TOPIC_RESOURCE = 2
_SET = 0


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(data=tmp_path / "data") as running:
        with Wire(running.port) as wire:
            configs = {"ister_dispatch_mode": "non-reliable", "ister_ring_bytes": "4096"}
            wire.create(TOPIC, **configs)  # type: ignore[arg-type]
        yield running


@pytest.fixture
def wire(broker: Broker) -> Iterator[Wire]:
    with Wire(broker.port) as connected:
        yield connected


def partition(broker: Broker) -> Partition:
    return broker.call(
        lambda core: core.log.partitions[core.storage.catalog.topics_by_name[TOPIC].id, 0]
    )


def publish(wire: Wire, records: int = 1, size: int = 10) -> int:
    done = wire.produce(TOPIC, make_batch([b"v" * size] * records))
    assert done.error == 0
    return done.base_offset


def bounds(broker: Broker) -> tuple[int, int]:
    with Cluster(broker.bootstrap) as cluster:
        ((connection, indexes),) = cluster.by_leader(TOPIC, [0]).items()
        earliest = data.list_offsets_of(connection, TOPIC, indexes, data.EARLIEST)[0]
        latest = data.list_offsets_of(connection, TOPIC, indexes, data.LATEST)[0]
    return earliest, latest


def first_offset(records: bytes) -> int:
    return int(struct.unpack_from(">q", records)[0])


def alter_mode(wire: Wire, topic: str, mode: str) -> int:
    asked = alter.IncrementalAlterConfigsRequest(
        resources=(
            alter.AlterConfigsResource(
                resource_type=_TOPIC_RESOURCE,
                resource_name=topic,
                configs=(
                    alter.AlterableConfig(
                        name="ister.dispatch.mode", config_operation=_SET, value=mode
                    ),
                ),
            ),
        ),
        validate_only=False,
    )
    answer = wire.request(alter, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, asked)
    return int(answer.responses[0].error_code)


def test_earliest_is_latest_is_the_head(broker: Broker, wire: Wire) -> None:
    """Nobody who comes now gets what was before."""
    publish(wire, 5)
    assert bounds(broker) == (5, 5)


def test_no_file_is_touched_by_data(broker: Broker, wire: Wire) -> None:
    commits = broker.call(lambda core: core.log.commits)
    for _ in range(20):
        publish(wire)
    assert broker.call(lambda core: core.log.commits) == commits
    assert not partition(broker).file_starts


@pytest.mark.parametrize("notified", [True, False])
def test_who_waits_gets_it(broker: Broker, wire: Wire, notified: bool) -> None:
    """By the notifier, and by the heartbeat when every notification is lost."""
    if not notified:
        broker.faults.drop_notifications(1.0)
    answers: list[FetchAnswer] = []
    with Wire(broker.port, 90) as reader:
        thread = threading.Thread(
            target=lambda: answers.append(reader.fetch([(TOPIC, [Part(0, 0)])], max_wait_ms=60_000))
        )
        thread.start()
        pause = threading.Event()
        while not broker.call(lambda core: core.parked.count):
            pause.wait(0.01)
        publish(wire)
        thread.join(45)
        assert first_offset(answers[0].partitions[TOPIC, 0].records) == 0


def test_what_left_the_ring_is_skipped_and_counted(broker: Broker, wire: Wire) -> None:
    """A reader below what is kept gets the oldest kept batch."""
    for _ in range(40):
        publish(wire, 1, 400)
    fetched = wire.fetch([(TOPIC, [Part(0, 2)])]).partitions[TOPIC, 0]
    assert fetched.error == 0
    oldest = first_offset(fetched.records)
    assert 2 < oldest < 40
    assert partition(broker).ring is not None
    assert broker.call(lambda core: core.log.rings.dropped) == oldest - 2
    assert (
        broker.call(lambda core: sum(r.offset_gaps for r in core.delivery.counts.rows.values()))
        == 0
    )


def test_a_restart_skips_and_never_reuses(broker: Broker, wire: Wire) -> None:
    """The next block, a higher epoch; what was in memory is gone."""
    last = publish(wire, 10) + 9
    epoch = partition(broker).leader_epoch
    broker.restart()
    with Wire(broker.port) as again:
        earliest, latest = bounds(broker)
        assert earliest == latest > last
        assert partition(broker).leader_epoch > epoch
        assert publish(again) == latest


@pytest.mark.parametrize(("topic", "mode"), [(TOPIC, "reliable"), ("plain", "non-reliable")])
def test_the_mode_is_fixed_at_creation(wire: Wire, topic: str, mode: str) -> None:
    wire.create("plain")
    assert alter_mode(wire, topic, mode) == ErrorCode.INVALID_CONFIG
