"""When the journal's past goes to the bucket, and what a failure keeps from going there."""

from __future__ import annotations

import errno
import random
from dataclasses import replace

import pytest

from ister.wal import handoff_service
from ister.wal.errors import Contradiction, Damaged, Fenced, StorageError
from ister.wal.memory_fs import MemoryFileSystem
from ister.wal.tests.broker_kit import Broker
from ister.wal.tests.harness import SMALL, TOPIC, Harness
from ister.wal.tier.faulty import FaultyStore
from ister.wal.tier.manifest import key as manifest_key
from ister.wal.tier.memory import MemoryStore
from ister.wal.tier.object_store import StoreUnavailable

ONE_FILE = replace(SMALL, handoff_bytes=1)


def faulty() -> FaultyStore:
    return FaultyStore(MemoryStore(), random.Random(1))


def seal(harness: Harness) -> None:
    harness.service.seal()
    harness.run()


def fill(harness: Harness, *indexes: int) -> None:
    """One sealed file with a batch of each of these partitions."""
    for index in indexes:
        harness.append(b"x", index=index)
    harness.run()
    seal(harness)


# -- when --------------------------------------------------------------------------


def test_an_old_open_file_is_sealed_and_handed_off() -> None:
    """Nothing waits longer than handoff_ms for the bucket, however little it is."""
    harness = Harness().open()
    harness.append(b"x")
    harness.run()
    harness.tick()
    harness.tick(59)
    assert harness.partition().tiered_end == 0
    harness.tick(1)
    harness.tick()
    assert harness.partition().tiered_end == 1


def test_a_file_goes_as_soon_as_there_is_enough() -> None:
    """Size alone is a reason too."""
    harness = Harness(settings=ONE_FILE).open()
    fill(harness, 0)
    harness.tick()
    assert harness.partition().tiered_end == 1


def test_one_full_file_is_enough() -> None:
    """With both limits the same, as they are by default, though no file is full to its end."""
    settings = replace(SMALL, journal_file_bytes=16 * 1024, handoff_bytes=16 * 1024)
    harness = Harness(settings=settings).open()
    while not harness.log.sealed:
        harness.append(b"x" * 1000)
        harness.run()
    harness.tick()
    assert harness.partition().tiered_end > 0


def test_passes_follow_each_other_while_more_is_waiting() -> None:
    """More files than one pass takes: they do not wait for the next tick."""
    harness = Harness(settings=ONE_FILE).open()
    for _ in range(12):
        fill(harness, 0)
    harness.tick()
    assert harness.partition().tiered_end == 12


def test_a_pass_takes_no_more_than_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """An object for each partition: so files come back one by one, not all at the end."""
    monkeypatch.setattr(handoff_service, "OWN_OBJECT_BYTES", 1)
    harness = Harness(settings=ONE_FILE).open()
    for _ in range(3):
        fill(harness, 0)
    harness.tick()
    assert harness.partition().tiered_end == 3
    assert harness.service.objects == 3


def test_a_clock_that_was_set_back_stops_nothing() -> None:
    """Nobody knows how long it has waited: it goes."""
    harness = Harness().open()
    harness.append(b"x")
    harness.run()
    harness.tick()
    harness.clock.jump(-86_400_000)
    for _ in range(3):
        harness.tick()
    assert harness.partition().tiered_end == 1


# -- the bucket fails ----------------------------------------------------------------


def test_a_bucket_that_is_down_stops_nothing_but_the_handoff() -> None:
    """Appends go on, tries come seldom, the backlog shows it, and then all of it goes."""
    bucket = faulty()
    harness = Harness(bucket=bucket).open()
    bucket.down()
    for _ in range(600):
        harness.append(b"x" * 100)
        harness.tick(6)
    assert harness.partition().high_watermark == 600
    assert harness.partition().tiered_end == 0
    assert 100 < harness.service.errors < 400  # every 15 to 30 s in an hour
    assert harness.service.oldest_age_ms() >= 3_500_000
    assert harness.service.backlog_bytes > 60_000
    bucket.up()
    for _ in range(20):
        harness.tick(31)
    assert harness.partition().tiered_end == 600
    assert harness.service.backlog_bytes == 0
    assert harness.service.oldest_age_ms() == 0
    assert all(isinstance(error, StoreUnavailable) for error in harness.errors)


