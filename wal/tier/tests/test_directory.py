"""The bucket in a directory: power cuts, dead processes, damage, other writers."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ister.wal.errors import Damaged
from ister.wal.fs import OsFileSystem
from ister.wal.memory_fs import Crash, MemoryFileSystem, Survivors, cut_at
from ister.wal.tier import register_file
from ister.wal.tier.directory import DirectoryStore
from ister.wal.tier.object_store import AlreadyThere, Conflict, Missing, StoreUnavailable

ROOT = "/data/bucket"
TMP = "/".join([ROOT, "tmp"])
REGISTER = "manifests/t/0"
FOLDER = f"{ROOT}/registers/{REGISTER}@"
BIG = [b"big" * 1000, b"end"]


class Killed(BaseException):
    """kill -9: the process is gone, what it did to the page cache is not."""


def kill_at(point: int) -> Callable[[str], None]:
    seen = 0

    def hook(_operation: str) -> None:
        nonlocal seen
        seen += 1
        if seen >= point:
            raise Killed

    return hook


def open_store(fs: MemoryFileSystem, seed: int = 1) -> DirectoryStore:
    return DirectoryStore(fs, ROOT, random.Random(seed))


@dataclass
class Acked:
    """What the store has answered so far, and the call that it has not answered yet."""

    objects: dict[str, bytes] = field(default_factory=dict)
    value: bytes | None = None
    version: int = 0  # the highest ever answered
    pending: str = ""
    pending_value: bytes | None = None


def run_script(store: DirectoryStore, acked: Acked) -> None:
    """Every kind of write, in new folders and in old ones."""
    _put(store, acked, "segments/t/0/a", [b"alpha"])
    _swap(store, acked, b"one", 0)
    _put(store, acked, "segments/t/0/b", BIG)
    _swap(store, acked, b"two", acked.version)
    _swap(store, acked, b"three", acked.version)
    acked.pending = "segments/t/0/a"
    store.delete("segments/t/0/a")
    del acked.objects["segments/t/0/a"]
    acked.pending, acked.pending_value = REGISTER, None
    store.remove(REGISTER)
    acked.value = None
    _swap(store, acked, b"four", 0)
    acked.pending = ""


def _put(store: DirectoryStore, acked: Acked, name: str, chunks: list[bytes]) -> None:
    acked.pending = name
    store.put(name, chunks)
    acked.objects[name] = b"".join(chunks)


def _swap(store: DirectoryStore, acked: Acked, value: bytes, expected: int) -> None:
    acked.pending, acked.pending_value = REGISTER, value
    version = store.swap(REGISTER, value, expected)
    assert version > acked.version
    acked.value, acked.version = value, version


CONTENT = {"segments/t/0/a": b"alpha", "segments/t/0/b": b"".join(BIG)}


def read_register(store: DirectoryStore) -> tuple[bytes | None, int]:
    try:
        return store.read(REGISTER)
    except Missing:
        return None, 0


def check(store: DirectoryStore, acked: Acked) -> None:
    """All that was answered holds; the call that was not is done or not done."""
    found = {info.name: store.get(info.name) for info in store.list("")}
    for name in {*found, *acked.objects} - {acked.pending}:
        assert found.get(name) == acked.objects.get(name)
    if acked.pending in found:
        assert found[acked.pending] == CONTENT[acked.pending]
    value, version = read_register(store)
    allowed = {acked.value} | ({acked.pending_value} if acked.pending == REGISTER else set())
    assert value in allowed
    assert value is None or version >= acked.version
    assert list(store.registers("")) == ([] if value is None else [REGISTER])
    new = store.swap(REGISTER, b"after", version)
    assert new > max(acked.version, version)
    store.put("segments/t/0/new", [b"new"])
    assert store.get("segments/t/0/new") == b"new"


def all_points() -> int:
    fs = MemoryFileSystem()
    run_script(open_store(fs), Acked())
    return fs.points


def cut_runs(make: Callable[[], MemoryFileSystem]) -> Iterator[tuple[MemoryFileSystem, Acked]]:
    """The script, cut at every one of its points."""
    for point in range(1, all_points() + 1):
        fs, acked = make(), Acked()
        fs.on_operation = cut_at(point)
        with pytest.raises(Crash):
            run_script(open_store(fs), acked)
        yield fs, acked


def check_power_cuts(make: Callable[[], MemoryFileSystem]) -> None:
    for number, (fs, acked) in enumerate(cut_runs(make)):
        for survival in (*Survivors, random.Random(number), random.Random(-number - 1)):
            check(open_store(fs.crash(survival), seed=2), acked)


# -- power cuts ----------------------------------------------------------------


def test_power_cut_at_every_point() -> None:
    """When a call returned, power loss does not take it back; a half one is whole or nothing."""
    check_power_cuts(MemoryFileSystem)


class NoDirectorySync(MemoryFileSystem):
    def sync_dir(self, path: str) -> None:
        self._point("sync_dir", path)


class NoSyncOfFolder(MemoryFileSystem):
    """Syncs of the folders that hold leaves work; of those above them they do not."""

    def sync_dir(self, path: str) -> None:
        if path.endswith(("/0", "/0@")):
            super().sync_dir(path)
        else:
            self._point("sync_dir", path)


@pytest.mark.parametrize("weak", [NoDirectorySync, NoSyncOfFolder])
def test_missing_directory_sync_is_caught(weak: type[MemoryFileSystem]) -> None:
    """A test of the test: without directory syncs something that was answered is gone."""
    with pytest.raises((AssertionError, Missing)):
        check_power_cuts(weak)


def test_power_cut_after_a_dead_process() -> None:
    """What a process that died left unsynced is durable once another one has built on it."""
    for point in range(1, all_points() + 1):
        fs, acked = MemoryFileSystem(), Acked()
        fs.on_operation = kill_at(point)
        with pytest.raises(Killed):
            run_script(open_store(fs), acked)
        fs.on_operation = None
        heir = open_store(fs, seed=2)
        seen = read_register(heir)
        taken = []
        for name in CONTENT:
            try:
                heir.put(name, [CONTENT[name]])
            except AlreadyThere:
                taken.append(name)
        after = open_store(fs.crash(Survivors.NOTHING), seed=3)
        if seen[0] is not None:
            assert read_register(after) == seen
        assert {name: after.get(name) for name in CONTENT} == CONTENT, taken


def test_leftovers_are_swept() -> None:
    """Files that a dead process was writing go before the first write, and not by reading."""
    fs = MemoryFileSystem()
    fs.makedirs(TMP)
    fs.open(f"{TMP}/left-over", create=True).close()
    store = open_store(fs)
    assert list(store.list("")) == []
    assert read_register(store) == (None, 0)
    assert fs.listdir(TMP) == ["left-over"]
    store.put("a", [b"x"])
    assert fs.listdir(TMP) == []


def test_reading_writes_nothing(tmp_path: Path) -> None:
    """Opening and reading a bucket that is not there leaves no trace."""
    store = DirectoryStore(OsFileSystem(), str(tmp_path / "bucket"))
    assert list(store.list("")) == []
    assert list(store.registers("")) == []
    store.delete("a")
    store.remove("r")
    with pytest.raises(Missing):
        store.get("a")
    assert list(tmp_path.iterdir()) == []


# -- registers -----------------------------------------------------------------


def test_last_two_versions_stay() -> None:
    """Older numbers go, the last two stay."""
    fs = MemoryFileSystem()
    store = open_store(fs)
    version = 0
    for _ in range(6):
        version = store.swap(REGISTER, b"x", version)
    assert fs.listdir(FOLDER) == [register_file.file_name(5), register_file.file_name(6)]
    store.remove(REGISTER)
    assert fs.listdir(FOLDER) == [register_file.file_name(7)]


def test_sleeping_writer_is_not_told_that_it_won() -> None:
    """A writer that slept while its number was used and removed again hears "unknown"."""
    fs = MemoryFileSystem()
    other = open_store(fs, seed=1)
    version = other.swap(REGISTER, b"one", 0)
    others_moved = False

    def others_move(operation: str) -> None:
        nonlocal others_moved
        if operation == "link" and not others_moved:
            others_moved = True
            current = version
            for _ in range(4):
                current = other.swap(REGISTER, b"others", current)

    sleeper = open_store(fs, seed=2)
    fs.on_operation = others_move
    with pytest.raises(StoreUnavailable, match="read it again"):
        sleeper.swap(REGISTER, b"sleeper", version)
    assert sleeper.read(REGISTER) == (b"others", version + 4)
    assert other.swap(REGISTER, b"next", version + 4) == version + 5


def test_conflict_between_two_stores() -> None:
    """Two processes that link the same number: one wins."""
    fs = MemoryFileSystem()
    first, second = open_store(fs, 1), open_store(fs, 2)
    version = first.swap(REGISTER, b"one", 0)

    def race(operation: str) -> None:
        if operation == "link":
            fs.on_operation = None
            first.swap(REGISTER, b"first", version)

    second.put("warm-up", [b"x"])  # so that its sweep does not meet the other's files
    fs.on_operation = race
    with pytest.raises(Conflict):
        second.swap(REGISTER, b"second", version)
    assert second.read(REGISTER)[0] == b"first"


def test_damaged_register_is_reported(tmp_path: Path) -> None:
    """A byte flipped anywhere in the current version is Damaged, never the version before."""
    store = DirectoryStore(OsFileSystem(), str(tmp_path))
    store.swap("owner", b"one", 0)
    store.swap("owner", b"two", 1)
    path = tmp_path / "registers" / "owner@" / register_file.file_name(2)
    data = path.read_bytes()
    for position in range(len(data)):
        path.write_bytes(data[:position] + bytes([data[position] ^ 0x41]) + data[position + 1 :])
        with pytest.raises(Damaged, match=register_file.file_name(2)):
            store.read("owner")
    for size in range(len(data)):
        path.write_bytes(data[:size])
        with pytest.raises(Damaged):
            store.read("owner")
    path.write_bytes(data)
    assert store.read("owner") == (b"two", 2)


def test_version_under_another_name_is_damage() -> None:
    """A version copied to another number is not taken for it."""
    data = register_file.encode(b"x", 3)
    assert register_file.decode(data, 3, "path") == b"x"
    with pytest.raises(Damaged):
        register_file.decode(data, 4, "path")


# -- a disk that fails ---------------------------------------------------------


def test_full_disk_is_unavailable_and_leaves_nothing() -> None:
    """No room: StoreUnavailable, nothing to see, nothing left aside; it goes on when there is."""
    fs = MemoryFileSystem(capacity_bytes=1000)
    store = open_store(fs)
    with pytest.raises(StoreUnavailable):
        store.put("a", [b"x" * 600, b"y" * 600])
    assert fs.listdir(TMP) == []
    assert list(store.list("")) == []
    fs.capacity_bytes = 10_000
    store.put("a", [b"x" * 600, b"y" * 600])
    assert store.get("a") == b"x" * 600 + b"y" * 600


def test_failed_sync_publishes_nothing() -> None:
    """An object whose sync failed never gets its name."""
    fs = MemoryFileSystem()
    store = open_store(fs)
    fs.fail_next_sync(errno.EIO, TMP)
    with pytest.raises(StoreUnavailable):
        store.put("a", [b"x"])
    with pytest.raises(Missing):
        store.get("a")
    store.put("a", [b"x"])
    assert open_store(fs.crash()).get("a") == b"x"


def test_a_large_object_does_not_pile_up_unsynced() -> None:
    """It goes to the platter in steps, and its memory with it; its name comes when all is there."""
    fs = MemoryFileSystem()
    store = open_store(fs)
    seen: list[str] = []
    fs.on_operation = seen.append
    store.put("segments/t/0/a", (bytes([n]) * (1 << 20) for n in range(20)))
    fs.on_operation = None
    between = [operation for operation in seen[: seen.index("link")] if "half" not in operation]
    writes = "".join("w" if operation == "pwrite" else "s" for operation in between[-23:])
    assert writes == "w" * 8 + "s" + "w" * 8 + "s" + "w" * 4 + "s"
    assert store.get("segments/t/0/a", 19 << 20) == b"\x13" * (1 << 20)


def test_swept_away_by_another_process() -> None:
    """A put whose file another process swept is StoreUnavailable, and works when tried again."""
    fs = MemoryFileSystem()
    store = open_store(fs, seed=1)

    def chunks() -> Iterator[bytes]:
        yield b"half"
        open_store(fs, seed=2).put("other", [b"x"])
        yield b"half"

    with pytest.raises(StoreUnavailable):
        store.put("a", chunks())
    store.put("a", [b"half", b"half"])
    assert store.get("a") == b"halfhalf"


def test_foreign_files_do_not_disturb(tmp_path: Path) -> None:
    """Files that are not ours are not listed."""
    store = DirectoryStore(OsFileSystem(), str(tmp_path))
    store.put("s/a", [b"x"])
    store.swap("r", b"x", 0)
    (tmp_path / "objects" / "s" / "README").write_text("hello")
    (tmp_path / "registers" / "r@" / "notes.txt").write_text("hello")
    assert [info.name for info in store.list("")] == ["s/a"]
    assert store.read("r") == (b"x", 1)
