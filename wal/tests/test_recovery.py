"""Opening again: what is refused with which words, what is cut, and that it may be repeated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from crc32c import crc32c

from ister.wal import checkpoint, frame
from ister.wal.errors import Contradiction, Damaged, NewerFormat
from ister.wal.frame import FRAMES_START
from ister.wal.log import Moment
from ister.wal.memory_fs import MemoryFileSystem, Survivors
from ister.wal.opening import TopicInfo
from ister.wal.settings import TopicSettings
from ister.wal.tests.batches import make_batch
from ister.wal.tests.harness import SMALL, Harness

SETTINGS = replace(SMALL, journal_file_bytes=16 * 1024, commit_bytes_max=4096, cache_bytes=0)
OTHER = bytes(range(16, 32))


def written(batches: int = 6, size: int = 10) -> Harness:
    harness = Harness(settings=SETTINGS).open()
    for number in range(batches):
        harness.append(b"%d." % number + bytes(size), index=number % 2)
        harness.run()
    return harness


def left(harness: Harness) -> Harness:
    """What a new process finds, not opened yet."""
    assert isinstance(harness.fs, MemoryFileSystem)
    again = Harness(
        harness.fs.crash(Survivors.EVERYTHING),
        settings=harness.settings,
        bucket=harness.bucket,
        topics=harness.topics,
        clock=harness.clock,
    )
    again.runs = harness.runs
    return again


def fs_of(harness: Harness) -> MemoryFileSystem:
    assert isinstance(harness.fs, MemoryFileSystem)
    return harness.fs


def change(harness: Harness, path: str, position: int, data: bytes) -> None:
    file = fs_of(harness).open(path, write=True)
    file.pwrite([data], position)
    file.close()


def newest(harness: Harness) -> str:
    """The journal file that was open."""
    return harness.log.journal.file.path


# -- refused ----------------------------------------------------------------------------


def test_a_topic_that_the_metadata_does_not_know_is_a_contradiction() -> None:
    """Metadata and journal are not of one time; a tombstone explains it."""
    harness = written()
    harness.log.add_partitions(OTHER, [0], TopicSettings())
    harness.append(b"x", topic_id=OTHER)
    harness.run()
    again = left(harness)
    with pytest.raises(Contradiction, match=r"does not know.*put back the metadata"):
        again.open()
    again = left(harness)
    again.tombstones = {OTHER}
    again.open()
    again = left(harness)
    again.topics = [*harness.topics, TopicInfo(OTHER, "other", 1, TopicSettings())]
    again.open()
    assert again.values(topic_id=OTHER) == [b"x"]


def test_a_topic_that_only_the_checkpoint_knows_is_one_too() -> None:
    """Its frames may have been handed over."""
    harness = written()
    harness.close()
    again = left(harness)
    again.topics = [TopicInfo(OTHER, "other", 1, TopicSettings())]
    with pytest.raises(Contradiction, match="put back the metadata"):
        again.open()


@pytest.mark.parametrize("part", ["journal", "checkpoint"])
def test_files_of_another_cluster_are_refused(part: str) -> None:
    """Mixed directories."""
    harness, foreign = written(), left(written())
    harness.close()
    other = left(harness)
    fs = fs_of(other)
    suffix = ".log" if part == "journal" else ".ckpt"
    for name in fs.listdir(f"data/{part}"):
        path = f"data/{part}/{name}"
        content = fs.open(path).pread(1 << 20, 0)
        swapped = content.replace(b"AAAAAAAAAAAAAAAAAAAAAA", b"BBBBBBBBBBBBBBBBBBBBBB")
        if name.endswith(suffix) and swapped != content:
            change(other, path, 0, _sealed_again(part, swapped))
    with pytest.raises(Contradiction, match=r"belongs to.* cluster BBBB"):
        other.open()
    foreign.open()


def _sealed_again(part: str, content: bytes) -> bytes:
    """With the checksum that it had if it had been written so."""
    if part == "journal":
        size = frame.FILE_HEADER_SIZE
        head = content[: size - 4]
        return head + crc32c(head).to_bytes(4, "little") + content[size:]
    head, start = content[: checkpoint._HEAD.size], checkpoint._PAYLOAD_START
    return head + checkpoint._CRC.pack(crc32c(content[start:], crc32c(head))) + content[start:]


def test_a_missing_file_is_damage_by_its_name() -> None:
    """In the middle, at the end, and the one that the checkpoint stands on."""
    for pick in (min, max):
        harness = written(60, 900)
        victim = harness.log.sealed[pick(harness.log.sealed)].path
        again = left(harness)
        fs_of(again).unlink(victim)
        with pytest.raises(Damaged) as caught:
            again.open()
        assert caught.value.where == victim
    harness = written()
    again = left(harness)
    fs_of(again).unlink(newest(harness))
    with pytest.raises(Damaged, match="missing"):
        again.open()


def test_a_newer_journal_is_refused_before_anything_is_written() -> None:
    """Says the version, and leaves every byte as it is."""
    harness = written()
    again = left(harness)
    content = bytearray(contents(again)[newest(harness)])
    content[8] = 9
    change(again, newest(harness), 0, _sealed_again("journal", bytes(content)))
    before = contents(again)
    with pytest.raises(NewerFormat, match="journal format 9"):
        again.open()
    assert contents(again) == before


def contents(harness: Harness) -> dict[str, bytes]:
    fs = fs_of(harness)
    paths = [f"data/journal/{name}" for name in fs.listdir("data/journal")]
    return {path: fs.open(path).pread(1 << 20, 0) for path in paths}


# -- cut, or damaged ------------------------------------------------------------------------


def test_a_torn_tail_is_cut_and_counted() -> None:
    """The last commit alone, when nothing stands behind it."""
    harness = written(4)
    start = harness.log.journal.position
    harness.append(b"torn" * 10)
    harness.run()
    end = harness.log.journal.position
    again = left(harness)
    change(again, newest(harness), end - 3, b"\xff")
    again.open()
    report = again.opened.report
    assert report.cut_bytes == end - start
    assert f"at {start}" in report.cut_where
    assert not report.clean
    assert report.damages == []
    assert again.partition().high_watermark == 2
    assert again.append(b"next").base_offset == 2


def test_the_same_before_an_end_mark_is_damage() -> None:
    """A clean stop leaves nothing torn."""
    harness = written(4)
    end = harness.log.journal.position
    harness.close()
    again = left(harness)
    change(again, newest(harness), end - 3, b"\xff")
    with pytest.raises(Damaged) as caught:
        again.open()
    assert FRAMES_START <= caught.value.position < end
    assert "cannot be read" in str(caught.value)


def test_what_was_durable_and_is_in_no_file_is_damage() -> None:
    """The checkpoint knows how far a partition had got."""
    harness = written(60, 900)
    harness.close()
    again = left(harness)
    size = harness.log.journal.file.size
    change(again, newest(harness), FRAMES_START, bytes(size - FRAMES_START))
    with pytest.raises(Damaged, match="in no file"):
        again.open()


# -- repeated -------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["close", "crash"])
def test_opening_changes_nothing_that_counts(end: str) -> None:
    """Ten times in a row: the same records, offsets, epochs and files in number."""
    harness = written(20, 500)
    expected = {index: harness.values(index=index) for index in (0, 1)}
    counts: list[int] = []
    for _ in range(10):
        if end == "close":
            harness.close()
        harness = left(harness).open()
        harness.run()
        assert {index: harness.values(index=index) for index in (0, 1)} == expected
        assert harness.partition().leader_epoch == 0
        counts.append(len(fs_of(harness).listdir("data/journal")))
    assert max(counts[2:]) <= max(counts[:2]) + 1


def test_producers_are_known_after_a_scan() -> None:
    """From the frames alone, without a checkpoint that has them."""
    harness = Harness(settings=SETTINGS).open()

    def send(to: Harness, sequence: int) -> bool:
        data = make_batch([b"x"], producer_id=5, producer_epoch=1, base_sequence=sequence)
        return to.log.append(to.partition(), data, Moment.DURABLE, lambda _: None).duplicate

    for sequence in range(8):
        assert not send(harness, sequence)
        harness.run()
    again = left(harness).open()
    assert [send(again, sequence) for sequence in range(3, 9)] == [True] * 5 + [False]


def test_nothing_of_a_half_made_copy_is_left() -> None:
    """A copy that recovery was writing when the power went is made anew."""
    harness = written()
    again = left(harness)
    fs = fs_of(again)
    fs.open("data/journal/00000000000000000099.log.new", create=True).pwrite([b"half"], 0)
    again.open()
    assert not [name for name in fs.listdir("data/journal") if name.endswith(".new")]
    assert len(again.values()) == 3


def test_opening_needs_no_bucket() -> None:
    """It is asked for nothing, also when everything is there."""
    harness = written(40, 900)
    for _ in range(4):
        harness.tick(61)
    again = left(harness)
    calls: list[str] = []

    class Deaf:
        """Whatever is asked of it is noted."""

        url = "deaf://"

        def __getattr__(self, name: str) -> Callable[..., None]:
            return lambda *_: calls.append(name)

    again.bucket = Deaf()  # type: ignore[assignment]
    again.open()
    assert again.partition().tiered_end == 20
    assert again.append(b"next").base_offset == 20
    again.run()
    assert again.partition().high_watermark == 21
    assert calls == []
