"""Journal files: prewritten ahead of need, recycled after use, space taken here and nowhere else.

A file that is *ready* has its final name ({sequence:020d}.log), its full size on
the platter, and no header of its own yet: it is empty by the rules of `frame.py`
whatever an earlier use left in it. So an append never takes space, never makes a
name and never meets a full disk; if there is no ready file, appends are refused
before anything was given to them.

Files grow geometrically from the first small one, so that a broker that is
hardly used stays small. A trimmed file waits in the pool until it is renamed
into its next life; it is taken only when no reader has it open.
While the bucket is behind, files in use become more and more; a fresh one then takes the
page cache of one of them (`_give_back`), so that a backlog on disk is not one in memory.
Blocking work runs in the FILES lane, in order.
"""

from __future__ import annotations

import contextlib
import errno
from collections import deque
from collections.abc import Callable

from ister.wal.driver import FILES, Driver
from ister.wal.fs import File, FileSystem
from ister.wal.settings import LogSettings, MiB

_STEP = 4 * MiB  # zeros written between two syncs
_ZEROS = bytes(MiB)
_FREE_SHARE_MIN = 0.05  # with no limit set, this share of the disk stays free
_RESIDENT_FILES = 4  # in use and in memory: the two being written, what handoff reads next
_BEING_WRITTEN = 2  # of those
SUFFIX = ".log"


def file_name(sequence: int) -> str:
    return f"{sequence:020d}{SUFFIX}"


class JournalFile:
    """One file in one life. `pins` counts readers; the owner thread alone touches it."""

    __slots__ = (
        "doomed",
        "end",
        "file",
        "first_append_ms",
        "last_append_ms",
        "path",
        "pins",
        "sequence",
        "size",
    )

    def __init__(self, sequence: int, path: str, file: File, size: int) -> None:
        self.sequence = sequence
        self.path = path
        self.file = file
        self.size = size
        self.end = 0  # where the frames end; known once sealed
        self.first_append_ms = 0  # about when its first batch came; 0: before this run
        self.last_append_ms = 0  # not earlier than its last append, once sealed
        self.pins = 0
        self.doomed = False  # its name is gone; the last reader closes it

    def release(self) -> None:
        """A reader is done."""
        self.pins -= 1
        if self.doomed and self.pins == 0:
            self.file.close()


def create_file(fs: FileSystem, directory: str, sequence: int, size: int) -> JournalFile:
    """A new prewritten file, on the platter with its name. On error nothing is left behind."""
    path = f"{directory}/{file_name(sequence)}"
    file = fs.open(path, create=True)
    try:
        write_zeros(file, 0, size)
        fs.sync_dir(directory)
    except OSError:
        file.close()
        with contextlib.suppress(OSError):
            fs.unlink(path)
        raise
    return JournalFile(sequence, path, file, size)


def write_zeros(file: File, start: int, stop: int) -> None:
    """Take the space, in steps small enough that the journal's own syncs do not wait long."""
    for step in range(start, stop, _STEP):
        for position in range(step, min(step + _STEP, stop), len(_ZEROS)):
            file.pwrite([_ZEROS[: stop - position]], position)
        file.sync()


def rename_file(fs: FileSystem, directory: str, old: JournalFile, sequence: int) -> JournalFile:
    """A trimmed file's next life."""
    path = f"{directory}/{file_name(sequence)}"
    fs.rename(old.path, path)
    fs.sync_dir(directory)
    old.file.path = path
    return JournalFile(sequence, path, old.file, old.size)


