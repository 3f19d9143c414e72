"""Restore: a lost disk costs what was not tiered, and nothing else."""

from __future__ import annotations

import random

import msgspec
import pytest

from ister.metadata.catalog import Catalog
from ister.metadata.cursors import Cursor, commit_cursors, load_cursor
from ister.metadata.memory import MemoryStore as Metadata
from ister.metadata.snapshot import export_snapshot
from ister.wal.errors import Contradiction
from ister.wal.handoff import Handoff
from ister.wal.log import Moment
from ister.wal.memory_fs import Crash, MemoryFileSystem, Survivors, cut_at
from ister.wal.opening import TopicInfo
from ister.wal.partition import Partition
from ister.wal.restore import RestoreReport, restore
from ister.wal.settings import TopicSettings
from ister.wal.snapshot import write_snapshot
from ister.wal.tests.batches import make_batch
from ister.wal.tests.harness import CLUSTER as HARNESS_CLUSTER
from ister.wal.tests.harness import TOPIC, Harness
from ister.wal.tier.manifest import decode, encode
from ister.wal.tier.manifest import key as manifest_key
from ister.wal.tier.object_store import StoreUnavailable
from ister.wal.tier.tests.dict_store import DictStore

GROUP = "readers"


class Broker(Harness):
    """A harness whose topic has the id that the catalog gave it."""

    topic = TOPIC

    def partition(self, index: int = 0, topic_id: bytes = TOPIC) -> Partition:
        return self.log.partition(self.topic if topic_id == TOPIC else topic_id, index)


class World:
    """A broker with a topic of two partitions, handed over, with a snapshot in the bucket."""

    def __init__(self, *, snapshot: bool = True) -> None:
        self.bucket = DictStore()
        self.metadata = Metadata()
        self.catalog = Catalog()
        self.catalog.commit(self.metadata, self.catalog.found(random.Random(1), HARNESS_CLUSTER))
        self.topic = self.create("t", 2, {"retention.ms": "5"})
        self.broker = self.open(MemoryFileSystem(), "data")
        for number in range(20):
            self.broker.append(b"%d" % number, base_timestamp=1_700_000_000_000)
        self.broker.append(b"other", index=1)
        self.hand_off()
        self.commit(0, 20)
        if snapshot:
            self.snapshot()
        self.lost = self.broker.append(b"lost", b"lost too").base_offset
        self.broker.run()

    def create(self, name: str, partitions: int, configs: dict[str, str] | None = None) -> bytes:
        change = self.catalog.create(name, partitions, configs or {}, 1, random.Random(name))
        return self.catalog.commit(self.metadata, change).id

    def infos(self, catalog: Catalog) -> list[TopicInfo]:
        return [
            TopicInfo(topic.id, topic.name, topic.partitions, TopicSettings())
            for topic in catalog.topics_by_id.values()
        ]

    def open(
        self, fs: MemoryFileSystem, data: str, catalog: Catalog | None = None, runs: int = 0
    ) -> Harness:
        harness = Broker(
            fs, bucket=self.bucket, topics=self.infos(catalog or self.catalog), data=data
        )
        harness.topic = self.topic
        harness.runs = runs
        harness.open()
        return harness

    def hand_off(self) -> None:
        self.broker.run()
        self.broker.service.seal()
        self.broker.run()
        self.broker.tick(61)
        self.broker.tick(61)
        assert not self.broker.errors

    def commit(self, partition: int, offset: int) -> None:
        cursors = {partition: Cursor(offset=offset, leader_epoch=0)}
        self.metadata.commit(commit_cursors(self.topic, GROUP, cursors))

    def snapshot(self) -> None:
        clock = self.broker.clock
        handoff = Handoff(self.bucket, HARNESS_CLUSTER, "run-1", clock)
        content = export_snapshot(self.metadata, taken_ms=clock.wall_ms())
        write_snapshot(handoff, content)

    def restore(self, fs: MemoryFileSystem, metadata: Metadata, data: str = "new") -> RestoreReport:
        clock = self.broker.clock
        return restore(self.bucket, fs=fs, data=data, metadata=metadata, clock=clock)


