"""What a power cut leaves of the file system in memory, and its faults."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ister.wal.memory_fs import Crash, MemoryFileSystem, Survivors, cut_at
from ister.wal.memory_image import Survival

SEEDS = range(60)


def make(path: str = "/d/a", data: bytes = b"") -> MemoryFileSystem:
    """A file system with one durable file."""
    fs = MemoryFileSystem()
    fs.makedirs("/d")
    file = fs.open(path, create=True)
    file.pwrite([data], 0)
    file.sync()
    file.close()
    fs.sync_dir("/d")
    return fs


def write(fs: MemoryFileSystem, path: str, data: bytes, position: int = 0) -> None:
    file = fs.open(path, write=True)
    file.pwrite([data], position)
    file.close()


def sync(fs: MemoryFileSystem, path: str) -> None:
    file = fs.open(path)
    file.sync()
    file.close()


def read(fs: MemoryFileSystem, path: str = "/d/a") -> bytes:
    file = fs.open(path)
    data = file.pread(file.size(), 0)
    file.close()
    return data


def survivors(fs: MemoryFileSystem) -> list[MemoryFileSystem]:
    """Every pure case and many mixtures."""
    chosen: list[Survival] = [Survivors.NOTHING, Survivors.EVERYTHING]
    chosen += [random.Random(seed) for seed in SEEDS]
    return [fs.crash(survival) for survival in chosen]


# -- data ----------------------------------------------------------------------


def test_synced_data_survives_and_unsynced_data_may() -> None:
    """Nothing, everything or a part of an unsynced write survives; the synced rest always."""
    fs = make(data=b"s" * 2000)
    write(fs, "/d/a", b"u" * 3000, position=1000)
    assert read(fs.crash()) == b"s" * 2000
    assert read(fs.crash(Survivors.EVERYTHING)) == b"s" * 1000 + b"u" * 3000
    seen = {read(after) for after in survivors(fs)}
    assert all(data[:1000] == b"s" * 1000 for data in seen)
    assert len(seen) > 5


def test_a_crash_leaves_the_file_system_as_it_was() -> None:
    """crash is a copy: the original goes on, and what survived is durable."""
    fs = make(data=b"1")
    write(fs, "/d/a", b"2")
    after = fs.crash(Survivors.EVERYTHING)
    write(fs, "/d/a", b"3")
    assert read(after) == b"2"
    assert read(after.crash()) == b"2"
    assert read(fs) == b"3"
    assert read(fs.crash()) == b"1"


def test_one_seed_gives_one_survivor() -> None:
    """The same seed cuts in the same way."""
    fs = make(data=b"s" * 5000)
    for position in range(0, 5000, 700):
        write(fs, "/d/a", b"u" * 900, position)
    for seed in SEEDS:
        assert read(fs.crash(random.Random(seed))) == read(fs.crash(random.Random(seed)))


def test_writes_tear_at_bytes_and_at_sectors() -> None:
    """A torn write may end inside a sector, and later sectors may be there without earlier ones."""
    fs = make(data=b"s" * 4096)
    write(fs, "/d/a", b"u" * 4096)
    seen = [read(after) for after in survivors(fs)]
    cuts = {data.count(b"u") for data in seen if data.startswith(b"u") and b"s" in data}
    assert any(cut % 512 for cut in cuts)
    assert any(data.startswith(b"s" * 512) and b"u" in data for data in seen)


def test_writes_are_reordered() -> None:
    """A later write may survive without an earlier one."""
    fs = make(data=b"\0" * 1024)
    write(fs, "/d/a", b"1" * 512, 0)
    write(fs, "/d/a", b"2" * 512, 512)
    seen = {read(after) for after in survivors(fs)}
    assert b"\0" * 512 + b"2" * 512 in seen
    assert b"1" * 512 + b"\0" * 512 in seen


def test_a_size_may_survive_without_its_data() -> None:
    """Where a file grew there may be zeros."""
    fs = make(data=b"s")
    write(fs, "/d/a", b"u" * 2000, 1)
    seen = {read(after) for after in survivors(fs)}
    assert any(len(data) == 2001 and data.endswith(b"\0") for data in seen)


def test_a_truncate_is_whole_or_undone() -> None:
    """An unsynced truncate never leaves a size between the two."""
    fs = make(data=b"s" * 2000)
    file = fs.open("/d/a", write=True)
    file.truncate(10)
    assert {read(after) for after in survivors(fs)} == {b"s" * 10, b"s" * 2000}
    file.sync()
    assert {read(after) for after in survivors(fs)} == {b"s" * 10}


Step = tuple[str, int, bytes]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("pwrite"), st.integers(0, 1500), st.binary(min_size=1, max_size=1200)),
        st.tuples(st.just("truncate"), st.integers(0, 2000), st.just(b"")),
        st.tuples(st.just("sync"), st.just(0), st.just(b"")),
    ),
    max_size=12,
)


@given(steps=STEPS, seed=st.integers(0, 1000))
def test_every_byte_that_survives_was_once_there(steps: list[Step], seed: int) -> None:
    """Byte by byte a survivor holds the synced value, one written later, or a zero of growth."""
    fs = make()
    file = fs.open("/d/a", write=True)
    image = bytearray()
    synced = b""
    allowed: list[set[int]] = [{0} for _ in range(3000)]
    sizes = {0}
    for operation, position, data in steps:
        if operation == "pwrite":
            file.pwrite([data], position)
            image.extend(bytes(max(0, position - len(image))))
            image[position : position + len(data)] = data
        elif operation == "truncate":
            file.truncate(position)
            image = image[:position] + bytes(max(0, position - len(image)))
        else:
            file.sync()
            synced = bytes(image)
            allowed = [{value} for value in image] + [{0} for _ in range(3000 - len(image))]
            sizes = {len(image)}
        assert read(fs) == image
        sizes.add(len(image))
        for index, value in enumerate(image):
            allowed[index].add(value)
    assert read(fs.crash()) == synced
    assert read(fs.crash(Survivors.EVERYTHING)) == image
    after = read(fs.crash(random.Random(seed)))
    assert min(sizes) <= len(after) <= max(sizes)
    for index, value in enumerate(after):
        assert value in allowed[index] or (value == 0 and index >= min(sizes))


# -- names ---------------------------------------------------------------------


def test_a_new_name_is_durable_with_its_directory() -> None:
    """Synced content without a synced name is lost with the name; a name may come without data."""
    fs = make()
    fs.open("/d/b", create=True).close()
    write(fs, "/d/b", b"1")
    sync(fs, "/d/b")
    assert fs.crash().listdir("/d") == ["a"]
    assert {tuple(after.listdir("/d")) for after in survivors(fs)} == {("a",), ("a", "b")}
    fs.sync_dir("/d")
    assert all(read(after, "/d/b") == b"1" for after in survivors(fs))
    write(fs, "/d/b", b"2")
    assert read(fs.crash(), "/d/b") == b"1"


def test_a_rename_shows_the_old_name_or_the_new() -> None:
    """Of a durable file renamed over another exactly one of the two states survives."""
    fs = make(data=b"old")
    fs.open("/d/b", create=True).close()
    write(fs, "/d/b", b"new")
    sync(fs, "/d/b")
    fs.sync_dir("/d")
    fs.rename("/d/b", "/d/a")
    states = {(tuple(after.listdir("/d")), read(after)) for after in survivors(fs)}
    assert states == {(("a", "b"), b"old"), (("a",), b"new")}
    fs.sync_dir("/d")
    assert {tuple(after.listdir("/d")) for after in survivors(fs)} == {("a",)}


def test_an_unlink_may_be_undone() -> None:
    """An unlinked name comes back with its data until the directory is synced."""
    fs = make(data=b"1")
    fs.unlink("/d/a")
    assert read(fs.crash()) == b"1"
    assert {fs.exists("/d/a") for fs in survivors(fs)} == {True, False}
    fs.sync_dir("/d")
    assert not any(after.exists("/d/a") for after in survivors(fs))


def test_names_of_one_directory_survive_in_order() -> None:
    """In one directory a later name never survives without the earlier ones."""
    fs = make()
    for name in "bcde":
        fs.open(f"/d/{name}", create=True).close()
    seen = {"".join(after.listdir("/d")) for after in survivors(fs)}
    assert seen == {"a", "ab", "abc", "abcd", "abcde"}


def test_directories_are_independent() -> None:
    """A name in one directory says nothing about an earlier one in another."""
    fs = make()
    fs.makedirs("/e")
    fs.open("/d/first", create=True).close()
    fs.open("/e/second", create=True).close()
    seen = {(after.exists("/d/first"), after.exists("/e/second")) for after in survivors(fs)}
    assert seen == {(False, False), (False, True), (True, False), (True, True)}


def test_a_rename_between_directories_never_loses_both_names() -> None:
    """Old, new or both, but never neither; syncing the old directory keeps the new name."""
    fs = make(data=b"1")
    fs.makedirs("/e")
    fs.rename("/d/a", "/e/a")
    seen = {(after.exists("/d/a"), after.exists("/e/a")) for after in survivors(fs)}
    assert seen == {(True, False), (False, True), (True, True)}
    fs.sync_dir("/d")
    assert {(after.exists("/d/a"), after.exists("/e/a")) for after in survivors(fs)} == {
        (False, True)
    }


def test_renames_back_and_forth_keep_the_file() -> None:
    """However often a file moves between directories, it survives somewhere."""
    fs = make(data=b"1")
    fs.makedirs("/e")
    for _ in range(3):
        fs.rename("/d/a", "/e/a")
        fs.rename("/e/a", "/d/a")
        fs.open(f"/e/{fs.points}", create=True).close()
    for after in survivors(fs):
        assert after.exists("/d/a") or after.exists("/e/a")


def test_a_directory_moves_whole() -> None:
    """A renamed directory is under one of its names, with everything durable in it."""
    fs = make()
    fs.makedirs("/d/x")
    fs.makedirs("/e")
    fs.open("/d/x/file", create=True).close()
    fs.sync_dir("/d/x")
    fs.rename("/d/x", "/e/x")
    for after in survivors(fs):
        assert after.exists("/d/x/file") != after.exists("/e/x/file")


def test_links_share_their_file_after_a_crash() -> None:
    """Two surviving names of one file are still one file."""
    fs = make(data=b"1")
    fs.link("/d/a", "/d/b")
    fs.sync_dir("/d")
    after = fs.crash()
    write(after, "/d/a", b"2")
    assert read(after, "/d/b") == b"2"
    assert after.free_bytes("/")[1] - after.free_bytes("/")[0] == 1


def test_makedirs_is_durable() -> None:
    """Directories made by makedirs survive at once."""
    fs = MemoryFileSystem()
    fs.makedirs("/x/y/z")
    assert fs.crash().exists("/x/y/z")


def test_a_removed_directory_may_come_back() -> None:
    """rmdir is durable with the parent's sync, and the unlinks in it are undone with it."""
    fs = make(data=b"1")
    fs.unlink("/d/a")
    fs.rmdir("/d")
    assert read(fs.crash()) == b"1"
    fs.sync_dir("/")
    assert not any(after.exists("/d") for after in survivors(fs))


