"""Reads that memory cannot answer: every seam between the sources, and what is never an answer."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ister.wal import driver as lanes
from ister.wal.driver import Done
from ister.wal.errors import Damaged, LogError, OffsetOutOfRange, StorageError
from ister.wal.memory_fs import MemoryFileSystem
from ister.wal.reader import BUCKET, JOURNAL, Chunk
from ister.wal.tests.harness import SMALL, Harness
from ister.wal.tier.faulty import FaultyStore
from ister.wal.tier.memory import MemoryStore

SETTINGS = replace(
    SMALL,
    journal_file_bytes=16 * 1024,
    commit_bytes_max=4096,
    cache_bytes=0,
    journal_pool_files=2,
)
Answer = tuple[Chunk | None, LogError | None]


class HeldReads:
    """Cold reads of a log wait until they are let go; everything else goes on."""

    def __init__(self, harness: Harness) -> None:
        self._driver = harness.driver
        self._submit = harness.driver.submit
        self.held: list[tuple[Callable[[], Any], Done]] = []
        harness.driver.submit = self.submit  # type: ignore[method-assign]

    def submit(self, lane: str, work: Callable[[], Any], done: Done) -> None:
        if lane == lanes.READ:
            self.held.append((work, done))
        else:
            self._submit(lane, work, done)

    def let_go(self) -> None:
        self._driver.submit = self._submit  # type: ignore[method-assign]
        for work, done in self.held:
            self._submit(lanes.READ, work, done)
        self._driver.run_until_idle()


def written(batches: int = 40, size: int = 900) -> Harness:
    """Several sealed files; partition 0 has the values 0, 1, 2 ..."""
    bucket = FaultyStore(MemoryStore(), random.Random(1))
    harness = Harness(settings=SETTINGS, bucket=bucket).open()
    for number in range(batches):
        harness.append(value(number, size))
        harness.run()
    assert len(harness.log.sealed) >= 2
    return harness


def value(number: int, size: int = 900) -> bytes:
    return b"%d." % number + bytes(size)


def hand_off(harness: Harness) -> None:
    for _ in range(4):
        harness.tick(61)
    assert harness.log.sealed == {}


def fs_of(harness: Harness) -> MemoryFileSystem:
    assert isinstance(harness.fs, MemoryFileSystem)
    return harness.fs


def down(harness: Harness) -> None:
    assert isinstance(harness.bucket, FaultyStore)
    harness.bucket.down()


def damage_journal(harness: Harness) -> None:
    """Every batch in every file."""
    for file in (*harness.log.sealed.values(), harness.log.journal.file):
        for position in range(4096 + 200, file.size, 500):
            (byte,) = file.file.pread(1, position)
            file.file.pwrite([bytes([byte ^ 1])], position)


def begin(harness: Harness, offset: int, max_bytes: int = 3000) -> list[Answer]:
    answers: list[Answer] = []
    harness.reader.read(
        harness.partition(), offset, max_bytes, lambda chunk, error: answers.append((chunk, error))
    )
    return answers


def test_each_source_answers_for_its_part() -> None:
    """Sealed files and the open one, then the bucket; the same records."""
    harness = written()
    assert harness.values() == [value(number) for number in range(40)]
    assert harness.read(0).source == JOURNAL
    hand_off(harness)
    harness.append(value(40))
    harness.run()
    assert harness.values() == [value(number) for number in range(41)]
    assert harness.read(0).source == BUCKET
    assert harness.read(40).source == JOURNAL


@pytest.mark.parametrize("tiered", [False, True])
def test_the_batch_with_the_offset_comes_whole(tiered: bool) -> None:
    """Also when it is larger than max_bytes, and when the offset lies inside it."""
    harness = Harness(settings=SETTINGS).open()
    harness.append(b"a", b"b", b"c")
    harness.append(b"d" * 1000, b"e")
    harness.append(b"f")
    harness.run()
    if tiered:
        hand_off(harness)
    for offset, first, following in ((1, 0, 3), (2, 0, 3), (3, 3, 5), (4, 3, 5), (5, 5, 6)):
        chunk = harness.read(offset, max_bytes=1)
        assert (chunk.first_offset, chunk.next_offset) == (first, following)


def test_a_file_that_is_read_is_not_used_again() -> None:
    """Sealed, handed over, trimmed, and the pool wants it: who reads it finishes first."""
    harness = written()
    file = harness.log.journal.file
    start = harness.partition().file_starts[-1]
    reads = HeldReads(harness)
    answers = begin(harness, start)
    assert len(reads.held) == 1
    hand_off(harness)
    for number in range(40, 120):  # enough to need every file there is
        harness.append(value(number))
        harness.run()
    assert file.pins == 1
    reads.let_go()
    ((chunk, error),) = answers
    assert error is None
    assert chunk is not None
    assert chunk.source == JOURNAL
    assert next(harness.in_chunk(chunk, start)) == (start, value(start))
    assert file.pins == 0
    assert harness.values() == [value(number) for number in range(120)]


def test_a_file_that_has_gone_is_looked_for_in_the_bucket() -> None:
    """The read was planned on a sealed file whose index left with it."""
    harness = written()
    reads = HeldReads(harness)
    answers = begin(harness, 0)
    hand_off(harness)
    reads.let_go()
    ((chunk, error),) = answers
    assert error is None
    assert chunk is not None
    assert chunk.source == BUCKET
    assert [found for _, found in harness.in_chunk(chunk, 0)] == [value(n) for n in range(3)]


def test_damage_in_a_file_is_said_and_the_bucket_asked() -> None:
    """While the bucket has it too; counted as a fall-back."""
    harness = written()
    checkpointer = harness.opened.checkpointer
    checkpointer.trim = lambda below: None  # type: ignore[method-assign]  # files stay
    for _ in range(4):
        harness.tick(61)
    assert harness.log.sealed
    damage_journal(harness)
    assert harness.values() == [value(number) for number in range(40)]
    assert harness.reader.fallbacks[JOURNAL, BUCKET] > 0
    assert harness.errors
    assert all(isinstance(error, Damaged) for error in harness.errors)


def test_what_no_source_has_is_a_storage_error() -> None:
    """Never an empty success, never out of range: the reader must come again."""
    harness = written()
    damage_journal(harness)
    for offset in (0, 20, 39):
        with pytest.raises(StorageError):
            harness.read(offset)
    assert harness.read(40).buffers == []


def test_a_bucket_that_is_down_is_a_storage_error_and_heals() -> None:
    """What is still here is served meanwhile."""
    harness = written()
    hand_off(harness)
    harness.append(value(40))
    harness.run()
    down(harness)
    with pytest.raises(StorageError):
        harness.read(0)
    assert harness.read(40).first_offset == 40
    assert isinstance(harness.bucket, FaultyStore)
    harness.bucket.up()
    assert harness.values() == [value(number) for number in range(41)]


def test_an_index_that_is_gone_is_made_up_from_the_frames() -> None:
    """And said."""
    harness = written()
    fs = fs_of(harness)
    for name in fs.listdir("data/journal"):
        if name.endswith(".idx"):
            fs.unlink(f"data/journal/{name}")
    assert harness.values() == [value(number) for number in range(40)]
    assert harness.errors


def test_the_log_start_may_move_under_a_read() -> None:
    """What lies below it then is out of range, wherever it was to come from."""
    for tiered in (False, True):
        harness = written()
        if tiered:
            hand_off(harness)
        reads = HeldReads(harness)
        answers = begin(harness, 0)
        harness.log.move_log_start(harness.partition(), 30, lambda _: None)
        harness.run()
        if tiered:
            down(harness)
        else:
            damage_journal(harness)
        reads.let_go()
        harness.run()
        ((_, error),) = answers
        assert isinstance(error, OffsetOutOfRange)


def test_between_high_watermark_and_log_end_a_read_is_empty() -> None:
    """It waits there; above the end it is out of range."""
    harness = written()
    harness.append(value(40))
    harness.append(value(41))
    assert harness.partition().log_end == 42
    for offset in (40, 41, 42):
        ((chunk, error),) = begin(harness, offset)
        assert error is None
        assert chunk is not None
        assert chunk.buffers == []
    ((_, error),) = begin(harness, 43)
    assert isinstance(error, OffsetOutOfRange)
