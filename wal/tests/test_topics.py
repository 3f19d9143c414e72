"""Topics across metadata, log and bucket: deleted and made again, and cut at any point."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import pytest

from ister.metadata.catalog import Catalog, Topic
from ister.metadata.errors import StoreUnavailable
from ister.metadata.memory import MemoryStore as Metadata
from ister.wal.clock import ManualClock
from ister.wal.errors import LogError, UnknownPartition
from ister.wal.log import Moment
from ister.wal.memory_fs import MemoryFileSystem, Survivors
from ister.wal.reader import Chunk
from ister.wal.restore import restore
from ister.wal.snapshot import read_snapshot
from ister.wal.tests.batches import make_batch
from ister.wal.tests.broker_kit import Broker
from ister.wal.tests.harness import SMALL
from ister.wal.tier.faulty import FaultyStore
from ister.wal.tier.memory import MemoryStore
from ister.wal.tier.moves import load

GRACE_S = 3600
SETTINGS = replace(
    SMALL,
    journal_file_bytes=16 * 1024,
    journal_first_file_bytes=8 * 1024,
    commit_bytes_max=4 * 1024,
    journal_pool_files=1,
    journal_ready_files=1,
    handoff_bytes=1,
    cache_bytes=0,
    bucket_delete_grace_ms=GRACE_S * 1000,
)


def opened() -> Broker:
    return Broker(settings=SETTINGS, bucket=MemoryStore()).open()


def fill(broker: Broker, topic: Topic, *values: bytes, seal: bool = True) -> None:
    for value in values:
        broker.append(value, topic_id=topic.id)
    broker.run()
    if seal:
        broker.service.seal()
        broker.run()


def traces(broker: Broker, topic_id: bytes) -> list[str]:
    """What the bucket has under the name of the topic's id, or shared with nobody else."""
    names = [
        info.name for prefix in ("segments/", "shared/") for info in broker.bucket.list(prefix)
    ]
    registers = list(broker.bucket.registers("manifests/"))
    return [name for name in (*names, *registers) if topic_id.hex() in name]


def end_of(broker: Broker, other: Topic) -> None:
    """Time passes, others write, until nothing holds a deleted topic any more."""
    for _ in range(6):
        fill(broker, other, b"more")
        broker.ticks(3, 2)
    broker.tick(GRACE_S)
    for _ in range(8):
        fill(broker, other, b"more")
        broker.ticks(3, 2)
    broker.tick(GRACE_S + 1)
    broker.ticks(8, 2)


# -- the usual way -----------------------------------------------------------------------


def test_a_topic_made_again_meets_nothing_of_the_old_one() -> None:
    """With a reader open, a handoff in flight and a commit under way."""
    broker = opened()
    old = broker.create("orders")
    fill(broker, old, b"old 0", b"old 1")
    gone = broker.partition(0, old.id)
    read: list[tuple[Chunk | None, LogError | None]] = []
    acked: list[LogError | None] = []
    made: list[BaseException | None] = []
    broker.admin.delete(old, made.append)  # on its way, and behind it in the lanes:
    broker.service.tick()  # a handoff
    broker.reader.read(gone, 0, 1000, lambda *answer: read.append(answer))
    broker.append(b"old 2", topic_id=old.id, done=acked.append)
    assert broker.service.busy
    assert not made
    broker.run()
    assert made == [None]
    assert len(read) == len(acked) == 1
    assert gone.removed
    with pytest.raises(UnknownPartition):
        broker.partition(0, old.id)
    with pytest.raises(UnknownPartition):
        broker.log.append(gone, make_batch([b"late"]), Moment.DURABLE, acked.append)
    new = broker.create("orders")
    assert new.id != old.id
    assert broker.append(b"new 0", topic_id=new.id).base_offset == 0
    broker.run()
    assert broker.values(topic_id=new.id) == [b"new 0"]
    end_of(broker, new)
    values = broker.values(topic_id=new.id)
    assert values == [b"new 0"] + [b"more"] * 14
    assert broker.errors == []
    assert traces(broker, old.id) == []
    assert broker.catalog.tombstones == {}


