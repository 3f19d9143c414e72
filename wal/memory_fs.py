"""A file system in memory: for a broker that keeps nothing, and for power cuts in tests.

It holds to the letter of `fs.py` and to nothing more. `crash` gives the file system
that a power cut would leave now; the old one is not touched, so many survivors of
one moment can be looked at.

Every mutating operation calls `on_operation` with its name just before it acts:
create, pwrite, truncate, sync, rename, link, unlink, mkdir, rmdir, sync_dir; and
in the middle, when half of it is done, `pwrite-half` and `sync-half`. These are the
crash points; `points` counts them. The hook may raise `Crash`: from then on every
operation does (closing a file or a lock is silent). `cut_at(n)` is such a hook. It
runs outside the lock and may itself call `crash` or block.

Faults of the disk: `fail_next_write`, `fail_next_sync`, `fail_next_sync_dir`, and
`capacity_bytes`, which may change at any time. A write that fails has done a part.

Deliberately absent: permissions, times, symbolic links, holes (a file takes its
size), and switches that weaken a promise: tests wrap this class for that.
What survives is decided in `memory_image.py`.
"""

from __future__ import annotations

import errno
import functools
import os
import posixpath
import threading
from collections.abc import Callable, Sequence

from ister.wal.fs import Buffer
from ister.wal.memory_image import Directory, Inode, Node, Survival, Survivors, survivor

__all__ = ["Crash", "MemoryFile", "MemoryFileSystem", "Survivors", "cut_at"]

UNLIMITED_BYTES = 1 << 40  # what free_bytes says when there is no capacity


class Crash(BaseException):
    """The power is gone. No Exception, so that nothing on the way handles it."""


def cut_at(point: int) -> Callable[[str], None]:
    """A hook that crashes at the `point`-th crash point, counted from 1."""
    seen = 0

    def hook(operation: str) -> None:
        nonlocal seen
        seen += 1
        if seen >= point:
            raise Crash(f"cut at point {point}: {operation}")

    return hook


class MemoryFile:
    """A handle: keeps working when its name is renamed or unlinked."""

    def __init__(self, fs: MemoryFileSystem, path: str, inode: Inode, write: bool) -> None:
        self.path = path
        self._fs = fs
        self._inode = inode
        self._write = write
        self._open = True

    def pwrite(self, buffers: Sequence[Buffer], position: int) -> None:
        self._check(position, write=True)
        first = buffers[0] if len(buffers) == 1 else None
        data = first if isinstance(first, bytes) else b"".join(buffers)
        self._fs._pwrite(self.path, self._inode, data, position)

    def pread(self, size: int, position: int) -> bytes:
        self._check(position)
        with self._fs._mutex:
            return bytes(memoryview(self._inode.data)[position : position + size])

    def sync(self) -> None:
        self._check()
        self._fs._sync(self.path, self._inode)

    def forget(self) -> None:
        self._check()

    def size(self) -> int:
        self._check()
        return len(self._inode.data)

    def truncate(self, size: int) -> None:
        self._check(size, write=True)
        self._fs._truncate(self.path, self._inode, size)

    def close(self) -> None:
        if not self._open:
            raise _error(errno.EBADF, self.path)
        self._open = False
        self._fs._close(self._inode)

    def _check(self, position: int = 0, write: bool = False) -> None:
        self._fs._check()
        if not self._open or (write and not self._write):
            raise _error(errno.EBADF, self.path)
        if position < 0:
            raise _error(errno.EINVAL, self.path)


class _MemoryLock:
    def __init__(self, fs: MemoryFileSystem, inode: Inode) -> None:
        self._fs = fs
        self._inode = inode

    def release(self) -> None:
        self._fs._unlock(self._inode)


