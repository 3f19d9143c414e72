"""Retention knows cursors: what happens when the log start passes one.

While members live, the wire is Kafka's (OFFSET_OUT_OF_RANGE, and the client decides): the
subscription is marked and counted. Once its group is empty, at once if it is, the cursor is
written anew, durably, to the log start, with `adjusted_from` saying where it was, and logged
once with the number of records that were passed. So the next member begins at the
earliest record there is, never silently at the end.

A commit that is on its way decides first: a cursor is written only when none is. A write
that fails is tried again at the next tick. `tick` also expires cursors of groups that have
been empty for `offsets.retention.minutes`, if that is set; it asks the clock of retention,
which stands still after a jump.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from ister.dispatch.cursors import CursorService, Failures, Place
from ister.dispatch.events import CURSOR_ADJUSTED, Events
from ister.metadata.catalog import Catalog
from ister.metadata.cursors import Cursor
from ister.wal.clock import Clock
from ister.wal.partition import Partition

EXPIRE_EVERY_S = 60.0
RETRY_EVERY_S = 1.0

_Key = tuple[str, Place]


class PassedCursors:
    def __init__(
        self,
        cursors: CursorService,
        partitions: Mapping[tuple[bytes, int], Partition],
        catalog: Catalog,
        clock: Clock,
        events: Events,
        is_live: Callable[[str], bool],
    ) -> None:
        self._cursors = cursors
        self._partitions = partitions
        self._catalog = catalog
        self._clock = clock
        self._events = events
        self._is_live = is_live
        self._starts: dict[Partition, int] = {}  # log starts that were looked at
        self._waiting: dict[_Key, None] = {}  # marked: to be written once the group is empty
        self._writing: set[_Key] = set()
        self._empty_since_ms: dict[str, int] = {}
        self._retried_at = self._expired_at = clock.monotonic()
        self.adjustments = 0  # cursors that a log start has passed
        self.expired = 0

    def hydrate(self) -> None:
        """After opening: log starts may have moved and the process died before the cursors."""
        for group, place, cursor in list(self._cursors.all()):
            self._check(group, place, cursor)

    def moved(self, partitions: Iterable[Partition]) -> None:
        """A commit is durable; log starts among it are what matters here."""
        for partition in partitions:
            start = partition.log_start
            if start and self._starts.get(partition) != start:
                self._starts[partition] = start
                if partition.settings.reliable:
                    self._passed(partition)

    def group_changed(self, group: str) -> None:
        """Members came or went."""
        if self._is_live(group) or not self._cursors.places(group):
            self._empty_since_ms.pop(group, None)
            return
        self._empty_since_ms.setdefault(group, self._clock.wall_ms())
        for key in [each for each in self._waiting if each[0] == group]:
            self._adjust(*key)

    def is_marked(self, group: str, place: Place) -> bool:
        return (group, place) in self._waiting

    def tick(self, now_ms: int | None, retention_ms: int | None) -> None:
        """`now_ms` of the clock of retention; None: it stands. Retention None: never."""
        now = self._clock.monotonic()
        if now - self._retried_at >= RETRY_EVERY_S:
            self._retried_at = now
            for group, place in list(self._waiting):
                if not self._is_live(group):
                    self._adjust(group, place)
        if retention_ms and now_ms is not None and now - self._expired_at >= EXPIRE_EVERY_S:
            self._expired_at = now
            self.expire(now_ms, retention_ms)

    def expire(self, now_ms: int, retention_ms: int) -> None:
        """Forget cursors of groups that have been empty for so long."""
        self._empty_since_ms = {
            group: since
            for group, since in self._empty_since_ms.items()
            if self._cursors.places(group)
        }
        old: dict[str, list[Place]] = {}
        for group, place, cursor in self._cursors.all():
            if self._is_live(group):
                continue
            since = max(cursor.time_ms, self._empty_since_ms.get(group, 0))
            if now_ms - since >= retention_ms:
                old.setdefault(group, []).append(place)
        for group, places in old.items():
            self._cursors.delete(group, places, partial(self._expired, len(places)))

    def forget_topic(self, topic_id: bytes) -> None:
        self._waiting = {key: None for key in self._waiting if key[1].topic_id != topic_id}
        self._starts = {
            each: start for each, start in self._starts.items() if each.topic_id != topic_id
        }

    # -- inside ------------------------------------------------------------------------

    def _passed(self, partition: Partition) -> None:
        place = Place(partition.topic_id, partition.index)
        for group, cursor in self._cursors.at(place):
            self._check(group, place, cursor)

    def _check(self, group: str, place: Place, cursor: Cursor) -> None:
        partition = self._partitions.get(place)
        if partition is None or not partition.settings.reliable:
            return
        if cursor.offset >= partition.log_start:
            return
        if (group, place) not in self._waiting:
            self._waiting[group, place] = None
            self.adjustments += 1
        if not self._is_live(group):
            self._adjust(group, place)

    def _adjust(self, group: str, place: Place) -> None:
        key = (group, place)
        if key in self._writing or self._cursors.is_in_flight(group, place):
            return
        partition = self._partitions.get(place)
        before = self._cursors.known(group, place)
        if partition is None or before is None or before.offset >= partition.log_start:
            self._waiting.pop(key, None)
            return
        start = partition.log_start
        moved = Cursor(
            offset=start,
            metadata=before.metadata,
            time_ms=self._clock.wall_ms(),
            adjusted_from=before.offset,
        )
        self._writing.add(key)
        self._cursors.commit(group, [(place, moved)], partial(self._adjusted, key, before, start))

    def _adjusted(self, key: _Key, before: Cursor, start: int, failures: Failures) -> None:
        self._writing.discard(key)
        if failures:
            return  # counted by the cursors; the next tick tries again
        self._waiting.pop(key, None)
        group, place = key
        topic = self._catalog.topics_by_id.get(place.topic_id)
        self._events.warn(
            CURSOR_ADJUSTED,
            group=group,
            topic="" if topic is None else topic.name,
            partition=place.partition,
            adjusted_from=before.offset,
            offset=start,
            records_passed=start - before.offset,
        )
        self._check_again(group, place)

    def _check_again(self, group: str, place: Place) -> None:
        """The log start may have moved on while it was being written."""
        cursor = self._cursors.known(group, place)
        if cursor is not None:
            self._check(group, place, cursor)

    def _expired(self, count: int, error: BaseException | None) -> None:
        if error is None:
            self.expired += count
