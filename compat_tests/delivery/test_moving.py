"""Delivery while things move: publishes come in a row, members come and go, files change.

Each runs again with a notifier that does nothing at all."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError

from compat_tests.delivery.kit import (
    PARTITION,
    SECONDS_MAX,
    TOPIC,
    consuming,
    counted,
    create,
    numbers,
    producing,
    publish,
    run,
    take,
    until,
)
from ister.gateway.broker import Broker as Core
from ister.gateway.tests.small_files import SmallFiles
from ister.testing import Broker
from ister.wal.fs import File

pytestmark = [pytest.mark.compat, pytest.mark.fault]

PARTITIONS = 4
MEMBERS = 4  # one after the other
ROUNDS_MAX = 500  # a recycled file is seen after some ten
Fault = Callable[[Broker], None]


def _nothing(_: Broker) -> None:
    pass


def _silence(broker: Broker) -> None:
    broker.faults.silence_notifier()


both = pytest.mark.parametrize("fault", [_nothing, _silence])


@both
def test_a_thousand_rapid_publishes_with_coalesced_notifications(fault: Fault) -> None:
    """Each its own batch; of twenty commits one is told."""

    async def scenario(broker: Broker) -> None:
        await create(broker.bootstrap)
        fault(broker)
        broker.faults.coalesce_notifications(20)
        async with (
            producing(broker.bootstrap) as producer,
            consuming(broker.bootstrap, "g") as consumer,
        ):
            await until(broker, lambda core: core.parked.count > 0)
            async with asyncio.TaskGroup() as tasks:
                taking = tasks.create_task(take(consumer, 1000))
                for number in range(1000):
                    await producer.send_and_wait(TOPIC, str(number).encode(), partition=0)
            assert taking.result() == numbers(1000)

    with Broker() as broker:
        run(scenario(broker))
        assert counted(broker, "offset_gaps") == 0


class Group:
    """Members that note what they got, by partition, and commit it when they have noted it."""

    def __init__(self, broker: Broker, name: str) -> None:
        self._broker, self._name = broker, name
        self.found: dict[int, list[int]] = {index: [] for index in range(PARTITIONS)}
        self.served: set[tuple[str, int]] = set()  # which member had records of which partition

    async def member(self, client_id: str, leaves: asyncio.Event) -> None:
        bootstrap = self._broker.bootstrap
        async with consuming(
            bootstrap,
            self._name,
            client_id,
            heartbeat_interval_ms=100,
            session_timeout_ms=30_000,
        ) as consumer:
            while not leaves.is_set():
                await self._poll(consumer, client_id)

    async def _poll(self, consumer: AIOKafkaConsumer, client_id: str) -> None:
        batches = await consumer.getmany(timeout_ms=100)
        for partition, records in batches.items():
            self.found[partition.partition] += [int(record.value) for record in records]
            self.served.add((client_id, partition.partition))
        if batches:
            # While the group is being made anew it is refused, and what was noted comes again.
            with contextlib.suppress(KafkaError):
                await consumer.commit()

    def has_served(self, client_id: str, partitions: int) -> bool:
        return sum(name == client_id for name, _ in self.served) >= partitions

    def has(self, total: int) -> bool:
        return len(set().union(*self.found.values())) >= total


class Publishing:
    """Numbers, round robin over the partitions, until it is told to end."""

    def __init__(self) -> None:
        self.total = 0
        self.ends = asyncio.Event()

    async def run(self, producer: AIOKafkaProducer) -> None:
        while not self.ends.is_set():
            sent = [
                await producer.send(TOPIC, str(number).encode(), partition=number % PARTITIONS)
                for number in range(self.total, self.total + PARTITIONS)
            ]
            await asyncio.gather(*sent)
            self.total += PARTITIONS
            await asyncio.sleep(0.01)


async def eventually(holds: Callable[[], bool]) -> None:
    for _ in range(int(SECONDS_MAX * 50)):
        if holds():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it never came to hold")


@both
def test_members_come_and_go_while_publishing(fault: Fault) -> None:
    """The group that changes misses nothing; the one that does not has each once, in order."""

    async def scenario(broker: Broker) -> None:
        await create(broker.bootstrap, PARTITIONS)
        fault(broker)
        steady, changing = Group(broker, "steady"), Group(broker, "changing")
        publishing, done = Publishing(), asyncio.Event()
        async with producing(broker.bootstrap) as producer, asyncio.TaskGroup() as tasks:
            sending = tasks.create_task(publishing.run(producer))
            tasks.create_task(steady.member("steady", done))
            left = asyncio.Event()
            last = tasks.create_task(changing.member("member-0", left))
            await eventually(lambda: changing.has_served("member-0", 1))
            for number in range(1, MEMBERS):
                client_id = f"member-{number}"
                before, left = (last, left), asyncio.Event()
                last = tasks.create_task(changing.member(client_id, left))
                await eventually(lambda name=client_id: changing.has_served(name, 1))  # type: ignore[misc]
                before[1].set()
                await before[0]
            # Alone, and asking for all of them: what it asked for before that is answered.
            changing.served.clear()
            await eventually(lambda: changing.has_served(client_id, PARTITIONS))
            await eventually(lambda: steady.has_served("steady", PARTITIONS))
            publishing.ends.set()
            await sending
            await eventually(lambda: steady.has(publishing.total))
            await eventually(lambda: changing.has(publishing.total))
            done.set()
            left.set()
        for index in range(PARTITIONS):
            wanted = list(range(index, publishing.total, PARTITIONS))
            assert steady.found[index] == wanted
            assert sorted(set(changing.found[index])) == wanted

    with Broker() as broker:
        run(scenario(broker))
        assert counted(broker, "offset_gaps") == 0


@both
def test_rotation_recycling_and_handoff_while_delivering(fault: Fault) -> None:
    """A live and a late group miss nothing. One handle that was written under two sequences is
    a journal file that was taken again."""
    sequences: dict[File, set[int]] = {}

    def taken_again(core: Core) -> bool:
        now = core.log.journal.file
        sequences.setdefault(now.file, set()).add(now.sequence)
        return any(len(each) > 1 for each in sequences.values())

    async def send(producer: AIOKafkaProducer, first: int) -> None:
        values = [str(first + number).encode().ljust(30_000) for number in range(10)]
        sent = [await producer.send(TOPIC, value, partition=0) for value in values]
        await asyncio.gather(*sent)

    async def scenario(broker: Broker) -> None:
        await create(broker.bootstrap)
        fault(broker)
        total, more = 0, 3  # rounds into the file that was taken again
        async with (
            producing(broker.bootstrap) as producer,
            consuming(broker.bootstrap, "live") as live,
        ):
            for _ in range(ROUNDS_MAX):
                await send(producer, total)
                assert await take(live, 10) == numbers(10, total)
                total += 10
                if await asyncio.to_thread(broker.call, taken_again):
                    more -= 1
                if not more:
                    break
                await asyncio.sleep(0.02)  # handing over needs its time
            else:
                raise AssertionError("no journal file was ever taken again")
            await asyncio.to_thread(broker.faults.evict_cache)
            async with consuming(broker.bootstrap, "late", "late") as late:
                assert await take(late, total) == numbers(total)

    with SmallFiles() as broker:
        run(scenario(broker))
        assert len(sequences) > 1  # rotation
        assert broker.call(_tiered_end) > 0  # handoff
        assert counted(broker, "offset_gaps") == 0
        assert broker.errors == []


def _tiered_end(core: Core) -> int:
    topic = core.storage.catalog.topics_by_name[TOPIC]
    return core.log.partitions[topic.id, 0].tiered_end


@both
def test_a_new_group_begins_where_its_reset_says(fault: Fault) -> None:
    """Earliest with the first record there is, latest with the next one that comes.

    Where the notifier works it works alone: a new group at the end is on the fast path."""

    async def scenario(broker: Broker) -> None:
        await create(broker.bootstrap)
        fault(broker)
        async with producing(broker.bootstrap) as producer:
            await publish(producer, 0, 10)
            async with (
                consuming(broker.bootstrap, "early", "e", auto_offset_reset="earliest") as early,
                consuming(broker.bootstrap, "late", "l", auto_offset_reset="latest") as late,
            ):
                assert await late.position(PARTITION) == 10  # it has its assignment
                await publish(producer, 10, 10)
                assert await take(early, 20) == numbers(20)
                assert await take(late, 10) == numbers(10, 10)

    heartbeat_ms = 500 if fault is _silence else 0
    with Broker(settings={"ister.heartbeat.interval.ms": heartbeat_ms}) as broker:
        run(scenario(broker))