class _Faults:
    """Errors that wait for their operation."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, str]] = []

    def add(self, error: int, path_part: str) -> None:
        self._waiting.append((error, path_part))

    def take(self, path: str) -> OSError | None:
        for index, (error, path_part) in enumerate(self._waiting):
            if path_part in path:
                del self._waiting[index]
                return _error(error, path)
        return None


class MemoryFileSystem:
    """Starts with an empty root directory; a relative path is one below the root."""

    def __init__(
        self,
        *,
        capacity_bytes: int | None = None,
        on_operation: Callable[[str], None] | None = None,
    ) -> None:
        self.capacity_bytes = capacity_bytes
        self.on_operation = on_operation
        self.points = 0
        self.last_point = ""  # operation and path, for messages of tests
        self._root = Directory()
        self._used_bytes = 0
        self._locked: set[Inode] = set()
        self._mutex = threading.RLock()
        self._crashed = False
        self._write_faults = _Faults()
        self._sync_faults = _Faults()
        self._sync_dir_faults = _Faults()

    # -- power and faults ------------------------------------------------------

    def crash(self, survival: Survival = Survivors.NOTHING) -> MemoryFileSystem:
        """What is there when the power is back; a `random.Random` chooses what survives."""
        after = MemoryFileSystem(capacity_bytes=self.capacity_bytes)
        with self._mutex:
            after._root = survivor(self._root, survival)
        after._used_bytes = _bytes_below(after._root, set())
        return after

    def fail_next_write(self, error: int, path_part: str = "") -> None:
        """The next pwrite of a path with `path_part` in it writes a half, then fails."""
        self._write_faults.add(error, path_part)

    def fail_next_sync(self, error: int, path_part: str = "") -> None:
        """The next such sync fails, and no later one makes the same data durable."""
        self._sync_faults.add(error, path_part)

    def fail_next_sync_dir(self, error: int, path_part: str = "") -> None:
        """The next such sync_dir fails; the names may or may not be durable."""
        self._sync_dir_faults.add(error, path_part)

    # -- the protocol ----------------------------------------------------------

    def open(self, path: str, *, create: bool = False, write: bool = False) -> MemoryFile:
        self._check()
        if create:
            self._point("create", path)
        with self._mutex:
            parent, name = self._parent(path)
            node = parent.entries.get(name) if name else parent
            if create:
                if node is not None:
                    raise _error(errno.EEXIST, path)
                node = Inode()
                parent.change((name, node))
            if node is None:
                raise _error(errno.ENOENT, path)
            if isinstance(node, Directory):
                raise _error(errno.EISDIR, path)
            node.handles += 1
            return MemoryFile(self, path, node, write or create)

    def exists(self, path: str) -> bool:
        self._check()
        try:
            with self._mutex:
                self._find(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def listdir(self, path: str) -> list[str]:
        self._check()
        with self._mutex:
            return sorted(self._directory(path).entries)

    def makedirs(self, path: str) -> None:
        self._check()
        parts = _parts(path)
        for depth in range(1, len(parts) + 1):
            self._make_one("/" + "/".join(parts[:depth]))

    def rename(self, old: str, new: str) -> None:
        self._point("rename", old)
        with self._mutex:
            source, old_name = self._parent(old)
            target, new_name = self._parent(new)
            node = source.entries.get(old_name)
            replaced = target.entries.get(new_name)
            if node is None:
                raise _error(errno.ENOENT, old)
            if not new_name:
                raise _error(errno.EBUSY, new)
            if node is replaced:
                return
            _check_rename(node, replaced, target, new)
            if source is target:
                source.change((old_name, None), (new_name, node))
            else:
                given = target.change((new_name, node))
                taken = source.change((old_name, None))
                taken.needs = (target, given)
                if isinstance(node, Directory):  # which never has two names
                    given.needs = (source, taken)
            self._forget(replaced)

    def link(self, old: str, new: str) -> None:
        self._point("link", old)
        with self._mutex:
            node = self._find(old)
            parent, name = self._parent(new)
            if isinstance(node, Directory):
                raise _error(errno.EPERM, old)
            if not name or name in parent.entries:
                raise _error(errno.EEXIST, new)
            parent.change((name, node))

    def unlink(self, path: str) -> None:
        self._point("unlink", path)
        with self._mutex:
            parent, name = self._parent(path)
            node = parent.entries.get(name) if name else parent
            if node is None:
                raise _error(errno.ENOENT, path)
            if isinstance(node, Directory):
                raise _error(errno.EISDIR, path)
            parent.change((name, None))
            self._forget(node)

    def rmdir(self, path: str) -> None:
        self._point("rmdir", path)
        with self._mutex:
            node = self._directory(path)
            parent, name = self._parent(path)
            if not name:
                raise _error(errno.EBUSY, path)
            if node.entries:
                raise _error(errno.ENOTEMPTY, path)
            parent.change((name, None))

    def sync_dir(self, path: str) -> None:
        self._point("sync_dir", path)
        with self._mutex:
            node = self._directory(path)
            if (error := self._sync_dir_faults.take(path)) is not None:
                raise error
            node.sync()

    def free_bytes(self, path: str) -> tuple[int, int]:
        self._check()
        with self._mutex:
            self._find(path)
            total = UNLIMITED_BYTES if self.capacity_bytes is None else self.capacity_bytes
            return max(0, total - self._used_bytes), total

    def lock(self, path: str) -> _MemoryLock:
        if not self.exists(path):
            self.open(path, create=True).close()
        with self._mutex:
            node = self._find(path)
            if isinstance(node, Directory):
                raise _error(errno.EISDIR, path)
            if node in self._locked:
                raise _error(errno.EAGAIN, path)
            self._locked.add(node)
            return _MemoryLock(self, node)

    # -- what handles ask for --------------------------------------------------

    def _pwrite(self, path: str, inode: Inode, data: bytes, position: int) -> None:
        self._point("pwrite", path)
        fault = self._write_faults.take(path)
        if fault is None and self.on_operation is None:
            self.points += 1  # of the half that nobody watches
            self._put(path, inode, data, position)
            return
        half = len(data) // 2
        self._put(path, inode, data[:half], position)
        if fault is not None:
            raise fault
        self._point("pwrite-half", path)
        self._put(path, inode, data[half:], position + half)

    def _put(self, path: str, inode: Inode, data: bytes, position: int) -> None:
        """Write; on a full disk as much as there is room for, and then the error."""
        if not data:
            return
        with self._mutex:
            before = len(inode.data)
            grow = position + len(data) - before
            missing = 0
            if self.capacity_bytes is not None and grow > 0:
                missing = max(0, grow - max(0, self.capacity_bytes - self._used_bytes))
                data = data[: max(0, len(data) - missing)]
            if data:
                inode.write(data, position)
                self._used_bytes += len(inode.data) - before
            if missing:
                raise _error(errno.ENOSPC, path)

    def _truncate(self, path: str, inode: Inode, size: int) -> None:
        self._point("truncate", path)
        with self._mutex:
            grow = size - len(inode.data)
            room = UNLIMITED_BYTES if self.capacity_bytes is None else self.capacity_bytes
            if grow > 0 and self._used_bytes + grow > room:
                raise _error(errno.ENOSPC, path)
            inode.truncate(size)
            self._used_bytes += grow

    def _sync(self, path: str, inode: Inode) -> None:
        self._point("sync", path)
        if (fault := self._sync_faults.take(path)) is not None:
            with self._mutex:
                inode.lose()
            raise fault
        if self.on_operation is not None:
            with self._mutex:
                inode.sync_half()
        self._point("sync-half", path)
        with self._mutex:
            inode.sync()

    def _close(self, inode: Inode) -> None:
        with self._mutex:
            inode.handles -= 1
            self._forget(inode)

    def _unlock(self, inode: Inode) -> None:
        with self._mutex:
            self._locked.discard(inode)

    # -- helpers ---------------------------------------------------------------

    def _check(self) -> None:
        if self._crashed:
            raise Crash("the power is gone")

    def _point(self, operation: str, path: str) -> None:
        if self._crashed:
            raise Crash("the power is gone")
        self.points += 1
        if self.on_operation is None:
            return
        self.last_point = f"{operation} {path}"
        try:
            self.on_operation(operation)
        except Crash:
            self._crashed = True
            raise

    def _make_one(self, path: str) -> None:
        with self._mutex:
            parent, name = self._parent(path)
            if (there := parent.entries.get(name)) is not None:
                if isinstance(there, Inode):
                    raise _error(errno.ENOTDIR, path)
                return
        self._point("mkdir", path)
        with self._mutex:
            if name not in parent.entries:
                parent.change((name, Directory()))
        self.sync_dir(posixpath.dirname(path))

    def _find(self, path: str) -> Node:
        node: Node = self._root
        for part in _parts(path):
            node = _child(node, part, path)
        return node

    def _directory(self, path: str) -> Directory:
        node = self._find(path)
        if isinstance(node, Inode):
            raise _error(errno.ENOTDIR, path)
        return node

    def _parent(self, path: str) -> tuple[Directory, str]:
        """The directory of a path and the name in it; of the root: itself and nothing."""
        parts = _parts(path)
        if not parts:
            return self._root, ""
        node: Node = self._root
        for part in parts[:-1]:
            node = _child(node, part, path)
        if isinstance(node, Inode):
            raise _error(errno.ENOTDIR, path)
        return node, parts[-1]

    def _forget(self, node: Node | None) -> None:
        """Give back the space of a file that nothing holds any more."""
        if isinstance(node, Inode) and node.links == 0 and node.handles == 0:
            self._used_bytes -= len(node.data)


@functools.lru_cache(maxsize=4096)
def _parts(path: str) -> tuple[str, ...]:
    if not path:
        raise _error(errno.ENOENT, path)
    return tuple(part for part in posixpath.normpath("/" + path).split("/") if part)


def _child(node: Node, name: str, path: str) -> Node:
    if isinstance(node, Inode):
        raise _error(errno.ENOTDIR, path)
    child = node.entries.get(name)
    if child is None:
        raise _error(errno.ENOENT, path)
    return child


def _check_rename(node: Node, replaced: Node | None, target: Directory, path: str) -> None:
    if isinstance(node, Inode):
        if isinstance(replaced, Directory):
            raise _error(errno.EISDIR, path)
        return
    if isinstance(replaced, Inode):
        raise _error(errno.ENOTDIR, path)
    if replaced is not None and replaced.entries:
        raise _error(errno.ENOTEMPTY, path)
    if _contains(node, target):
        raise _error(errno.EINVAL, path)


def _contains(tree: Directory, wanted: Directory) -> bool:
    return tree is wanted or any(
        _contains(node, wanted) for node in tree.entries.values() if isinstance(node, Directory)
    )


def _bytes_below(directory: Directory, seen: set[Inode]) -> int:
    """The bytes of all files, each one once however many names it has."""
    total = 0
    for node in directory.entries.values():
        if isinstance(node, Directory):
            total += _bytes_below(node, seen)
        elif node not in seen:
            seen.add(node)
            total += len(node.data)
    return total


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
