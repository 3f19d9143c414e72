"""The cursor service: how far every group has come, in memory and durable.

Memory is read, the store is written: a commit becomes one transaction per topic,
goes the way of all metadata (`metadata/service.py` puts all that wait into one
sync), and only when it is durable does memory change and the caller hear of it.
Answers come in the order of the commits, so memory never runs backwards.

A commit expects its topic to be there, and the deletion of a topic takes record
and cursors in one transaction, so a commit that races it leaves nothing behind. A
cursor whose topic the catalog no longer has is never shown.

If the store does not answer, nobody knows whether a commit is durable. Such
cursors are *unsure*: the next fetch looks into the store before it says anything,
because "no cursor" for one that exists would make a group lose its place.

Who may commit is decided by the coordinator; all this is for the owner's thread.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

import structlog

from ister.dispatch.errors import TooManyCursors
from ister.metadata.catalog import Catalog
from ister.metadata.cursors import (
    Cursor,
    commit_cursors,
    cursor_key,
    load_cursor,
    load_cursors,
)
from ister.metadata.errors import Conflict, StoreOverloaded, UnknownTopic
from ister.metadata.service import CommitService
from ister.metadata.store import Store, Transaction

log = structlog.get_logger()

CURSORS_MAX = 2_000_000  # about 1 GB of memory at 500 bytes each

Changed: TypeAlias = "Callable[[str, Place, Cursor | None, Cursor | None], None]"
Failures: TypeAlias = Mapping[bytes, BaseException]  # by topic id; empty: all is durable


class Place(NamedTuple):
    topic_id: bytes
    partition: int


class CursorService:
    def __init__(
        self,
        store: Store,
        commit_service: CommitService,
        catalog: Catalog,
        *,
        cursors_max: int = CURSORS_MAX,
    ) -> None:
        """Reads all cursors: it blocks."""
        self._store = store
        self._commits = commit_service
        self._catalog = catalog
        self._cursors_max = cursors_max
        self._groups: dict[str, dict[Place, Cursor]] = {}  # no group without a cursor
        self._count = 0  # cursors in all
        self._in_flight: defaultdict[str, Counter[Place]] = defaultdict(Counter)
        self._unsure: defaultdict[str, set[Place]] = defaultdict(set)
        # Called with (group, place, before, now) when a cursor is durable or gone.
        self.on_changed: Changed = _nobody
        self.rewinds = 0  # commits below the cursor there was
        self.write_errors = 0  # commits and deletions that the store did not confirm
        for key, cursor, _ in load_cursors(store):
            self._set(key.group, Place(key.topic_id, key.partition), cursor)

    # -- read --------------------------------------------------------------------

    def fetch(self, group: str, place: Place) -> Cursor | None:
        """None: there is no cursor. StoreUnavailable if that cannot be known now."""
        if place.topic_id not in self._catalog.topics_by_id:
            return None
        self._make_sure(group, (place,))
        return self._groups.get(group, {}).get(place)

    def fetch_all(self, group: str) -> dict[Place, Cursor]:
        """All cursors of a group. StoreUnavailable if they cannot be known now."""
        self._make_sure(group, list(self._unsure.get(group, ())))
        known = self._catalog.topics_by_id
        cursors = self._groups.get(group, {})
        return {place: cursor for place, cursor in cursors.items() if place.topic_id in known}

    def has(self, group: str) -> bool:
        """Whether the group has (or may have) a cursor in a topic that exists."""
        known = self._catalog.topics_by_id
        places = (self._groups.get(group, {}), self._unsure.get(group, ()))
        return any(place.topic_id in known for some in places for place in some)

    def groups(self) -> list[str]:
        return [group for group in [*self._groups] if self.has(group)]

    def all(self) -> Iterator[tuple[str, Place, Cursor]]:
        """Every cursor in a topic that exists; not across a commit."""
        known = self._catalog.topics_by_id
        for group, cursors in self._groups.items():
            for place, cursor in cursors.items():
                if place.topic_id in known:
                    yield group, place, cursor

    def at(self, place: Place) -> list[tuple[str, Cursor]]:
        """Every group's cursor at one place."""
        return [
            (group, cursors[place]) for group, cursors in self._groups.items() if place in cursors
        ]

    def places(self, group: str) -> set[Place]:
        """Where the group has a cursor in memory."""
        return set(self._groups.get(group, ()))

    def known(self, group: str, place: Place) -> Cursor | None:
        """The cursor in memory, as it is; `fetch` makes sure first."""
        return self._groups.get(group, {}).get(place)

    def is_in_flight(self, group: str, place: Place) -> bool:
        """Whether a commit or a deletion of this cursor is on its way to the store."""
        return place in self._in_flight.get(group, ())

    def __len__(self) -> int:
        return self._count

    @property
    def group_count(self) -> int:
        return len(self._groups)

    # -- write -------------------------------------------------------------------

    def commit(
        self,
        group: str,
        cursors: Iterable[tuple[Place, Cursor]],
        done: Callable[[Failures], None],
    ) -> None:
        """`done` with what failed, by topic, once everything else is durable.

        UnknownTopic: it is gone. TooManyCursors: the limit. Else what the store said.
        """
        by_topic: defaultdict[bytes, dict[int, Cursor]] = defaultdict(dict)
        for place, cursor in cursors:
            by_topic[place.topic_id][place.partition] = cursor
        gathering = _Gathering(len(by_topic), done)
        for topic_id, in_topic in by_topic.items():
            self._commit_topic(group, topic_id, in_topic, partial(gathering.told, topic_id))
        gathering.begun()

    def delete(
        self,
        group: str,
        places: Iterable[Place],
        done: Callable[[BaseException | None], None],
        keys: Sequence[str] = (),
    ) -> None:
        """Forget cursors, and other keys with them in the same transaction."""
        gone = set(places)
        if not gone and not keys:
            done(None)
            return
        cursors = [cursor_key(*place, group) for place in sorted(gone)]
        transaction = Transaction(delete=[*cursors, *keys])
        self._count_in_flight(group, gone, 1)
        self._submit(transaction, partial(self._deleted, group, gone, done))

    def delete_group(
        self,
        group: str,
        done: Callable[[BaseException | None], None],
        keys: Sequence[str] = (),
    ) -> None:
        """Forget all cursors of a group, those on their way to the store too."""
        places = {
            *self._groups.get(group, ()),
            *self._in_flight.get(group, ()),
            *self._unsure.get(group, ()),
        }
        self.delete(group, places, done, keys)

    def forget_topic(self, topic_id: bytes) -> None:
        """The topic was deleted, its cursors with it: give the memory back."""
        for group in [*self._groups]:
            for place in [each for each in self._groups[group] if each.topic_id == topic_id]:
                self._drop(group, place)
        for group in [*self._unsure]:
            self._sure(group, {each for each in self._unsure[group] if each.topic_id == topic_id})

    # -- inside ------------------------------------------------------------------

    def _commit_topic(
        self,
        group: str,
        topic_id: bytes,
        cursors: dict[int, Cursor],
        done: Callable[[BaseException | None], None],
    ) -> None:
        if topic_id not in self._catalog.topics_by_id:
            done(UnknownTopic(topic_id))
            return
        places = {Place(topic_id, partition): cursor for partition, cursor in cursors.items()}
        known = self._groups.get(group, {})
        if self._count + sum(place not in known for place in places) > self._cursors_max:
            done(TooManyCursors(f"there are {self._count} cursors already"))
            return
        self._count_in_flight(group, places, 1)
        transaction = commit_cursors(topic_id, group, cursors)
        self._submit(transaction, partial(self._committed, group, places, done))

    def _submit(
        self, transaction: Transaction, done: Callable[[BaseException | None], None]
    ) -> None:
        try:
            self._commits.commit(transaction, done)
        except StoreOverloaded as error:
            done(error)

    def _committed(
        self,
        group: str,
        places: Mapping[Place, Cursor],
        done: Callable[[BaseException | None], None],
        error: BaseException | None,
    ) -> None:
        self._count_in_flight(group, places, -1)
        if error is None:
            for place, cursor in places.items():
                self._rewound(group, place, cursor)
                self._set(group, place, cursor)
            self._sure(group, places)
        elif isinstance(error, Conflict):
            error = UnknownTopic(next(iter(places)).topic_id)
        else:
            self._not_confirmed(group, places, error)
        done(error)

    def _deleted(
        self,
        group: str,
        places: set[Place],
        done: Callable[[BaseException | None], None],
        error: BaseException | None,
    ) -> None:
        self._count_in_flight(group, places, -1)
        if error is None:
            for place in places:
                self._drop(group, place)
            self._sure(group, places)
        else:
            self._not_confirmed(group, places, error)
        done(error)

    def _not_confirmed(self, group: str, places: Iterable[Place], error: BaseException) -> None:
        self.write_errors += 1
        log.error("cursor_write_failed", group=group, error=str(error), kind=type(error).__name__)
        if not isinstance(error, StoreOverloaded):  # that one was not tried
            self._unsure[group].update(places)

    def _make_sure(self, group: str, places: Sequence[Place]) -> None:
        unsure = self._unsure.get(group)
        if not unsure:
            return
        for place in places:
            if place in unsure:
                # Rare enough to read on the owner: only after the store has failed.
                found = load_cursor(self._store, place.topic_id, place.partition, group)
                if found is None:
                    self._drop(group, place)
                else:
                    self._set(group, place, found.cursor)
                self._sure(group, (place,))

    def _sure(self, group: str, places: Iterable[Place]) -> None:
        if group in self._unsure:
            self._unsure[group].difference_update(places)
            if not self._unsure[group]:
                del self._unsure[group]

    def _rewound(self, group: str, place: Place, cursor: Cursor) -> None:
        before = self._groups.get(group, {}).get(place)
        if before is not None and cursor.offset < before.offset:
            self.rewinds += 1

    def _set(self, group: str, place: Place, cursor: Cursor) -> None:
        cursors = self._groups.setdefault(group, {})
        before = cursors.get(place)
        self._count += before is None
        cursors[place] = cursor
        self.on_changed(group, place, before, cursor)

    def _drop(self, group: str, place: Place) -> None:
        cursors = self._groups.get(group)
        before = None if cursors is None else cursors.pop(place, None)
        if before is not None:
            self._count -= 1
            if not cursors:
                del self._groups[group]
            self.on_changed(group, place, before, None)

    def _count_in_flight(self, group: str, places: Iterable[Place], change: int) -> None:
        counts = self._in_flight[group]
        for place in places:
            counts[place] += change
            if not counts[place]:
                del counts[place]
        if not counts:
            del self._in_flight[group]

    def check(self) -> None:
        """What is written beside the fields, for tests."""
        assert all(self._groups.values())
        assert self._count == sum(len(cursors) for cursors in self._groups.values())
        assert all(self._in_flight.values())
        assert all(self._unsure.values())


def _nobody(_: str, __: Place, ___: Cursor | None, ____: Cursor | None) -> None:
    pass


class _Gathering:
    """One answer for a commit of several topics."""

    def __init__(self, topics: int, done: Callable[[Failures], None]) -> None:
        self._left = topics + 1  # the last one is `begun`, so that `done` is called once at most
        self._done = done
        self._failures: dict[bytes, BaseException] = {}

    def told(self, topic_id: bytes, error: BaseException | None) -> None:
        if error is not None:
            self._failures[topic_id] = error
        self.begun()

    def begun(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._done(self._failures)