# -- one partition fails ---------------------------------------------------------------


def test_a_partition_in_trouble_does_not_keep_the_others() -> None:
    """More files than a pass takes are stuck on one partition: the other goes on all the same."""
    bucket = faulty()
    harness = Harness(bucket=bucket, settings=ONE_FILE).open()
    name = manifest_key(TOPIC, 0)
    trouble = bucket.fail("read", name, error=lambda _: Contradiction("not of one mind"))
    for _ in range(12):
        fill(harness, 0, 1)
        harness.tick(1)
    for _ in range(3):
        harness.tick(1)
    assert harness.partition(0).tiered_end == 0
    assert harness.partition(1).tiered_end == 12
    assert len(harness.log.sealed) == 12  # kept for the one that has them nowhere else
    assert 3 < harness.service.errors < 12  # it has its own, growing pause
    trouble.clear()
    for _ in range(10):
        harness.tick(31)
    assert harness.partition(0).tiered_end == 12
    assert harness.log.sealed == {}
    assert len(harness.values(0, 0)) == 12


def test_a_file_that_cannot_be_read_concerns_who_is_in_it() -> None:
    """An index that is lost with its frames fails its partitions, not the pass."""
    harness = Harness(settings=ONE_FILE).open()
    fs = harness.fs
    assert isinstance(fs, MemoryFileSystem)
    fill(harness, 0)
    broken = harness.log.sealed[min(harness.log.sealed)]
    pread = broken.file.pread

    def fail(size: int, position: int) -> bytes:
        raise OSError(errno.EIO, "broken")

    broken.file.pread = fail  # type: ignore[method-assign]
    fill(harness, 1)
    for _ in range(3):
        harness.tick(1)
    assert harness.partition(0).tiered_end == 0
    assert harness.partition(1).tiered_end == 1
    assert harness.errors
    assert all(isinstance(error, StorageError | Damaged) for error in harness.errors)
    broken.file.pread = pread  # type: ignore[method-assign]
    for _ in range(3):
        harness.tick(31)
    assert harness.partition(0).tiered_end == 1


def test_a_job_of_its_own_fault_does_not_slow_the_passes() -> None:
    """Only the bucket's own failures make everything wait."""
    harness = Harness(settings=ONE_FILE).open()
    failures: list[BaseException] = []

    def fail() -> None:
        raise Contradiction("just this job")

    assert harness.service.run_job(fail, lambda _: None, failures.append)
    harness.run()
    assert failures == harness.errors
    fill(harness, 0)
    harness.tick()
    assert harness.partition().tiered_end == 1


def test_a_job_that_meets_a_failing_bucket_makes_everything_wait() -> None:
    """The next try of anything comes after the pause."""
    bucket = faulty()
    harness = Harness(bucket=bucket).open()
    bucket.down()
    job = harness.handoff.open
    assert harness.service.run_job(job, lambda _: None, lambda _: None)
    harness.run()
    assert not harness.service.run_job(job, lambda _: None, lambda _: None)
    harness.clock.advance(31)
    assert harness.service.run_job(job, lambda _: None, lambda _: None)


def test_a_deleted_partition_is_no_failure() -> None:
    """A pass that meets a tombstone of a deleted topic counts nothing and waits for nothing."""
    broker = Broker(settings=ONE_FILE).open()
    topic, other = broker.create("one"), broker.create("two")
    for made in (topic, other):
        broker.append(b"x", topic_id=made.id)
    broker.run()
    seal(broker)
    gone = broker.partition(0, topic.id)
    broker.admin.delete(topic, lambda _: None)
    broker.service.tick()  # a pass with the partition, planned before it was deleted
    assert broker.service.busy
    broker.handoff.bury(topic.id, topic.name, 0)
    broker.run()
    assert broker.errors == []
    assert broker.service.errors == 0
    assert gone.removed
    assert broker.partition(0, other.id).tiered_end == 1
    assert not broker.service.busy
    broker.append(b"y", topic_id=other.id)
    broker.run()
    seal(broker)
    broker.tick()
    assert broker.partition(0, other.id).tiered_end == 2


