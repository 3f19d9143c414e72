"""ListOffsets and OffsetForLeaderEpoch over TCP."""

from __future__ import annotations

from typing import Any

import pytest

from ister.gateway.protocol.api import ApiKey
from ister.gateway.protocol.messages import list_offsets, offset_for_leader_epoch
from ister.gateway.tests.wire_kit import Part, Running, Wire
from ister.wal.tests.batches import make_batch

T0 = 1_700_000_000_000
VERSIONS = range(1, 12)
each_version = pytest.mark.parametrize("version", VERSIONS)


def offsets(wire: Wire, *asked: tuple[str, int, int], version: int = 11, epoch: int = -1) -> Any:
    topics = tuple(
        list_offsets.ListOffsetsTopic(
            name=name,
            partitions=(
                list_offsets.ListOffsetsPartition(
                    partition_index=index, timestamp=timestamp, current_leader_epoch=epoch
                ),
            ),
        )
        for name, index, timestamp in asked
    )
    request = list_offsets.ListOffsetsRequest(replica_id=-1, topics=topics, timeout_ms=30_000)
    answer = wire.request(list_offsets, ApiKey.LIST_OFFSETS, version, request)
    return [each for topic in answer.topics for each in topic.partitions]


def fill(wire: Wire) -> None:
    """Offsets 0-2 at T0, T0+10, T0+5 in one batch, 3-4 at T0+20 in another."""
    wire.create("t")
    wire.produce("t", make_batch([b"0", b"1", b"2"], timestamps=[T0, T0 + 10, T0 + 5]))
    wire.produce("t", make_batch([b"3", b"4"], base_timestamp=T0 + 20))


@each_version
def test_the_ends(wire: Wire, version: int) -> None:
    """Pitfall 11: latest is the last + 1, of an empty partition 0."""
    fill(wire)
    wire.create("empty")
    found = offsets(wire, ("t", 0, -1), ("empty", 0, -1), version=version)
    assert [each.offset for each in found] == [5, 0]
    found = offsets(wire, ("t", 0, -2), ("empty", 0, -2), version=version)
    assert [each.offset for each in found] == [0, 0]
    assert all(each.error_code == 0 for each in found)


def test_latest_is_what_is_durable(running: Running) -> None:
    """Pitfall 11: appended and not yet synced does not count, for ListOffsets and Fetch alike."""
    with running.connect() as wire:
        fill(wire)

        def ahead(broker: Any) -> None:
            for partition in broker.storage.log.partitions.values():
                partition.log_end += 7

        running.on_loop(ahead)
        assert offsets(wire, ("t", 0, -1))[0].offset == 5
        got = wire.fetch([("t", [Part(0, 5)])]).partitions["t", 0]
        assert (got.error, got.high_watermark, got.records) == (0, 5, b"")


@each_version
def test_by_time(wire: Wire, version: int) -> None:
    """Pitfall 11, G24: the first record that is not older, inside a batch too; none is -1."""
    fill(wire)
    for target, offset, timestamp in [
        (0, 0, T0),
        (T0, 0, T0),
        (T0 + 1, 1, T0 + 10),
        (T0 + 10, 1, T0 + 10),
        (T0 + 11, 3, T0 + 20),
        (T0 + 21, -1, -1),
    ]:
        (found,) = offsets(wire, ("t", 0, target), version=version)
        assert (found.error_code, found.offset, found.timestamp) == (0, offset, timestamp)


def test_special_ones(wire: Wire) -> None:
    """G24: -3 the largest timestamp, -4 earliest local, -5 last tiered, -6 earliest pending."""
    fill(wire)
    largest, local, tiered, pending = (
        offsets(wire, ("t", 0, which))[0] for which in (-3, -4, -5, -6)
    )
    assert (largest.offset, largest.timestamp) == (3, T0 + 20)
    assert (local.offset, tiered.offset, pending.offset) == (0, -1, 0)


@pytest.mark.parametrize(("which", "since"), [(-3, 7), (-4, 8), (-5, 9), (-6, 11)])
def test_special_ones_below_their_version(wire: Wire, which: int, since: int) -> None:
    """35 for that partition, and the connection lives."""
    wire.create("t")
    assert offsets(wire, ("t", 0, which), version=since - 1)[0].error_code == 35
    assert offsets(wire, ("t", 0, which), version=since)[0].error_code == 0
    assert offsets(wire, ("t", 0, -7))[0].error_code == 35


def test_refusals(wire: Wire) -> None:
    """Unknown 3, asked twice 42, epochs 74 and 75."""
    wire.create("t")
    assert offsets(wire, ("nobody", 0, -1))[0].error_code == 3
    assert offsets(wire, ("t", 9, -1))[0].error_code == 3
    twice = offsets(wire, ("t", 0, -1), ("t", 0, -2))
    assert {each.error_code for each in twice} == {42}
    assert offsets(wire, ("t", 0, -1), epoch=3)[0].error_code == 75


def epoch_ends(wire: Wire, asked: int, *, version: int = 4, current: int = -1) -> Any:
    request = offset_for_leader_epoch.OffsetForLeaderEpochRequest(
        topics=(
            offset_for_leader_epoch.OffsetForLeaderTopic(
                topic="t",
                partitions=(
                    offset_for_leader_epoch.OffsetForLeaderPartition(
                        partition=0, current_leader_epoch=current, leader_epoch=asked
                    ),
                ),
            ),
        )
    )
    key = ApiKey.OFFSET_FOR_LEADER_EPOCH
    answer = wire.request(offset_for_leader_epoch, key, version, request)
    ((topic,),) = (answer.topics,)
    (found,) = topic.partitions
    return found.error_code, found.leader_epoch, found.end_offset


@pytest.mark.parametrize("version", [2, 3, 4])
def test_where_a_leader_epoch_ended(running: Running, version: int) -> None:
    """The next one's begin, or the high watermark; above all known ones (-1, -1)."""
    with running.connect() as wire:
        fill(wire)

        def new_leader(broker: Any) -> None:
            for partition in broker.storage.log.partitions.values():
                partition.raise_epoch()

        assert epoch_ends(wire, 0, version=version) == (0, 0, 5)
        running.on_loop(new_leader)
        wire.produce("t", make_batch([b"5"]))
        assert epoch_ends(wire, 0, version=version) == (0, 0, 5)
        assert epoch_ends(wire, 1, version=version) == (0, 1, 6)
        assert epoch_ends(wire, 2, version=version) == (0, -1, -1)
        assert epoch_ends(wire, 0, version=version, current=0)[0] == 74
        assert epoch_ends(wire, 0, version=version, current=9)[0] == 75
        fenced = wire.fetch([("t", [Part(0, leader_epoch=0)])]).partitions["t", 0]
        assert fenced.error == 74
        assert offsets(wire, ("t", 0, T0))[0].leader_epoch == 0
        assert offsets(wire, ("t", 0, -1))[0].leader_epoch == 1