def check_restored(world: World, fs: MemoryFileSystem, metadata: Metadata) -> Harness:
    """The broker opens, has all that was tiered, goes on at the next offset and hands off."""
    catalog = Catalog.load(metadata)
    broker = world.open(fs, "new", catalog, runs=10)
    assert broker.values(0) == [b"%d" % number for number in range(20)]
    assert broker.values(0, index=1) == [b"other"]
    partition = broker.partition(0)
    assert partition.leader_epoch > 0
    assert broker.append(b"new").base_offset == 20
    broker.run()
    broker.service.seal()
    broker.run()
    broker.tick(61)
    broker.tick(61)
    assert not broker.errors
    assert broker.partition(0).tiered_end == 21
    return broker


def test_everything_tiered_comes_back() -> None:
    """Topics, ids, configs, cursors, records; the rest is told."""
    world = World()
    world.broker.clock.advance(90)
    fs, metadata = MemoryFileSystem(), Metadata()
    report = world.restore(fs, metadata)
    assert report.cluster_id == HARNESS_CLUSTER
    assert report.snapshot_age_ms == 90_000
    rows = [(p.topic, p.partition, p.log_start, p.next_offset) for p in report.partitions]
    assert rows == [("t", 0, 0, 20), ("t", 1, 0, 1)]
    assert (report.topics, report.cursors, report.cursors_set_back) == (1, 1, [])
    topic = Catalog.load(metadata).topics_by_name["t"]
    assert (topic.id, dict(topic.configs)) == (world.topic, {"retention.ms": "5"})
    cursor = load_cursor(metadata, world.topic, 0, GROUP)
    assert cursor is not None
    assert cursor.cursor.offset == 20
    check_restored(world, fs, metadata)


def test_cursors_above_the_end_are_set_back_and_counted() -> None:
    """A cursor that saw what is gone starts at the restored end, and says where it was."""
    world = World()
    world.commit(0, 22)
    world.snapshot()
    metadata = Metadata()
    report = world.restore(MemoryFileSystem(), metadata)
    (moved,) = report.cursors_set_back
    assert (moved.group, moved.topic, moved.offset_before, moved.offset) == (GROUP, "t", 22, 20)
    assert report.gone_at_least() == {("t", 0): 2}
    cursor = load_cursor(metadata, world.topic, 0, GROUP)
    assert cursor is not None
    assert (cursor.cursor.offset, cursor.cursor.adjusted_from) == (20, 22)
    assert cursor.cursor.leader_epoch == -1


def test_the_leader_epoch_rises_with_every_restore() -> None:
    """Also when a restored broker is lost again before it handed anything over."""
    world = World()
    first = world.restore(MemoryFileSystem(), Metadata()).partitions[0].leader_epoch
    fs, metadata = MemoryFileSystem(), Metadata()
    world.restore(fs, metadata)
    check_restored(world, fs, metadata)
    second = world.restore(MemoryFileSystem(), Metadata()).partitions
    assert [p.leader_epoch > first > 0 for p in second] == [True, True]


def test_without_a_snapshot_the_manifests_do() -> None:
    """Names, ids and records are there; configs and cursors are gone, which is said."""
    world = World(snapshot=False)
    fs, metadata = MemoryFileSystem(), Metadata()
    report = world.restore(fs, metadata)
    assert (report.snapshot_taken_ms, report.newer_than_snapshot) == (None, ["t"])
    assert Catalog.load(metadata).topics_by_name["t"].id == world.topic
    check_restored(world, fs, metadata)


