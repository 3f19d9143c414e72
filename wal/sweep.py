"""Sweeping: what nothing names any more leaves the bucket.

Two kinds of things go:
- *doomed* objects, listed in a manifest with the time after which they may go. Objects
  of the partition's own are deleted, then the manifest drops the line; of a shared
  object only the line goes, and the object when no manifest has one;
- *orphans*: objects that no manifest names, left by a crash or a failed move. Only those
  of older owner epochs, and those of this run that no move on its way can still name.
  A move of an older run could still be on its way too, so before an orphan goes, the
  manifest of every partition that is in it is moved by this run (which makes every older
  move fail) and looked at again.

Deletes have no precondition, so the rule is: look, fence, look again, delete. All of it
may die anywhere and is run again. Runs in the HANDOFF lane, so no upload is under way.
"""

from __future__ import annotations

from dataclasses import dataclass

from ister.wal.errors import Damaged
from ister.wal.handoff import Handoff
from ister.wal.handoff_plan import Key
from ister.wal.tier import manifest as manifests
from ister.wal.tier import moves, owner
from ister.wal.tier.manifest import PREFIX, Manifest, parse_key
from ister.wal.tier.moves import Versioned
from ister.wal.tier.object_store import Missing, ObjectInfo
from ister.wal.tier.segment import sections_of
from ister.wal.tier.upload import owner_epoch_of

OWN = "segments/"
SHARED = "shared/"


@dataclass(slots=True)
class Swept:
    deleted: int = 0
    bytes: int = 0
    kept: int = 0  # orphans that must wait


def sweep_doomed(handoff: Handoff, known: Versioned) -> Versioned:
    """Delete what the manifest says may go now; the manifest without those lines."""
    now_ms = handoff.clock.wall_ms()
    due = frozenset(line.object for line in known.manifest.to_delete if line.after_ms <= now_ms)
    if not due:
        return known
    owner.verify(handoff.store, handoff.open())
    mine = f"{OWN}{known.manifest.topic_hex}/{known.manifest.partition:010d}/"
    for name in sorted(due):
        if name.startswith(mine):  # no other manifest can name it
            handoff.store.delete(name)
    moved = moves.move(
        handoff.store,
        handoff.owner_epoch,
        known,
        lambda manifest: (
            manifest.without_doomed(due, owner_epoch=handoff.owner_epoch)
            if due & {line.object for line in manifest.to_delete}
            else manifest
        ),
        bury=True,
    )
    handoff.settle((known.manifest.topic_id, known.manifest.partition))
    return moved


def forget_tombstone(handoff: Handoff, topic_id: bytes, partition: int) -> bool:
    """Remove the manifest of a deleted partition; False while it still lists objects."""
    owner.verify(handoff.store, handoff.open())
    found = moves.load(handoff.store, topic_id, partition)
    if found is None:
        return True
    if not found.manifest.deleted or found.manifest.to_delete:
        return False
    handoff.store.remove(found.manifest.where)
    return True


def sweep_orphans(handoff: Handoff) -> Swept:
    """Delete the objects that no manifest names and no move can name any more."""
    owner.verify(handoff.store, handoff.open())
    candidates = [
        info
        for prefix in (OWN, SHARED)
        for info in handoff.store.list(prefix)
        if _may_be_orphan(handoff, info.name)
    ]
    swept = Swept()
    if not candidates:
        return swept
    held = _load_all(handoff)
    for key, known in held.items():  # also those that the metadata knows nothing of any more
        if known.manifest.deleted:
            held[key] = sweep_doomed(handoff, known)
    named = set().union(*(_names(known.manifest) for known in held.values()))
    for info in candidates:
        if info.name in named:
            continue
        if _fence(handoff, info, held):
            handoff.store.delete(info.name)
            swept.deleted += 1
            swept.bytes += info.size
        else:
            swept.kept += 1
    return swept


def _may_be_orphan(handoff: Handoff, name: str) -> bool:
    epoch = owner_epoch_of(name)
    if epoch is None or epoch > handoff.owner_epoch:
        return False  # not ours, or of a run that is newer than this one
    return handoff.is_settled(name)


def _load_all(handoff: Handoff) -> dict[Key, Versioned]:
    held: dict[Key, Versioned] = {}
    for name in list(handoff.store.registers(PREFIX)):
        key = parse_key(name)
        found = moves.load(handoff.store, *key)
        if found is not None:
            held[key] = found
    return held


def _names(manifest: Manifest) -> set[str]:
    return set(manifest.objects) | {line.object for line in manifest.to_delete}


def _fence(handoff: Handoff, info: ObjectInfo, held: dict[Key, Versioned]) -> bool:
    """Whether nothing can name the object from now on."""
    age_ms = handoff.clock.wall_ms() - info.created_ms
    old_enough = info.created_ms > 0 and age_ms >= handoff.delete_grace_ms
    try:
        keys = _partitions_of(handoff, info)
    except (Damaged, Missing):
        return old_enough  # cannot say whose it is: only time tells
    for key in keys:
        known = held.get(key)
        if known is None:  # no manifest to fence with: a first move may be on its way
            if owner_epoch_of(info.name) == handoff.owner_epoch or old_enough:
                continue
            return False
        if known.manifest.owner_epoch != handoff.owner_epoch:
            known = held[key] = moves.move(
                handoff.store,
                handoff.owner_epoch,
                known,
                lambda manifest: manifest.with_owner(handoff.owner_epoch),
                bury=True,
            )
        if info.name in _names(known.manifest):
            return False
    return True


def _partitions_of(handoff: Handoff, info: ObjectInfo) -> set[Key]:
    if info.name.startswith(OWN):
        name = info.name.removeprefix(OWN).rsplit("/", 1)[0]
        return {manifests.parse_key(f"{PREFIX}{name}")}
    found = sections_of(
        lambda start, size: handoff.store.get(info.name, start, size), info.size, info.name
    )
    return {(footer.topic_id, footer.partition) for _, footer in found}
