"""The log: a journal with group commit, handed to a bucket, opened again after any crash.

The names below are what others may rely on; they are imported when they are first asked
for, because a command that only needs an error or a setting must not pay for all of it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ister.wal.clock import Clock, ManualClock, SystemClock
    from ister.wal.cold import ColdReader
    from ister.wal.driver import Driver, InlineDriver, ThreadDriver
    from ister.wal.errors import LogError
    from ister.wal.fs import FileSystem, OsFileSystem
    from ister.wal.log import Appended, Log, Moment
    from ister.wal.opening import OpenLog, TopicInfo, close_log, lock_directory, open_log
    from ister.wal.partition import Partition
    from ister.wal.reader import Chunk
    from ister.wal.settings import LogSettings, TopicSettings
    from ister.wal.tier import open_store
    from ister.wal.times import TimeIndex

_PLACES = {
    "Appended": "log",
    "Chunk": "reader",
    "Clock": "clock",
    "ColdReader": "cold",
    "Driver": "driver",
    "FileSystem": "fs",
    "InlineDriver": "driver",
    "Log": "log",
    "LogError": "errors",
    "LogSettings": "settings",
    "ManualClock": "clock",
    "Moment": "log",
    "OpenLog": "opening",
    "OsFileSystem": "fs",
    "Partition": "partition",
    "SystemClock": "clock",
    "ThreadDriver": "driver",
    "TimeIndex": "times",
    "TopicInfo": "opening",
    "TopicSettings": "settings",
    "close_log": "opening",
    "lock_directory": "opening",
    "open_log": "opening",
    "open_store": "tier",
}

__all__ = [
    "Appended",
    "Chunk",
    "Clock",
    "ColdReader",
    "Driver",
    "FileSystem",
    "InlineDriver",
    "Log",
    "LogError",
    "LogSettings",
    "ManualClock",
    "Moment",
    "OpenLog",
    "OsFileSystem",
    "Partition",
    "SystemClock",
    "ThreadDriver",
    "TimeIndex",
    "TopicInfo",
    "TopicSettings",
    "close_log",
    "lock_directory",
    "open_log",
    "open_store",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