def test_objects_stay_for_the_grace_time_and_then_go() -> None:
    """Readers that planned on the older manifest finish."""
    broker = opened()
    old, other = broker.create("old"), broker.create("other")
    fill(broker, old, bytes(5000))
    broker.ticks(3, 2)
    assert load(broker.bucket, old.id, 0) is not None
    before = {info.name for info in broker.bucket.list("shared/")}
    assert before
    broker.delete(old)
    broker.ticks(5, 2)
    buried = load(broker.bucket, old.id, 0)
    assert buried is not None
    assert buried.manifest.deleted
    assert before <= {info.name for info in broker.bucket.list("shared/")}
    end_of(broker, other)
    assert traces(broker, old.id) == []
    assert not before & {info.name for info in broker.bucket.list("shared/")}


def test_the_tombstone_stays_while_a_journal_file_may_hold_a_frame() -> None:
    """Everything else may be over: a frame of an unknown id would be a contradiction."""
    broker = opened()
    old, other = broker.create("old"), broker.create("other")
    fill(broker, old, b"x", seal=False)  # in the open file
    broker.delete(old)
    broker.settings = replace(SETTINGS, handoff_ms=1 << 40, handoff_bytes=1 << 40)
    broker = broker.crash().open()  # from here on nothing is handed off, nothing leaves
    broker.ticks(2, GRACE_S + 1)
    broker.ticks(10, 2)
    assert traces(broker, old.id) == []
    assert old.id in broker.catalog.tombstones
    broker.settings = SETTINGS
    broker = broker.crash().open()
    assert old.id in broker.catalog.tombstones
    end_of(broker, other)
    assert broker.catalog.tombstones == {}
    assert broker.errors == []
    broker.crash().open()


def test_a_topic_that_was_never_handed_over_does_not_come_back() -> None:
    """A snapshot has it, no manifest does: a restore finds the tombstone or a newer snapshot."""
    broker = opened()
    old, other = broker.create("old", 3), broker.create("other")
    broker.ticks(2, 61)
    assert read_snapshot(broker.bucket) is not None
    inner = broker.bucket
    assert isinstance(inner, MemoryStore)
    bucket = FaultyStore(inner, random.Random(1))
    broker = broker.crash()
    broker.bucket = bucket
    broker.open()
    assert restored(inner) == {"old", "other"}
    broker.delete(old)
    seen: list[set[str]] = []

    def look(when: str, operation: str, name: str) -> None:
        if when == "after" and operation in ("swap", "remove", "put", "delete"):
            seen.append(restored(inner))

    bucket.crash = look
    end_of(broker, other)
    bucket.crash = None
    names = [{name for name in found if name == "old"} for found in seen]
    first = names.index(set())
    assert first <= 3  # cluster, owner, and the first tombstone
    assert not any(names[first:])
    assert traces(broker, old.id) == []
    assert broker.catalog.tombstones == {}


def restored(bucket: MemoryStore) -> set[str]:
    """The topics that a restore from this bucket brings."""
    metadata = Metadata()
    restore(bucket, fs=MemoryFileSystem(), data="data", metadata=metadata, clock=ManualClock())
    return set(Catalog.load(metadata).topics_by_name)


# -- the store does not answer -------------------------------------------------------------


@pytest.mark.parametrize("what", ["create", "grow", "configure", "delete"])
def test_a_lost_reply_leaves_log_and_metadata_together(what: str) -> None:
    """The caller gets the error; the catalog is read anew and the log follows it."""
    broker = opened()
    topic = broker.create("orders")
    answers: list[BaseException | None] = []
    changes: dict[str, Callable[[], object]] = {
        "create": lambda: broker.admin.create("other", 2, {}, answers.append),
        "grow": lambda: broker.admin.grow(topic, 3, answers.append),
        "configure": lambda: broker.admin.configure(topic, {"retention.ms": "5"}, answers.append),
        "delete": lambda: broker.admin.delete(topic, answers.append),
    }
    broker.store.lose_next_reply()
    changes[what]()
    broker.run()
    assert [type(answer) for answer in answers] == [StoreUnavailable]
    there = {key: p.settings.retention_ms for key, p in broker.log.partitions.items()}
    reopened = broker.crash().open()
    assert there == {key: p.settings.retention_ms for key, p in reopened.log.partitions.items()}
    made = broker.create("after")  # and it goes on
    assert broker.append(b"x", topic_id=made.id).base_offset == 0
    if what == "delete":
        end_of(broker, made)
        assert broker.catalog.tombstones == {}
    assert broker.errors == []


# -- cut at any point ------------------------------------------------------------------------


class Photograph(NamedTuple):
    broker: Broker
    where: str
    deleted: bool  # the deletion was answered
    made_again: Topic | None  # the new topic, once its creation was answered
    durable: list[bytes]  # values of the new topic that were acked


