"""Snapshots of the metadata in the bucket: with the manifests, all that a new broker needs.

The content is bytes (what is in them belongs to `metadata`). Each snapshot is an object of
its own; the register `snapshot` names the newest few, newest first, with time, size and
checksum. It moves like a manifest: by compare-and-set, with the owner's epoch. Objects that
it no longer names are deleted after the move. A snapshot with the same content as the last
one only renews its time.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
from crc32c import crc32c
from msgspec import Struct

from ister.wal.errors import Damaged, Fenced, StorageError
from ister.wal.handoff import Handoff
from ister.wal.tier import envelope, owner
from ister.wal.tier.object_store import Conflict, Missing, ObjectStore
from ister.wal.tier.upload import owner_epoch_of

REGISTER = "snapshot"
PREFIX = "snapshots/"
MAGIC = b"ISTRSNAP"
FORMAT_VERSION = 1
KEPT = 3  # an operator may have to look at what was there before a mistake


class SnapshotEntry(Struct, frozen=True):
    object: str
    taken_ms: int
    size: int
    crc: int


class Snapshots(Struct, frozen=True):
    cluster_id: str
    owner_epoch: int
    entries: tuple[SnapshotEntry, ...] = ()  # newest first


class Snapshot(NamedTuple):
    taken_ms: int
    content: bytes
    damages: list[StorageError | Damaged]  # newer snapshots that could not be read


def write_snapshot(handoff: Handoff, content: bytes) -> SnapshotEntry:
    """Durable in the bucket when it returns. HANDOFF lane; may be repeated."""
    owner.verify(handoff.store, handoff.open())
    current, version = _read(handoff.store)
    now_ms = handoff.clock.wall_ms()
    newest = current.entries[0] if current and current.entries else None
    if newest and (newest.size, newest.crc) == (len(content), crc32c(content)):
        entry = msgspec.structs.replace(newest, taken_ms=now_ms)
        kept = (entry, *current.entries[1:]) if current else (entry,)
    else:
        name = handoff.uploader.put_bytes(PREFIX, content)
        entry = SnapshotEntry(name, now_ms, len(content), crc32c(content))
        kept = (entry, *(current.entries if current else ()))[:KEPT]
    wanted = Snapshots(handoff.cluster_id, handoff.owner_epoch, kept)
    _move(handoff, wanted, current, version)
    _sweep(handoff, wanted)
    return entry


def read_snapshot(store: ObjectStore) -> Snapshot | None:
    """The newest snapshot that can be read; None if none was ever written."""
    current, _ = _read(store)
    if current is None:
        return None
    damages: list[StorageError | Damaged] = []
    for entry in current.entries:
        try:
            content = store.get(entry.object)
        except Missing:
            damages.append(StorageError(f"{entry.object} is named but not in {store.url}"))
            continue
        if (len(content), crc32c(content)) == (entry.size, entry.crc):
            return Snapshot(entry.taken_ms, content, damages)
        damages.append(Damaged(entry.object, 0, "the checksum does not hold"))
    raise damages[0] if damages else Damaged(REGISTER, 0, "names no snapshot")


def _read(store: ObjectStore) -> tuple[Snapshots | None, int]:
    try:
        data, version = store.read(REGISTER)
    except Missing:
        return None, 0
    _, body = envelope.unwrap(MAGIC, FORMAT_VERSION, data, REGISTER)
    try:
        return msgspec.json.decode(body, type=Snapshots), version
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise Damaged(REGISTER, envelope.BODY_START, str(error)) from error


def _move(handoff: Handoff, wanted: Snapshots, current: Snapshots | None, version: int) -> None:
    value = envelope.wrap(MAGIC, FORMAT_VERSION, msgspec.json.encode(wanted))
    while True:
        if current and current.owner_epoch > handoff.owner_epoch:
            raise Fenced(
                f"{REGISTER} was moved with owner epoch {current.owner_epoch}, "
                f"this run has {handoff.owner_epoch}: another broker uses the bucket"
            )
        try:
            handoff.store.swap(REGISTER, value, version)
        except Conflict:  # an older run was quicker, or it is ours with a lost reply
            current, version = _read(handoff.store)
            if current == wanted:
                return
        else:
            return


def _sweep(handoff: Handoff, wanted: Snapshots) -> None:
    named = {entry.object for entry in wanted.entries}
    for info in list(handoff.store.list(PREFIX)):
        epoch = owner_epoch_of(info.name)
        if info.name not in named and epoch is not None and epoch <= handoff.owner_epoch:
            handoff.store.delete(info.name)
