"""The life of a topic across the two stores: metadata first, then the log.

A topic is durable in the metadata before its first frame can be. Deleting it is
one metadata transaction (the record goes, a tombstone stays, cursors go); from
that moment nobody reads or appends, and housekeeping removes what is left on
disk and in the bucket. The tombstone goes last, when no journal file can hold a
frame of the id any more (`burial.py`). A new topic of the same name has another
id and so never meets anything of the old one.

A store that does not answer leaves open whether the change was made. The caller
gets the error; here the catalog is read anew, behind what was under way, and the
log is brought up to what it says, so that the two never go separate ways.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

from ister.metadata.catalog import Catalog, Change, Tombstone, Topic
from ister.metadata.errors import Conflict, StoreOverloaded, StoreUnavailable
from ister.metadata.service import CommitService
from ister.metadata.store import Store
from ister.wal import driver as lanes
from ister.wal.log import Log
from ister.wal.settings import TopicSettings
from ister.wal.topic_settings import topic_settings

Done = Callable[[BaseException | None], None]


class Topics:
    """Changes to topics. Errors of the plan are raised, errors of the store given to `done`."""

    def __init__(
        self,
        catalog: Catalog,
        commits: CommitService,
        log: Log,
        rng: random.Random,
        defaults: Mapping[str, str],
        store: Store,
        on_error: Callable[[BaseException], None],
    ) -> None:
        self._catalog = catalog
        self._commits = commits
        self._log = log
        self._rng = rng
        self._defaults = defaults
        self._store = store
        self._on_error = on_error
        self._reloading = False
        # Journal files up to this one may hold frames of a deleted topic.
        self.barriers = {topic_id: log.journal.file.sequence for topic_id in catalog.tombstones}
        self.on_deleted: Callable[[Tombstone], None] = lambda _: None

    def settings_of(self, topic: Topic) -> TopicSettings:
        return topic_settings(topic.configs, self._defaults)

    def create(self, name: str, partitions: int, configs: Mapping[str, str], done: Done) -> Topic:
        """`done(None)` once the partitions can be written to."""
        now_ms = self._log.clock.wall_ms()
        change = self._catalog.create(name, partitions, configs, now_ms, self._rng)
        topic = change.result

        def apply() -> None:
            self._log.add_partitions(topic.id, range(partitions), self.settings_of(topic))

        self._commit(change, apply, done)
        return topic

    def grow(self, topic: Topic, partitions: int, done: Done) -> None:
        change = self._catalog.grow(topic.id, partitions)

        def apply() -> None:
            new = range(topic.partitions, partitions)
            self._log.add_partitions(topic.id, new, self.settings_of(change.result))

        self._commit(change, apply, done)

    def configure(self, topic: Topic, configs: Mapping[str, str], done: Done) -> None:
        change = self._catalog.configure(topic.id, configs)

        def apply() -> None:
            self._log.configure(topic.id, self.settings_of(change.result))

        self._commit(change, apply, done)

    def delete(self, topic: Topic, done: Done) -> None:
        change = self._catalog.delete(topic.id, self._log.clock.wall_ms())
        self._commit(change, lambda: self._remove(change.result), done)

    def forget(self, topic_id: bytes, done: Done) -> None:
        """Nothing holds the id any more."""

        def apply() -> None:
            self.barriers.pop(topic_id, None)

        self._commit(self._catalog.forget(topic_id), apply, done)

    def store_time(self, now_ms: int, done: Done) -> None:
        """For the clock of retention."""
        self._commit(self._catalog.store_wall_time(now_ms), _nothing, done)

    def reserve_offsets(
        self, topic_id: bytes, partition: int, count: int, done: Callable[[int, int], None]
    ) -> None:
        """For the rings of the log (`rings.ReserveOffsets`): they ask again if it failed."""
        if topic_id not in self._catalog.topics_by_id:
            return
        start = self._catalog.reserved_offsets(topic_id, partition)
        change = self._catalog.reserve_offsets(topic_id, partition, start + count)

        def answered(error: BaseException | None) -> None:
            if error is None:
                done(start, start + count)
            else:
                self._on_error(error)

        try:
            self._commit(change, _nothing, answered)
        except StoreOverloaded as error:
            self._on_error(error)

    def _remove(self, tombstone: Tombstone) -> None:
        self._log.remove_topic(tombstone.id)
        self.barriers[tombstone.id] = self._log.files.sequence_next
        self.on_deleted(tombstone)

    def _commit(self, change: Change[Any], apply: Callable[[], None], done: Done) -> None:
        def answered(error: BaseException | None) -> None:
            if error is None:
                apply()
            elif isinstance(error, StoreUnavailable | Conflict):
                self._reload()
            done(error)

        self._commits.commit_change(change, answered)

    # -- when nobody knows what the store did ------------------------------------------

    def _reload(self) -> None:
        """Read the catalog anew, in the lane of the commits: behind all that were sent."""
        if self._reloading or self._log.closed:
            return
        self._reloading = True

        def loaded(catalog: Catalog | None, error: BaseException | None) -> None:
            self._reloading = False
            if catalog is None:
                self._on_error(error or RuntimeError("the catalog gave nothing"))
                return
            self._catalog.adopt(catalog)
            self._catch_up()

        self._log.driver.submit(lanes.METADATA, lambda: Catalog.load(self._store), loaded)

    def _catch_up(self) -> None:
        """Bring the log up to the catalog."""
        for topic_id in {topic_id for topic_id, _ in self._log.partitions}:
            if topic_id not in self._catalog.topics_by_id:
                tombstone = self._catalog.tombstones[topic_id]  # it cannot be forgotten yet
                self._remove(tombstone)
        for topic in self._catalog.topics_by_id.values():
            there = len(self._log.of_topic(topic.id))
            settings = self.settings_of(topic)
            self._log.configure(topic.id, settings)
            self._log.add_partitions(topic.id, range(there, topic.partitions), settings)


def _nothing() -> None:
    pass