# -- crash points --------------------------------------------------------------


def script(fs: MemoryFileSystem) -> None:
    """Every mutating operation once."""
    fs.makedirs("/d")
    file = fs.open("/d/a", create=True)
    file.pwrite([b"12345678"], 0)
    file.sync()
    file.truncate(6)
    fs.sync_dir("/d")
    fs.rename("/d/a", "/d/b")
    fs.link("/d/b", "/d/c")
    fs.unlink("/d/b")
    fs.makedirs("/d/e")
    fs.rmdir("/d/e")
    file.close()


def test_every_operation_is_a_crash_point() -> None:
    """The hook sees each operation before it acts, writes and syncs in the middle too."""
    seen: list[str] = []
    fs = MemoryFileSystem(on_operation=seen.append)
    script(fs)
    assert seen == [
        *("mkdir", "sync_dir", "create", "pwrite", "pwrite-half", "sync", "sync-half"),
        *("truncate", "sync_dir", "rename", "link", "unlink"),
        *("mkdir", "sync_dir", "rmdir"),
    ]
    assert fs.points == len(seen)
    unwatched = MemoryFileSystem()
    script(unwatched)
    assert unwatched.points == len(seen)


def test_after_the_cut_nothing_works() -> None:
    """Once the hook raised Crash every operation does; the survivor works."""
    fs = MemoryFileSystem()
    script(fs)
    for point in range(1, fs.points + 1):
        cut = MemoryFileSystem(on_operation=cut_at(point))
        with pytest.raises(Crash):
            script(cut)
        calls: list[Callable[[], object]] = [
            lambda cut=cut: cut.exists("/d"),  # type: ignore[misc]
            lambda cut=cut: cut.listdir("/"),  # type: ignore[misc]
            lambda cut=cut: cut.makedirs("/x"),  # type: ignore[misc]
            lambda cut=cut: cut.open("/y", create=True),  # type: ignore[misc]
            lambda cut=cut: cut.lock("/l"),  # type: ignore[misc]
        ]
        for call in calls:
            with pytest.raises(Crash):
                call()
        after = cut.crash(Survivors.EVERYTHING)
        after.makedirs("/works")
        assert after.exists("/works")


