"""confluent-kafka (librdkafka) under the runners' commands."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from compat_tests import runner
from compat_tests.runner import Answer, Failure, Offsets

SPECS = {
    "earliest": OffsetSpec.earliest,
    "latest": OffsetSpec.latest,
    "max_timestamp": OffsetSpec.max_timestamp,
}
OFFSETS = {"earliest": -2, "latest": -1}
# What librdkafka found out by itself has numbers below zero; these have one of Kafka's too.
OWN_CODES = {
    -140: 1,  # _AUTO_OFFSET_RESET: out of range, and no reset wanted
    -188: 3,  # _UNKNOWN_TOPIC
    -190: 3,  # _UNKNOWN_PARTITION
    -144: 82,  # _FATAL; the reason that a member of ours dies of
}
READ_OPTIONS = {
    "max_bytes": "fetch.max.bytes",
    "partition_max_bytes": "max.partition.fetch.bytes",
    "min_bytes": "fetch.min.bytes",
    "max_wait_ms": "fetch.wait.max.ms",
}
QUICK = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 500,
    "retry.backoff.ms": 50,
    "log_level": 3,
}
TIMEOUT_S = 30.0


class Confluent(runner.Runner):
    def as_failure(self, error: Exception) -> Failure:
        if isinstance(error, KafkaException):
            code = error.args[0].code()
            return Failure(OWN_CODES.get(code, code), error.args[0].str())
        return super().as_failure(error)

    # -- records -----------------------------------------------------------------------

    def do_produce(
        self,
        *,
        bootstrap: str,
        topic: str,
        records: list[Answer],
        acks: int = -1,
        codec: str = "none",
        idempotent: bool = False,
        max_request_bytes: int = 1_000_000,
        batch_bytes: int = 16_384,
        **_: Any,
    ) -> Answer:
        producer = Producer(
            {
                **QUICK,
                "bootstrap.servers": bootstrap,
                "acks": acks,
                "compression.codec": codec,
                "enable.idempotence": idempotent,
                "message.max.bytes": max_request_bytes,
                "batch.size": batch_bytes,
                "linger.ms": 5,
                "request.timeout.ms": 30_000,
                "message.timeout.ms": 60_000,
            }
        )
        placed: dict[int, Any] = {}

        def remember(number: int) -> Callable[[Any, Any], None]:
            def report(error: Any, message: Any) -> None:
                placed[number] = error or [message.partition(), message.offset()]

            return report

        for number, each in enumerate(records):
            optional = {
                "partition": each.get("partition"),
                "timestamp": each.get("timestamp"),
            }
            producer.produce(
                topic,
                key=runner.decode(each.get("key")),
                value=runner.decode(each.get("value")),
                headers=runner.decode_headers(each.get("headers", [])),
                on_delivery=remember(number),
                **{name: value for name, value in optional.items() if value is not None},
            )
            producer.poll(0)
        producer.flush(runner.CALL_TIMEOUT_S)
        for found in placed.values():
            if not isinstance(found, list):
                raise KafkaException(found)
        # Without an answer of the broker the client knows no offset.
        places = [placed[number] for number in range(len(records))]
        return {"placed": [[partition, _or_none(offset)] for partition, offset in places]}

    def do_read(
        self,
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
        given = {READ_OPTIONS[name]: value for name, value in (options or {}).items()}
        if "fetch.max.bytes" in given:  # the client wants this one smaller or equal
            given["message.max.bytes"] = max(1_000, given["fetch.max.bytes"])
            given["fetch.max.bytes"] = given["message.max.bytes"]
        consumer = Consumer(
            {
                **QUICK,
                "bootstrap.servers": bootstrap,
                "group.id": "unused",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                **given,
            }
        )
        try:
            consumer.assign([TopicPartition(topic, partition, OFFSETS.get(str(offset), offset))])
            found = runner.until(lambda: _poll(consumer, 0.5), count, wait_s)
        finally:
            consumer.close()
        return {"records": found}

    def do_offset(self, *, bootstrap: str, topic: str, partition: int, at: Any, **_: Any) -> Answer:
        where = TopicPartition(topic, partition)
        spec = SPECS[at]() if isinstance(at, str) else OffsetSpec.for_timestamp(at)
        found = _admin(bootstrap).list_offsets({where: spec}, request_timeout=TIMEOUT_S)
        return {"offset": found[where].result().offset}

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
        new = NewTopic(topic, partitions, replicas, config=configs or {})
        _admin(bootstrap).create_topics([new], request_timeout=TIMEOUT_S)[topic].result()
        return {}

    def do_delete_topic(self, *, bootstrap: str, topic: str, **_: Any) -> Answer:
        _admin(bootstrap).delete_topics([topic], request_timeout=TIMEOUT_S)[topic].result()
        return {}

    def do_add_partitions(self, *, bootstrap: str, topic: str, total: int, **_: Any) -> Answer:
        new = NewPartitions(topic, total)
        _admin(bootstrap).create_partitions([new], request_timeout=TIMEOUT_S)[topic].result()
        return {}

    def do_topics(self, *, bootstrap: str, **_: Any) -> Answer:
        return {"names": list(_admin(bootstrap).list_topics(timeout=TIMEOUT_S).topics)}

    def do_describe_topic(self, *, bootstrap: str, topic: str, **_: Any) -> Answer:
        found = _admin(bootstrap).describe_topics(
            TopicCollection([topic]), request_timeout=TIMEOUT_S
        )
        return {"partitions": len(found[topic].result().partitions)}

    def do_topic_configs(self, *, bootstrap: str, topic: str, **_: Any) -> Answer:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        found = _admin(bootstrap).describe_configs([resource], request_timeout=TIMEOUT_S)
        entries = found[resource].result()
        return {"values": {name: entry.value for name, entry in entries.items()}}

    def do_set_topic_config(
        self, *, bootstrap: str, topic: str, values: dict[str, str], **_: Any
    ) -> Answer:
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in values.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        found = _admin(bootstrap).incremental_alter_configs([resource], request_timeout=TIMEOUT_S)
        found[resource].result()
        return {}

    def do_delete_records(
        self, *, bootstrap: str, topic: str, partition: int, before: int, **_: Any
    ) -> Answer:
        where = TopicPartition(topic, partition, before)
        found = _admin(bootstrap).delete_records([where], request_timeout=TIMEOUT_S)
        return {"low": found[where].result().low_watermark}

    # -- groups ------------------------------------------------------------------------

    def do_groups(self, *, bootstrap: str, **_: Any) -> Answer:
        found = _admin(bootstrap).list_consumer_groups(request_timeout=TIMEOUT_S).result()
        return {"names": [each.group_id for each in found.valid]}

    def do_describe_group(self, *, bootstrap: str, group: str, **_: Any) -> Answer:
        found = _admin(bootstrap).describe_consumer_groups([group], request_timeout=TIMEOUT_S)
        described = found[group].result()
        return {
            "state": described.state.name.title().replace("_", ""),
            "members": len(described.members),
        }

    def do_delete_group(self, *, bootstrap: str, group: str, **_: Any) -> Answer:
        found = _admin(bootstrap).delete_consumer_groups([group], request_timeout=TIMEOUT_S)
        found[group].result()
        return {}

    def do_committed(
        self, *, bootstrap: str, group: str, topic: str, partition: int, **_: Any
    ) -> Answer:
        wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, partition)])
        found = _admin(bootstrap).list_consumer_group_offsets([wanted], request_timeout=TIMEOUT_S)
        (place,) = found[group].result().topic_partitions
        return {"offset": max(place.offset, -1), "metadata": place.metadata}

    def do_set_committed(
        self, *, bootstrap: str, group: str, topic: str, partition: int, offset: int, **_: Any
    ) -> Answer:
        wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, partition, offset)])
        found = _admin(bootstrap).alter_consumer_group_offsets([wanted], request_timeout=TIMEOUT_S)
        (place,) = found[group].result().topic_partitions
        if place.error is not None:
            raise KafkaException(place.error)
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
    ) -> Member:
        settings: dict[str, Any] = {
            **QUICK,
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "partition.assignment.strategy": assignor,
            "session.timeout.ms": session_ms,
            "heartbeat.interval.ms": 500,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
        if instance is not None:
            settings["group.instance.id"] = instance
        made = Consumer(settings)
        made.subscribe(topics)
        return Member(made)


class Member:
    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer

    def poll(self, seconds: float) -> list[Answer]:
        return _poll(self._consumer, seconds)

    def assignment(self) -> list[tuple[str, int]]:
        return [(each.topic, each.partition) for each in self._consumer.assignment()]

    def commit(self, offsets: Offsets | None) -> None:
        if offsets is None:
            self._consumer.commit(asynchronous=False)
            return
        wanted = [
            TopicPartition(topic, partition, offset, metadata)
            for topic, partition, offset, metadata in offsets
        ]
        for place in self._consumer.commit(offsets=wanted, asynchronous=False):
            if place.error is not None:
                raise KafkaException(place.error)

    def close(self) -> None:
        self._consumer.close()


@cache
def _admin(bootstrap: str) -> Any:
    """Kept: its calls end in an error when nobody holds it any more."""
    return AdminClient({**QUICK, "bootstrap.servers": bootstrap})


def _or_none(offset: int | None) -> int:
    return -1 if offset is None or offset < 0 else offset


def _poll(consumer: Any, seconds: float) -> list[Answer]:
    first = consumer.poll(seconds)
    found = [] if first is None else [first, *consumer.consume(500, 0)]
    for each in found:
        if each.error() is not None:
            raise KafkaException(each.error())
    return [_record(each) for each in found]


def _record(found: Any) -> Answer:
    kind, timestamp = found.timestamp()
    return runner.record(
        topic=found.topic(),
        partition=found.partition(),
        offset=found.offset(),
        key=found.key(),
        value=found.value(),
        headers=found.headers(),
        timestamp=timestamp,
        log_append_time=kind == TIMESTAMP_LOG_APPEND_TIME,
    )


if __name__ == "__main__":
    runner.serve(Confluent())
