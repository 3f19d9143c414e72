"""What was sent: to which client, from where to where, when. Evidence from the fetch path.

One row per client id, address and partition. A fetch that goes on where the last one
ended makes its range longer; one that goes elsewhere closes it and begins another, so a
record that was sent twice is in two ranges. Open ranges are closed every `CLOSE_EVERY_S` and
given to whoever keeps them. A range belongs to a group only where `attribution.py` is
certain when it begins; if that changes, the range ends.

What was sent was written to the peer's connection, not more: only a commit shows that it
arrived. A row that was not used for a while is forgotten; there are at most `ROWS_MAX`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from ister.dispatch.attribution import Attributed, Attribution, Certainty
from ister.metadata.catalog import Catalog
from ister.wal.clock import Clock
from ister.wal.partition import Partition

ROWS_MAX = 50_000
CLOSE_EVERY_S = 1.0
FORGET_AFTER_S = 600.0


class SentRange(NamedTuple):
    """Offsets first..last went to a client, in `fetches` answers, between two moments."""

    topic: str
    topic_id: bytes
    partition: int
    first: int
    last: int
    fetches: int
    client_id: str
    host: str
    since_ms: int
    until_ms: int
    attributed: Attributed


class SentRow:
    """One client on one partition."""

    __slots__ = (
        "attributed",
        "client_id",
        "fetched_at",
        "fetches",
        "first",
        "host",
        "next",
        "partition",
        "since_ms",
        "topic",
        "until_ms",
        "version",
    )

    def __init__(self, client_id: str, host: str, partition: Partition, topic: str) -> None:
        self.client_id = client_id
        self.host = host
        self.partition = partition
        self.topic = topic
        self.attributed = Attributed(Certainty.NO_GROUP)
        self.version = -1
        self.first = self.next = -1  # of the open range; equal: there is none
        self.fetches = 0
        self.since_ms = self.until_ms = 0
        self.fetched_at = 0.0

    @property
    def last_sent(self) -> int | None:
        return self.next - 1 if self.next > 0 else None


class Sent:
    """All rows."""

    def __init__(
        self, attribution: Attribution, catalog: Catalog, clock: Clock, rows_max: int = ROWS_MAX
    ) -> None:
        self._attribution = attribution
        self._catalog = catalog
        self._clock = clock
        self._rows_max = rows_max
        self._rows: dict[tuple[str, str, Partition], SentRow] = {}
        self._open: dict[SentRow, None] = {}
        self._closed_at = clock.monotonic()
        self.on_closed: Callable[[SentRange], None] = _nobody
        self.unattributed = 0  # ranges that could not be given to one group
        self.ranges = 0

    def __len__(self) -> int:
        return len(self._rows)

    def fetched(self, client_id: str, host: str, partition: Partition) -> SentRow:
        """A client asked for a partition."""
        key = (client_id, host, partition)
        row = self._rows.get(key)
        if row is None:
            if len(self._rows) >= self._rows_max:
                self._forget_oldest()
            topic = self._catalog.topics_by_id.get(partition.topic_id)
            row = SentRow(client_id, host, partition, "" if topic is None else topic.name)
            self._rows[key] = row
        row.fetched_at = self._clock.monotonic()
        return row

    def sent(self, row: SentRow, first: int, following: int) -> Attributed:
        """Offsets from `first` up to before `following` are in an answer."""
        now_ms = self._clock.wall_ms()
        if row.version != self._attribution.version:
            self._attribute(row)
        if row.next != first or row.first == row.next:
            self._close(row)
            row.first = first
            row.since_ms = now_ms
            self._open[row] = None
        row.next = following
        row.fetches += 1
        row.until_ms = now_ms
        return row.attributed

    def find(self, client_id: str, host: str, partition: Partition) -> SentRow | None:
        return self._rows.get((client_id, host, partition))

    def rows(self) -> Iterable[SentRow]:
        return self._rows.values()

    def tick(self) -> None:
        """Now and then: close what is open long enough, forget who is gone."""
        now = self._clock.monotonic()
        if now - self._closed_at < CLOSE_EVERY_S:
            return
        self._closed_at = now
        self.close_all()
        gone = now - FORGET_AFTER_S
        for key in [key for key, row in self._rows.items() if row.fetched_at < gone]:
            del self._rows[key]

    def close_all(self) -> None:
        for row in list(self._open):
            self._close(row)

    def forget_topic(self, topic_id: bytes) -> None:
        for key in [key for key in self._rows if key[2].topic_id == topic_id]:
            self._close(self._rows.pop(key))

    def _attribute(self, row: SentRow) -> None:
        found = self._attribution.find(row.client_id, row.host, row.topic, row.partition.index)
        row.version = self._attribution.version
        if found != row.attributed:
            self._close(row)
            row.attributed = found

    def _close(self, row: SentRow) -> None:
        if self._open.pop(row, False) is False:
            return
        self.ranges += 1
        if row.attributed.certainty is not Certainty.GROUP:
            self.unattributed += 1
        self.on_closed(
            SentRange(
                row.topic,
                row.partition.topic_id,
                row.partition.index,
                row.first,
                row.next - 1,
                row.fetches,
                row.client_id,
                row.host,
                row.since_ms,
                row.until_ms,
                row.attributed,
            )
        )
        row.first = row.next
        row.fetches = 0

    def _forget_oldest(self) -> None:
        key = next(iter(self._rows))
        self._close(self._rows.pop(key))


def _nobody(_: SentRange) -> None:
    pass