def test_a_write_is_cut_in_the_middle() -> None:
    """At pwrite-half the first half is in the cache; at sync-half it is on the platter."""
    states: dict[str, tuple[bytes, bytes]] = {}
    fs = make(data=b"ssss")

    def hook(operation: str) -> None:
        states[operation] = read(fs.crash()), read(fs.crash(Survivors.EVERYTHING))

    fs.on_operation = hook
    write(fs, "/d/a", b"uuuu")
    fs.on_operation = None
    assert states["pwrite"] == (b"ssss", b"ssss")
    assert states["pwrite-half"] == (b"ssss", b"uuss")
    fs = make(data=b"ssss")
    write(fs, "/d/a", b"uuuu")
    fs.on_operation = hook
    sync(fs, "/d/a")
    assert states["sync"] == (b"ssss", b"uuuu")
    assert states["sync-half"] == (b"uuss", b"uuuu")
    assert read(fs.crash()) == b"uuuu"


def test_close_and_release_are_silent_after_a_crash() -> None:
    """Cleaning up after the cut does not hide the Crash."""
    fs = make()
    file = fs.open("/d/a", write=True)
    lock = fs.lock("/d/lock")
    fs.on_operation = cut_at(1)
    with pytest.raises(Crash):
        file.sync()
    file.close()
    lock.release()


