"""aiokafka under the runners' commands: `python -m compat_tests.aiokafka.runner`.

The client lives on one event loop in a thread of its own; commands and members call into it
and wait.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import BrokerResponseError, CommitFailedError, OffsetOutOfRangeError
from aiokafka.structs import OffsetAndMetadata

from compat_tests import runner
from compat_tests.runner import Answer, Failure, Offsets

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}
READ_OPTIONS = {
    "max_bytes": "fetch_max_bytes",
    "partition_max_bytes": "max_partition_fetch_bytes",
    "min_bytes": "fetch_min_bytes",
    "max_wait_ms": "fetch_max_wait_ms",
}
T = TypeVar("T")


class AioKafka(runner.Runner):
    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(runner.CALL_TIMEOUT_S)

    def as_failure(self, error: Exception) -> Failure:
        if isinstance(error, CommitFailedError) and isinstance(error.__context__, Exception):
            return self.as_failure(error.__context__)  # the broker's answer behind it
        if isinstance(error, OffsetOutOfRangeError):
            return Failure(1, str(error))
        if isinstance(error, BrokerResponseError) and error.errno is not None:
            return Failure(error.errno, str(error))
        return super().as_failure(error)

    # -- records -----------------------------------------------------------------------

    def do_produce(self, **command: Any) -> Answer:
        return self.run(_produce(**command))

    def do_read(self, **command: Any) -> Answer:
        return self.run(_read(**command))

    def do_offset(self, *, bootstrap: str, topic: str, partition: int, at: Any, **_: Any) -> Answer:
        where = TopicPartition(topic, partition)

        async def ask(consumer: Any) -> int:
            if at == "earliest":
                return int((await consumer.beginning_offsets([where]))[where])
            if at == "latest":
                return int((await consumer.end_offsets([where]))[where])
            found = (await consumer.offsets_for_times({where: at}))[where]
            return -1 if found is None else int(found.offset)

        def make() -> Any:
            return AIOKafkaConsumer(bootstrap_servers=bootstrap)

        return {"offset": self.run(_with(make, ask))}

    # -- topics ------------------------------------------------------------------------

    def do_create_topic(
        self,
        *,
        bootstrap: str,
        topic: str,
        partitions: int,
        replicas: int = 1,
        configs: dict[str, str] | None = None,
        **_: Any,
    ) -> Answer:
        new = NewTopic(topic, partitions, replicas, topic_configs=configs or {})
        response = self._admin(bootstrap, lambda admin: admin.create_topics([new]))
        _check(response.topic_errors[0][1])
        return {}

    def do_delete_topic(self, *, bootstrap: str, topic: str, **_: Any) -> Answer:
        response = self._admin(bootstrap, lambda admin: admin.delete_topics([topic]))
        _check(response.topic_error_codes[0][1])
        return {}

    def do_add_partitions(self, *, bootstrap: str, topic: str, total: int, **_: Any) -> Answer:
        response = self._admin(
            bootstrap, lambda admin: admin.create_partitions({topic: NewPartitions(total)})
        )
        _check(response.topic_errors[0][1])
        return {}

    def do_topics(self, *, bootstrap: str, **_: Any) -> Answer:
        return {"names": self._admin(bootstrap, lambda admin: admin.list_topics())}

    def do_describe_topic(self, *, bootstrap: str, topic: str, **_: Any) -> Answer:
        (found,) = self._admin(bootstrap, lambda admin: admin.describe_topics([topic]))
        _check(found["error_code"])
        return {"partitions": len(found["partitions"])}

    def do_topic_configs(self, *, bootstrap: str, topic: str, **_: Any) -> Answer:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        (response,) = self._admin(bootstrap, lambda admin: admin.describe_configs([resource]))
        code, _text, _type, _name, entries = response.resources[0]
        _check(code)
        return {"values": {entry[0]: entry[1] for entry in entries}}

    def do_set_topic_config(
        self, *, bootstrap: str, topic: str, values: dict[str, str], **_: Any
    ) -> Answer:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs=values)
        (response,) = self._admin(bootstrap, lambda admin: admin.alter_configs([resource]))
        _check(response.resources[0][0])
        return {}

    def do_delete_records(
        self, *, bootstrap: str, topic: str, partition: int, before: int, **_: Any
    ) -> Answer:
        where = TopicPartition(topic, partition)
        found = self._admin(
            bootstrap, lambda admin: admin.delete_records({where: RecordsToDelete(before)})
        )
        return {"low": found[where]}

    # -- groups ------------------------------------------------------------------------

    def do_groups(self, *, bootstrap: str, **_: Any) -> Answer:
        found = self._admin(bootstrap, lambda admin: admin.list_consumer_groups())
        return {"names": [each[0] for each in found]}

    def do_describe_group(self, *, bootstrap: str, group: str, **_: Any) -> Answer:
        (response,) = self._admin(bootstrap, lambda admin: admin.describe_consumer_groups([group]))
        code, _id, state, _kind, _protocol, members, *_rest = response.groups[0]
        _check(code)
        return {"state": state, "members": len(members)}

    def do_committed(
        self, *, bootstrap: str, group: str, topic: str, partition: int, **_: Any
    ) -> Answer:
        where = TopicPartition(topic, partition)
        found = self._admin(
            bootstrap, lambda admin: admin.list_consumer_group_offsets(group, partitions=[where])
        )
        return {"offset": found[where].offset, "metadata": found[where].metadata}

    def do_set_committed(
        self, *, bootstrap: str, group: str, topic: str, partition: int, offset: int, **_: Any
    ) -> Answer:
        """Its admin cannot; a consumer without a subscription can."""
        where = TopicPartition(topic, partition)

        async def commit(consumer: Any) -> None:
            consumer.assign([where])
            await consumer.commit({where: OffsetAndMetadata(offset, "")})

        def make() -> Any:
            return AIOKafkaConsumer(
                bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False
            )

        self.run(_with(make, commit))
        return {}

    def consumer(
        self,
        *,
        bootstrap: str,
        group: str,
        topics: list[str],
        assignor: str = "range",
        instance: str | None = None,
        session_ms: int = 10_000,
        **_: Any,
    ) -> Consumer:
        async def start() -> Any:
            made = AIOKafkaConsumer(
                *topics,
                bootstrap_servers=bootstrap,
                group_id=group,
                group_instance_id=instance,
                partition_assignment_strategy=[ASSIGNORS[assignor]],
                session_timeout_ms=session_ms,
                heartbeat_interval_ms=500,
                enable_auto_commit=False,
                auto_offset_reset="earliest",
            )
            await made.start()
            return made

        return Consumer(self, self.run(start()))

    def _admin(self, bootstrap: str, call: Callable[[Any], Awaitable[Any]]) -> Any:
        async def ask() -> Any:
            admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
            await admin.start()
            try:
                return await call(admin)
            finally:
                await admin.close()

        return self.run(ask())


class Consumer:
    def __init__(self, owner: AioKafka, consumer: Any) -> None:
        self._run = owner.run
        self._consumer = consumer

    def poll(self, seconds: float) -> list[Answer]:
        found = self._run(self._consumer.getmany(timeout_ms=int(seconds * 1_000)))
        return [_record(each) for some in found.values() for each in some]

    def assignment(self) -> list[tuple[str, int]]:
        return [(each.topic, each.partition) for each in self._consumer.assignment()]

    def commit(self, offsets: Offsets | None) -> None:
        wanted = offsets and {
            TopicPartition(topic, partition): OffsetAndMetadata(offset, metadata)
            for topic, partition, offset, metadata in offsets
        }
        self._run(self._consumer.commit(wanted))

    def close(self) -> None:
        self._run(self._consumer.stop())


async def _produce(
    *,
    bootstrap: str,
    topic: str,
    records: list[Answer],
    acks: int = -1,
    codec: str = "none",
    idempotent: bool = False,
    max_request_bytes: int = 1_048_576,
    batch_bytes: int = 16_384,
    **_: Any,
) -> Answer:
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        acks=acks,
        compression_type=None if codec == "none" else codec,
        enable_idempotence=idempotent,
        max_request_size=max_request_bytes,
        max_batch_size=batch_bytes,
        linger_ms=5,
        request_timeout_ms=40_000,
    )

    async def send(producer: Any) -> list[list[int]]:
        sent = [
            await producer.send(
                topic,
                key=runner.decode(each.get("key")),
                value=runner.decode(each.get("value")),
                headers=runner.decode_headers(each.get("headers", [])),
                partition=each.get("partition"),
                timestamp_ms=each.get("timestamp"),
            )
            for each in records
        ]
        await producer.flush()
        placed = [await each for each in sent]
        # Without an answer of the broker the client knows no place.
        return [[each.partition, each.offset] if each else [-1, -1] for each in placed]

    return {"placed": await _with(lambda: producer, send)}


async def _read(
    *,
    bootstrap: str,
    topic: str,
    partition: int,
    offset: int | str,
    count: int,
    wait_s: float = 30,
    options: dict[str, int] | None = None,
    **_: Any,
) -> Answer:
    where = TopicPartition(topic, partition)

    async def gather(consumer: Any) -> list[Answer]:
        consumer.assign([where])
        if offset == "earliest":
            await consumer.seek_to_beginning(where)
        elif offset == "latest":
            await consumer.seek_to_end(where)
        else:
            consumer.seek(where, offset)
        found: list[Answer] = []
        end = asyncio.get_running_loop().time() + wait_s
        while len(found) < count and asyncio.get_running_loop().time() < end:
            some = await consumer.getmany(timeout_ms=500)
            found += [_record(each) for batch in some.values() for each in batch]
        return found

    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        auto_offset_reset="none",
        **{READ_OPTIONS[name]: value for name, value in (options or {}).items()},
    )
    return {"records": await _with(lambda: consumer, gather)}


async def _with(make: Callable[[], Any], use: Callable[[Any], Awaitable[T]]) -> T:
    client = make()
    await client.start()
    try:
        return await use(client)
    finally:
        await client.stop()


def _check(code: int) -> None:
    if code:
        raise Failure(code, f"error {code}")


def _record(found: Any) -> Answer:
    return runner.record(
        topic=found.topic,
        partition=found.partition,
        offset=found.offset,
        key=found.key,
        value=found.value,
        headers=found.headers,
        timestamp=found.timestamp,
        log_append_time=found.timestamp_type == 1,
    )


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    runner.serve(AioKafka())
