"""Wake-ups are lost, and a group of real consumers misses nothing."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

import pytest

from compat_tests.delivery.kit import (
    TOPIC,
    Proxy,
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
from ister.testing import Broker

pytestmark = [pytest.mark.compat, pytest.mark.fault]

LONG = os.environ.get("ISTER_LONG") == "1"
Fault = Callable[[Broker], None]


def _nothing(_: Broker) -> None:
    pass


def _drop_all(broker: Broker) -> None:
    broker.faults.drop_notifications(1.0)


def _drop_some(broker: Broker) -> None:
    broker.faults.drop_notifications(0.1)


def _coalesce(broker: Broker) -> None:
    broker.faults.coalesce_notifications(20)


def _kill(broker: Broker) -> None:
    broker.faults.kill_notifier()


def _kill_for_good(broker: Broker) -> None:
    broker.faults.kill_notifier(hold_restart=True)


def _silence(broker: Broker) -> None:
    broker.faults.silence_notifier()


def _first_read_empty(broker: Broker) -> None:
    broker.faults.empty_reads(3)


@pytest.mark.parametrize(
    "fault",
    [
        _nothing,
        _drop_all,
        _drop_some,
        _coalesce,
        _kill,
        _kill_for_good,
        _silence,
        _first_read_empty,
    ],
)
def test_everything_arrives_in_order(fault: Fault) -> None:
    """With fetches that wait for half a minute: whatever arrives was woken."""

    async def scenario(broker: Broker) -> None:
        await create(broker.bootstrap)
        async with (
            producing(broker.bootstrap) as producer,
            consuming(broker.bootstrap, "g") as consumer,
        ):
            await until(broker, lambda core: core.parked.count > 0)
            fault(broker)
            for first in range(0, 200, 50):
                await publish(producer, first, 50)
                assert await take(consumer, 50) == numbers(50, first)

    with Broker(seed=3) as broker:
        run(scenario(broker))
        worst = broker.call(lambda core: core.delivery.worst_stall_s)
        if fault in (_drop_all, _silence, _kill_for_good):
            assert counted(broker, "lag_detected") > 0
        print(f"{fault.__name__}: worst stall {worst * 1000:.0f} ms")


@pytest.mark.parametrize("fault", [_drop_all, _kill_for_good, _silence])
def test_without_heartbeat_it_does_not_arrive(fault: Fault) -> None:
    """Wake-ups that are lost for good: so the test above saw the heartbeat, and nothing else."""

    async def scenario(broker: Broker) -> None:
        await create(broker.bootstrap)
        async with (
            producing(broker.bootstrap) as producer,
            consuming(broker.bootstrap, "g") as consumer,
        ):
            await until(broker, lambda core: core.parked.count > 0)
            fault(broker)
            await publish(producer, 0, 10)
            assert await take(consumer, 1, seconds=1.5) == []

    with Broker(settings={"ister.heartbeat.interval.ms": 0}) as broker:
        run(scenario(broker))


@pytest.mark.parametrize("fault", [_nothing, _silence])
def test_a_proxy_cuts_everyone_off(fault: Fault) -> None:
    """Ten seconds in the long form; then everyone catches up, from where it was."""

    async def scenario() -> None:
        proxy = Proxy()
        port = await proxy.start()
        settings = {"advertised.listeners": f"127.0.0.1:{port}"}
        try:
            async with Broker(settings=settings) as broker:
                proxy.to = broker.port
                fault(broker)
                await everyone(proxy, f"127.0.0.1:{port}")
        finally:
            await proxy.close()

    async def everyone(proxy: Proxy, address: str) -> None:
        await create(address)
        async with producing(address) as producer, consuming(address, "g") as consumer:
            await publish(producer, 0, 20)
            assert await take(consumer, 20) == numbers(20)
            await consumer.commit()
            proxy.cut()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(publish(producer, 20, 30))
                await asyncio.sleep(10 if LONG else 1)
                proxy.mend()
            assert await take(consumer, 30) == numbers(30, 20)

    run(scenario())


@pytest.mark.parametrize("fault", [_nothing, _silence])
def test_publishing_while_groups_are_made(fault: Fault) -> None:
    """Nobody sleeps over a record that comes while it joins."""

    async def scenario(broker: Broker) -> None:
        fault(broker)
        await create(broker.bootstrap)
        done = asyncio.Event()
        total = 0

        async def send() -> None:
            nonlocal total
            async with producing(broker.bootstrap) as producer:
                while not done.is_set():
                    await publish(producer, total, 10)
                    total += 10
                    await asyncio.sleep(0.005)

        async def join(number: int) -> None:
            async with consuming(broker.bootstrap, f"g{number}", f"c{number}") as consumer:
                assert await take(consumer, 100) == numbers(100)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(send())
            for _ in range(2):
                async with asyncio.TaskGroup() as joining:
                    for number in range(5):
                        joining.create_task(join(number))
            done.set()

    with Broker() as broker:
        run(scenario(broker))


@pytest.mark.parametrize("fault", [_nothing, _silence])
def test_consumers_are_cut_off_while_being_served(fault: Fault) -> None:
    """Connections are reset again and again; each group goes on and misses nothing."""

    async def scenario(broker: Broker) -> None:
        fault(broker)
        await create(broker.bootstrap)
        async with (
            producing(broker.bootstrap) as producer,
            consuming(broker.bootstrap, "g") as consumer,
        ):
            for first in range(0, 100, 20):
                await publish(producer, first, 20)
                await asyncio.to_thread(broker.faults.cut_connections)
                assert await take(consumer, 20) == numbers(20, first)

    with Broker() as broker:
        run(scenario(broker))


@pytest.mark.parametrize("fault", [_nothing, _silence])
def test_the_cache_evicts_under_a_slow_reader(fault: Fault) -> None:
    """What has left memory comes from the journal, in order and once."""

    async def scenario(broker: Broker) -> None:
        fault(broker)
        await create(broker.bootstrap)
        async with producing(broker.bootstrap) as producer:
            for first in range(0, 200, 20):
                await publish(producer, first, 20)
            async with consuming(broker.bootstrap, "g", max_partition_fetch_bytes=1024) as consumer:
                for first in range(0, 200, 20):
                    await asyncio.to_thread(broker.faults.evict_cache)
                    assert await take(consumer, 20) == numbers(20, first)
                await publish(producer, 200, 20)
                assert await take(consumer, 20) == numbers(20, 200)

    with Broker(settings={"ister.cache.bytes": 4096}) as broker:
        run(scenario(broker))
        cold = broker.call(lambda core: core.storage.reader.seconds)
        assert sum(each.count for each in cold.values()) > 0
        assert counted(broker, "offset_gaps") == 0


@pytest.mark.parametrize("fault", [_nothing, _silence])
def test_a_minimum_that_is_not_there_is_waited_for(fault: Fault) -> None:
    """10 KB of the 1 MB that the client wants: it waits, and no wake-up counts as missed."""

    async def scenario(broker: Broker) -> None:
        fault(broker)
        await create(broker.bootstrap)
        async with (
            producing(broker.bootstrap) as producer,
            consuming(broker.bootstrap, "g", fetch_min_bytes=1 << 20) as consumer,
        ):
            await until(broker, lambda core: core.parked.count > 0)
            for _ in range(10):
                await producer.send_and_wait(TOPIC, b"1" * 1000, partition=0)
            assert await take(consumer, 1, seconds=1.5) == []

    with Broker() as broker:
        run(scenario(broker))
        assert counted(broker, "lag_detected") == 0


def test_librdkafka_is_served_too() -> None:
    """Every notification dropped; its fetches wait for half a minute as well."""
    import confluent_kafka

    with Broker() as broker:
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce(TOPIC, b"first")
        producer.flush(30)
        broker.faults.drop_notifications(1.0)
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": "g",
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 30_000,
                "socket.timeout.ms": 60_000,
            }
        )
        try:
            consumer.subscribe([TOPIC])
            found = []
            for number in range(5):
                message = consumer.poll(30)
                assert message is not None
                assert message.error() is None
                found.append(message.offset())
                producer.produce(TOPIC, str(number).encode())
                producer.flush(30)
            assert found == [0, 1, 2, 3, 4]
        finally:
            consumer.close()
