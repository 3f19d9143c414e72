"""Reads the shim's undo log and takes back what was not synced when the process died.

Data: of every file the changes since its last sync are undone (or, with a random
generator, a part of them survives, torn and reordered, as in `wal/memory_image.py`).
Names: operations that no sync of their directory covers are undone, newest first; with
a random generator a prefix of them survives. A rename between two directories counts
as durable when either one was synced, as on a journaling file system.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

from ister.wal.memory_image import Change, Inode, State, Survivors

HEADER = struct.Struct("<IHHQQQQQQII")  # struct record in shim.c
MAGIC = 0x4E444F55


class Unrestorable(Exception):
    """The process changed a file in a way that leaves no trace (a writable mapping)."""


class Restored(NamedTuple):
    """What was taken back."""

    files: int
    changes: int
    names: int


class Type(IntEnum):
    WRITE = 1
    TRUNCATE = 2
    SYNC = 3
    LOST = 4
    CREATE = 5
    LINK = 6
    UNLINK = 7
    RENAME = 8
    MKDIR = 9
    RMDIR = 10
    SYNC_DIR = 11
    MAPPED = 12
    SYNCING = 13


NAME_TYPES = {Type.CREATE, Type.LINK, Type.UNLINK, Type.RENAME, Type.MKDIR, Type.RMDIR}
Key = tuple[int, int]  # device and inode


class Record(NamedTuple):
    at: int  # where it stands in the log
    type: Type
    dev: int
    ino: int
    position: int
    size: int
    length: int
    old: bytes
    names: tuple[str, ...]

    @property
    def key(self) -> Key:
        return self.dev, self.ino


@dataclass(slots=True)
class Pending:
    """A change of a file that no sync covers for sure."""

    record: Record
    state: State = State.DIRTY


def restore(data: Path, undo: Path, rng: random.Random | None = None) -> Restored:
    """Put `data` back to what survived, and empty `undo` for the next life."""
    records = list(read_log(undo / "log"))
    for record in records:
        if record.type is Type.MAPPED:
            raise Unrestorable(f"{record.names[0]} was mapped writable")
    files, changes = _restore_data(records, _paths(data, undo), rng)
    names = _restore_names(records, undo, rng)
    for path in data.rglob("*-shm"):  # SQLite's shared memory: void after a power cut
        path.unlink()
    for path in undo.iterdir():
        path.unlink()
    return Restored(files, changes, names)


def read_log(path: Path) -> Iterator[Record]:
    """All whole records; the kill may have cut the last one, whose act then never began."""
    if not path.exists():
        return
    content = memoryview(path.read_bytes())
    at = 0
    while at + HEADER.size <= len(content):
        magic, kind, zeros, dev, ino, position, size, length, old_bytes, payload, _ = (
            HEADER.unpack_from(content, at)
        )
        if magic != MAGIC:
            raise ValueError(f"{path} is not an undo log at {at}")
        start = at + HEADER.size
        if start + payload > len(content):
            return
        body = bytes(content[start : start + payload])
        names: tuple[str, ...] = ()
        if kind in NAME_TYPES or kind == Type.MAPPED:
            names = tuple(os.fsdecode(name) for name in body.split(b"\0")[:3])
        old = bytes(old_bytes) if zeros else body
        yield Record(at, Type(kind), dev, ino, position, size, length, old, names)
        at = start + payload


def _paths(data: Path, undo: Path) -> dict[Key, str]:
    """One name of every file that is still there, by inode."""
    paths: dict[Key, str] = {}
    for top in (undo, data):
        for folder, _, names in os.walk(top):
            for name in names:
                stat = os.lstat(path := os.path.join(folder, name))
                paths[stat.st_dev, stat.st_ino] = path
    return paths


# -- data ----------------------------------------------------------------------


def _restore_data(
    records: list[Record], paths: dict[Key, str], rng: random.Random | None
) -> tuple[int, int]:
    files = changes = 0
    for key, pending in _pending(records).items():
        if pending and (path := paths.get(key)) is not None:
            _restore_file(path, pending, rng)
            files += 1
            changes += len(pending)
    return files, changes


def _pending(records: list[Record]) -> dict[Key, list[Pending]]:
    """Of each inode what must be undone, in the order in which it was done."""
    pending: dict[Key, list[Pending]] = {}
    for record in records:
        mine = pending.setdefault(record.key, [])
        if record.type in (Type.WRITE, Type.TRUNCATE):
            mine.append(Pending(record))
        elif record.type is Type.CREATE:
            mine.clear()  # what went before was another file with this number
        elif record.type in (Type.SYNC, Type.LOST):
            state = State.SYNCED if record.type is Type.SYNC else State.LOST
            for change in mine:
                if change.state is State.DIRTY and change.record.at < record.position:
                    change.state = state
            while mine and mine[0].state is State.SYNCED:
                del mine[0]
    return pending


def _restore_file(path: str, pending: list[Pending], rng: random.Random | None) -> None:
    with open(path, "r+b") as file:
        inode = Inode(bytearray(file.read()))
        inode.changes = _with_new_bytes(inode.data, pending)
        survivor = inode.survivor(Survivors.NOTHING if rng is None else rng)
        file.seek(0)
        file.write(survivor)
        file.truncate()


def _with_new_bytes(data: bytearray, pending: list[Pending]) -> list[Change]:
    """The log has only the old bytes; going back through it shows the new ones."""
    image = bytearray(data)
    changes = []
    for change in reversed(pending):
        record = change.record
        new = bytes(image[record.position : record.position + record.length])
        changes.append(
            Change(record.position, record.old, new, record.size, len(image), change.state)
        )
        del image[record.size :]
        image.extend(bytes(record.size - len(image)))
        image[record.position : record.position + len(record.old)] = record.old
    changes.reverse()
    return changes


# -- names ---------------------------------------------------------------------


def _restore_names(records: list[Record], undo: Path, rng: random.Random | None) -> int:
    covered: dict[Key, int] = {}
    for record in records:
        if record.type is Type.SYNC_DIR:
            covered[record.key] = max(record.position, covered.get(record.key, 0))
    open_names = [
        record
        for record in records
        if record.type in NAME_TYPES
        and not any(record.at < covered.get((record.dev, parent), 0) for parent in _parents(record))
    ]
    kept = 0 if rng is None else rng.randint(0, len(open_names))
    for record in reversed(open_names[kept:]):
        with contextlib.suppress(FileNotFoundError):  # its directory is itself gone
            _undo_name(record, undo)
    return len(open_names) - kept


def _parents(record: Record) -> tuple[int, ...]:
    if record.type is Type.RENAME:
        return record.position, record.size
    return (record.position,)


def _undo_name(record: Record, undo: Path) -> None:
    first, second, keep = record.names
    if record.type in (Type.CREATE, Type.LINK):
        if _is(first, record):
            os.unlink(first)
    elif record.type is Type.MKDIR:
        if _is(first, record):
            shutil.rmtree(first)
    elif record.type is Type.RMDIR:
        os.mkdir(first)
    elif record.type is Type.UNLINK:
        if keep:
            os.link(undo / keep, first)
    elif _is(second, record):
        os.rename(second, first)
        if keep:
            os.link(undo / keep, second)


def _is(path: str, record: Record) -> bool:
    stat = os.lstat(path)
    return (stat.st_dev, stat.st_ino) == record.key
