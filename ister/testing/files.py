"""A file system that misbehaves on purpose: a wrapper around the real one or the one in memory.

Operations are `write`, `sync` and `sync_dir`; a knob is bound to them and to paths by
shell patterns (see `Fault`). A write that is made to fail has written a half, as a full
disk leaves it. `die` is what kill -9 does: from then on nothing of this life reaches the
disk any more, and every call raises `Crash`; `release` closes what was left open, once
no thread uses it.
"""

from __future__ import annotations

import errno
import os
import random
import threading
from collections.abc import Callable, Sequence

from ister.wal.fs import Buffer, File, FileSystem, Lock
from ister.wal.memory_fs import Crash
from ister.wal.tier.faulty import DELAY, FAIL, Fault

WRITE, SYNC, SYNC_DIR = "write", "sync", "sync_dir"


class FileFaults:
    """The knobs that were turned; they outlive a restart of the broker."""

    def __init__(self, rng: random.Random, sleep: Callable[[float], None]) -> None:
        self._rng = rng
        self._sleep = sleep
        self._lock = threading.Lock()
        self._faults: list[Fault] = []

    def add(
        self,
        kind: str,
        operation: str,
        path: str,
        times: int | None,
        probability: float,
        amount: float = 0,
        number: int = errno.EIO,
    ) -> Fault:
        def error(where: str) -> OSError:
            return OSError(number, f"{os.strerror(number)} (made to fail)", where)

        fault = Fault(kind, operation, path, times, probability, error, amount)
        with self._lock:
            self._faults.append(fault)
        return fault

    def clear(self) -> None:
        with self._lock:
            self._faults.clear()

    def before(self, operation: str, path: str) -> OSError | None:
        """Waits if it must; the error that this call is to end with, if any."""
        delay = self._find(DELAY, operation, path)
        if delay is not None:
            self._sleep(delay.amount)
        failure = self._find(FAIL, operation, path)
        if failure is None:
            return None
        error = failure.error(path)
        assert isinstance(error, OSError)
        return error

    def _find(self, kind: str, operation: str, path: str) -> Fault | None:
        with self._lock:
            for fault in self._faults:
                if fault.kind == kind and fault.strikes(operation, path, self._rng):
                    return fault
        return None


class FaultyFile:
    def __init__(self, fs: FaultyFileSystem, inner: File) -> None:
        self.path = inner.path
        self._fs = fs
        self._inner = inner

    def pwrite(self, buffers: Sequence[Buffer], position: int) -> None:
        self._fs.check()
        error = self._fs.faults.before(WRITE, self.path)
        if error is None:
            self._inner.pwrite(buffers, position)
            return
        data = b"".join(buffers)
        self._inner.pwrite([data[: len(data) // 2]], position)
        raise error

    def pread(self, size: int, position: int) -> bytes:
        self._fs.check()
        return self._inner.pread(size, position)

    def sync(self) -> None:
        self._fs.check()
        error = self._fs.faults.before(SYNC, self.path)
        self._fs.check()  # it may have waited
        if error is not None:
            raise error
        self._inner.sync()

    def forget(self) -> None:
        self._fs.check()
        self._inner.forget()

    def size(self) -> int:
        self._fs.check()
        return self._inner.size()

    def truncate(self, size: int) -> None:
        self._fs.check()
        self._inner.truncate(size)

    def close(self) -> None:
        self._fs.closed(self._inner)


class FaultyLock:
    def __init__(self, fs: FaultyFileSystem, inner: Lock) -> None:
        self._fs = fs
        self._inner = inner

    def release(self) -> None:
        self._fs.unlocked(self._inner)


class FaultyFileSystem:
    """A `FileSystem` for one life of a broker."""

    def __init__(self, inner: FileSystem, faults: FileFaults) -> None:
        self.inner = inner
        self.faults = faults
        self._dead = False
        self._mutex = threading.Lock()
        self._open: dict[int, File] = {}
        self._locks: dict[int, Lock] = {}

    def die(self) -> None:
        self._dead = True

    def release(self) -> None:
        """After `die`, when no thread is inside any more."""
        with self._mutex:
            files, self._open = list(self._open.values()), {}
            locks, self._locks = list(self._locks.values()), {}
        for file in files:
            file.close()
        for lock in locks:
            lock.release()

    def check(self) -> None:
        if self._dead:
            raise Crash("the broker was killed")

    # -- the protocol ----------------------------------------------------------

    def open(self, path: str, *, create: bool = False, write: bool = False) -> FaultyFile:
        self.check()
        file = self.inner.open(path, create=create, write=write)
        with self._mutex:
            self._open[id(file)] = file
        return FaultyFile(self, file)

    def exists(self, path: str) -> bool:
        self.check()
        return self.inner.exists(path)

    def listdir(self, path: str) -> list[str]:
        self.check()
        return self.inner.listdir(path)

    def makedirs(self, path: str) -> None:
        self.check()
        self.inner.makedirs(path)

    def rename(self, old: str, new: str) -> None:
        self.check()
        self.inner.rename(old, new)

    def link(self, old: str, new: str) -> None:
        self.check()
        self.inner.link(old, new)

    def unlink(self, path: str) -> None:
        self.check()
        self.inner.unlink(path)

    def sync_dir(self, path: str) -> None:
        self.check()
        error = self.faults.before(SYNC_DIR, path)
        self.check()
        if error is not None:
            raise error
        self.inner.sync_dir(path)

    def rmdir(self, path: str) -> None:
        self.check()
        self.inner.rmdir(path)

    def free_bytes(self, path: str) -> tuple[int, int]:
        self.check()
        return self.inner.free_bytes(path)

    def lock(self, path: str) -> FaultyLock:
        self.check()
        lock = self.inner.lock(path)
        with self._mutex:
            self._locks[id(lock)] = lock
        return FaultyLock(self, lock)

    # -- what handles tell -----------------------------------------------------

    def closed(self, file: File) -> None:
        """Once only: a descriptor that was closed twice may be somebody else's by then."""
        with self._mutex:
            mine = self._open.pop(id(file), None)
        if mine is not None:
            mine.close()

    def unlocked(self, lock: Lock) -> None:
        with self._mutex:
            mine = self._locks.pop(id(lock), None)
        if mine is not None:
            mine.release()
