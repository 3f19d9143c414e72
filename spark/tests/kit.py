"""What the tests do to a broker: topics, records, and waiting for the archive."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any, TypeVar

from confluent_kafka import KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from ister.testing import Broker
from ister.wal.tier.archive import Archive

T = TypeVar("T")
TIME = 1_700_000_000_000  # 2023-11-14 22:13:20 UTC
DEADLINE_SECONDS = 180.0
_numbers = itertools.count()


class Kit:
    """One broker, as tests use it."""

    def __init__(self, broker: Broker, bucket: str, data: str) -> None:
        self.broker = broker
        self.bucket = bucket
        self.data = data
        self._admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})

    def topic(self, partitions: int = 1, name: str | None = None, **configs: str) -> str:
        name = name or f"topic-{next(_numbers)}"
        _done(self._admin.create_topics([NewTopic(name, partitions, 1, config=configs)]))
        return name

    def delete_topic(self, name: str) -> None:
        _done(self._admin.delete_topics([name]))

    def add_partitions(self, name: str, total: int) -> None:
        _done(self._admin.create_partitions([NewPartitions(name, total)]))

    def delete_records(self, name: str, before: int, partition: int = 0) -> None:
        _done(self._admin.delete_records([TopicPartition(name, partition, before)]))

    def send(
        self,
        topic: str,
        values: Sequence[str | bytes | None],
        *,
        partition: int = 0,
        first_time: int = TIME,
        key: bool = False,
        headers: Sequence[tuple[str, bytes]] = (),
        codec: str = "none",
    ) -> None:
        """One record a second of the calendar, in order, durable when it returns."""
        failed: list[KafkaError] = []

        def delivered(error: KafkaError | None, _: object) -> None:
            if error is not None:
                failed.append(error)

        producer = Producer(
            {"bootstrap.servers": self.broker.bootstrap, "compression.type": codec, "log_level": 0}
        )
        for number, value in enumerate(values):
            producer.produce(
                topic,
                value,
                key=b"k%d" % number if key else None,
                partition=partition,
                timestamp=first_time + 1000 * number,
                headers=list(headers),
                on_delivery=delivered,
            )
        assert producer.flush(DEADLINE_SECONDS) == 0
        assert not failed

    def wait_archived(self, topic: str, ends: dict[int, int]) -> None:
        """Until the bucket has everything up to these offsets."""

        def there() -> bool:
            with closing(Archive.open(self.bucket)) as archive:
                found = {
                    m.partition: m.tiered_end for m in archive.manifests() if m.topic_name == topic
                }
            return all(found.get(partition, 0) >= end for partition, end in ends.items())

        wait_for(there)


def _done(futures: dict[Any, Any]) -> None:
    for future in futures.values():
        future.result(DEADLINE_SECONDS)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS  # noqa: TID251 - real time of real processes
    while not condition():
        assert time.monotonic() < deadline, "it did not come in time"  # noqa: TID251
        time.sleep(0.02)


def patiently(run: Callable[[], T]) -> T:
    """Run something that may be run again, until Spark has started its worker in time.

    Spark gives the Python process of a stream ten seconds to connect, which no setting
    changes and a busy machine does not always make.
    """
    for _ in range(10):
        try:
            return run()
        except StreamingQueryException as error:
            if "worker failed to connect back" not in str(error):
                raise
    return run()


def places(frame: DataFrame) -> list[tuple[int, int]]:
    """(partition, offset) of all rows, in order."""
    return sorted((row[0], row[1]) for row in frame.select("partition", "offset").collect())


def values(frame: DataFrame) -> list[str]:
    """Values in the order of partition and offset."""
    found = frame.select("partition", "offset", "value").collect()
    return [bytes(row[2]).decode() for row in sorted(found, key=lambda row: (row[0], row[1]))]
