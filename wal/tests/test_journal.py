"""Group commit: what shares a commit, where it goes, and what happens when it cannot."""

from __future__ import annotations

import contextlib
import errno
from dataclasses import replace

import pytest

from ister.wal.errors import BatchTooLarge, Closed, JournalFailed, LogError, StorageFull
from ister.wal.frame import FRAME_HEADER_SIZE, FRAMES_START
from ister.wal.log import Moment
from ister.wal.memory_fs import MemoryFileSystem
from ister.wal.tests.harness import SMALL, Harness

SETTINGS = replace(
    SMALL, journal_file_bytes=32 * 1024, journal_first_file_bytes=16 * 1024, commit_bytes_max=4096
)


def opened(**changes: int) -> Harness:
    harness = Harness(settings=replace(SETTINGS, **changes)).open()  # type: ignore[arg-type]
    harness.run()  # the next file is ready
    return harness


def fs_of(harness: Harness) -> MemoryFileSystem:
    assert isinstance(harness.fs, MemoryFileSystem)
    return harness.fs


def syncs(harness: Harness) -> list[str]:
    """Every write and sync of a journal file from now on."""
    seen: list[str] = []

    def note(operation: str) -> None:
        if operation in ("pwrite", "sync"):
            seen.append(operation)

    fs_of(harness).on_operation = note
    return seen


def test_a_commit_is_one_write_and_one_sync() -> None:
    """However many batches of however many partitions."""
    harness = opened()
    seen = syncs(harness)
    for number in range(20):
        harness.append(b"%d" % number, index=number % 2)
    harness.run()
    assert seen == ["pwrite", "sync"]
    assert harness.log.commits == 1


def test_what_comes_during_a_commit_shares_the_next_one() -> None:
    """One is in flight; all that arrives meanwhile goes together."""
    harness = opened()
    harness.append(b"first")
    assert harness.driver.step()  # its write is on its way
    for _ in range(10):
        harness.append(b"meanwhile")
    harness.run()
    assert harness.log.commits == 2
    assert harness.partition().high_watermark == 11


def test_a_commit_is_bounded() -> None:
    """What does not fit goes into the next one, in order."""
    harness = opened()
    order: list[int] = []
    for number in range(30):
        harness.append(bytes(300), done=lambda _, number=number: order.append(number))  # type: ignore[misc]
    harness.run()
    assert harness.log.commits >= 30 * 300 // 4096
    assert order == list(range(30))


def test_a_file_takes_what_fits_and_the_end_mark_has_its_place() -> None:
    """Files end full; a clean stop always finds room for its mark."""
    for size in range(1500, 1560, 7):
        harness = opened()
        for _ in range(9):
            harness.append(bytes(size))
            harness.run()
        journal = harness.log.journal
        assert journal.position + FRAME_HEADER_SIZE <= journal.file.size
        harness.close()
        again = Harness(fs_of(harness).crash(), settings=SETTINGS, bucket=harness.bucket).open()
        assert again.opened.report.clean
        assert len(again.values()) == 9


def test_a_batch_larger_than_a_commit_goes_alone() -> None:
    """The bound is for gathering, not for batches; a file bounds those."""
    harness = opened()
    harness.append(bytes(10_000))
    harness.run()
    assert harness.partition().high_watermark == 1
    with pytest.raises(BatchTooLarge):
        harness.append(bytes(40_000))
    assert harness.partition().log_end == 1


def test_a_refused_batch_takes_no_offset() -> None:
    """No ready file: retriable, and the next one gets the offset."""
    harness = opened(disk_limit_bytes=20 * 1024)
    taken = 0
    with contextlib.suppress(StorageFull):
        while taken < 100:
            harness.append(bytes(1000))
            harness.run()
            taken += 1
    assert 0 < taken < 20
    partition = harness.partition()
    assert partition.log_end == partition.high_watermark == taken
    harness.log.move_log_start(partition, 1, lambda _: None)  # small things still fit
    harness.run()
    assert partition.log_start == 1


def test_rotation_seals_the_file_also_without_a_batch() -> None:
    """What is there can be handed off at once; an empty file is left alone."""
    harness = opened()
    assert not harness.log.journal.rotate()
    harness.append(b"x")
    harness.run()
    first = harness.log.journal.file
    harness.service.seal()
    harness.run()
    assert harness.log.sealed == {first.sequence: first}
    assert harness.log.journal.position == FRAMES_START
    harness.service.seal()
    harness.run()
    assert list(harness.log.sealed) == [first.sequence]


@pytest.mark.parametrize("step", ["write", "sync"])
def test_any_error_ends_the_journal(step: str) -> None:
    """Everybody who waits is told, nothing is tried again, what was durable stays."""
    harness = opened()
    harness.append(b"durable")
    harness.run()
    fail = fs_of(harness).fail_next_write if step == "write" else fs_of(harness).fail_next_sync
    fail(errno.EIO, ".log")
    told: list[LogError | None] = []
    for moment in (Moment.DURABLE, Moment.WRITTEN, Moment.DURABLE):
        harness.append(b"lost", moment=moment, done=told.append)
    assert harness.driver.step()
    harness.append(b"behind it", done=told.append)
    seen = syncs(harness)
    harness.run()
    assert len(told) == 4
    assert all(isinstance(error, JournalFailed) for error in told)
    assert seen == ["pwrite", "sync"][: 1 + (step == "sync")]
    with pytest.raises(JournalFailed):
        harness.append(b"later")
    assert harness.values() == [b"durable"]
    assert harness.partition().high_watermark == 1


def test_one_waiter_that_fails_does_not_keep_the_others() -> None:
    """Its error comes up by itself, after them."""
    harness = opened()
    told: list[LogError | None] = []

    def broken(_: LogError | None) -> None:
        raise RuntimeError("broken waiter")

    harness.append(b"a", done=told.append)
    harness.append(b"b", done=broken)
    harness.append(b"c", done=told.append)
    with pytest.raises(RuntimeError, match="broken waiter"):
        harness.run()
    assert told == [None, None]
    harness.run()
    assert harness.partition().high_watermark == 3


def test_closing_makes_durable_what_was_accepted() -> None:
    """And takes nothing more."""
    harness = opened()
    told: list[LogError | None] = []
    for _ in range(30):
        harness.append(bytes(300), done=told.append)
    closed: list[bool] = []
    harness.log.close(lambda: closed.append(True))
    with pytest.raises(Closed):
        harness.append(b"late")
    harness.run()
    assert told == [None] * 30
    assert closed == [True]


def test_too_much_unsynced_asks_for_a_pause() -> None:
    """The gateway stops reading from sockets; nobody is refused."""
    harness = opened(unsynced_bytes_max=10_000)
    journal = harness.log.journal
    while not journal.overloaded:
        harness.append(bytes(1000))
    assert 10_000 < journal.unsynced_bytes < 12_000
    harness.run()
    assert not journal.overloaded
    assert journal.unsynced_bytes == 0
