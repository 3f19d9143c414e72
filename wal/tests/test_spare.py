"""The spare: a full disk does not stop what would free it."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest

from ister.wal.errors import StorageFull
from ister.wal.memory_fs import MemoryFileSystem
from ister.wal.spare import Spare
from ister.wal.tests.harness import SMALL, Harness

SIZE = 32 * 1024


def made(capacity: int | None = None) -> tuple[MemoryFileSystem, Spare]:
    fs = MemoryFileSystem(capacity_bytes=capacity)
    fs.makedirs("data")
    return fs, Spare(fs, "data", SIZE)


def fill(fs: MemoryFileSystem) -> None:
    """Take all the room that is left."""
    file = fs.open("data/filler", create=True)
    file.pwrite([bytes(fs.free_bytes("data")[0])], 0)
    file.close()


def test_it_takes_real_space_and_gives_it_back() -> None:
    """Taken once, released once."""
    fs, spare = made(200 * 1024)
    free, _ = fs.free_bytes("data")
    spare.take()
    spare.take()
    assert spare.held
    assert fs.free_bytes("data")[0] == free - SIZE
    assert spare.release()
    assert not spare.release()
    assert fs.free_bytes("data")[0] == free


def test_a_write_that_meets_a_full_disk_is_done_in_its_room() -> None:
    """Tried once more, after the spare went; the next one has to cope alone."""
    fs, spare = made(100 * 1024)
    spare.take()
    fill(fs)
    written: list[str] = []

    def write(name: str) -> None:
        if fs.exists(name):
            fs.unlink(name)
        file = fs.open(name, create=True)
        file.pwrite([bytes(SIZE)], 0)
        written.append(name)

    spare.run(lambda: write("data/one"))
    assert written == ["data/one"]
    assert not spare.held
    with pytest.raises(OSError, match="No space") as caught:
        spare.run(lambda: write("data/two"))
    assert caught.value.errno == errno.ENOSPC


def test_other_errors_leave_it_alone() -> None:
    """A broken disk is not a full one."""
    _, spare = made()
    spare.take()

    def fail() -> None:
        raise OSError(errno.EIO, "broken")

    with pytest.raises(OSError, match="broken"):
        spare.run(fail)
    assert spare.held


def test_it_is_taken_again_only_when_there_is_room_twice() -> None:
    """Else it would take what the writes need that it is for."""
    fs, spare = made(100 * 1024)
    spare.take()
    spare.release()
    filler = fs.open("data/filler", create=True)
    filler.pwrite([bytes(fs.free_bytes("data")[0] - SIZE - 1)], 0)
    filler.close()
    spare.take()
    assert not spare.held
    fs.unlink("data/filler")
    spare.take()
    assert spare.held


def test_it_goes_before_others_meet_the_end_of_the_disk() -> None:
    """Metadata and a bucket on this disk write without it; then it comes back."""
    fs, spare = made(200 * 1024)
    spare.keep()
    assert spare.held
    spare.keep()
    assert spare.held
    fill(fs)
    spare.keep()
    assert not spare.held
    assert fs.free_bytes("data")[0] == SIZE
    spare.keep()
    assert fs.free_bytes("data")[0] == SIZE
    fs.unlink("data/filler")
    spare.keep()
    assert spare.held


def until_refused(harness: Harness) -> int:
    """How many batches it takes."""
    for number in range(10_000):
        try:
            harness.append(bytes(300))
        except StorageFull:
            return number
        harness.run()
    raise AssertionError("it never refused")


def test_no_journal_file_takes_the_room_of_the_spare() -> None:
    """A limit of the journal is no promise that the disk has so much."""
    fs = MemoryFileSystem(capacity_bytes=600 * 1024)
    settings = replace(SMALL, spare_bytes=SIZE, disk_limit_bytes=1 << 40)
    harness = Harness(fs, settings=settings).open()
    writes = until_refused(harness)
    assert writes > 100
    assert harness.partition().high_watermark == writes
    free = fs.free_bytes("data")[0]
    assert free >= SIZE
    harness.log.files.prepare()
    harness.run()
    assert fs.free_bytes("data")[0] == free


def test_half_of_one_is_made_anew() -> None:
    """What a crash left counts only if it is whole."""
    fs, spare = made()
    fs.open("data/spare", create=True).pwrite([bytes(10)], 0)
    spare.take()
    assert spare.held
    assert fs.open("data/spare").size() == SIZE
    again = Spare(fs, "data", SIZE)
    again.take()
    assert again.held


def test_none_is_wanted() -> None:
    """Size 0 turns it off."""
    fs, _ = made()
    spare = Spare(fs, "data", 0)
    spare.take()
    assert not spare.release()
    assert fs.listdir("data") == []


def test_trims_go_on_with_a_full_disk() -> None:
    """Indexes and checkpoints are written in the spare's room; the files that go make room."""
    fs = MemoryFileSystem(capacity_bytes=600 * 1024)
    settings = replace(SMALL, spare_bytes=SIZE, disk_limit_bytes=400 * 1024, journal_pool_files=0)
    harness = Harness(fs, settings=settings).open()
    checkpointer = harness.opened.checkpointer
    checkpointer.retry()
    for number in range(300):
        harness.append(b"%d" % number + bytes(300))
        harness.run()
    before = len(harness.log.sealed)
    assert before >= 2
    fill(fs)
    harness.service.seal()
    harness.run()
    for _ in range(4):
        harness.tick(61)
        checkpointer.retry()
        harness.run()
    assert harness.partition().tiered_end == 300
    assert len(harness.log.sealed) < before
    assert harness.opened.checkpointer._spare.releases > 0
    assert harness.opened.checkpointer._spare.held  # there is room again
    harness.append(b"more")
    harness.run()
    assert harness.partition().high_watermark == 301


def test_an_index_that_could_not_be_written_is_written_later() -> None:
    """Handoff waits for the index of a file, so one failure must not be for ever."""
    harness = Harness().open()
    fs = harness.fs
    assert isinstance(fs, MemoryFileSystem)
    harness.append(b"x")
    harness.run()
    fs.fail_next_write(errno.EIO, ".idx")
    harness.tick(1)
    harness.tick(61)
    harness.tick(61)
    assert len(harness.errors) == 1
    assert harness.partition().tiered_end == 0
    harness.opened.checkpointer.retry()
    harness.run()
    harness.tick(61)
    assert harness.partition().tiered_end == 1
