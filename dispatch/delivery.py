"""What delivery saw: wake-ups, races, stalls and gaps, counted and logged.

Parked reads report here (`Observer`), and the fetch path reports gaps. Nothing here
decides anything; a failure of counting would be a failure of delivery, so it is kept to
dictionaries and integers.
"""

from __future__ import annotations

import structlog

from ister.dispatch.attribution import Attribution
from ister.dispatch.counts import Counts, Row
from ister.dispatch.parked import ParkedRead, Waker
from ister.dispatch.verify import Gap
from ister.metadata.catalog import Catalog
from ister.wal.histogram import Histogram
from ister.wal.partition import Partition

log = structlog.get_logger()


class Delivery:
    def __init__(self, catalog: Catalog, attribution: Attribution) -> None:
        self._catalog = catalog
        self.attribution = attribution
        self.counts = Counts()
        self.stalls = Histogram()  # from durable to answered, of reads that waited
        self.worst_stall_s = 0.0
        self.hydrations = Histogram()  # loading all cursors
        self.recreations = 0

    # -- parked reads tell ---------------------------------------------------------------

    def woken(
        self, read: ParkedRead, partition: Partition, by: Waker, answered: bool, stall_s: float
    ) -> None:
        row = self._row(read, partition)
        if by is Waker.NOTIFIER:
            row.notifier_polls += 1
        else:
            row.heartbeat_polls += 1
            if answered:
                row.lag_detected += 1
                row.fallback_polls += 1
        if answered:
            self.stalls.observe(stall_s)
            self.worst_stall_s = max(self.worst_stall_s, stall_s)
            row.worst_stall_s = max(row.worst_stall_s, stall_s)

    def raced(self, read: ParkedRead, partition: Partition) -> None:
        self._row(read, partition).creation_races += 1

    def recreated(self, read: ParkedRead, error: Exception) -> None:
        self.recreations += 1

    # -- the fetch path tells -------------------------------------------------------------

    def violated(self, read: ParkedRead, partition: Partition, gap: Gap, source: str) -> None:
        """A gap that is no known hole: it was not delivered, and is read again elsewhere."""
        self._row(read, partition).offset_gaps += 1
        log.error(
            "reliability_violation",
            topic=self._name(partition),
            partition=partition.index,
            expected=gap.expected,
            found=gap.found,
            source=source,
        )

    def unreadable(self, partition: Partition, offset: int, error: Exception) -> None:
        """No source has what was asked for; the client gets a storage error."""
        log.error(
            "read_failed",
            topic=self._name(partition),
            partition=partition.index,
            offset=offset,
            error=str(error),
        )

    def forget_topic(self, topic_id: bytes) -> None:
        self.counts.forget_topic(topic_id)

    def _row(self, read: ParkedRead, partition: Partition) -> Row:
        name = self._name(partition)
        found = self.attribution.find(read.client_id, read.host, name, partition.index)
        return self.counts.row(found.group, partition.topic_id, partition.index)

    def _name(self, partition: Partition) -> str:
        topic = self._catalog.topics_by_id.get(partition.topic_id)
        return "" if topic is None else topic.name
