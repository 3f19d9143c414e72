"""Checks of a data directory: whether it can be opened, and what it lies on.

Nothing in it is changed: files are read, and syncs are tried on a file of our own beside
the data, which is removed.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from statistics import median

from ister.gateway.app import METADATA_NAME
from ister.gateway.doctor.findings import Finding, fine, problem, warning
from ister.metadata.catalog import Catalog
from ister.metadata.errors import MetadataError
from ister.metadata.sqlite import FORMAT, SqliteStore
from ister.wal import checkpoint as checkpoints
from ister.wal.clock import Clock
from ister.wal.errors import LogError
from ister.wal.fs import FileSystem, OsFile, OsFileSystem
from ister.wal.opening import CHECKPOINT_DIRECTORY, LOCK_NAME

# Below this share of the disk the broker takes no new journal file (see `wal/files.py`).
FREE_SHARE_MIN = 0.05
FREE_SHARE_LOW = 0.15
SYNCS = 20
SYNC_BYTES = 4096
# No disk that keeps its promise is quicker; one with a protected cache needs about this.
SYNC_FAST_S = 20e-6
SYNC_SLOW_S = 50e-3
_IN_MEMORY = {"tmpfs", "ramfs"}
_REMOTE = {"nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "9p", "virtiofs"}
_HOUR_MS = 3_600_000


def check_data(data: str, clock: Clock, fs: FileSystem | None = None) -> Iterator[Finding]:
    """All checks of the directory; one that is not there yet is fine."""
    fs = fs or OsFileSystem()
    if not os.path.isdir(data):
        if os.path.exists(data):
            yield problem("data", f"{data} is not a directory")
        else:
            yield fine("data", f"{data} is not there yet; `ister serve` makes it")
            parent = os.path.dirname(os.path.abspath(data))
            if os.path.isdir(parent):
                yield from check_disk(parent, clock, fs)
        return
    if not os.access(data, os.R_OK | os.W_OK | os.X_OK):
        yield problem("data", f"{data} cannot be read and written by this user")
        return
    yield from _check_content(data, clock, fs)
    yield from check_disk(data, clock, fs)


def _check_content(data: str, clock: Clock, fs: FileSystem) -> Iterator[Finding]:
    if not os.path.exists(f"{data}/{LOCK_NAME}"):
        yield fine("data", f"{data} holds no broker yet")
        return
    if _is_in_use(data):
        yield fine("data", f"{data} is in use by a running broker")
    else:
        yield fine("data", f"{data} is free to be opened")
    yield from _check_metadata(f"{data}/{METADATA_NAME}", clock)
    directory = f"{data}/{CHECKPOINT_DIRECTORY}"
    if not fs.exists(directory):
        return
    try:
        found, damages = checkpoints.load(fs, directory)
    except (LogError, OSError) as error:
        yield problem("format", str(error))
        return
    for damage in damages:
        level = warning if found is not None else problem
        yield level("damage", f"{damage}")
    if found is not None and not damages:
        yield fine("format", f"the last checkpoint holds, with {len(found.partitions)} partitions")


def _is_in_use(data: str) -> bool:
    import fcntl

    with open(f"{data}/{LOCK_NAME}", "rb+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _check_metadata(path: str, clock: Clock) -> Iterator[Finding]:
    if not os.path.exists(path):
        yield warning("format", f"there is a lock, but no {path}: was it copied in part?")
        return
    try:
        store = SqliteStore(path, read_only=True)
        with contextlib.closing(store):
            catalog = Catalog.load(store)
    except (MetadataError, OSError) as error:
        yield problem("format", str(error))
        return
    yield fine("format", f"metadata of format {FORMAT}, {len(catalog.topics_by_id)} topics")
    ahead_ms = catalog.wall_time_ms - clock.wall_ms()
    if ahead_ms > _HOUR_MS:
        yield problem(
            "clock",
            f"the data was last used {ahead_ms / _HOUR_MS:.1f} hours in the future: this machine's "
            "clock was set back, and retention by time will pause until it agrees",
        )


# -- what it lies on ---------------------------------------------------------------------


def check_disk(directory: str, clock: Clock, fs: FileSystem) -> Iterator[Finding]:
    free, total = fs.free_bytes(directory)
    share = free / total if total else 0.0
    words = f"{free / 1e9:.1f} of {total / 1e9:.1f} GB are free on the disk of {directory}"
    if share < FREE_SHARE_MIN:
        yield problem("disk", f"{words}: the broker takes no new data below 5 %")
    elif share < FREE_SHARE_LOW:
        yield warning("disk", f"{words}: it takes no new data below 5 %")
    else:
        yield fine("disk", words)
    kind = file_system_of(os.path.abspath(directory))
    if kind in _IN_MEMORY:
        words = f"{directory} is in memory ({kind}): everything is gone after a restart"
        yield problem("file_system", words)
    elif kind in _REMOTE:
        words = f"{directory} is on {kind}: locks and syncs over a network are often not kept"
        yield warning("file_system", words)
    else:
        yield from check_sync(directory, clock, fs)


def check_sync(directory: str, clock: Clock, fs: FileSystem) -> Iterator[Finding]:
    """How long a sync takes; one that takes no time is not made."""
    try:
        seconds = median(_sync_seconds(directory, clock))
    except OSError as error:
        yield problem("sync", f"a file in {directory} cannot be written: {error.strerror}")
        return
    yield judge_sync(seconds)


def judge_sync(seconds: float) -> Finding:
    told = f"{seconds * 1000:.2f} ms"
    if seconds < SYNC_FAST_S:
        return warning(
            "sync",
            f"a sync takes {told}, quicker than disks are: something (the virtual machine, "
            "eatmydata, a mount option) may answer before data is safe from a power cut",
        )
    if seconds > SYNC_SLOW_S:
        return warning("sync", f"a sync takes {told}: every acks=all waits at least as long")
    return fine("sync", f"a sync takes {told}")


def _sync_seconds(directory: str, clock: Clock) -> list[float]:
    descriptor, path = tempfile.mkstemp(prefix=".ister-doctor-", dir=directory)
    file = OsFile(path, descriptor)
    try:
        taken = []
        for number in range(SYNCS):
            file.pwrite([os.urandom(SYNC_BYTES)], number * SYNC_BYTES)
            started = clock.monotonic()
            file.sync()
            taken.append(clock.monotonic() - started)
        return taken
    finally:
        file.close()
        os.unlink(path)


def file_system_of(path: str) -> str:
    """The type of the file system, from /proc; empty where there is none."""
    best, kind = "", ""
    with contextlib.suppress(OSError), open("/proc/mounts") as mounts:
        for line in mounts:
            fields = line.split()
            point = fields[1].encode().decode("unicode_escape")
            inside = path == point or path.startswith(point.rstrip("/") + "/")
            if inside and len(point) >= len(best):
                best, kind = point, fields[2]
    return kind
