"""One suite over the machine's file system and the one in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from ister.wal.fs import IOV_MAX, FileSystem, OsFileSystem
from ister.wal.memory_fs import MemoryFileSystem


@pytest.fixture(params=["os", "memory"])
def fs(request: pytest.FixtureRequest) -> FileSystem:
    return OsFileSystem() if request.param == "os" else MemoryFileSystem()


@pytest.fixture
def root(fs: FileSystem, tmp_path: Path) -> str:
    path = str(tmp_path / "data")
    fs.makedirs(path)
    return path


def put(fs: FileSystem, path: str, data: bytes) -> None:
    file = fs.open(path, create=True)
    file.pwrite([data], 0)
    file.sync()
    file.close()


def get(fs: FileSystem, path: str) -> bytes:
    file = fs.open(path)
    data = file.pread(file.size(), 0)
    file.close()
    return data


def test_what_is_written_is_read(fs: FileSystem, root: str) -> None:
    """Buffers land one behind the other at the position, whatever kind they are."""
    file = fs.open(f"{root}/a", create=True)
    file.pwrite([b"one", bytearray(b"two"), memoryview(b"three")], 5)
    assert file.size() == 16
    assert file.pread(16, 0) == b"\0" * 5 + b"onetwothree"
    file.pwrite([b"XY"], 6)
    assert file.pread(4, 5) == b"oXYt"
    file.close()


def test_a_written_buffer_is_free_again(fs: FileSystem, root: str) -> None:
    """What the caller does to its buffer after pwrite changes nothing in the file."""
    file = fs.open(f"{root}/a", create=True)
    buffer = bytearray(b"before")
    file.pwrite([buffer], 0)
    buffer[:] = b"after!"
    assert file.pread(6, 0) == b"before"
    buffer.clear()  # and nothing holds on to it
    file.close()


def test_more_buffers_than_one_call_takes(fs: FileSystem, root: str) -> None:
    """pwrite takes any number of buffers, empty ones and none at all too."""
    file = fs.open(f"{root}/a", create=True)
    file.pwrite([], 0)
    assert file.size() == 0
    buffers = [bytes([index % 251]) * (index % 3) for index in range(IOV_MAX * 2 + 7)]
    file.pwrite(buffers, 3)
    assert file.pread(10_000, 3) == b"".join(buffers)
    file.close()


def test_a_read_stops_at_the_end(fs: FileSystem, root: str) -> None:
    """pread gives fewer bytes only at the end of the file."""
    put(fs, f"{root}/a", b"12345")
    file = fs.open(f"{root}/a")
    assert file.pread(100, 3) == b"45"
    assert file.pread(100, 5) == b""
    assert file.pread(100, 50) == b""
    assert file.pread(0, 0) == b""
    assert file.pread(1 << 40, 1) == b"2345"  # and takes no memory for more
    assert file.pread(1 << 40, 50) == b""
    file.close()


def test_truncate_cuts_and_fills_with_zeros(fs: FileSystem, root: str) -> None:
    """Bytes cut away do not come back when the file grows again."""
    put(fs, f"{root}/a", b"12345")
    file = fs.open(f"{root}/a", write=True)
    file.truncate(2)
    file.truncate(4)
    assert file.pread(9, 0) == b"12\0\0"
    file.close()


def test_create_is_exclusive(fs: FileSystem, root: str) -> None:
    """open with create makes a new file or fails; without it the file must be there."""
    put(fs, f"{root}/a", b"kept")
    with pytest.raises(FileExistsError):
        fs.open(f"{root}/a", create=True)
    assert get(fs, f"{root}/a") == b"kept"
    with pytest.raises(FileNotFoundError):
        fs.open(f"{root}/b")
    with pytest.raises(FileNotFoundError):
        fs.open(f"{root}/b", write=True)
    with pytest.raises(FileNotFoundError):
        fs.open(f"{root}/missing/b", create=True)
    with pytest.raises(NotADirectoryError):
        fs.open(f"{root}/a/b", create=True)


def test_a_file_opened_for_reading_takes_no_write(fs: FileSystem, root: str) -> None:
    """Without write or create a handle only reads."""
    put(fs, f"{root}/a", b"kept")
    file = fs.open(f"{root}/a")
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.pwrite([b"no"], 0)
    with pytest.raises(OSError, match=r"Invalid argument|Bad file descriptor"):
        file.truncate(0)
    file.close()
    assert get(fs, f"{root}/a") == b"kept"


def test_a_negative_position_is_refused(fs: FileSystem, root: str) -> None:
    """A position below zero is an error, never a place counted from the end."""
    put(fs, f"{root}/a", b"12345")
    file = fs.open(f"{root}/a", write=True)
    with pytest.raises(OSError, match="Invalid argument"):
        file.pread(1, -5)
    with pytest.raises(OSError, match="Invalid argument"):
        file.pwrite([b"x"], -5)
    file.close()


def test_names_are_listed_sorted(fs: FileSystem, root: str) -> None:
    """listdir gives sorted names of files and directories, of this directory only."""
    for name in ("b", "a", "c"):
        put(fs, f"{root}/{name}", b"")
    fs.makedirs(f"{root}/aa/deep")
    assert fs.listdir(root) == ["a", "aa", "b", "c"]
    assert fs.listdir(f"{root}/aa") == ["deep"]
    assert fs.exists(f"{root}/aa/deep")
    assert not fs.exists(f"{root}/aa/other")
    assert not fs.exists(f"{root}/a/below-a-file")
    with pytest.raises(FileNotFoundError):
        fs.listdir(f"{root}/missing")
    with pytest.raises(NotADirectoryError):
        fs.listdir(f"{root}/a")


def test_makedirs_may_be_repeated(fs: FileSystem, root: str) -> None:
    """makedirs of what is there does nothing."""
    fs.makedirs(f"{root}/x/y")
    put(fs, f"{root}/x/y/file", b"1")
    fs.makedirs(f"{root}/x/y")
    assert fs.listdir(f"{root}/x/y") == ["file"]


def test_rename_replaces(fs: FileSystem, root: str) -> None:
    """The new name holds the renamed file, the old name is gone, in one step."""
    put(fs, f"{root}/old", b"new content")
    put(fs, f"{root}/new", b"old content")
    fs.rename(f"{root}/old", f"{root}/new")
    assert fs.listdir(root) == ["new"]
    assert get(fs, f"{root}/new") == b"new content"
    with pytest.raises(FileNotFoundError):
        fs.rename(f"{root}/old", f"{root}/new")
    fs.rename(f"{root}/new", f"{root}/new")
    assert get(fs, f"{root}/new") == b"new content"


def test_rename_to_another_directory(fs: FileSystem, root: str) -> None:
    """A file or a directory moves with all it holds."""
    fs.makedirs(f"{root}/x/inner")
    fs.makedirs(f"{root}/y")
    put(fs, f"{root}/x/inner/a", b"1")
    fs.rename(f"{root}/x/inner/a", f"{root}/y/b")
    fs.rename(f"{root}/x", f"{root}/y/x")
    assert fs.listdir(f"{root}/y") == ["b", "x"]
    assert fs.listdir(f"{root}/y/x") == ["inner"]
    with pytest.raises(OSError, match="Invalid argument"):
        fs.rename(f"{root}/y", f"{root}/y/x/inner/z")
    with pytest.raises(IsADirectoryError):
        fs.rename(f"{root}/y/b", f"{root}/y/x")
    with pytest.raises(NotADirectoryError):
        fs.rename(f"{root}/y/x", f"{root}/y/b")


def test_link_gives_a_second_name(fs: FileSystem, root: str) -> None:
    """Both names are the same file; a name that is taken is refused."""
    put(fs, f"{root}/a", b"1")
    fs.link(f"{root}/a", f"{root}/b")
    with pytest.raises(FileExistsError):
        fs.link(f"{root}/a", f"{root}/b")
    with pytest.raises(FileNotFoundError):
        fs.link(f"{root}/missing", f"{root}/c")
    file = fs.open(f"{root}/a", write=True)
    file.pwrite([b"2"], 0)
    file.close()
    fs.unlink(f"{root}/a")
    assert get(fs, f"{root}/b") == b"2"
    assert fs.listdir(root) == ["b"]


def test_an_open_file_outlives_its_name(fs: FileSystem, root: str) -> None:
    """A handle reads and writes its file after unlink and rename."""
    file = fs.open(f"{root}/a", create=True)
    file.pwrite([b"1"], 0)
    fs.rename(f"{root}/a", f"{root}/b")
    file.pwrite([b"2"], 1)
    assert get(fs, f"{root}/b") == b"12"
    fs.unlink(f"{root}/b")
    put(fs, f"{root}/b", b"another")
    file.pwrite([b"3"], 2)
    file.sync()
    assert file.pread(9, 0) == b"123"
    file.close()
    assert get(fs, f"{root}/b") == b"another"


def test_unlink_and_rmdir(fs: FileSystem, root: str) -> None:
    """unlink takes files, rmdir empty directories."""
    fs.makedirs(f"{root}/d")
    put(fs, f"{root}/d/a", b"1")
    with pytest.raises(OSError, match="not empty"):
        fs.rmdir(f"{root}/d")
    with pytest.raises(NotADirectoryError):
        fs.rmdir(f"{root}/d/a")
    with pytest.raises((IsADirectoryError, PermissionError)):
        fs.unlink(f"{root}/d")
    fs.unlink(f"{root}/d/a")
    with pytest.raises(FileNotFoundError):
        fs.unlink(f"{root}/d/a")
    fs.rmdir(f"{root}/d")
    assert fs.listdir(root) == []


def test_sync_dir_needs_a_directory(fs: FileSystem, root: str) -> None:
    """sync_dir of a directory works; of a file or nothing it is an error."""
    put(fs, f"{root}/a", b"1")
    fs.sync_dir(root)
    with pytest.raises(NotADirectoryError):
        fs.sync_dir(f"{root}/a")
    with pytest.raises(FileNotFoundError):
        fs.sync_dir(f"{root}/missing")


def test_free_bytes(fs: FileSystem, root: str) -> None:
    """Free is at most all."""
    free, total = fs.free_bytes(root)
    assert 0 < free <= total


def test_a_lock_is_exclusive(fs: FileSystem, root: str) -> None:
    """A second lock fails at once until the first is released; the file stays."""
    lock = fs.lock(f"{root}/lock")
    with pytest.raises(BlockingIOError):
        fs.lock(f"{root}/lock")
    assert fs.listdir(root) == ["lock"]
    lock.release()
    fs.lock(f"{root}/lock").release()
    assert fs.listdir(root) == ["lock"]


def test_a_handle_is_closed_once(fs: FileSystem, root: str) -> None:
    """Closing twice is an error."""
    file = fs.open(f"{root}/a", create=True)
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.close()
