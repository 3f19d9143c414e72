"""A bit flipped at every position: never a wrong record, always a report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from ister.wal import inspect
from ister.wal.errors import Damaged, LogError, StorageError
from ister.wal.frame import FILE_HEADER_SIZE, FRAME_HEADER_SIZE, FRAMES_START, FrameScanner
from ister.wal.memory_fs import MemoryFileSystem, Survivors
from ister.wal.tests.crash_kit import LONG
from ister.wal.tests.harness import SMALL, Harness
from ister.wal.tier.archive import Archive
from ister.wal.tier.memory import MemoryStore

pytestmark = pytest.mark.fault

SETTINGS = replace(
    SMALL,
    journal_file_bytes=16 * 1024,
    journal_first_file_bytes=12 * 1024,
    commit_bytes_max=4096,
    cache_bytes=0,
)
CONTINUE = replace(SETTINGS, continue_past_damage=True)
BITS = range(8) if LONG else (0, 5)
STEP = 1 if LONG else 3  # positions of large files; headers and directories are done one by one


class Stored:
    """A data directory as a stopped broker left it, and what must be in it."""

    def __init__(self, harness: Harness) -> None:
        fs = harness.fs
        assert isinstance(fs, MemoryFileSystem)
        self.fs = fs.crash(Survivors.EVERYTHING)
        self.bucket = harness.bucket
        self.clock = harness.clock
        self.values = {index: harness.values(0, index) for index in (0, 1)}

    def open(self, path: str = "", position: int = 0, bit: int = 0, **changes: object) -> Harness:
        """Opened, after one bit of one file was flipped."""
        fs = self.fs.crash(Survivors.EVERYTHING)
        if path:
            file = fs.open(path, write=True)
            (byte,) = file.pread(1, position)
            file.pwrite([bytes([byte ^ 1 << bit])], position)
            file.close()
        settings = replace(SETTINGS, **changes)  # type: ignore[arg-type]
        harness = Harness(fs, bucket=self.bucket, settings=settings, clock=self.clock)
        harness.runs = 10
        return harness.open()

    def paths(self, suffix: str) -> list[str]:
        directory = "data/checkpoint" if suffix == ".ckpt" else "data/journal"
        return [
            f"{directory}/{name}" for name in self.fs.listdir(directory) if name.endswith(suffix)
        ]

    def size(self, path: str) -> int:
        return self.fs.open(path).size()


def written(*, commits: int = 5) -> Harness:
    """A few commits in the open file, on two partitions."""
    harness = Harness(settings=SETTINGS).open()
    for number in range(commits):
        harness.append(b"a%d" % number, b"b%d" % number)
        harness.append(
            b"c%d" % number, index=1, producer_id=3, producer_epoch=0, base_sequence=number
        )
        harness.run()
    return harness


def frames_of(stored: Stored, path: str) -> list[tuple[int, int]]:
    """(start, end) of each frame."""
    file = stored.fs.open(path)
    sequence = int(path[-24:-4])
    scanner = FrameScanner(file.pread, sequence, file.size())
    return [(frame.position, frame.end) for frame in iter(scanner.next, None)]


def bits(positions: Iterator[int] | range) -> Iterator[tuple[int, int]]:
    for position in positions:
        for bit in BITS:
            yield position, bit


def is_prefix(harness: Harness, stored: Stored) -> bool:
    """What is there is what was there, perhaps less; True if it is less."""
    less = False
    for index, values in stored.values.items():
        found = harness.values(0, index)
        assert found == values[: len(found)]
        less |= len(found) < len(values)
    return less


def test_a_flip_in_a_file_without_an_end_mark() -> None:
    """Before the last commit it is damage, in the last commit a cut; both are said."""
    stored = Stored(written())
    (path,) = stored.paths(".log")[:1]
    frames = frames_of(stored, path)
    last_start, last_end = frames[-1]
    for position, bit in bits(iter([*range(FILE_HEADER_SIZE), *range(FRAMES_START, last_end)])):
        if position < last_start:
            with pytest.raises(Damaged):
                stored.open(path, position, bit)
            continue
        harness = stored.open(path, position, bit)
        assert harness.opened.report.cut_bytes > 0
        assert path in harness.opened.report.cut_where
        assert is_prefix(harness, stored)
        assert harness.partition().high_watermark == len(stored.values[0]) - 2


def test_a_flip_in_a_file_with_an_end_mark() -> None:
    """Any bad byte before the end mark is damage; a bad end mark is said and loses nothing."""
    before = written()
    stored = Stored(before)
    before.close()
    fs = before.fs
    assert isinstance(fs, MemoryFileSystem)
    stored.fs = fs.crash(Survivors.EVERYTHING)
    (path,) = stored.paths(".log")[:1]
    mark_start, mark_end = frames_of(stored, path)[-1]
    assert mark_end - mark_start == FRAME_HEADER_SIZE
    assert stored.open().opened.report.clean
    for position, bit in bits(iter([*range(FILE_HEADER_SIZE), *range(FRAMES_START, mark_end)])):
        if position < mark_start:
            with pytest.raises(Damaged):
                stored.open(path, position, bit)
            continue
        harness = stored.open(path, position, bit)
        assert not harness.opened.report.clean
        assert harness.opened.report.cut_bytes > 0
        assert not is_prefix(harness, stored)


def test_a_flip_behind_the_live_part_changes_nothing() -> None:
    """Zeros, old frames, the rest of the header page: nobody reads them."""
    stored = Stored(written())
    (path,) = stored.paths(".log")[:1]
    end = frames_of(stored, path)[-1][1]
    behind = [*range(FILE_HEADER_SIZE, FRAMES_START, 97), *range(end, end + 200)]
    behind += range(end + 200, stored.size(path), 111)
    for position, bit in bits(iter(behind)):
        harness = stored.open(path, position, bit)
        assert harness.opened.report.damages == []
        assert harness.opened.report.cut_bytes == 0
        assert not is_prefix(harness, stored)


# -- sealed files, their indexes, checkpoints ------------------------------------------


def sealed() -> Stored:
    """Two sealed files with their sidecars, and a few commits behind them."""
    harness = written(commits=20)
    for number in range(20):
        harness.append(b"big%d" % number + bytes(500))
        harness.run()
    assert len(harness.log.sealed) >= 1
    assert verified(harness) == []
    assert not harness.partition().sealing
    return Stored(harness)


def verified(harness: Harness) -> list[inspect.Finding]:
    """What `ister log verify` would say."""
    views, findings = inspect.journal_files(harness.fs, harness.data)
    for view in views:
        findings += inspect.verify_file(harness.fs, view)[1]
    return findings


def test_a_flip_in_a_sealed_file() -> None:
    """Opening trusts the index; a batch is checked when it is read, the rest by `verify`."""
    stored = sealed()
    path = stored.paths(".log")[0]
    end = frames_of(stored, path)[-1][1]
    for position, bit in bits(range(FRAMES_START, end, STEP * 5)):
        harness = stored.open(path, position, bit)
        assert verified(harness)
        try:
            assert not is_prefix(harness, stored)
        except StorageError:
            assert any(isinstance(error, Damaged) for error in harness.errors)


def test_a_flip_in_a_sidecar() -> None:
    """It is a copy of what the frames say: said, and made anew from them."""
    stored = sealed()
    path = stored.paths(".idx")[0]
    assert stored.size(path) <= 16 * 1024
    for position, bit in bits(range(stored.size(path))):
        harness = stored.open(path, position, bit)
        assert not is_prefix(harness, stored)
        damages = [*harness.opened.report.damages, *harness.errors]
        assert any(isinstance(damage, Damaged) for damage in damages)
        assert path in str(damages[0])


def test_a_missing_sidecar_is_made_anew() -> None:
    """At the next opening."""
    stored = sealed()
    path = stored.paths(".idx")[0]
    stored.fs.unlink(path)
    harness = stored.open()
    assert harness.opened.report.sidecars_rebuilt == 1
    assert not is_prefix(harness, stored)
    assert harness.fs.exists(path)


def test_a_flip_in_the_newest_checkpoint() -> None:
    """The one before it serves, with all files that it needs."""
    stored = sealed()
    older, newest = stored.paths(".ckpt")
    for position, bit in bits(range(stored.size(newest))):
        harness = stored.open(newest, position, bit)
        assert any(newest in damage.where for damage in harness.opened.report.damages)
        assert not is_prefix(harness, stored)
        assert harness.append(b"next").base_offset == len(stored.values[0])
    for position, bit in bits(range(0, stored.size(older), 7)):
        assert not is_prefix(stored.open(older, position, bit), stored)


def test_both_checkpoints_damaged() -> None:
    """Without one nothing is known of what was trimmed: refused."""
    stored = sealed()
    older, newest = stored.paths(".ckpt")
    file = stored.fs.open(older, write=True)
    file.pwrite([b"x"], 20)
    file.close()
    with pytest.raises(Damaged):
        stored.open(newest, 30, 0)


def test_the_older_checkpoint_serves_after_handoff_and_trim() -> None:
    """Files go only when two generations do without them."""
    harness = written(commits=10)
    for turn in range(6):
        for number in range(6):
            harness.append(b"%d/%d" % (turn, number) + bytes(700))
            harness.run()
        harness.tick(61)
        fs = harness.fs
        assert isinstance(fs, MemoryFileSystem)
        stored = Stored(harness)
        older_and_newest = stored.paths(".ckpt")
        newest = older_and_newest[-1]
        if len(older_and_newest) < 2:
            continue
        for position in range(0, stored.size(newest), 41):
            opened = stored.open(newest, position, 1)
            assert not is_prefix(opened, stored)
            assert opened.opened.report.damages


# -- the bucket ------------------------------------------------------------------------


def handed_off() -> tuple[Harness, MemoryStore, Stored]:
    """Everything is in the bucket and nowhere else."""
    harness = written(commits=8)
    for _ in range(4):
        harness.tick(61)
    assert harness.log.sealed == {}
    assert harness.partition().tiered_end == harness.partition().high_watermark
    assert isinstance(harness.bucket, MemoryStore)
    return harness, harness.bucket, Stored(harness)


def flipped(store: MemoryStore, name: str, position: int, bit: int) -> MemoryStore:
    """A bucket with one bit of one object or register flipped."""
    other = MemoryStore()
    for info in store.list(""):
        other.put(info.name, [_flip(store.get(info.name), info.name == name, position, bit)])
    for register in store.registers(""):
        value, _ = store.read(register)
        other.swap(register, _flip(value, register == name, position, bit), 0)
    return other


def _flip(data: bytes, wanted: bool, position: int, bit: int) -> bytes:
    if not wanted:
        return data
    changed = bytearray(data)
    changed[position] ^= 1 << bit
    return bytes(changed)


def test_a_flip_in_a_segment() -> None:
    """A reader gets a storage error, `verify` says where."""
    _, store, stored = handed_off()
    for info in store.list(""):
        assert info.size <= 16 * 1024
        for position, bit in bits(range(0, info.size, STEP)):
            stored.bucket = flipped(store, info.name, position, bit)
            assert not Archive(stored.bucket).verify().is_sound
            harness = stored.open()
            try:
                assert not is_prefix(harness, stored)
            except StorageError:
                assert any(isinstance(error, Damaged) for error in harness.errors)


def test_a_flip_in_a_manifest() -> None:
    """The broker reads by its own copy and does not move a damaged one; `verify` says where."""
    _, store, stored = handed_off()
    for index, name in enumerate(store.registers("manifests/")):
        value, _ = store.read(name)
        for position, bit in bits(range(0, len(value), STEP)):
            stored.bucket = flipped(store, name, position, bit)
            assert not Archive(stored.bucket).verify().is_sound
            harness = stored.open()
            assert not is_prefix(harness, stored)
            for other in (0, 1):
                harness.append(b"more", index=other)
            harness.run()
            for _ in range(3):
                harness.tick(61)
            assert any(isinstance(error, LogError) for error in harness.errors)
            assert harness.partition(index).tiered_end == len(stored.values[index])
            assert harness.values(0, index) == [*stored.values[index], b"more"]


# -- going on past damage --------------------------------------------------------------


def goes_on(stored: Stored, path: str, position: int, bit: int) -> None:
    """Everything but a known hole is there, no offset is given again, and it lasts."""
    harness = stored.open(path, position, bit, continue_past_damage=True)
    assert harness.opened.report.damages
    for _ in range(2):
        for index, values in stored.values.items():
            check_with_holes(harness, index, values)
        for index in stored.values:
            appended = harness.append(b"next", index=index)
            assert appended.base_offset == len(stored.values[index])
        fs = harness.fs
        assert isinstance(fs, MemoryFileSystem)
        harness.fs = fs.crash()
        harness.settings = SETTINGS  # the hole is known now: no flag is needed any more
        harness.open()


def check_with_holes(harness: Harness, index: int, values: list[bytes]) -> None:
    partition = harness.partition(index)
    partition.check()
    held = {offset for hole in partition.holes for offset in range(hole.first, hole.last + 1)}
    assert (partition.leader_epoch > 0) == bool(held)
    found: dict[int, bytes] = {}
    offset = 0
    while offset < len(values):
        chunk = harness.read(offset, 300, index)
        if not chunk.buffers:  # a hole, and nothing behind it yet
            assert set(range(offset, len(values))) <= held
            break
        found.update(harness.in_chunk(chunk, offset))
        offset = chunk.next_offset
    assert set(found) == set(range(len(values))) - held
    assert all(values[offset] == value for offset, value in found.items())
    for hole in partition.holes:
        if hole.last + 1 < partition.high_watermark:
            assert harness.read(hole.first, 1, index).first_offset == hole.last + 1


def test_going_on_past_a_flip_in_the_last_file() -> None:
    """The loss is a known hole; in the header nothing is lost."""
    harness = written()
    harness.append(b"the last one of its partition", index=1)
    harness.run()
    harness.append(b"one more")
    harness.run()
    stored = Stored(harness)
    (path,) = stored.paths(".log")[:1]
    last_start, _ = frames_of(stored, path)[-1]
    positions = [*range(0, FILE_HEADER_SIZE, STEP), *range(FRAMES_START, last_start, STEP)]
    for position, bit in bits(iter(positions)):
        goes_on(stored, path, position, bit)


def test_going_on_past_a_flip_in_a_file_in_the_middle() -> None:
    """Files behind it count, and so does what lies behind the damage in the file itself."""
    stored = sealed()
    path = stored.paths(".log")[0]
    stored.fs.unlink(stored.paths(".idx")[0])
    end = frames_of(stored, path)[-1][1]
    positions = [*range(0, FILE_HEADER_SIZE, STEP), *range(FRAMES_START, end, STEP * 9)]
    for position, bit in bits(iter(positions)):
        goes_on(stored, path, position, bit)


def read_all(harness: Harness) -> None:
    for index in (0, 1):
        harness.values(0, index)


def test_going_on_past_a_flip_that_an_index_hides() -> None:
    """Opening trusts the index of a sealed file; a reader cannot: with the flag it gets past."""
    stored = sealed()
    path = stored.paths(".log")[0]
    frames = frames_of(stored, path)
    for start, end in frames[1::4]:
        position = (start + end) // 2
        harness = stored.open(path, position, 3)  # nothing is seen yet
        with pytest.raises(StorageError):
            read_all(harness)
        goes_on(stored, path, position, 3)


def test_going_on_without_a_file() -> None:
    """All that it held is a hole."""
    stored = sealed()
    path = stored.paths(".log")[0]
    stored.fs.unlink(path)
    with pytest.raises(Damaged):
        stored.open()
    harness = stored.open(continue_past_damage=True)
    for index, values in stored.values.items():
        check_with_holes(harness, index, values)


@pytest.mark.parametrize("damaged", [[0], [1], [2], [4], [0, 1], [1, 3], [0, 2, 4]])
def test_holes_go_to_the_bucket_with_what_lies_around_them(damaged: list[int]) -> None:
    """Handed over and trimmed, every other record is there, and the archive is sound."""
    harness = written(commits=6)
    fs = harness.fs
    assert isinstance(fs, MemoryFileSystem)
    stored = Stored(harness)
    (path,) = stored.paths(".log")[:1]
    frames = frames_of(stored, path)
    file = stored.fs.open(path, write=True)
    for number in damaged:
        _, end = frames[number]
        file.pwrite([b"\xff"], end - 1)
    file.close()
    stored.bucket = MemoryStore()
    harness = stored.open(continue_past_damage=True)
    for index, values in stored.values.items():
        harness.append(b"next", index=index)
        values.append(b"next")
    harness.run()
    for _ in range(4):
        harness.tick(61)
    assert harness.errors == []
    assert harness.log.sealed == {}
    for index, values in stored.values.items():
        partition = harness.partition(index)
        assert partition.tiered_end == len(values)
        assert len(partition.holes) == len(damaged) - (damaged == [0, 1])
        check_with_holes(harness, index, values)
    report = Archive(stored.bucket).verify()
    assert report.is_sound
    assert report.records == 3 * (6 - len(damaged)) + 2