def test_a_tombstone_of_a_living_partition_is_said() -> None:
    """Metadata that was set back: nothing is handed over any more, and nothing is trimmed."""
    harness = Harness(settings=ONE_FILE).open()
    harness.handoff.bury(TOPIC, "t", 0)
    fill(harness, 0, 1)
    for _ in range(3):
        harness.tick(1)
    assert harness.partition(1).tiered_end == 1
    assert harness.partition(0).manifest is None
    assert harness.errors
    assert len(harness.values(0, 0)) == 1


# -- the gauges ------------------------------------------------------------------------


def test_the_backlog_is_right_after_a_restart() -> None:
    """Bytes are all there; of an earlier run's file the time of its sealing is known."""
    bucket = faulty()
    bucket.down()
    harness = Harness(bucket=bucket).open()
    for _ in range(5):
        fill(harness, 0)
        harness.tick(1)
    sealed_ms = min(file.last_append_ms for file in harness.log.sealed.values())
    bytes_before = harness.service.backlog_bytes
    harness.clock.advance(30)
    assert isinstance(harness.fs, MemoryFileSystem)
    harness.fs = harness.fs.crash()
    harness.open()
    assert harness.service.backlog_bytes == bytes_before
    assert harness.service.oldest_age_ms() == harness.clock.wall_ms() - sealed_ms
    harness.tick(1)
    assert harness.service.oldest_age_ms() == harness.clock.wall_ms() - sealed_ms


def test_what_lies_in_the_open_file_counts_from_the_opening_on() -> None:
    """Nothing better is known of it."""
    harness = Harness().open()
    harness.append(b"x")
    harness.run()
    assert isinstance(harness.fs, MemoryFileSystem)
    harness.fs = harness.fs.crash()
    harness.open()
    assert harness.service.backlog_bytes > 0
    assert harness.service.oldest_age_ms() == 0
    harness.clock.advance(10)
    assert harness.service.oldest_age_ms() == 10_000


def test_files_that_fill_between_two_ticks_have_an_age_too() -> None:
    """Never the age of the epoch."""
    harness = Harness().open()
    for _ in range(3):
        fill(harness, 0)
    harness.clock.advance(7)
    assert harness.service.oldest_age_ms() == 7000


def test_an_empty_log_has_no_backlog() -> None:
    """Zero means zero."""
    harness = Harness().open()
    harness.tick(100)
    assert harness.service.backlog_bytes == 0
    assert harness.service.oldest_age_ms() == 0


def test_the_older_of_two_owners_stops_and_keeps_what_it_has() -> None:
    """Two copies of one data directory on one bucket: the one that started later goes on."""
    older = Harness().open()
    older.append(b"shared past")
    older.run()
    for _ in range(3):
        older.tick(61)
    assert older.partition().tiered_end == 1
    assert isinstance(older.fs, MemoryFileSystem)
    newer = Harness(older.fs.crash(), bucket=older.bucket, clock=older.clock)
    newer.runs = 10
    newer.open()
    for harness, value in ((older, b"of the older"), (newer, b"of the newer")):
        harness.append(value)
        harness.run()
    for _ in range(3):
        newer.tick(61)
    assert newer.partition().tiered_end == 2
    for _ in range(5):
        older.tick(61)
    assert isinstance(older.service.fenced, Fenced)
    assert older.errors == [older.service.fenced]  # said once, and no request after it
    assert older.partition().tiered_end == 1
    assert older.log.sealed  # nothing was trimmed
    assert older.values() == [b"shared past", b"of the older"]
    newer.log.cache.evict_all()
    assert newer.values() == [b"shared past", b"of the newer"]
