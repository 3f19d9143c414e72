"""Consumers, producers and a proxy that can be cut, for tests of delivery."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import urllib.request
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from ister.gateway.broker import Broker as Core
from ister.testing import Broker

MAX_WAIT_MS = 30_000
SECONDS_MAX = 60.0
TOPIC = "orders"
PARTITION = TopicPartition(TOPIC, 0)


def run(scenario: Coroutine[Any, Any, None]) -> None:
    """To its end. aiokafka leaves connections that were cut to the collector, with a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        try:
            asyncio.run(scenario)
        finally:
            gc.collect()


async def create(bootstrap: str, partitions: int = 1, **configs: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        named = {name.replace("_", "."): value for name, value in configs.items()}
        await admin.create_topics([NewTopic(TOPIC, partitions, 1, topic_configs=named)])
    finally:
        await admin.close()


@asynccontextmanager
async def producing(bootstrap: str) -> AsyncIterator[AIOKafkaProducer]:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, retry_backoff_ms=50)
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


async def publish(producer: AIOKafkaProducer, first: int, count: int) -> None:
    """Values are their numbers, so that order and completeness can be read from them."""
    sent = [
        await producer.send(TOPIC, str(number).encode(), partition=0)
        for number in range(first, first + count)
    ]
    await asyncio.gather(*sent)


@asynccontextmanager
async def consuming(
    bootstrap: str, group: str | None, client_id: str = "app", **options: Any
) -> AsyncIterator[AIOKafkaConsumer]:
    """In a group and subscribed, or in none and assigned."""
    consumer = AIOKafkaConsumer(
        *([TOPIC] if group else []),
        bootstrap_servers=bootstrap,
        group_id=group,
        client_id=client_id,
        enable_auto_commit=False,
        fetch_max_wait_ms=MAX_WAIT_MS,
        retry_backoff_ms=50,
        **{"auto_offset_reset": "earliest", **options},
    )
    await consumer.start()
    try:
        if group is None:
            consumer.assign([PARTITION])
        yield consumer
    finally:
        await consumer.stop()


async def take(consumer: AIOKafkaConsumer, count: int, seconds: float = SECONDS_MAX) -> list[int]:
    """The next `count` numbers; fewer if they do not come in time."""
    found: list[int] = []
    deadline = asyncio.get_running_loop().time() + seconds
    while len(found) < count:
        left = deadline - asyncio.get_running_loop().time()
        if left <= 0:
            break
        batches = await consumer.getmany(
            timeout_ms=int(min(left, 1.0) * 1000) + 1, max_records=count - len(found)
        )
        for records in batches.values():
            found += [int(record.value) for record in records]
    return found


async def until(broker: Broker, holds: Callable[[Core], bool]) -> None:
    for _ in range(int(SECONDS_MAX * 50)):
        if await asyncio.to_thread(broker.call, holds):
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it never came to hold")


def counted(broker: Broker, name: str) -> int:
    return broker.call(
        lambda core: sum(int(getattr(row, name)) for row in core.delivery.counts.rows.values())
    )


def subscriptions(broker: Broker, group: str) -> list[dict[str, Any]]:
    url = f"{broker.http_url}/api/v1/subscriptions?group={group}"
    with urllib.request.urlopen(url, timeout=SECONDS_MAX) as answer:  # noqa: S310 our own broker
        found: list[dict[str, Any]] = json.load(answer)["subscriptions"]
    return found


def numbers(count: int, first: int = 0) -> Sequence[int]:
    return list(range(first, first + count))


class Proxy:
    """Between clients and the broker; `cut` drops every connection and takes no new one."""

    def __init__(self) -> None:
        self.to = 0  # the broker's port
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self.is_cut = False

    async def start(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def cut(self) -> None:
        self.is_cut = True
        for writer in list(self._writers):
            writer.transport.abort()

    def mend(self) -> None:
        self.is_cut = False

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_cut:
            writer.transport.abort()
            return
        there, out = await asyncio.open_connection("127.0.0.1", self.to)
        self._writers |= {writer, out}
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(_copy(reader, out))
                both.create_task(_copy(there, writer))
        finally:
            for each in (writer, out):
                self._writers.discard(each)
                each.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.transport.abort()