class JournalFiles:
    """The ready files, the pool behind them, and the count of bytes."""

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        settings: LogSettings,
        driver: Driver,
        on_ready: Callable[[], None],
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._settings = settings
        self._driver = driver
        self._on_ready = on_ready
        self._ready: deque[JournalFile] = deque()
        self._pool: list[JournalFile] = []
        self._resident: list[JournalFile] = []  # taken, in order; the page cache has them
        self.preparing = False  # a file is on its way
        # The first file of a run is made by recovery; the next one is twice as large.
        self._size_next = min(settings.journal_first_file_bytes * 2, settings.journal_file_bytes)
        self._size_wanted = 0
        self.sequence_next = 1
        self.ready_bytes = 0
        self.bytes = 0  # of all files, ready and pooled ones too
        self.full: str | None = None  # why no file can be taken, in words

    def add_existing(self, file: JournalFile) -> None:
        """A file that recovery found and still needs."""
        self.bytes += file.size

    def add_spare(self, file: JournalFile) -> None:
        """A file that recovery found and does not need."""
        self.bytes += file.size
        self.recycle(file)

    def take(self, size_min: int) -> JournalFile | None:
        """The next ready file of at least that size; None: not now (`full` may say why)."""
        while self._ready and self._ready[0].size < size_min:
            self.recycle(self._pop_ready())
        self._size_wanted = max(self._size_wanted, size_min)
        file = self._pop_ready() if self._ready else None
        if file is not None:
            self._resident.append(file)
        self.prepare()
        return file

    def prepare(self) -> None:
        """See to it that enough files are ready. Cheap when they are."""
        grown = self._size_next >= self._settings.journal_file_bytes
        target = self._settings.journal_ready_files if grown else 1
        if self.preparing or len(self._ready) >= target:
            return
        size = max(self._grow(), self._size_wanted)
        spare = self._take_spare(size)
        if spare is None and (reason := self._no_room(size)):
            self.full = reason
            return
        self.preparing = True
        sequence = self._claim_sequence()
        if spare is not None:
            self._driver.submit(
                FILES,
                lambda: rename_file(self._fs, self._directory, spare, sequence),
                lambda file, error: self._prepared(file, error, 0),
            )
        else:
            self._give_back()
            self._driver.submit(
                FILES,
                lambda: create_file(self._fs, self._directory, sequence, size),
                lambda file, error: self._prepared(file, error, size),
            )

    def recycle(self, file: JournalFile) -> None:
        """A file that nothing needs any more: into the pool, or away."""
        with contextlib.suppress(ValueError):
            self._resident.remove(file)
        keep = len(self._pool) < self._settings.journal_pool_files
        if keep and file.size >= self._settings.journal_file_bytes:
            self._pool.append(file)
            if self.full:
                self.prepare()
            return
        self.bytes -= file.size
        file.doomed = file.pins > 0
        self._driver.submit(FILES, lambda: self._remove(file), self._removed)

    def close(self) -> None:
        for file in (*self._ready, *self._pool):
            file.file.close()

    def _prepared(self, file: JournalFile | None, error: BaseException | None, taken: int) -> None:
        self.preparing = False
        if isinstance(error, OSError):
            kind = "no space left" if error.errno == errno.ENOSPC else str(error)
            self.full = f"cannot prepare a journal file: {kind}"
            return
        if error is not None:
            raise error
        assert file is not None
        self.bytes += taken
        self.full = None
        self._size_wanted = 0
        self._ready.append(file)
        self.ready_bytes += file.size
        self._on_ready()
        self.prepare()

    def _give_back(self) -> None:
        """Room in memory for a fresh file: the page cache of the one that is read last."""
        if len(self._resident) <= _RESIDENT_FILES:
            return
        written = self._resident[:-_BEING_WRITTEN]
        file = next((file for file in reversed(written) if file.pins == 0), None)
        if file is not None:
            self._resident.remove(file)
            file.pins += 1  # not closed meanwhile
            # Advice to the system: whether it was taken is nobody's concern.
            self._driver.submit(FILES, file.file.forget, lambda *_: file.release())

    def _pop_ready(self) -> JournalFile:
        file = self._ready.popleft()
        self.ready_bytes -= file.size
        return file

    def _grow(self) -> int:
        size = self._size_next
        self._size_next = min(size * 2, self._settings.journal_file_bytes)
        return size

    def _claim_sequence(self) -> int:
        sequence = self.sequence_next
        self.sequence_next += 1
        return sequence

    def _take_spare(self, size: int) -> JournalFile | None:
        for at, file in enumerate(self._pool):
            if file.pins == 0 and file.size >= size:
                return self._pool.pop(at)
        return None

    def _no_room(self, size: int) -> str | None:
        limit = self._settings.disk_limit_bytes
        if limit and self.bytes + size > limit:
            return f"the journal has {self.bytes} bytes of ister.disk.limit.bytes={limit}"
        free, total = self._fs.free_bytes(self._directory)
        keep = self._settings.spare_bytes if limit else total * _FREE_SHARE_MIN
        if free - size < keep:  # others on this disk would meet the end first
            return f"the disk has {free} of {total} bytes free"
        return None

    def _remove(self, file: JournalFile) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._fs.unlink(file.path)
        self._fs.sync_dir(self._directory)
        if not file.doomed:
            file.file.close()

    def _removed(self, _: None, error: BaseException | None) -> None:
        if error is not None and not isinstance(error, OSError):
            raise error
        if self.full:
            self.prepare()
