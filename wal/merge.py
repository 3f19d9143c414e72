"""Merging: however idle a partition is, its manifest stays short and its objects its own.

A partition may have as many entries as its bytes fill objects of the target size, and a
constant more. Above that, neighbours are merged into one object of the partition's own:
of all rows of neighbours that fit into two target sizes the one that frees most entries
for the fewest bytes, so large objects are seldom copied again. With nothing left to merge
two neighbours always exceed two target sizes, which is where the bound comes from.

The merged object goes up, the manifest moves, and what it replaced is listed there to be
deleted after the grace time. Dying anywhere leaves the old entries or the new one.
Holes between entries stay where they are: nothing is merged across one.
"""

from __future__ import annotations

from collections.abc import Iterator

from ister.wal.fs import Buffer
from ister.wal.handoff import Handoff
from ister.wal.tier import moves, owner
from ister.wal.tier.chunk_cache import TierReader, batch_entries
from ister.wal.tier.manifest import Entry, Manifest
from ister.wal.tier.moves import Versioned
from ister.wal.tier.segment import BatchEntry
from ister.wal.tier.upload import Body

ENTRIES_SLACK = 16  # entries beyond bytes / target: sixteen minutes of an idle partition
ROW_MAX = 64  # neighbours merged at once


def choose(
    manifest: Manifest, target_bytes: int, slack: int = ENTRIES_SLACK
) -> tuple[Entry, ...] | None:
    """The neighbours to merge next; None if the manifest is short enough."""
    entries = manifest.entries
    if manifest.deleted or len(entries) <= manifest.tiered_bytes // target_bytes + slack:
        return None
    best: tuple[Entry, ...] | None = None
    best_score = 0.0
    for start in range(len(entries) - 1):
        size = entries[start].data_size
        for end in range(start + 1, min(len(entries), start + ROW_MAX)):
            size += entries[end].data_size
            follows = entries[end].first_offset == entries[end - 1].last_offset + 1
            if not follows or size > 2 * target_bytes:
                break
            score = (end - start) / (size + 4096)  # a request costs as much as some bytes
            if score > best_score:
                best, best_score = entries[start : end + 1], score
    return best


def merge(handoff: Handoff, reader: TierReader, known: Versioned) -> Versioned:
    """Merge once if there is something to merge; the manifest that is in the bucket then.

    A manifest that is not the newest any more costs an upload for nothing, no harm.
    """
    handoff.open()
    old = choose(known.manifest, handoff.target_bytes)
    if old is None:
        return known
    manifest = known.manifest
    key = manifest.topic_id, manifest.partition
    last_section = reader.section(manifest, old[-1])

    def source() -> Iterator[tuple[Buffer, list[BatchEntry]]]:
        for entry in old:
            for batches in reader.stream(manifest, entry):
                yield b"".join(batch.data for batch in batches), batch_entries(batches)

    body = Body()
    sealed_ms = max(entry.sealed_ms for entry in old)
    body.add(*key, sealed_ms, source, last_section.producers)
    uploader = handoff.uploader
    name = uploader.upload(uploader.own_name(*key, old[0].first_offset, old[-1].last_offset), body)
    (new,) = body.entries
    handoff.expect(name, [key])
    owner.verify(handoff.store, handoff.owner_epoch)

    def change(current: Manifest) -> Manifest:
        if not set(old) <= set(current.entries):
            # Merged before, by a move whose reply was lost: the caller's manifest was stale.
            return current
        return current.replace(
            old,
            new,
            owner_epoch=handoff.owner_epoch,
            delete_after_ms=handoff.delete_after_ms(),
        )

    moved = moves.move(handoff.store, handoff.owner_epoch, known, change)
    handoff.settle(key)
    return moved
