"""What delivery counts, by group, topic and partition, within a stated number of rows.

The group is "" where a fetch is not attributed. Above `ROWS_MAX` rows everything new is
counted in one row `other`, so that memory stays bounded whatever clients do; the rows of a
topic go with it. How many of them a scrape shows is decided where it is written
(`gateway/http/families.py`), and is fewer. Names are resolved when somebody asks, because a
topic is its id here.
"""

from __future__ import annotations

from typing import NamedTuple

ROWS_MAX = 10_000
OTHER = "other"


class Counted(NamedTuple):
    """What a row is about; topic id b"" is the row `other`."""

    group: str
    topic_id: bytes
    partition: int


class Row:
    __slots__ = (
        "creation_races",
        "fallback_polls",
        "heartbeat_polls",
        "lag_detected",
        "last_dispatched",
        "notifier_polls",
        "offset_gaps",
        "worst_stall_s",
    )

    def __init__(self) -> None:
        self.notifier_polls = 0
        self.heartbeat_polls = 0
        self.lag_detected = 0
        self.fallback_polls = 0
        self.creation_races = 0
        self.offset_gaps = 0
        self.last_dispatched = -1
        self.worst_stall_s = 0.0


class Counts:
    def __init__(self, rows_max: int = ROWS_MAX) -> None:
        self._rows_max = rows_max
        self.rows: dict[Counted, Row] = {}

    def row(self, group: str, topic_id: bytes, partition: int) -> Row:
        key = Counted(group, topic_id, partition)
        row = self.rows.get(key)
        if row is None:
            if len(self.rows) >= self._rows_max:
                key = Counted(OTHER, b"", -1)
                row = self.rows.get(key)
            if row is None:
                row = self.rows[key] = Row()
        return row

    def find(self, group: str, topic_id: bytes, partition: int) -> Row | None:
        return self.rows.get(Counted(group, topic_id, partition))

    def forget_topic(self, topic_id: bytes) -> None:
        for key in [each for each in self.rows if each.topic_id == topic_id]:
            del self.rows[key]
