"""The file system, as the log sees it: a small protocol and the real thing.

Every byte that the log keeps on this machine goes through here, so that tests
can put a file system underneath that loses, tears and reorders what was not
synced (`memory_fs.py`). Paths are plain strings.

What the protocol promises (and `MemoryFileSystem` is as mean as it allows):
- `pwrite` data survives a power cut only after `sync` of that file returned;
  until then any part of it may be there, in any order.
- a name made by create, rename, link or removed by unlink survives only after
  `sync_dir` of its directory returned.
- after a failed `sync` nothing is known about the data: never retry on that file.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
from collections.abc import Sequence
from typing import Protocol

Buffer = bytes | bytearray | memoryview

IOV_MAX = 1000  # Linux takes 1024 buffers a call
_READ_UNCHECKED_MAX = 16 * 1024 * 1024  # larger reads are compared with the file's size


class File(Protocol):
    path: str

    def pwrite(self, buffers: Sequence[Buffer], position: int) -> None:
        """Write all buffers one behind the other at `position`: all of it, or an OSError."""

    def pread(self, size: int, position: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""

    def sync(self) -> None:
        """Data (and the size) are on the platter when this returns."""

    def forget(self) -> None:
        """The caller reads this file no time soon: the page cache need not keep it.

        Memory that is used again costs a fifth of fresh memory on a virtual machine."""

    def size(self) -> int: ...

    def truncate(self, size: int) -> None: ...

    def close(self) -> None: ...


class Lock(Protocol):
    def release(self) -> None: ...


class FileSystem(Protocol):
    def open(self, path: str, *, create: bool = False, write: bool = False) -> File:
        """FileNotFoundError without `create`; with it FileExistsError if there is one."""

    def exists(self, path: str) -> bool: ...

    def listdir(self, path: str) -> list[str]:
        """Sorted names."""

    def makedirs(self, path: str) -> None:
        """Make it and its parents, durably."""

    def rename(self, old: str, new: str) -> None:
        """Replaces `new` atomically."""

    def link(self, old: str, new: str) -> None:
        """FileExistsError if `new` is there."""

    def unlink(self, path: str) -> None: ...

    def sync_dir(self, path: str) -> None: ...

    def rmdir(self, path: str) -> None:
        """OSError if it is not empty."""

    def free_bytes(self, path: str) -> tuple[int, int]:
        """(free for us, in all)."""

    def lock(self, path: str) -> Lock:
        """Exclusive, for as long as this process lives; BlockingIOError if another has it."""


class OsFile:
    """A descriptor."""

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self.fd = fd

    def pwrite(self, buffers: Sequence[Buffer], position: int) -> None:
        for start in range(0, len(buffers), IOV_MAX):
            part = buffers[start : start + IOV_MAX]
            size = sum(map(len, part))
            written = os.pwritev(self.fd, part, position)
            if written < size:  # a signal or a full disk: the rest decides which
                self._write_rest(b"".join(part), written, position)
            position += size

    def _write_rest(self, data: bytes, written: int, position: int) -> None:
        view = memoryview(data)
        while written < len(data):
            count = os.pwrite(self.fd, view[written:], position + written)
            if count == 0:
                raise OSError(f"write returned 0 at {position + written} of {self.path}")
            written += count

    def pread(self, size: int, position: int) -> bytes:
        if size > _READ_UNCHECKED_MAX:  # a length that was hit: the system takes the memory first
            size = min(size, max(0, self.size() - position))
        data = os.pread(self.fd, size, position)
        if len(data) == size or not data:
            return data
        parts = [data]
        got = len(data)
        while got < size and (data := os.pread(self.fd, size - got, position + got)):
            parts.append(data)
            got += len(data)
        return b"".join(parts)

    def sync(self) -> None:
        if sys.platform == "darwin":  # fsync there does not reach the platter
            fcntl.fcntl(self.fd, fcntl.F_FULLFSYNC)
        else:
            os.fdatasync(self.fd)

    def forget(self) -> None:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def size(self) -> int:
        return os.fstat(self.fd).st_size

    def truncate(self, size: int) -> None:
        os.ftruncate(self.fd, size)

    def close(self) -> None:
        os.close(self.fd)


class _OsLock:
    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        os.close(self._fd)


class OsFileSystem:
    """The machine's own."""

    def open(self, path: str, *, create: bool = False, write: bool = False) -> OsFile:
        flags = os.O_RDWR if write or create else os.O_RDONLY
        if create:
            flags |= os.O_CREAT | os.O_EXCL
        return OsFile(path, os.open(path, flags | os.O_CLOEXEC, 0o640))

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def listdir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def makedirs(self, path: str) -> None:
        if os.path.isdir(path):
            return
        parent = os.path.dirname(os.path.abspath(path))
        self.makedirs(parent)
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o750)
        self.sync_dir(parent)

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)

    def link(self, old: str, new: str) -> None:
        os.link(old, new)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def rmdir(self, path: str) -> None:
        os.rmdir(path)

    def sync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def free_bytes(self, path: str) -> tuple[int, int]:
        stat = os.statvfs(path)
        return stat.f_bavail * stat.f_frsize, stat.f_blocks * stat.f_frsize

    def lock(self, path: str) -> _OsLock:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            os.close(fd)
            raise
        return _OsLock(fd)
