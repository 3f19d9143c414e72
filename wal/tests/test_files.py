"""Journal files: ready before they are needed, used again, and space taken nowhere else."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest

from ister.wal.driver import InlineDriver
from ister.wal.files import JournalFile, JournalFiles
from ister.wal.memory_fs import MemoryFile, MemoryFileSystem
from ister.wal.tests.harness import SMALL

KiB = 1024
SETTINGS = replace(
    SMALL,
    journal_first_file_bytes=4 * KiB,
    journal_file_bytes=16 * KiB,
    journal_ready_files=2,
    journal_pool_files=1,
)


class Kit:
    def __init__(self, capacity: int | None = None, **changes: int) -> None:
        self.fs = MemoryFileSystem(capacity_bytes=capacity)
        self.fs.makedirs("j")
        self.driver = InlineDriver()
        self.ready = 0
        settings = replace(SETTINGS, **changes)  # type: ignore[arg-type]
        self.files = JournalFiles(self.fs, "j", settings, self.driver, self.on_ready)

    def on_ready(self) -> None:
        self.ready += 1

    def take(self, size_min: int = 0) -> JournalFile | None:
        file = self.files.take(size_min)
        self.driver.run_until_idle()
        return file

    def prepared(self) -> Kit:
        self.files.prepare()
        self.driver.run_until_idle()
        return self

    def sizes(self, count: int) -> list[int]:
        return [file.size // KiB for file in (self.take() for _ in range(count)) if file]


def test_files_grow_and_are_ready_ahead() -> None:
    """The first ones small, then of full size, two of them."""
    kit = Kit().prepared()
    assert kit.ready == 2
    assert kit.sizes(4) == [8, 16, 16, 16]
    assert len(kit.fs.listdir("j")) == 6
    assert kit.files.bytes == (8 + 5 * 16) * KiB


def test_a_ready_file_is_on_the_platter_with_its_name() -> None:
    """An append never takes space: it was taken here, in zeros, and synced."""
    kit = Kit().prepared()
    file = kit.take()
    assert file is not None
    after = kit.fs.crash()
    assert after.open(file.path).pread(file.size, 0) == bytes(file.size)


def test_every_use_has_a_new_sequence() -> None:
    """Also of a file that was used before: it gets a name, and its content stays for nobody."""
    kit = Kit(journal_first_file_bytes=16 * KiB).prepared()
    first = kit.take()
    assert first is not None
    first.file.pwrite([b"old life"], 0)
    kit.files.recycle(first)
    kit.driver.run_until_idle()
    taken = [kit.take() for _ in range(4)]
    again = next(file for file in taken if file and file.file is first.file)
    assert again.sequence > first.sequence
    assert not kit.fs.exists(first.path)
    sequences = [file.sequence for file in taken if file]
    assert sequences == sorted(set(sequences))


def test_the_pool_is_bounded_and_small_files_go() -> None:
    """What is above it is removed, durably."""
    kit = Kit().prepared()
    taken = [file for file in (kit.take() for _ in range(4)) if file]
    before = kit.files.bytes
    for file in taken:
        kit.files.recycle(file)
    kit.driver.run_until_idle()
    left = [file for file in taken if kit.fs.exists(file.path)]
    assert [file.size for file in left] == [16 * KiB]
    assert kit.files.bytes == before - (8 + 16 + 16) * KiB
    assert not any(kit.fs.crash().exists(file.path) for file in taken if file not in left)


def test_a_pinned_file_is_closed_by_its_last_reader() -> None:
    """Its name goes at once, its content when nobody reads it."""
    kit = Kit(journal_pool_files=0).prepared()
    file = kit.take()
    assert file is not None
    file.file.pwrite([b"still read"], 0)
    file.pins = 2
    kit.files.recycle(file)
    kit.driver.run_until_idle()
    assert not kit.fs.exists(file.path)
    assert file.file.pread(10, 0) == b"still read"
    file.release()
    assert file.file.pread(10, 0) == b"still read"
    file.release()
    assert file.pins == 0


def test_a_larger_batch_gets_a_larger_file() -> None:
    """Files that are too small are passed by."""
    kit = Kit().prepared()
    small, large = sorted(kit.fs.listdir("j"))
    file = kit.take(12 * KiB)
    assert file is not None
    assert file.size == 16 * KiB
    assert file.path == f"j/{large}"
    assert not kit.fs.exists(f"j/{small}")


def test_the_limit_holds_and_goes_away_with_what_it_counts() -> None:
    """No file above it; when one goes, the next is made by itself."""
    kit = Kit(disk_limit_bytes=60 * KiB, spare_bytes=0, journal_pool_files=0).prepared()
    taken = []
    while (file := kit.take()) is not None:
        taken.append(file)
    assert kit.files.bytes <= 60 * KiB
    assert kit.files.full is not None
    assert "ister.disk.limit.bytes" in kit.files.full
    kit.files.recycle(taken[0])
    kit.files.recycle(taken[1])
    kit.driver.run_until_idle()
    assert kit.take() is not None


def test_a_full_disk_leaves_nothing_half_made() -> None:
    """Said in words, tried again when there is room."""
    kit = Kit().prepared()
    kit.fs.fail_next_write(errno.ENOSPC, "j/")
    assert kit.take() is not None
    assert kit.files.full is not None
    assert "no space left" in kit.files.full
    assert len(kit.fs.listdir("j")) == 2
    kit.prepared()
    assert kit.files.full is None
    assert kit.take() is not None


def test_a_backlog_on_disk_is_none_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that are not trimmed become more; those kept in the page cache do not."""
    kit = Kit(journal_first_file_bytes=16 * KiB).prepared()
    forgotten: list[str] = []
    monkeypatch.setattr(MemoryFile, "forget", lambda file: forgotten.append(file.path))
    taken = [file for file in (kit.take() for _ in range(12)) if file]
    paths = [file.path for file in taken]
    assert len(paths) - len(forgotten) <= 4
    assert len(set(forgotten)) == len(forgotten)
    assert not set(forgotten) & {*paths[:2], *paths[-2:]}  # read next, and being written
    assert all(file.pins == 0 for file in taken)


def test_a_file_that_is_read_stays_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Handoff or a reader has it open: it would come from the disk again at once."""
    kit = Kit(journal_first_file_bytes=16 * KiB).prepared()
    forgotten: list[str] = []
    monkeypatch.setattr(MemoryFile, "forget", lambda file: forgotten.append(file.path))
    for _ in range(12):
        file = kit.take()
        assert file is not None
        file.pins += 1
    assert forgotten == []


def test_files_that_come_back_keep_their_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as the bucket keeps up none is fresh, and none is given back."""
    kit = Kit(journal_first_file_bytes=16 * KiB, journal_pool_files=4).prepared()
    monkeypatch.setattr(MemoryFile, "forget", lambda file: pytest.fail(file.path))
    live = [kit.take() for _ in range(3)]
    for _ in range(20):
        oldest = live.pop(0)
        assert oldest is not None
        kit.files.recycle(oldest)
        live.append(kit.take())
    assert kit.files.bytes <= 8 * 16 * KiB
