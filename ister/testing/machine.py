"""What a broker runs on and what outlives it: a directory, or memory that goes with the test.

A *life* is one run of the broker between start and stop or crash. Each life gets its own
wrapper of the file system, so that a crash ends that life alone. A crash on a directory is
kill -9: what was written stays. In memory it is a power cut: what was not synced is gone.
"""

from __future__ import annotations

import os
from typing import Protocol

from ister.gateway.app import BUCKET_NAME, Options
from ister.metadata.memory import MemoryStore
from ister.testing.files import FaultyFileSystem, FileFaults
from ister.wal.fs import OsFileSystem
from ister.wal.memory_fs import MemoryFileSystem
from ister.wal.memory_image import Survival, Survivors
from ister.wal.settings import LogSettings
from ister.wal.tier import open_store
from ister.wal.tier.faulty import FaultyStore
from ister.wal.tier.memory import MemoryStore as MemoryBucket
from ister.wal.tier.object_store import ObjectStore

MEMORY_DATA = "/data"


class Machine(Protocol):
    def bucket(self) -> ObjectStore:
        """The bucket of the next life."""

    def options(self, files: FileFaults, bucket: FaultyStore, log: LogSettings) -> Options:
        """The parts of the next life."""

    def check_survival(self, survival: Survival) -> None:
        """ValueError if a crash cannot be like that here."""

    def crashed(self, survival: Survival) -> None:
        """The life that `options` was made for has ended without a word."""


class MemoryMachine:
    """Keeps nothing beyond the test."""

    def __init__(self, bucket_url: str | None) -> None:
        self._fs = MemoryFileSystem()
        self._store = MemoryStore()
        self._bucket_url = bucket_url
        self._own_bucket = MemoryBucket()

    def bucket(self) -> ObjectStore:
        return open_store(self._bucket_url) if self._bucket_url else self._own_bucket

    def options(self, files: FileFaults, bucket: FaultyStore, log: LogSettings) -> Options:
        self._store = self._store.reopen()
        return Options(
            data=MEMORY_DATA,
            fs=FaultyFileSystem(self._fs, files),
            store=self._store,
            bucket=bucket,
            log=log,
        )

    def check_survival(self, survival: Survival) -> None:
        """All of them."""

    def crashed(self, survival: Survival) -> None:
        self._fs = self._fs.crash(survival)


class DirectoryMachine:
    """A real data directory, with real syncs."""

    def __init__(self, data: str, bucket_url: str | None) -> None:
        self._data = data
        self._fs = OsFileSystem()
        self._bucket_url = bucket_url or f"file://{os.path.abspath(data)}/{BUCKET_NAME}"

    def bucket(self) -> ObjectStore:
        return open_store(self._bucket_url, self._fs)

    def options(self, files: FileFaults, bucket: FaultyStore, log: LogSettings) -> Options:
        return Options(
            data=self._data, fs=FaultyFileSystem(self._fs, files), bucket=bucket, log=log
        )

    def check_survival(self, survival: Survival) -> None:
        if survival is not Survivors.NOTHING:
            raise ValueError("a torn power cut is only for a broker in memory (data=None)")

    def crashed(self, survival: Survival) -> None:
        """The kernel has it all."""


def machine_for(data: str | os.PathLike[str] | None, bucket_url: str | None) -> Machine:
    if data is None:
        return MemoryMachine(bucket_url)
    return DirectoryMachine(os.fspath(data), bucket_url)