def copy_of(bucket: MemoryStore) -> MemoryStore:
    other = MemoryStore()
    other._objects = dict(bucket._objects)
    other._registers = dict(bucket._registers)
    other._last_version = bucket._last_version
    return other


class Story:
    """A topic is written, handed over, deleted and made again, and time passes."""

    def __init__(self, take: Callable[[int], bool]) -> None:
        self.inner = MemoryStore()
        self.bucket = FaultyStore(self.inner, random.Random(1))
        self.bucket.crash = lambda when, operation, name: self.point(f"{when} {operation} {name}")
        self.fs = MemoryFileSystem()
        self.fs.on_operation = lambda operation: self.point(f"{operation} ({self.fs.last_point})")
        metadata = Metadata(lambda when: self.point(f"{when} a metadata commit"))
        self.broker = Broker(self.fs, store=metadata, bucket=self.bucket, settings=SETTINGS)
        self.take = take
        self.points = 0
        self.photographs: list[Photograph] = []
        self.deleted = False
        self.made_again: Topic | None = None
        self.durable: list[bytes] = []

    def point(self, where: str) -> None:
        self.points += 1
        if not self.take(self.points):
            return
        survival = [*Survivors][self.points % len(Survivors)]
        left = self.broker.crash(survival)
        left.bucket = copy_of(self.inner)
        self.photographs.append(
            Photograph(
                left,
                f"point {self.points}: {where}, {survival.name}",
                self.deleted,
                self.made_again,
                [*self.durable],
            )
        )

    def tell(self) -> None:
        broker = self.broker.open()
        old, other = broker.create("orders", 2), broker.create("other")
        self.other = other
        fill(broker, old, b"old 0", b"old 1")
        broker.ticks(2, 2)
        fill(broker, old, b"old 2")
        fill(broker, other, b"other")
        self.old = old
        broker.admin.delete(old, lambda _: setattr(self, "deleted", True))
        broker.service.tick()
        broker.append(b"old 3", topic_id=old.id)
        broker.run()
        self.made_again = broker.create("orders", 1)
        for number in range(3):
            self._append(b"new %d" % number)
            broker.ticks(2, 2)
        broker.service.seal()
        broker.run()
        broker.ticks(3, 61)
        broker.tick(GRACE_S + 1)
        for number in range(3, 6):
            self._append(b"new %d" % number)
            broker.service.seal()
            broker.run()
            broker.ticks(4, 2)
        assert broker.errors == []
        assert broker.catalog.tombstones == {}, "the story must come to its end"

    def _append(self, value: bytes) -> None:
        assert self.made_again is not None
        self.broker.append(
            value, topic_id=self.made_again.id, done=lambda _: self.durable.append(value)
        )
        self.broker.run()


def survive(story: Story, left: Photograph) -> None:
    """Open it, hold it against what was answered, and bring the deletion to its end."""
    broker = left.broker.open()
    alive = story.old.id in broker.catalog.topics_by_id
    assert not (alive and left.deleted)
    if left.made_again is not None:
        found = broker.values(topic_id=left.made_again.id)
        assert found[: len(left.durable)] == left.durable
        assert all(value.startswith(b"new") for value in found)
    if alive:
        assert broker.values(topic_id=story.old.id)[:2] in ([], [b"old 0"], [b"old 0", b"old 1"])
        broker.delete(story.old)
    if "orders" not in broker.catalog.topics_by_name:
        new = broker.create("orders")
        assert broker.append(b"new", topic_id=new.id).base_offset == 0
    end_of(broker, broker.catalog.topics_by_name["orders"])
    assert broker.errors == []
    assert broker.catalog.tombstones == {}
    assert traces(broker, story.old.id) == []
    broker.crash().open()


def run_story(take: Callable[[int], bool]) -> None:
    story = Story(take)
    story.tell()
    story.fs.on_operation = None
    assert story.photographs
    for left in story.photographs:
        if "other" not in Catalog.load(left.broker.store).topics_by_name:
            continue  # before the story begins
        try:
            survive(story, left)
        except BaseException as error:
            error.add_note(left.where)
            raise


def test_a_deletion_survives_some_crashes() -> None:
    """A sample of the sweep below."""
    run_story(lambda point: point % 23 == 0)


@pytest.mark.fault
@pytest.mark.parametrize("rest", range(3))
def test_a_deletion_survives_a_crash_at_any_point(rest: int) -> None:
    """File system, metadata and bucket: before and after every step of each."""
    run_story(lambda point: point % 3 == rest)
