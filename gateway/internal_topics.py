"""Topics of the broker's own: clients read them, and nobody but the broker writes or deletes.

Names that begin with `__ister_` are reserved. `ReceiptTopic` writes receipts
(`dispatch/receipts.py`) into `__ister_receipts`, which is made with the first of them: a
broker from which nobody reads has no such topic.
"""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from ister.dispatch.receipts import ReceiptRecord
from ister.gateway.kafka_client.batches import NewRecord, encode, size_of
from ister.gateway.topic_admin import INTERNAL_PREFIX, TopicAdmin
from ister.metadata.catalog import Catalog
from ister.wal.errors import LogError
from ister.wal.log import Log, Moment
from ister.wal.partition import Partition

RECEIPTS = INTERNAL_PREFIX + "receipts"
RECEIPTS_CONFIGS = {"retention.ms": "604800000"}
BATCH_BYTES_MAX = 512 * 1024

log = structlog.get_logger()


class InternalIds:
    """The ids of internal topics, asked for on hot paths."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def __contains__(self, topic_id: object) -> bool:
        topic = self._catalog.topics_by_name.get(RECEIPTS)
        return topic is not None and topic.id == topic_id


class ReceiptTopic:
    """Appends receipts; makes the topic when there is none."""

    def __init__(self, topics: TopicAdmin, catalog: Catalog, appender: Log) -> None:
        self._topics = topics
        self._catalog = catalog
        self._log = appender
        self._making = False
        self.closing = False  # too late to make a topic
        self.lost = 0  # receipts that could not be written

    def write(self, records: Sequence[ReceiptRecord]) -> None:
        topic = self._catalog.topics_by_name.get(RECEIPTS)
        if topic is not None:
            self._append(topic.id, records)
            return
        if self._making or self.closing:
            self.lost += len(records)
        else:
            self._make(records)

    def _make(self, records: Sequence[ReceiptRecord]) -> None:
        self._making = True

        def made(error: BaseException | None) -> None:
            self._making = False
            if error is None:
                self.write(records)
            else:
                self._failed(len(records), error)

        try:
            self._topics.create(RECEIPTS, 1, RECEIPTS_CONFIGS, made, internal=True)
        except Exception as error:  # evidence is not worth a broker
            made(error)

    def _append(self, topic_id: bytes, records: Sequence[ReceiptRecord]) -> None:
        partition = self._log.partitions.get((topic_id, 0))
        if partition is None:
            self._failed(len(records), None)
            return
        batch: list[NewRecord] = []
        size = 0
        for key, value, time_ms in records:
            record = NewRecord(key, value, time_ms)
            batch.append(record)
            size += size_of(record)
            if size >= BATCH_BYTES_MAX:
                self._append_batch(partition, batch)
                batch, size = [], 0
        if batch:
            self._append_batch(partition, batch)

    def _append_batch(self, partition: Partition, batch: list[NewRecord]) -> None:
        try:
            self._log.append(partition, encode(batch), Moment.APPENDED, lambda _: None)
        except LogError as error:
            self._failed(len(batch), error)

    def _failed(self, count: int, error: BaseException | None) -> None:
        self.lost += count
        log.warning("receipts_lost", count=count, reason=str(error or "no partition"))
