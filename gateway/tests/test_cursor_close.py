"""Cursors when the broker closes: what it has taken is written before it goes."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from ister.dispatch.cursors import Place
from ister.gateway.broker import Broker as Core
from ister.gateway.protocol.api import ApiKey
from ister.gateway.protocol.messages import offset_commit
from ister.gateway.tests.test_group_handlers import commit, committed
from ister.gateway.tests.wire_kit import Wire
from ister.testing import Broker

pytestmark = pytest.mark.slow

GROUPS = 20


def test_an_answered_commit_is_there_after_a_close_at_once(tmp_path: Path) -> None:
    with Broker(tmp_path / "data") as broker:
        with Wire(broker.port) as wire:
            wire.create("t")
            assert commit(wire, "g", "t", 7) == 0
            broker.restart()
        with Wire(broker.port) as wire:
            assert committed(wire, "g", "t") == (7, "words")


@pytest.mark.fault
def test_commits_that_wait_for_the_disk_are_written_by_the_close(tmp_path: Path) -> None:
    """Nobody has read their answers when the broker is told to go."""
    with Broker(tmp_path / "data") as broker:
        with Wire(broker.port) as wire:
            last = Place(wire.create("t"), 0)
            broker.faults.delay_fsync(0.05)
            for number in range(GROUPS):
                wire.ask(ApiKey.OFFSET_COMMIT, 8, commit_body(f"g{number}", 10 + number))
            until_taken(broker, f"g{GROUPS - 1}", last)
            broker.restart()
        with Wire(broker.port) as wire:
            found = [committed(wire, f"g{number}", "t")[0] for number in range(GROUPS)]
        assert found == [10 + number for number in range(GROUPS)]


def commit_body(group: str, offset: int) -> bytes:
    partition = offset_commit.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=""
    )
    asked = offset_commit.OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=(offset_commit.OffsetCommitRequestTopic(name="t", partitions=(partition,)),),
    )
    return bytes(offset_commit.REQUEST.write(asked, 8))


def until_taken(broker: Broker, group: str, place: Place) -> None:
    def taken(core: Core) -> bool:
        return core.cursors.is_in_flight(group, place) or core.cursors.has(group)

    pause = threading.Event()
    for _ in range(3000):
        if broker.call(taken):
            return
        pause.wait(0.01)
    raise AssertionError("the broker never took the last commit")
