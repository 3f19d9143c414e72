"""kafka-python under the runners' commands: `python -m compat_tests.kafka_python.runner`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing
from typing import Any, TypeVar

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition, errors
from kafka.admin import ConfigResource, ConfigResourceType, OffsetSpec
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import BrokerResponseError, KafkaError, NoError
from kafka.structs import OffsetAndMetadata

from compat_tests import runner
from compat_tests.runner import Answer, Failure, Offsets

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}
SPECS = {
    "earliest": OffsetSpec.EARLIEST,
    "latest": OffsetSpec.LATEST,
    "max_timestamp": OffsetSpec.MAX_TIMESTAMP,
}
POLL_MS = 1_000
T = TypeVar("T")


class KafkaPython(runner.Runner):
    def __init__(self) -> None:
        super().__init__()
        self._admins: dict[str, Any] = {}

    def as_failure(self, error: Exception) -> Failure:
        if isinstance(error, BrokerResponseError) and error.errno is not None:
            return Failure(error.errno, str(error))
        if isinstance(error, KafkaError) and error.args and isinstance(error.args[0], dict):
            return Failure(
                1, str(error)
            )  # OffsetOutOfRangeError of a consumer: no number of its own
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
        max_request_bytes: int = 1_048_576,
        batch_bytes: int = 16_384,
        **_: Any,
    ) -> Answer:
        producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            acks=acks,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
            max_request_size=max_request_bytes,
            batch_size=batch_bytes,
            linger_ms=5,
            request_timeout_ms=30_000,
            delivery_timeout_ms=60_000,
        )
        with closing(producer):
            sent = [
                producer.send(
                    topic,
                    key=runner.decode(each.get("key")),
                    value=runner.decode(each.get("value")),
                    headers=runner.decode_headers(each.get("headers", [])),
                    partition=each.get("partition"),
                    timestamp_ms=each.get("timestamp"),
                )
                for each in records
            ]
            producer.flush()
            placed = [each.get(60) for each in sent]
        return {"placed": [[each.partition, each.offset] for each in placed]}

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
        names = {
            "max_bytes": "fetch_max_bytes",
            "partition_max_bytes": "max_partition_fetch_bytes",
            "min_bytes": "fetch_min_bytes",
            "max_wait_ms": "fetch_max_wait_ms",
        }
        consumer = KafkaConsumer(
            bootstrap_servers=bootstrap,
            auto_offset_reset="none",
            **{names[name]: value for name, value in (options or {}).items()},
        )
        with closing(consumer):
            where = TopicPartition(topic, partition)
            consumer.assign([where])
            if offset == "earliest":
                consumer.seek_to_beginning(where)
            elif offset == "latest":
                consumer.seek_to_end(where)
            else:
                consumer.seek(where, offset)
            found = runner.until(
                lambda: [_record(r) for rs in consumer.poll(500).values() for r in rs],
                count,
                wait_s,
            )
        return {"records": found}

    def do_offset(self, *, bootstrap: str, topic: str, partition: int, at: Any, **_: Any) -> Answer:
        where = TopicPartition(topic, partition)
        found = self._admin(
            bootstrap, lambda admin: admin.list_partition_offsets({where: SPECS.get(at, at)})
        )
        return {"offset": found[where].offset}

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
        options = {
            "num_partitions": partitions,
            "replication_factor": replicas,
            "configs": configs or {},
        }
        self._admin(bootstrap, lambda admin: admin.create_topics({topic: options}))
        return {}

    def do_delete_topic(self, *, bootstrap: str, topic: str, **_: Any) -> Answer:
        self._admin(bootstrap, lambda admin: admin.delete_topics([topic]))
        return {}

    def do_add_partitions(self, *, bootstrap: str, topic: str, total: int, **_: Any) -> Answer:
        self._admin(bootstrap, lambda admin: admin.create_partitions({topic: total}))
        return {}

    def do_topics(self, *, bootstrap: str, **_: Any) -> Answer:
        return {"names": self._admin(bootstrap, lambda admin: list(admin.list_topics()))}

    def do_describe_topic(self, *, bootstrap: str, topic: str, **_: Any) -> Answer:
        (found,) = self._admin(bootstrap, lambda admin: admin.describe_topics([topic]))
        _check(found["error_code"])
        return {"partitions": len(found["partitions"])}

    def do_topic_configs(self, *, bootstrap: str, topic: str, **_: Any) -> Answer:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        found = self._admin(
            bootstrap, lambda admin: admin.describe_configs([resource], config_filter="all")
        )
        values = found["topic"][topic]
        return {"values": {name: each["value"] for name, each in values.items()}}

    def do_set_topic_config(
        self, *, bootstrap: str, topic: str, values: dict[str, str], **_: Any
    ) -> Answer:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs=values)
        found = self._admin(
            bootstrap, lambda admin: admin.alter_configs([resource], raise_on_unknown=False)
        )
        said = found["topic"][topic]
        if said != "OK":  # the client keeps the words only: "[Error 40] ..."
            raise Failure(int(said.split("]")[0].split()[-1]), said)
        return {}

    def do_delete_records(
        self, *, bootstrap: str, topic: str, partition: int, before: int, **_: Any
    ) -> Answer:
        where = TopicPartition(topic, partition)
        found = self._admin(bootstrap, lambda admin: admin.delete_records({where: before}))
        return {"low": found[where]["low_watermark"]}

    # -- groups ------------------------------------------------------------------------

    def do_groups(self, *, bootstrap: str, **_: Any) -> Answer:
        found = self._admin(bootstrap, lambda admin: admin.list_groups())
        return {"names": [each["group_id"] for each in found]}

    def do_describe_group(self, *, bootstrap: str, group: str, **_: Any) -> Answer:
        found = self._admin(bootstrap, lambda admin: admin.describe_groups([group]))[group]
        return {"state": str(found["group_state"]), "members": len(found["members"])}

    def do_delete_group(self, *, bootstrap: str, group: str, **_: Any) -> Answer:
        said = self._admin(bootstrap, lambda admin: admin.delete_groups([group]))[group]
        if said != "OK":
            _raise(getattr(errors, said))
        return {}

    def do_committed(
        self, *, bootstrap: str, group: str, topic: str, partition: int, **_: Any
    ) -> Answer:
        where = TopicPartition(topic, partition)
        found = self._admin(bootstrap, lambda admin: admin.list_group_offsets({group: [where]}))
        return {"offset": found[group][where].offset, "metadata": found[group][where].metadata}

    def do_set_committed(
        self, *, bootstrap: str, group: str, topic: str, partition: int, offset: int, **_: Any
    ) -> Answer:
        where = TopicPartition(topic, partition)
        found = self._admin(
            bootstrap,
            lambda admin: admin.alter_group_offsets(
                group, {where: OffsetAndMetadata(offset, "", -1)}
            ),
        )
        _raise(found[where])
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
        made = KafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            group_instance_id=instance,
            partition_assignment_strategy=[ASSIGNORS[assignor]],
            session_timeout_ms=session_ms,
            heartbeat_interval_ms=500,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )
        made.subscribe(topics)
        return Consumer(made)

    def _admin(self, bootstrap: str, call: Callable[[Any], T]) -> T:
        """One is kept for each broker: to make one takes longer than what it is asked."""
        if bootstrap not in self._admins:
            self._admins[bootstrap] = KafkaAdminClient(bootstrap_servers=bootstrap)
        return call(self._admins[bootstrap])


class Consumer:
    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer

    def poll(self, seconds: float) -> list[Answer]:
        # A poll that ends while the group is being joined can leave this client (3.0.12) without
        # an assignment and without heartbeats, whatever the broker answered; so it gets longer.
        found = self._consumer.poll(POLL_MS)
        return [_record(each) for some in found.values() for each in some]

    def assignment(self) -> list[tuple[str, int]]:
        return [(each.topic, each.partition) for each in self._consumer.assignment()]

    def commit(self, offsets: Offsets | None) -> None:
        self._consumer.commit(
            offsets
            and {
                TopicPartition(topic, partition): OffsetAndMetadata(offset, metadata, -1)
                for topic, partition, offset, metadata in offsets
            }
        )

    def close(self) -> None:
        self._consumer.close(autocommit=False)


def _check(code: int) -> None:
    if code:
        raise Failure(code, f"error {code}")


def _raise(error: Any) -> None:
    if error is not NoError:
        raise Failure(error.errno, error.__name__)


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
    runner.serve(KafkaPython())
