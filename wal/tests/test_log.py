"""The log as a whole, on a file system in memory: append, commit, read, reopen."""

from __future__ import annotations

import errno
from functools import partial

import pytest

from ister.wal.errors import InUse, JournalFailed, LogError, OffsetOutOfRange, StorageFull
from ister.wal.log import Appended, Moment
from ister.wal.memory_fs import MemoryFileSystem
from ister.wal.settings import LogSettings
from ister.wal.tests.harness import Harness


def fill(harness: Harness, count: int, size: int = 100, index: int = 0) -> list[bytes]:
    """Append `count` batches of one record, each commit with a few of them."""
    values = [b"%08d" % number + bytes(size) for number in range(count)]
    for number, value in enumerate(values):
        harness.append(value, index=index)
        if number % 5 == 4:
            harness.run()
    harness.run()
    return values


def _note(order: list[str], name: str, _: LogError | None) -> None:
    order.append(name)


def test_offsets_are_dense_and_in_the_order_of_arrival() -> None:
    """Offsets count records, from 0, in the order in which batches came."""
    harness = Harness().open()
    assert [harness.append(b"a").base_offset, harness.append(b"b", b"c").base_offset] == [0, 1]
    assert harness.append(b"d").base_offset == 3
    harness.run()
    assert harness.values() == [b"a", b"b", b"c", b"d"]


def test_nothing_is_visible_before_it_is_durable() -> None:
    """A reader stops at the high watermark; between it and the log end a read is empty."""
    harness = Harness().open()
    harness.append(b"a")
    assert harness.partition().log_end == 1
    assert harness.partition().high_watermark == 0
    assert harness.log.read_now(harness.partition(), 0, 100).size == 0  # type: ignore[union-attr]
    harness.run()
    assert harness.partition().high_watermark == 1


def test_waiters_are_called_at_their_moments() -> None:
    """Appended at once, written before durable."""
    harness = Harness().open()
    order: list[str] = []
    for moment in Moment:
        harness.append(b"x", moment=moment, done=partial(_note, order, moment.name))
    assert order == ["APPENDED"]
    harness.run()
    assert order == ["APPENDED", "DURABLE", "WRITTEN"] or order == [
        "APPENDED",
        "WRITTEN",
        "DURABLE",
    ]


def test_one_commit_carries_all_that_was_queued() -> None:
    """Group commit: one write and one sync for everything."""
    harness = Harness().open()
    moved: list[int] = []
    harness.log.listener = lambda partitions: moved.append(len(partitions))
    for number in range(10):
        harness.append(b"%d" % number, index=number % 2)
    harness.run()
    assert harness.log.commits == 1
    assert moved == [2]


def test_reopen_goes_on_at_the_next_offset() -> None:
    """Restart with files present (pitfall 31)."""
    harness = Harness().open()
    values = fill(harness, 300)
    harness.close()
    harness.open()
    assert harness.opened.report.clean
    assert harness.values() == values
    assert harness.append(b"next").base_offset == 300
    harness.run()
    assert harness.values(299) == [values[-1], b"next"]


def test_reopen_after_a_crash_keeps_all_that_was_durable() -> None:
    """Power cut: what was synced is there, also across rotated files."""
    harness = Harness().open()
    values = fill(harness, 1000)
    harness.append(b"not durable")
    assert isinstance(harness.fs, MemoryFileSystem)
    harness.fs = harness.fs.crash()
    harness.open()
    assert not harness.opened.report.clean
    assert harness.values() == values
    assert len(harness.log.sealed) >= 1


def test_catch_up_reads_through_files_and_cache() -> None:
    """A reader far behind the cache gets everything without a gap, in small steps too."""
    harness = Harness().open()
    values = fill(harness, 1000)
    assert harness.values(max_bytes=500) == values
    assert harness.reader.seconds["journal"].count > 0
    assert harness.log.reads_cached > 0


def test_offsets_outside_the_log_are_out_of_range() -> None:
    """Below the log start and above the log end, nowhere else."""
    harness = Harness().open()
    fill(harness, 10)
    with pytest.raises(OffsetOutOfRange):
        harness.read(11)
    harness.log.move_log_start(harness.partition(), 5, lambda _: None)
    harness.run()
    with pytest.raises(OffsetOutOfRange):
        harness.read(4)
    assert len(harness.values(5)) == 5


def test_the_log_start_survives_a_crash() -> None:
    """It is durable before it is answered."""
    harness = Harness().open()
    fill(harness, 10)
    harness.log.move_log_start(harness.partition(), 7, lambda _: None)
    harness.run()
    harness.fs = harness.fs.crash()  # type: ignore[attr-defined]
    harness.open()
    assert harness.partition().log_start == 7


def test_two_processes_on_one_directory() -> None:
    """The second one is refused."""
    harness = Harness().open()
    with pytest.raises(InUse):
        Harness(harness.fs).open()


