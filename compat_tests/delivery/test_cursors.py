"""Cursors with real consumers: what was acked survives, and retention is never silent."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.structs import OffsetAndMetadata

from compat_tests.delivery.kit import (
    PARTITION,
    TOPIC,
    consuming,
    create,
    numbers,
    producing,
    publish,
    run,
    subscriptions,
    take,
    until,
)
from ister.dispatch.cursors import Place
from ister.gateway.broker import Broker as Core
from ister.gateway.protocol.api import ApiKey
from ister.gateway.protocol.error_codes import ErrorCode
from ister.gateway.protocol.messages import offset_commit
from ister.gateway.tests.wire_kit import Wire
from ister.metadata.cursors import Cursor
from ister.testing import Broker

pytestmark = [pytest.mark.compat, pytest.mark.fault]

GROUPS = 50


def cursor(core: Core, group: str) -> Cursor:
    topic = core.storage.catalog.topics_by_name[TOPIC]
    found = core.cursors.fetch(group, Place(topic.id, 0))
    assert found is not None
    return found


async def delete_before(bootstrap: str, offset: int) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await admin.delete_records({PARTITION: RecordsToDelete(before_offset=offset)})
    finally:
        await admin.close()


@pytest.mark.parametrize("how", ["restart", "kill -9", "power cut"])
def test_a_group_goes_on_after_its_last_acked_commit(how: str, tmp_path: Path) -> None:
    """Mid-consumption: what was read and not committed comes again, nothing else does."""
    in_memory = how == "power cut"

    async def before(broker: Broker) -> None:
        await create(broker.bootstrap)
        async with (
            producing(broker.bootstrap) as producer,
            consuming(broker.bootstrap, "g") as consumer,
        ):
            await publish(producer, 0, 100)
            assert await take(consumer, 40) == numbers(40)
            await consumer.commit()
            assert await take(consumer, 20) == numbers(20, 40)

    async def after(broker: Broker) -> None:
        async with consuming(broker.bootstrap, "g") as consumer:
            assert await take(consumer, 60) == numbers(60, 40)

    with Broker(data=None if in_memory else tmp_path / "data") as broker:
        run(before(broker))
        broker.restart() if how == "restart" else broker.crash()
        assert broker.call(lambda core: cursor(core, "g").offset) == 40
        run(after(broker))


def test_fifty_groups_commit_at_once_on_a_slow_disk() -> None:
    """Grouped into few transactions, none reordered, and every acked one survives a power cut."""

    async def commits(broker: Broker) -> None:
        await create(broker.bootstrap)
        async with producing(broker.bootstrap) as producer:
            await publish(producer, 0, 100)
        broker.faults.delay_fsync(0.02)

        async def commit(number: int) -> None:
            async with consuming(broker.bootstrap, f"g{number}", f"c{number}") as consumer:
                await take(consumer, 1)
                for offset in (5, 9, 7, 10 + number):  # one of them backward
                    await consumer.commit({PARTITION: OffsetAndMetadata(offset, "")})

        async with asyncio.TaskGroup() as tasks:
            for number in range(GROUPS):
                tasks.create_task(commit(number))

    with Broker() as broker:
        run(commits(broker))
        assert broker.call(lambda core: core.cursors.rewinds) == GROUPS
        broker.crash()
        offsets = broker.call(lambda core: [cursor(core, f"g{n}").offset for n in range(GROUPS)])
        assert offsets == [10 + number for number in range(GROUPS)]


def stale_commit(broker: Broker, member_id: str, generation: int) -> int:
    """The error that a commit from the past gets."""
    asked = offset_commit.OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=(
            offset_commit.OffsetCommitRequestTopic(
                name=TOPIC,
                partitions=(
                    offset_commit.OffsetCommitRequestPartition(
                        partition_index=0, committed_offset=3, committed_metadata=""
                    ),
                ),
            ),
        ),
    )
    with Wire(broker.port) as wire:
        answer = wire.request(offset_commit, ApiKey.OFFSET_COMMIT, 8, asked)
    return int(answer.topics[0].partitions[0].error_code)


def test_a_stale_generation_is_fenced() -> None:
    """Neither a member that is gone nor one of the last generation moves the cursor."""

    async def scenario(broker: Broker) -> None:
        await create(broker.bootstrap)
        async with producing(broker.bootstrap) as producer:
            await publish(producer, 0, 20)
        async with consuming(broker.bootstrap, "g") as consumer:
            assert await take(consumer, 20) == numbers(20)
            await consumer.commit()
            described = broker.call(lambda core: core.groups.describe("g"))
            assert described is not None
            (member,) = described.members
            for member_id, generation, error in (
                (member.id, described.generation - 1, ErrorCode.ILLEGAL_GENERATION),
                ("gone", described.generation, ErrorCode.UNKNOWN_MEMBER_ID),
            ):
                got = await asyncio.to_thread(stale_commit, broker, member_id, generation)
                assert got == error
            assert broker.call(lambda core: cursor(core, "g").offset) == 20

    with Broker() as broker:
        run(scenario(broker))


def test_retention_under_a_lagging_group_that_lives() -> None:
    """The wire is Kafka's; the subscription is marked and counted while members live."""

    async def scenario(broker: Broker) -> None:
        await create(broker.bootstrap)
        async with producing(broker.bootstrap) as producer:
            await publish(producer, 0, 100)
            async with consuming(broker.bootstrap, "g", max_partition_fetch_bytes=1) as consumer:
                assert await take(consumer, 1) == [0]
                await consumer.commit()
                await delete_before(broker.bootstrap, 50)
                (shown,) = await asyncio.to_thread(subscriptions, broker, "g")
                assert shown["below_log_start"] is True
                assert shown["committed"] == 1
                assert broker.call(lambda core: core.passed.adjustments) == 1

    with Broker(http=True) as broker:
        run(scenario(broker))


def test_retention_under_an_empty_group_never_skips_to_the_end() -> None:
    """The cursor moves to the log start, durably, so even `latest` begins at the earliest."""

    async def lag(broker: Broker) -> None:
        await create(broker.bootstrap)
        async with producing(broker.bootstrap) as producer:
            await publish(producer, 0, 100)
        async with consuming(broker.bootstrap, "g") as consumer:
            await take(consumer, 10)
            await consumer.commit({PARTITION: OffsetAndMetadata(10, "")})
        await until(broker, lambda core: not core.groups.is_live("g"))
        await delete_before(broker.bootstrap, 50)
        await until(broker, lambda core: cursor(core, "g").offset == 50)

    async def resume(broker: Broker) -> None:
        async with consuming(broker.bootstrap, "g", auto_offset_reset="latest") as consumer:
            assert await take(consumer, 50) == numbers(50, 50)

    with Broker() as broker:
        run(lag(broker))
        broker.crash()
        assert broker.call(lambda core: cursor(core, "g").adjusted_from) == 10
        run(resume(broker))


def test_a_group_that_goes_on_says_from_where() -> None:
    async def scenario(broker: Broker) -> None:
        await create(broker.bootstrap)
        async with producing(broker.bootstrap) as producer:
            await publish(producer, 0, 10)
        for _ in range(2):
            async with consuming(broker.bootstrap, "g") as consumer:
                await consumer.commit({PARTITION: OffsetAndMetadata(4, "")})
                await take(consumer, 1)
        events = broker.call(lambda core: list(core.events.kept))
        told = [each.fields for each in events if each.name == "group_resumed"]
        assert told[-1]["offsets"] == {f"{TOPIC}-0": 4}

    with Broker() as broker:
        run(scenario(broker))
