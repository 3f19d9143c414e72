"""Power cuts while retention, merging, sweeping and snapshots run, all on one file system."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import pytest

from ister.metadata.catalog import Catalog, Topic
from ister.metadata.memory import MemoryStore as Metadata
from ister.wal.clock import ManualClock
from ister.wal.memory_fs import MemoryFileSystem, Survivors
from ister.wal.memory_image import Survival
from ister.wal.partition import Partition
from ister.wal.tests.broker_kit import Broker
from ister.wal.tests.crash_kit import LONG
from ister.wal.tests.harness import SMALL
from ister.wal.tier.archive import Archive
from ister.wal.tier.directory import DirectoryStore

GRACE_S = 600
SETTINGS = replace(
    SMALL,
    journal_file_bytes=16 * 1024,
    journal_first_file_bytes=8 * 1024,
    commit_bytes_max=4 * 1024,
    journal_pool_files=1,
    journal_ready_files=1,
    handoff_bytes=4096,
    handoff_ms=1000,
    cache_bytes=0,
    housekeeping_interval_ms=1000,
    bucket_delete_grace_ms=GRACE_S * 1000,
)
TOPICS = {"kept": {}, "bounded": {"retention.bytes": "1500"}}
ROUNDS = 22  # objects of each topic: more than a manifest may have entries


@dataclass
class Promise:
    """One topic, as far as anybody was told."""

    values: list[bytes] = field(default_factory=list)
    durable_end: int = 0
    log_start: int = 0


class Photograph(NamedTuple):
    fs: MemoryFileSystem
    metadata: Metadata
    clock: ManualClock
    promises: dict[str, Promise]
    where: str


class Story:
    """Two topics are written and handed over in small pieces, for long enough that all happens."""

    def __init__(self, take: Callable[[int], list[Survival]]) -> None:
        self.take = take
        self.fs = MemoryFileSystem()
        self.metadata = Metadata(lambda when: self.point(f"{when} a metadata commit"))
        self.clock = ManualClock()
        self.promises = {name: Promise() for name in TOPICS}
        self.photographs: list[Photograph] = []
        self.points = 0
        self.broker = broker_on(self.fs, self.metadata, self.clock, runs=0)
        self.open = False

    def point(self, where: str) -> None:
        self.points += 1
        for survival in self.take(self.points):
            self.look()
            self.photographs.append(
                Photograph(
                    self.fs.crash(survival),
                    self.metadata.copy(),
                    ManualClock(self.clock.wall_ms() + 1000, self.clock.monotonic() + 1),
                    {n: replace(p, values=p.values[:]) for n, p in self.promises.items()},
                    f"point {self.points}: {where}, {self.fs.last_point}, {survival}",
                )
            )

    def look(self) -> None:
        """What a reader could see right now."""
        if not self.open:
            return
        for name, promise in self.promises.items():
            partition = partition_of(self.broker, name)
            promise.durable_end = max(promise.durable_end, partition.high_watermark)
            promise.log_start = max(promise.log_start, partition.log_start)

    def tell(self) -> None:
        self.fs.on_operation = lambda operation: self.point(operation)
        broker = self.broker.open()
        topics = {name: broker.create(name, 1, configs) for name, configs in TOPICS.items()}
        self.open = True
        for number in range(ROUNDS):
            for name, topic in topics.items():
                self.append(topic, b"%s %d" % (name.encode(), number) + bytes(300))
            broker.service.seal()
            broker.run()
            broker.ticks(3, 2)
        broker.ticks(3, GRACE_S // 2)
        broker.ticks(6, 61)
        self.fs.on_operation = None
        self.look()
        self.check_that_all_of_it_happened()

    def append(self, topic: Topic, value: bytes) -> None:
        self.promises[topic.name].values.append(value)
        self.broker.append(value, topic_id=topic.id)
        self.broker.run()

    def check_that_all_of_it_happened(self) -> None:
        assert self.broker.errors == []
        kept, bounded = (partition_of(self.broker, name) for name in TOPICS)
        assert kept.manifest is not None
        assert len(kept.manifest.entries) < ROUNDS, "nothing was merged"
        assert bounded.log_start > 5, "nothing was retained"
        assert self.promises["kept"].durable_end == ROUNDS


def broker_on(fs: MemoryFileSystem, metadata: Metadata, clock: ManualClock, runs: int) -> Broker:
    bucket = DirectoryStore(fs, "bucket", random.Random(runs))
    broker = Broker(fs, store=metadata, bucket=bucket, settings=SETTINGS, clock=clock)
    broker.runs = runs
    broker.rng = random.Random(runs)
    return broker


def partition_of(broker: Broker, name: str) -> Partition:
    return broker.partition(0, broker.catalog.topics_by_name[name].id)


def survive(left: Photograph) -> None:
    """What was seen is there, and it goes on: everything is handed over, the archive is sound."""
    if len(Catalog.load(left.metadata).topics_by_name) < len(TOPICS):
        return  # before the story begins
    broker = broker_on(left.fs, left.metadata, left.clock, runs=5).open()
    for name, promise in left.promises.items():
        partition = partition_of(broker, name)
        assert partition.log_start >= promise.log_start
        end = partition.high_watermark
        assert promise.durable_end <= end <= len(promise.values)
        found = dict(broker.records(partition.log_start, 0, 500, partition.topic_id))
        assert found == dict(list(enumerate(promise.values[:end]))[partition.log_start :])
        assert name != "kept" or partition.log_start == 0
    for name in TOPICS:
        partition = partition_of(broker, name)
        end = partition.high_watermark
        assert broker.append(b"next", topic_id=partition.topic_id).base_offset == end
    broker.run()
    broker.service.seal()
    broker.run()
    broker.ticks(4, 61)
    broker.ticks(3, GRACE_S)
    broker.ticks(4, 2)
    assert broker.errors == []
    for name, promise in left.promises.items():
        partition = partition_of(broker, name)
        assert partition.tiered_end == partition.high_watermark
        last = dict(broker.records(partition.log_start, 0, 500, partition.topic_id))
        assert list(last) == list(range(partition.log_start, partition.high_watermark))
        assert all(last[at] == promise.values[at] for at in list(last)[:-1])
    assert Archive(broker.bucket).verify().findings == []


def run_story(take: Callable[[int], list[Survival]]) -> None:
    story = Story(take)
    story.tell()
    assert story.photographs
    for left in story.photographs:
        try:
            survive(left)
        except BaseException as error:
            error.add_note(left.where)
            raise


def every(step: int, rest: int) -> Callable[[int], list[Survival]]:
    """One of the ways to survive at some of the points."""

    def take(point: int) -> list[Survival]:
        ways: list[Survival] = [*Survivors, random.Random(point)]
        return [ways[point // step % len(ways)]] if point % step == rest else []

    return take


def test_some_crashes() -> None:
    """A sample of the sweep below."""
    run_story(every(97, 11))


@pytest.mark.fault
@pytest.mark.parametrize("rest", range(12 if LONG else 2))
def test_a_crash_at_any_point_of_housekeeping(rest: int) -> None:
    """Nothing durable is missing but what was durably deleted; no object is lost or named twice."""
    run_story(every(12, rest * (1 if LONG else 5)))