def test_a_failed_sync_ends_appends_and_keeps_durable_reads() -> None:
    """Never retried on that file; readers go on."""
    harness = Harness().open()
    values = fill(harness, 10)
    harness.fs.fail_next_sync(errno.EIO, "journal")  # type: ignore[attr-defined]
    answers: list[object] = []
    harness.append(b"lost", done=answers.append)
    harness.run()
    assert isinstance(answers[0], JournalFailed)
    with pytest.raises(JournalFailed):
        harness.append(b"refused")
    assert harness.values() == values


def test_closing_ends_also_when_the_last_checkpoint_fails() -> None:
    """The journal has everything; the next opening scans it."""
    harness = Harness().open()
    values = fill(harness, 10)
    harness.fs.fail_next_write(errno.ENOSPC, "checkpoint")  # type: ignore[attr-defined]
    harness.close()
    assert len(harness.errors) == 1
    harness.open()
    assert harness.values() == values


def test_appends_are_refused_at_the_disk_limit_and_nothing_is_torn() -> None:
    """Refused before an offset is given; the next one goes on where the last accepted one was."""
    settings = LogSettings(
        journal_file_bytes=64 * 1024,
        journal_first_file_bytes=16 * 1024,
        commit_bytes_max=16 * 1024,
        disk_limit_bytes=120 * 1024,
    )
    harness = Harness(settings=settings).open()
    accepted = 0
    refused: StorageFull | None = None
    while refused is None and accepted < 2000:
        try:
            harness.append(bytes(100))
            accepted += 1
        except StorageFull as error:
            refused = error
        harness.run()
    assert "ister.disk.limit.bytes" in str(refused)
    assert harness.partition().high_watermark == accepted
    assert len(harness.values()) == accepted


def test_a_file_that_cannot_be_made_is_not_waited_for() -> None:
    """Reading stops for a file on its way, but not for tries that fail again and again."""
    settings = LogSettings(
        journal_file_bytes=64 * 1024,
        journal_first_file_bytes=16 * 1024,
        commit_bytes_max=16 * 1024,
    )
    harness = Harness(settings=settings).open()
    journal, files = harness.log.journal, harness.log.files
    assert files.preparing
    assert journal.overloaded
    harness.fs.fail_next_write(errno.EMFILE, "journal/")  # type: ignore[attr-defined]
    harness.run()
    assert files.full
    assert not journal.overloaded
    files.prepare()
    assert files.preparing
    assert not journal.overloaded
    harness.run()
    assert not files.full


def test_handoff_moves_files_to_the_bucket_and_recycles_them() -> None:
    """Sealed files go to the bucket, their space is used again, every offset stays readable."""
    harness = Harness().open()
    values = fill(harness, 2000)
    for _ in range(12):
        harness.tick(61)
    assert harness.errors == []
    assert harness.partition().tiered_end == 2000
    assert harness.log.sealed == {}
    assert harness.values(max_bytes=3000) == values
    assert harness.reader.seconds["bucket"].count > 0


def test_reopen_after_handoff_reads_from_the_bucket() -> None:
    """The checkpoint knows what is tiered; opening needs no bucket."""
    harness = Harness().open()
    values = fill(harness, 1500)
    for _ in range(12):
        harness.tick(61)
    harness.fs = harness.fs.crash()  # type: ignore[attr-defined]
    harness.open()
    assert harness.values(max_bytes=3000) == values
    assert harness.append(b"more").base_offset == 1500


def test_where_the_log_lies() -> None:
    """What of it is still here, and what is in the bucket, as ListOffsets -4, -5 and -6 ask."""
    harness = Harness().open()
    partition = harness.partition()

    def places() -> tuple[int, int, int]:
        return partition.earliest_local, partition.last_tiered, partition.earliest_pending

    assert places() == (0, -1, 0)
    for _ in range(4):
        harness.append(b"x", b"y")
    harness.run()
    assert places() == (0, -1, 0)
    for _ in range(4):
        harness.tick(61)
    assert places() == (8, 7, 8)  # all of it was handed over and its file is gone
    harness.append(b"z")
    harness.run()
    assert places() == (8, 7, 8)
    harness.log.move_log_start(partition, 8, lambda _: None)
    harness.run()
    assert places() == (8, -1, 8)
    harness.log.move_log_start(partition, 9, lambda _: None)
    harness.run()
    assert places() == (9, -1, 9)


def test_a_retry_is_answered_with_the_original_offset() -> None:
    """Idempotence: a duplicate succeeds, once the original is durable."""
    harness = Harness().open()
    answers: list[object] = []

    def send() -> Appended:
        return harness.append(
            b"a", done=answers.append, producer_id=5, producer_epoch=0, base_sequence=0
        )

    first, again = send(), send()
    assert (again.base_offset, again.duplicate) == (first.base_offset, True)
    assert answers == []
    harness.run()
    assert answers == [None, None]
    harness.fs = harness.fs.crash()  # type: ignore[attr-defined]
    harness.open()
    assert send().duplicate