def test_a_crash_releases_locks() -> None:
    """A lock lives as long as its process."""
    fs = make()
    fs.lock("/d/lock")
    fs.sync_dir("/d")
    fs.crash().lock("/d/lock")


# -- faults --------------------------------------------------------------------


def test_a_failed_write_did_a_part() -> None:
    """The write raises once, for a matching path, with a half in the file."""
    fs = make(data=b"ssss")
    fs.fail_next_write(errno.EIO, "/other")
    write(fs, "/d/a", b"tttt")
    fs.fail_next_write(errno.EIO, "/d/a")
    with pytest.raises(OSError, match="Input/output error"):
        write(fs, "/d/a", b"uuuu")
    assert read(fs) == b"uutt"
    write(fs, "/d/a", b"vvvv")


def test_after_a_failed_sync_a_later_one_lies() -> None:
    """The lost write stays readable, is not synced again, and is gone after the cut."""
    fs = make(data=b"ssssssss")
    write(fs, "/d/a", b"uuuu")
    fs.fail_next_sync(errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        sync(fs, "/d/a")
    sync(fs, "/d/a")
    assert read(fs) == b"uuuussss"
    assert read(fs.crash()) == b"ssssssss"
    assert read(fs.crash(Survivors.EVERYTHING)) == b"ssssssss"
    write(fs, "/d/a", b"vv", 3)
    sync(fs, "/d/a")
    assert read(fs.crash()) == b"sssvvsss"
    assert all(read(after)[3:] == b"vvsss" for after in survivors(fs))


def test_a_failed_sync_dir_leaves_the_names_open() -> None:
    """After it the names may or may not survive."""
    fs = make()
    fs.open("/d/b", create=True).close()
    fs.fail_next_sync_dir(errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        fs.sync_dir("/d")
    assert {after.exists("/d/b") for after in survivors(fs)} == {True, False}


def test_a_full_disk() -> None:
    """A write that does not fit does what fits and fails; overwriting needs no room."""
    fs = make(data=b"1234")
    fs.capacity_bytes = 6
    assert fs.free_bytes("/d") == (2, 6)
    with pytest.raises(OSError, match="No space left"):
        write(fs, "/d/a", b"5678", 4)
    assert read(fs) == b"123456"
    assert fs.free_bytes("/d") == (0, 6)
    write(fs, "/d/a", b"abcdef")
    file = fs.open("/d/a", write=True)
    with pytest.raises(OSError, match="No space left"):
        file.truncate(7)
    file.truncate(1)
    assert fs.free_bytes("/d") == (5, 6)
    fs.capacity_bytes = 100
    write(fs, "/d/a", b"x" * 100)
    assert fs.crash(Survivors.EVERYTHING).free_bytes("/") == (0, 100)


def test_space_returns_when_nothing_holds_the_file() -> None:
    """An unlinked or replaced file gives back its space with its last handle."""
    fs = make(data=b"1234")
    fs.capacity_bytes = 10
    file = fs.open("/d/a")
    fs.unlink("/d/a")
    assert fs.free_bytes("/d") == (6, 10)
    file.close()
    assert fs.free_bytes("/d") == (10, 10)
    fs.open("/d/b", create=True).close()
    write(fs, "/d/b", b"12")
    fs.open("/d/c", create=True).close()
    fs.rename("/d/c", "/d/b")
    assert fs.free_bytes("/d") == (10, 10)
