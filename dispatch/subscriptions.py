"""Subscriptions: (group, topic, partition), and everything that is known of each.

A subscription is there while its group has a cursor or a member that holds the partition.
Committed, persisted and head are integers that are always known, from the first moment after
a restart, because a cursor that was loaded counts. What was sent is known where
`attribution.py` gives a fetch to the group for certain; else the view says `ambiguous` or
`no group`, and whether it is stalled is then not said either.

At every beat of the heartbeat the cursors of the partitions that are due are compared with
the head (`compare`): integers only. Being behind is lag, not a missed wake-up; what the beat
keeps is since when. A subscription is *stalled* if a member that lives holds the partition,
there is something to read, and it has not asked for it in `STALLED_AFTER_S`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ister.dispatch.attribution import NO_GROUP, Attributed, Attribution, Certainty, Holder
from ister.dispatch.counts import Counts
from ister.dispatch.cursors import CursorService, Place
from ister.dispatch.events import CURSOR_SET, Events
from ister.dispatch.heartbeat import Heartbeat
from ister.dispatch.parked import ParkedReads
from ister.dispatch.passed import PassedCursors
from ister.dispatch.sent import Sent, SentRow
from ister.metadata.catalog import Catalog
from ister.metadata.cursors import Cursor, display_path
from ister.wal.clock import Clock
from ister.wal.partition import Partition

STALLED_AFTER_S = 10.0


class Subscription:
    """The integers of one subscription with a cursor."""

    __slots__ = ("behind_since_ms", "group", "moved_ms", "offset")

    def __init__(self, group: str, offset: int, moved_ms: int) -> None:
        self.group = group
        self.offset = offset
        self.behind_since_ms = 0  # of the monotonic clock; 0: it is not behind
        self.moved_ms = moved_ms  # wall clock


class Here:
    """The subscriptions of one partition."""

    __slots__ = ("by_group", "head", "level")

    def __init__(self) -> None:
        self.by_group: dict[str, Subscription] = {}
        self.head = -1  # at which all of them were compared; -1: a cursor has moved since
        self.level: list[Subscription] = []  # those that were not behind then


class SubscriptionView(NamedTuple):
    """What the JSON shows; None: not known."""

    group: str
    topic: str
    partition: int
    path: str
    member: str | None
    log_start: int
    head: int
    sent: int | None
    sent_to: str  # "group", "ambiguous" or "no group"
    committed: int | None
    persisted: int | None
    lag: int | None
    persisted_lag: int | None
    behind_s: float
    last_movement_ms: int | None
    stalled: bool | None
    below_log_start: bool
    adjusted_from: int | None
    woken_by_notifier: int
    woken_by_heartbeat: int
    worst_stall_s: float

    @property
    def path_key(self) -> str:
        """Sorts as the listing does."""
        return f"{self.group}\0{self.topic}\0{self.partition:010d}"


class Subscriptions:
    def __init__(
        self,
        cursors: CursorService,
        partitions: Mapping[tuple[bytes, int], Partition],
        catalog: Catalog,
        attribution: Attribution,
        sent: Sent,
        passed: PassedCursors,
        parked: ParkedReads,
        counts: Counts,
        events: Events,
        clock: Clock,
    ) -> None:
        self._cursors = cursors
        self._partitions = partitions
        self._catalog = catalog
        self._attribution = attribution
        self._sent = sent
        self._passed = passed
        self._parked = parked
        self._counts = counts
        self._events = events
        self._clock = clock
        self._here: dict[Partition, Here] = {}
        self._heartbeat: Heartbeat | None = None

    def begin(self, heartbeat: Heartbeat) -> None:
        """Take up the cursors that were loaded, and be told of every change."""
        self._heartbeat = heartbeat
        heartbeat.keep(self._here.__contains__)
        for group, place, cursor in self._cursors.all():
            self._take(group, place, cursor)
        self._cursors.on_changed = self._changed

    def __len__(self) -> int:
        return sum(len(here.by_group) for here in self._here.values())

    def compare(self, partitions: Sequence[Partition], now_ms: int) -> None:
        """At a beat: is each cursor behind, and since when."""
        find = self._here.get
        for partition in partitions:
            here = find(partition)
            if here is not None and here.head != partition.high_watermark:
                # Heads only grow: who is behind stays behind until its cursor moves.
                asked = here.by_group.values() if here.head < 0 else here.level
                head = here.head = partition.high_watermark
                if asked:
                    here.level = _level(asked, head, now_ms)

    def forget_topic(self, topic_id: bytes) -> None:
        for partition in [each for each in self._here if each.topic_id == topic_id]:
            self._leave(partition)

    # -- changes -----------------------------------------------------------------------

    def _changed(
        self, group: str, place: Place, before: Cursor | None, cursor: Cursor | None
    ) -> None:
        if cursor is None:
            partition = self._partitions.get(place)
            here = None if partition is None else self._here.get(partition)
            if partition is not None and here is not None:
                here.by_group.pop(group, None)
                if not here.by_group:
                    self._leave(partition)
            return
        self._take(group, place, cursor)
        topic = self._catalog.topics_by_id.get(place.topic_id)
        self._events.note(
            CURSOR_SET,
            group=group,
            topic="" if topic is None else topic.name,
            partition=place.partition,
            offset=cursor.offset,
            before=None if before is None else before.offset,
            generation=cursor.generation,
        )

    def _take(self, group: str, place: Place, cursor: Cursor) -> None:
        partition = self._partitions.get(place)
        if partition is None:
            return
        here = self._here.get(partition)
        if here is None:
            here = self._here[partition] = Here()
            if self._heartbeat is not None:
                self._heartbeat.watch(partition)
        here.head = -1
        subscription = here.by_group.get(group)
        if subscription is None:
            here.by_group[group] = Subscription(group, cursor.offset, cursor.time_ms)
        elif subscription.offset != cursor.offset:
            subscription.offset = cursor.offset
            subscription.moved_ms = cursor.time_ms
            subscription.behind_since_ms = 0

    def _leave(self, partition: Partition) -> None:
        del self._here[partition]
        if self._heartbeat is not None:
            self._heartbeat.unwatch(partition)

    def lags(self) -> Iterator[tuple[tuple[str, str, str], float]]:
        """(group, topic, partition) and how many records its cursor is behind, for a scrape."""
        topics = self._catalog.topics_by_id
        for partition, here in self._here.items():
            topic = topics.get(partition.topic_id)
            if topic is not None:
                index = str(partition.index)
                head, start = partition.high_watermark, partition.log_start
                for group, each in here.by_group.items():
                    yield (group, topic.name, index), max(0, head - max(each.offset, start))

    # -- views -------------------------------------------------------------------------

    def views(self) -> Iterator[SubscriptionView]:
        """Every subscription, by group, topic and partition."""
        groups = {group for here in self._here.values() for group in here.by_group}
        groups.update(self._attribution.groups())
        for group in sorted(groups):
            yield from self.of_group(group)

    def of_group(self, group: str) -> Iterator[SubscriptionView]:
        held: dict[Place, Holder] = {}
        for (name, index), holder in self._attribution.holders(group).items():
            topic = self._catalog.topics_by_name.get(name)
            if topic is not None:
                held[Place(topic.id, index)] = holder
        places: list[tuple[str, Place, Partition]] = []
        for place in self._cursors.places(group) | held.keys():
            topic = self._catalog.topics_by_id.get(place.topic_id)
            partition = self._partitions.get(place)
            if topic is not None and partition is not None:
                places.append((topic.name, place, partition))
        places.sort(key=lambda each: (each[0], each[1].partition))
        for name, place, partition in places:
            yield self._view(group, name, place, partition, held.get(place))

    def _view(
        self, group: str, topic: str, place: Place, partition: Partition, holder: Holder | None
    ) -> SubscriptionView:
        cursor = self._cursors.known(group, place)
        head, log_start = partition.high_watermark, partition.log_start
        offset = None if cursor is None else cursor.offset
        there = self._here.get(partition)
        here = None if there is None else there.by_group.get(group)
        to, row = self._sent_to(topic, partition, holder)
        sent = row.last_sent if row is not None and to.group == group else None
        counted = self._counts.find(group, place.topic_id, place.partition)
        behind_ms = 0 if here is None or not here.behind_since_ms else here.behind_since_ms
        now_ms = round(self._clock.monotonic() * 1000)
        lag = None if offset is None else max(0, head - max(offset, log_start))
        return SubscriptionView(
            group=group,
            topic=topic,
            partition=place.partition,
            path=display_path(topic, place.partition, group),
            member=None if holder is None else holder.member_id,
            log_start=log_start,
            head=head,
            sent=sent,
            sent_to=to.certainty.value,
            committed=offset,
            persisted=offset,
            lag=lag,
            persisted_lag=None if sent is None or offset is None else max(0, sent + 1 - offset),
            behind_s=(now_ms - behind_ms) / 1000 if behind_ms else 0.0,
            last_movement_ms=None if cursor is None else cursor.time_ms,
            stalled=self._is_stalled(partition, holder, to, row, lag),
            below_log_start=self._passed.is_marked(group, place),
            adjusted_from=None if cursor is None else cursor.adjusted_from,
            woken_by_notifier=0 if counted is None else counted.notifier_polls,
            woken_by_heartbeat=0 if counted is None else counted.heartbeat_polls,
            worst_stall_s=0.0 if counted is None else counted.worst_stall_s,
        )

    def _sent_to(
        self, topic: str, partition: Partition, holder: Holder | None
    ) -> tuple[Attributed, SentRow | None]:
        if holder is None:
            return NO_GROUP, None
        found = self._attribution.find(holder.client_id, holder.host, topic, partition.index)
        return found, self._sent.find(holder.client_id, holder.host, partition)

    def _is_stalled(
        self,
        partition: Partition,
        holder: Holder | None,
        to: Attributed,
        row: SentRow | None,
        lag: int | None,
    ) -> bool | None:
        if to.certainty is Certainty.AMBIGUOUS:
            return None
        if holder is None or not lag:
            return False
        waiting = self._parked.waiting.get(partition)
        if waiting is not None and any(
            (each.client_id, each.host) == (holder.client_id, holder.host) for each in waiting.reads
        ):
            return False
        since = holder.since if row is None else max(holder.since, row.fetched_at)
        return self._clock.monotonic() - since > STALLED_AFTER_S


def _level(asked: Iterable[Subscription], head: int, now_ms: int) -> list[Subscription]:
    """Those of them that are not behind; the others are, from now on if they were not."""
    level = []
    for subscription in asked:
        if head <= subscription.offset:
            subscription.behind_since_ms = 0
            level.append(subscription)
        elif not subscription.behind_since_ms:
            subscription.behind_since_ms = now_ms
    return level
