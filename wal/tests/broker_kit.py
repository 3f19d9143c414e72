"""A log with its metadata and its housekeeping on the harness: what `app.py` wires, inline."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from ister.metadata.catalog import Catalog, Topic
from ister.metadata.memory import MemoryStore
from ister.metadata.service import CommitService
from ister.metadata.snapshot import export_snapshot
from ister.wal import driver as lanes
from ister.wal.clock import ManualClock
from ister.wal.fs import FileSystem
from ister.wal.housekeeping import Housekeeping
from ister.wal.memory_fs import MemoryFileSystem, Survivors
from ister.wal.opening import TopicInfo
from ister.wal.partition import Partition
from ister.wal.settings import LogSettings
from ister.wal.snapshot import write_snapshot
from ister.wal.tests.harness import CLUSTER, SMALL, Harness
from ister.wal.tier.object_store import ObjectStore
from ister.wal.topic_settings import topic_settings
from ister.wal.topics import Topics


class Broker(Harness):
    """A harness whose topics live in a metadata store."""

    def __init__(
        self,
        fs: FileSystem | None = None,
        *,
        store: MemoryStore | None = None,
        bucket: ObjectStore | None = None,
        settings: LogSettings = SMALL,
        clock: ManualClock | None = None,
    ) -> None:
        super().__init__(fs, bucket=bucket, settings=settings, clock=clock)
        self.store = store or MemoryStore()
        self.pruned: list[tuple[Partition, int, int]] = []

    def open(self) -> Broker:
        self.catalog = Catalog.load(self.store)
        if not self.catalog.cluster_id:
            self.catalog.commit(self.store, self.catalog.found(self.rng, CLUSTER))
        self.topics = [
            TopicInfo(topic.id, topic.name, topic.partitions, topic_settings(topic.configs))
            for topic in self.catalog.topics_by_id.values()
        ]
        self.tombstones = set(self.catalog.tombstones)
        super().open()
        self.commits = CommitService(
            self.store, lambda work, done: self.driver.submit(lanes.METADATA, work, done)
        )
        self.admin = Topics(
            self.catalog,
            self.commits,
            self.log,
            self.rng,
            {},
            self.store,
            self.errors.append,
        )
        self.housekeeping = Housekeeping(
            self.log,
            self.service,
            self.handoff,
            self.opened.tier,
            self.admin,
            self.catalog,
            self.commits,
            lambda: write_snapshot(self.handoff, export_snapshot(self.store)),
            self.rng,
            self.errors.append,
        )
        self.housekeeping.on_pruned = lambda *news: self.pruned.append(news)
        self.run()
        return self

    def tick(self, seconds: float = 0.0) -> None:
        """Time passes, then everything periodic has its turn."""
        super().tick(seconds)
        self.housekeeping.tick()
        self.run()

    def ticks(self, times: int, seconds: float) -> None:
        for _ in range(times):
            self.tick(seconds)

    def crash(self, survival: Survivors = Survivors.NOTHING) -> Broker:
        """Power cut: this broker is dead; what a new one would find, not opened yet."""
        assert isinstance(self.fs, MemoryFileSystem)
        clock = ManualClock(self.clock.wall_ms(), self.clock.monotonic())
        left = Broker(
            self.fs.crash(survival),
            store=self.store.copy(),
            bucket=self.bucket,
            settings=self.settings,
            clock=clock,
        )
        left.runs = self.runs
        left.rng = random.Random(self.runs)  # the same chance again would give ids out twice
        return left

    def open_partition(self, topic_id: bytes) -> Partition:
        """Partition 0 as an opening finds it."""
        return self.open().partition(0, topic_id)

    # -- topics ------------------------------------------------------------------------

    def create(
        self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> Topic:
        topic = self._done(lambda done: self.admin.create(name, partitions, configs or {}, done))
        assert isinstance(topic, Topic)
        return topic

    def delete(self, topic: Topic) -> None:
        self._done(lambda done: self.admin.delete(topic, done))

    def _done(self, change: Callable[[Callable[[BaseException | None], None]], object]) -> object:
        answers: list[BaseException | None] = []
        result = change(answers.append)
        self.run()
        assert answers == [None], answers
        return result

    def topic_name(self, topic_id: bytes) -> str:
        return self.catalog.topics_by_id[topic_id].name

    def _reserve(
        self, topic_id: bytes, partition: int, count: int, done: Callable[[int, int], None]
    ) -> None:
        self.driver.call_soon(lambda: self.admin.reserve_offsets(topic_id, partition, count, done))
