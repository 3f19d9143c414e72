"""A bucket in a directory: the embedded default.

    objects/segments/ab12/0000000000/00-99-1-1@       an object, a file
    registers/manifests/ab12/0000000000@/00000000000000000007     a register, a folder
    tmp/3f9c...                                        being written

A leaf carries a trailing `@`, which no name may contain: `a` and `a/b` live side
by side, and a walk tells a leaf from a folder without asking the file system.

*An object* is written aside, synced, linked to its name (link(2) fails if it is
taken), its folder synced, and every folder above it whose own name this store
has not yet seen synced. So a name is there whole or not at all.

*A register* is a folder of numbered files (`register_file.py` has their layout);
the highest number counts and is the version. Compare-and-set is link(2) of the
next number. Older files are removed afterwards, but the last two stay. Removing a
register writes the next number as "removed", so that no version is ever reused.
- A number that was removed could be linked again by a writer that slept for two
  moves of the others. So after its link a writer looks again: a higher number
  means that it does not know whether it won, which is `StoreUnavailable`, and the
  caller reads and compares, as after any lost reply.
- What a dead process linked but did not sync may vanish with the power. So what
  is read (a register) or found in the way (an object) is synced before anyone
  builds on it, once.
- A highest file that does not hold is `Damaged`, never a step back to the one
  before: what the newer one promised may already be trimmed elsewhere.

Nothing is written before the first write of this store; then left-over files in
`tmp` go. Another process that was writing there gets `StoreUnavailable` and tries
again; temporary names are random, so that none meets the bytes of another.

Not done here: folders that became empty stay; `created_ms` is not known (0).
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import os
import random
import threading
from collections.abc import Iterable, Iterator
from urllib.parse import quote

from ister.wal.fs import File, FileSystem
from ister.wal.tier import register_file
from ister.wal.tier.names import check_name, check_prefix
from ister.wal.tier.object_store import (
    AlreadyThere,
    Conflict,
    Missing,
    ObjectInfo,
    StoreUnavailable,
)

LEAF = "@"
NOT_OURS = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EINVAL)  # a folder made by others
_STEP_BYTES = 8 * 1024 * 1024  # of an object between two syncs: the memory that writing it takes
READ_TRIES_MAX = 100  # a register that moves faster than it is read; each try lost to a whole move


class DirectoryStore:
    """An `ObjectStore` under `root`; `rng` names temporary files and need not be passed."""

    def __init__(self, fs: FileSystem, root: str, rng: random.Random | None = None) -> None:
        self.url = "file://" + quote(root)
        self._fs = fs
        self._objects = os.path.join(root, "objects")
        self._registers = os.path.join(root, "registers")
        self._tmp = os.path.join(root, "tmp")
        self._rng = rng or random.SystemRandom()
        self._prepare_lock = threading.Lock()  # first write, and folders being made
        self._prepared = False
        self._safe_folders: set[str] = set()  # folders whose own name is synced
        self._register_lock = threading.Lock()  # threads of this process; link(2) for the others
        self._safe_versions: dict[str, int] = {}  # highest number seen synced, by folder

    # -- objects ---------------------------------------------------------------

    def put(self, name: str, chunks: Iterable[bytes | memoryview]) -> None:
        check_name(name)
        path = self._object_path(name)
        with _reaching(self.url):
            folder = os.path.dirname(path)
            self._make_folder(folder)
            if self._fs.exists(path):  # spares a whole upload; the link decides
                self._fs.sync_dir(folder)
                raise AlreadyThere(name)
        temporary = self._write_aside(chunks)
        with _reaching(self.url):
            if not self._publish(temporary, path):
                raise AlreadyThere(name)

    def get(self, name: str, start: int = 0, size: int | None = None) -> bytes:
        check_name(name)
        with _reaching(self.url), self._opened(name) as file:
            there = max(0, file.size() - start)  # memory is taken for what is there, not asked for
            wanted = there if size is None else min(size, there)
            return file.pread(wanted, start) if wanted else b""

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        check_prefix(prefix)
        for name in self._walk(self._objects, "", prefix):
            try:
                with _reaching(self.url), self._opened(name) as file:
                    size = file.size()
            except Missing:  # deleted since its folder was listed
                continue
            yield ObjectInfo(name, size, 0)

    def delete(self, name: str) -> None:
        check_name(name)
        path = self._object_path(name)
        with _reaching(self.url):
            with contextlib.suppress(FileNotFoundError):
                self._fs.unlink(path)
            with contextlib.suppress(FileNotFoundError):  # also for what a dead process unlinked
                self._fs.sync_dir(os.path.dirname(path))

    # -- registers -------------------------------------------------------------

    def read(self, name: str) -> tuple[bytes, int]:
        check_name(name)
        folder = self._register_path(name)
        with self._register_lock, _reaching(self.url):
            value, version = self._current(folder)
            if value is None:
                raise Missing(name)
            if self._safe_versions.get(folder, 0) < version:
                self._make_folder(folder)
                self._fs.sync_dir(folder)
                self._safe_versions[folder] = version
            return value, version

    def swap(self, name: str, value: bytes, expected: int) -> int:
        check_name(name)
        folder = self._register_path(name)
        with self._register_lock, _reaching(self.url):
            self._make_folder(folder)
            present, version = self._current(folder)
            if expected != (0 if present is None else version):
                shown = "absent" if present is None else f"at version {version}"
                raise Conflict(f"{name} is {shown}, not at {expected}")
            self._move(name, folder, value, version + 1)
            return version + 1

    def registers(self, prefix: str) -> Iterator[str]:
        check_prefix(prefix)
        for name in self._walk(self._registers, "", prefix):
            with self._register_lock, _reaching(self.url):
                value, _version = self._current(self._register_path(name))
            if value is not None:
                yield name

    def remove(self, name: str) -> None:
        check_name(name)
        folder = self._register_path(name)
        with self._register_lock, _reaching(self.url):
            for _ in range(READ_TRIES_MAX):
                value, version = self._current(folder)
                if value is None:
                    with contextlib.suppress(FileNotFoundError):
                        self._fs.sync_dir(folder)
                    return
                self._make_folder(folder)
                with contextlib.suppress(Conflict):
                    self._move(name, folder, None, version + 1)
                    return
        raise StoreUnavailable(f"{name} in {self.url} moves faster than it can be removed")

    def close(self) -> None:
        """Nothing is held open."""

    def _move(self, name: str, folder: str, value: bytes | None, version: int) -> None:
        """Make `version` the current one; Conflict if another writer made it."""
        temporary = self._write_aside([register_file.encode(value, version)])
        if not self._publish(temporary, os.path.join(folder, register_file.file_name(version))):
            raise Conflict(f"{name} has moved to version {version}")
        versions = self._versions(folder)
        if not versions or versions[-1] > version:
            raise StoreUnavailable(f"{name} in {self.url} moved on during a swap: read it again")
        self._safe_versions[folder] = version
        keep_from = version - 1 if value is not None else version
        for old in versions:
            if old < keep_from:
                self._drop(os.path.join(folder, register_file.file_name(old)))

    def _current(self, folder: str) -> tuple[bytes | None, int]:
        """Value (None: absent) and highest number (0: none yet). Damaged if that file is."""
        for _ in range(READ_TRIES_MAX):
            # An empty list may be a listing that others outran: it is believed the second time.
            versions = self._versions(folder) or self._versions(folder)
            if not versions:
                return None, 0
            path = os.path.join(folder, register_file.file_name(versions[-1]))
            try:
                file = self._fs.open(path)
            except FileNotFoundError:  # two moves of another process since it was listed
                continue
            try:
                data = file.pread(file.size(), 0)
            finally:
                file.close()
            return register_file.decode(data, versions[-1], path), versions[-1]
        raise StoreUnavailable(f"{folder} moves faster than it can be read")

    def _versions(self, folder: str) -> builtins.list[int]:
        try:
            names = self._fs.listdir(folder)
        except FileNotFoundError:
            return []
        return sorted(filter(None, map(register_file.version_of, names)))

    # -- files and folders -----------------------------------------------------

    def _object_path(self, name: str) -> str:
        return os.path.join(self._objects, name + LEAF)

    def _register_path(self, name: str) -> str:
        return os.path.join(self._registers, name + LEAF)

    @contextlib.contextmanager
    def _opened(self, name: str) -> Iterator[File]:
        try:
            file = self._fs.open(self._object_path(name))
        except FileNotFoundError:
            raise Missing(name) from None
        try:
            yield file
        finally:
            file.close()

    def _write_aside(self, chunks: Iterable[bytes | memoryview]) -> str:
        """A synced file in `tmp`. What the chunks raise goes to the caller as it is."""
        with _reaching(self.url):
            self._prepare()
            file = self._create_temporary()
        try:
            position = synced = 0
            try:
                for chunk in chunks:
                    with _reaching(self.url):
                        file.pwrite([chunk], position)
                        position += len(chunk)
                        if position - synced >= _STEP_BYTES:
                            file.sync()
                            file.forget()
                            synced = position
                with _reaching(self.url):
                    file.sync()
                    file.forget()
            finally:
                file.close()
        except Exception:  # a crash is none: it leaves its file, as a power cut does
            self._drop(file.path)
            raise
        return file.path

    def _publish(self, temporary: str, path: str) -> bool:
        """Give a finished file its name; False if that is taken. Either way the name is synced."""
        taken = False
        try:
            self._fs.link(temporary, path)
        except FileExistsError:
            taken = True
        except OSError:
            self._drop(temporary)
            raise
        self._drop(temporary)
        self._fs.sync_dir(os.path.dirname(path))
        return not taken

    def _create_temporary(self) -> File:
        while True:
            path = os.path.join(self._tmp, f"{self._rng.getrandbits(128):032x}")
            with contextlib.suppress(FileExistsError):
                return self._fs.open(path, create=True, write=True)

    def _prepare(self) -> None:
        """Before the first write: the folder for temporary files, without the left-overs."""
        with self._prepare_lock:
            if self._prepared:
                return
            self._fs.makedirs(self._tmp)
            for name in self._fs.listdir(self._tmp):
                self._drop(os.path.join(self._tmp, name))
            self._prepared = True

    def _make_folder(self, folder: str) -> None:
        """Folder and all above it there, and their names synced by this store at least once.

        That a folder exists says nothing: whoever made it may have died before its sync.
        """
        if folder in self._safe_folders:
            return
        with self._prepare_lock:
            self._make_folder_locked(folder)

    def _make_folder_locked(self, folder: str) -> None:
        if folder in self._safe_folders:
            return
        parent = os.path.dirname(folder)
        if folder in (self._objects, self._registers):
            self._fs.makedirs(folder)
            self._sync_above(parent)
        else:
            self._make_folder_locked(parent)
            self._fs.makedirs(folder)
        self._fs.sync_dir(parent)
        self._safe_folders.add(folder)

    def _sync_above(self, root: str) -> None:
        """The names of the root and of all above it, which a dead process may have made."""
        above = os.path.dirname(root.rstrip("/"))
        while above:
            try:
                self._fs.sync_dir(above)
            except OSError as error:
                if error.errno not in NOT_OURS:
                    raise
            if above == os.path.dirname(above):
                return
            above = os.path.dirname(above)

    def _drop(self, path: str) -> None:
        """Remove what nobody needs; what stays is harmless and goes another time."""
        with contextlib.suppress(OSError):
            self._fs.unlink(path)

    def _walk(self, folder: str, base: str, prefix: str) -> Iterator[str]:
        """Names of leaves that start with `prefix`, in order, without entering other folders."""
        with _reaching(self.url):
            try:
                entries = self._fs.listdir(folder)
            except (FileNotFoundError, NotADirectoryError):  # nothing yet; a file of somebody else
                return
        # A folder sorts as `name/`, so that `a-b` comes before `a/b`, as in a flat list.
        keys = sorted(entry[:-1] if entry.endswith(LEAF) else entry + "/" for entry in entries)
        for key in keys:
            name = base + key
            if not key.endswith("/"):
                if name.startswith(prefix):
                    yield name
            elif name.startswith(prefix) or prefix.startswith(name):
                yield from self._walk(os.path.join(folder, key[:-1]), name, prefix)


@contextlib.contextmanager
def _reaching(url: str) -> Iterator[None]:
    """Whatever the file system says becomes `StoreUnavailable`: disk full and I/O errors pass."""
    try:
        yield
    except OSError as error:
        raise StoreUnavailable(f"{url}: {error}") from error