def test_a_topic_newer_than_the_snapshot_comes_back() -> None:
    """The manifest knows its name and its id."""
    world = World()
    young = world.create("young", 1)
    world.broker.close()
    world.broker = world.open(world.broker.fs, "data", runs=1)  # type: ignore[arg-type]
    world.broker.log.append(
        world.broker.log.partition(young, 0), make_batch([b"x"]), Moment.DURABLE, lambda _: None
    )
    world.hand_off()
    metadata = Metadata()
    report = world.restore(MemoryFileSystem(), metadata)
    assert report.newer_than_snapshot == ["young"]
    assert Catalog.load(metadata).topics_by_name["young"].id == young


def test_a_topic_deleted_since_the_snapshot_stays_away() -> None:
    """A tombstone in the bucket is newer; cursors of the topic do not come back either."""
    world = World()
    handoff = Handoff(world.bucket, HARNESS_CLUSTER, "run-1", world.broker.clock)
    for partition in range(2):
        handoff.bury(world.topic, "t", partition)
    metadata = Metadata()
    report = world.restore(MemoryFileSystem(), metadata)
    assert report.deleted_since_snapshot == ["t"]
    assert (report.topics, report.cursors) == (0, 0)
    assert not Catalog.load(metadata).topics_by_name


def test_only_into_an_empty_directory() -> None:
    """Neither journal files nor metadata are ever overwritten."""
    world = World()
    with pytest.raises(Contradiction, match="metadata already"):
        world.restore(MemoryFileSystem(), world.metadata)
    world.broker.close()
    with pytest.raises(Contradiction, match="files already"):
        world.restore(world.broker.fs, Metadata(), data="data")  # type: ignore[arg-type]


def test_a_bucket_without_a_broker_is_refused() -> None:
    """An empty bucket is more likely a wrong address than an empty broker."""
    world = World()
    world.bucket = DictStore()
    with pytest.raises(Contradiction, match="check the address"):
        world.restore(MemoryFileSystem(), Metadata())


def test_it_only_reads_the_bucket() -> None:
    """A restore, also one for practice, never disturbs a running broker."""
    world = World()
    world.bucket.reset()
    world.restore(MemoryFileSystem(), Metadata())
    operations = {operation for operation, _ in world.bucket.calls}
    assert operations <= {"read", "get", "list", "registers"}


def test_a_manifest_of_another_cluster_is_refused() -> None:
    """Two buckets that were mixed are not mixed further."""
    world = World()
    name = manifest_key(world.topic, 0)
    data, version = world.bucket.values[name]
    foreign = msgspec.structs.replace(decode(data), cluster_id="other")
    world.bucket.values[name] = (encode(foreign), version)
    with pytest.raises(Contradiction, match="mixed"):
        world.restore(MemoryFileSystem(), Metadata())


def test_cut_anywhere_it_is_run_again() -> None:
    """Power cut at every step on the disk: the next restore finishes, the broker has it all."""
    world = World()
    probe = MemoryFileSystem()
    world.restore(probe, Metadata())
    assert probe.points > 5
    for point in range(1, probe.points + 1):
        for survival in Survivors:
            fs, metadata = MemoryFileSystem(), Metadata()
            fs.on_operation = cut_at(point)
            try:
                world.restore(fs, metadata)
            except Crash:
                fs, metadata = fs.crash(survival), metadata.reopen()
                world.restore(fs, metadata)
            catalog = Catalog.load(metadata)
            broker = world.open(fs, "new", catalog, runs=30)
            assert len(broker.values(0)) == 20


def test_any_call_to_the_bucket_may_fail() -> None:
    """Nothing is half restored: an error leaves the metadata empty, and the next try works."""
    world = World()
    world.bucket.reset()
    world.restore(MemoryFileSystem(), Metadata())
    for fail_at in range(len(world.bucket.calls)):
        fs, metadata = MemoryFileSystem(), Metadata()
        world.bucket.reset(fail_at)
        with pytest.raises(StoreUnavailable):
            world.restore(fs, metadata)
        assert list(metadata.scan("")) == []
        world.bucket.reset()
        world.restore(fs, metadata)
        broker = world.open(fs, "new", Catalog.load(metadata), runs=30)
        assert len(broker.values(0)) == 20
