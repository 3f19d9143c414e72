"""A manifest moves: compare-and-set with the owner's epoch, safe to repeat.

`move` takes a change as a function from manifest to manifest that does nothing when
its effect is already there. So a reply that was lost, a crash, or a second call end in
the same manifest: whoever finds the register changed reads it and applies the change
to what is there now. A manifest with a higher owner epoch means that this run is
fenced; a tombstone means that the partition is gone. Neither is ever overwritten.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ister.wal.errors import Contradiction, Fenced, LogError
from ister.wal.tier.manifest import Manifest, decode, encode, key
from ister.wal.tier.object_store import Conflict, Missing, ObjectStore

Change = Callable[[Manifest], Manifest]
_CONFLICTS_MAX = 100  # each one means that somebody else moved; nobody does that for ever


class PartitionDropped(LogError):
    """The manifest is a tombstone: nothing of this partition is handed over any more."""


class Versioned(NamedTuple):
    manifest: Manifest
    version: int


def load(store: ObjectStore, topic_id: bytes, partition: int) -> Versioned | None:
    """The manifest as it is in the bucket; None if there is none."""
    name = key(topic_id, partition)
    try:
        data, version = store.read(name)
    except Missing:
        return None
    manifest = decode(data, name)
    if (manifest.topic_id, manifest.partition) != (topic_id, partition):
        raise Contradiction(
            f"{name} holds the manifest of {manifest.topic_hex}/{manifest.partition}: "
            "it was copied by hand; put the right one there"
        )
    return Versioned(manifest, version)


def move(
    store: ObjectStore, owner_epoch: int, known: Versioned, change: Change, *, bury: bool = False
) -> Versioned:
    """Apply `change` to the manifest, starting from what is known of it.

    `known.version` 0 stands for a register that is not there yet. With `bury` the change
    may be made to (or on) a tombstone, else a tombstone is PartitionDropped.
    """
    for _ in range(_CONFLICTS_MAX):
        current = known.manifest
        if current.owner_epoch > owner_epoch:
            raise Fenced(
                f"{current.where} was moved with owner epoch {current.owner_epoch}, "
                f"this run has {owner_epoch}: another broker uses the bucket"
            )
        if current.deleted and not bury:
            raise PartitionDropped(f"{current.where} is deleted")
        changed = change(current)
        if changed == current and known.version:
            return known
        try:
            return Versioned(changed, store.swap(current.where, encode(changed), known.version))
        except Conflict:
            known = _after_conflict(store, known)
    raise Contradiction(f"{known.manifest.where} keeps changing under this run")


def _after_conflict(store: ObjectStore, known: Versioned) -> Versioned:
    found = load(store, known.manifest.topic_id, known.manifest.partition)
    if found is None:
        # Registers of live partitions are never removed: starting over would forget entries.
        raise Contradiction(f"{known.manifest.where} has vanished from {store.url}")
    return found
