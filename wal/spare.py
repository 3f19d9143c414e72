"""A little room kept aside, so that a full disk does not stop what would free it.

A file of zeros in the data directory. When a checkpoint or an index meets a full disk,
the file goes and the write is tried again: trims, and with them the space of whole
journal files, hang on those small writes. Metadata and a bucket on the same disk have
their own hands to write with, so the file goes also when the disk is seen to be nearly
full. It is taken again when the disk has room for it twice.

Blocking; FILES lane only. Losing it in a crash costs nothing, so its directory is not
synced, and a file of the right size that is found at start is taken for the spare.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable

from ister.wal.files import write_zeros
from ister.wal.fs import FileSystem

NAME = "spare"
_LOW_SHARE = 4  # below a quarter of its size the disk is as good as full


class Spare:
    """The file, there or not."""

    def __init__(self, fs: FileSystem, directory: str, size: int) -> None:
        self._fs = fs
        self._directory = directory
        self._path = f"{directory}/{NAME}"
        self._size = size
        self.held = size == 0  # nothing is wanted: nothing to take, nothing to give
        self.releases = 0

    def keep(self) -> None:
        """Now and then: give it where the disk is nearly full, have it again where it is not."""
        if not self.held:
            self.take()
        elif self._size and self._free() < self._size // _LOW_SHARE:
            self.release()

    def take(self) -> None:
        """Have it again if there is room; cheap when it is there."""
        if self.held:
            return
        if self._fs.exists(self._path):
            if self._found_size() == self._size:
                self.held = True
                return
            self._fs.unlink(self._path)  # half of one, or of another setting
        if self._free() >= 2 * self._size:
            self._make()

    def release(self) -> bool:
        """Give the room back; False if there was none."""
        if not self.held or not self._size:
            return False
        self.held = False
        self.releases += 1
        with contextlib.suppress(FileNotFoundError):
            self._fs.unlink(self._path)
        return True

    def run(self, write: Callable[[], None]) -> None:
        """Do `write`, once more with the room of the spare if the disk is full."""
        try:
            write()
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT) or not self.release():
                raise
            write()

    def _free(self) -> int:
        return self._fs.free_bytes(self._directory)[0]

    def _found_size(self) -> int:
        file = self._fs.open(self._path)
        try:
            return file.size()
        finally:
            file.close()

    def _make(self) -> None:
        file = self._fs.open(self._path, create=True)
        try:
            write_zeros(file, 0, self._size)
        except OSError:
            with contextlib.suppress(OSError):
                self._fs.unlink(self._path)
            return
        finally:
            file.close()
        self.held = True
