"""Handoff: durable tails become objects, then manifests move, then (elsewhere) files go.

Blocking work for the HANDOFF lane, which is one thread: upload, manifest moves, merges,
retention moves and sweeps of a bucket come one after another. The log gives a list of
`PartitionMove`s and gets back, for each partition, the manifest that is now in the
bucket; only what such a manifest holds may be trimmed from the journal.

    open    bind the cluster id, claim the owner epoch             (once in a run)
    pass    for each planned object: stream it up, check that this run is still the
            owner, move the manifest of each partition that is in it

Every step may fail or die, and is then simply run again: manifests that were not
compared yet (or whose last move has no known end) are read first, and what they already
hold is not uploaded again. An object whose upload or moves did not come to an end is
settled when each of its partitions has moved again; only then may the sweep take it,
because until then a move that is still on its way could name it.

What goes wrong with one partition (a contradiction, damage) is its own outcome and
does not stop the others. A bucket that fails ends the pass; a fenced run ends here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from ister.wal.clock import Clock
from ister.wal.errors import Contradiction, Fenced, LogError, StorageError
from ister.wal.handoff_plan import (
    VERSION_UNKNOWN,
    Key,
    PartitionMove,
    Piece,
    PlannedObject,
    Runs,
    SealedRun,
    clip,
    plan,
)
from ister.wal.tier import moves as manifest_moves
from ister.wal.tier import owner
from ister.wal.tier.manifest import Entry, Manifest
from ister.wal.tier.moves import PartitionDropped, Versioned
from ister.wal.tier.object_store import ObjectStore, StoreUnavailable
from ister.wal.tier.upload import Body, Uploader

TARGET_BYTES = 64 * 1024 * 1024
DELETE_GRACE_MS = 86_400_000

__all__ = ["Handoff", "Outcome", "PartitionMove", "PassResult", "SealedRun"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is known of a partition after a pass."""

    manifest: Manifest | None
    version: int  # VERSION_UNKNOWN: a move may or may not have happened; read it next time
    error: LogError | None = None
    dropped: bool = False  # the manifest is a tombstone


@dataclass(slots=True)
class PassResult:
    outcomes: dict[Key, Outcome] = field(default_factory=dict)
    error: StorageError | None = None  # the bucket failed: what is not in `outcomes` was not tried
    objects: int = 0
    bytes: int = 0


class Handoff:
    """The one that writes to the bucket, for one run of the broker."""

    def __init__(
        self,
        store: ObjectStore,
        cluster_id: str,
        run_id: str,
        clock: Clock,
        *,
        target_bytes: int = TARGET_BYTES,
        delete_grace_ms: int = DELETE_GRACE_MS,
    ) -> None:
        self.store = store
        self.cluster_id = cluster_id
        self.clock = clock
        self.target_bytes = target_bytes
        self.delete_grace_ms = delete_grace_ms
        self._run_id = run_id
        self._uploader: Uploader | None = None
        self.owner_epoch = 0
        self._unsettled: dict[str, set[Key]] = {}

    # -- a run begins ----------------------------------------------------------

    def open(self) -> int:
        """Claim the bucket; the owner epoch. Does nothing the second time."""
        if self._uploader is None:
            owner.bind_cluster(self.store, self.cluster_id)
            self.owner_epoch = owner.claim(self.store, self._run_id, self.clock.wall_ms())
            self._uploader = Uploader(self.store, self.owner_epoch)
        return self.owner_epoch

    @property
    def uploader(self) -> Uploader:
        self.open()
        uploader = self._uploader
        assert uploader is not None
        return uploader

    def is_settled(self, name: str) -> bool:
        """Whether no move that is still on its way could name this object."""
        return name not in self._unsettled

    def delete_after_ms(self) -> int:
        return self.clock.wall_ms() + self.delete_grace_ms

    # -- a pass ----------------------------------------------------------------

    def run(self, wanted: Iterable[PartitionMove]) -> PassResult:
        """Upload what is given, move the manifests. Fenced is raised, all else is in the result."""
        result = PassResult()
        try:
            uploader = self.uploader
            objects, octets = uploader.objects, uploader.bytes
            try:
                self._run(wanted, result)
            finally:
                result.objects = uploader.objects - objects
                result.bytes = uploader.bytes - octets
        except StorageError as error:
            result.error = error
        return result

    def _run(self, wanted: Iterable[PartitionMove], result: PassResult) -> None:
        ready: dict[Key, PartitionMove] = {}
        for move in wanted:
            compared = self._compare(move, result)
            if compared is not None:
                ready[move.key] = compared
        for planned in plan(ready.values(), self.target_bytes):
            self._hand_off(planned, ready, result)
        alone = [move for move in ready.values() if not move.runs]
        if alone:
            owner.verify(self.store, self.owner_epoch)
        for move in alone:
            self._move(move, (), ready, result)

    def _compare(self, move: PartitionMove, result: PassResult) -> PartitionMove | None:
        """The move against what the bucket has; None if there is nothing to do for it."""
        try:
            move = self._refresh(move)
        except PartitionDropped as error:
            result.outcomes[move.key] = Outcome(None, move.version, error, dropped=True)
            return None
        except (StoreUnavailable, Fenced):
            raise
        except LogError as error:
            result.outcomes[move.key] = Outcome(move.manifest, VERSION_UNKNOWN, error)
            return None
        if move.runs or _needs_move(move):
            return move
        result.outcomes[move.key] = Outcome(move.manifest, move.version)
        return None

    def _refresh(self, move: PartitionMove) -> PartitionMove:
        if move.version == VERSION_UNKNOWN:
            found = manifest_moves.load(self.store, move.topic_id, move.partition)
            _compare_with_local(move, found)
            move = replace(
                move,
                manifest=found.manifest if found else None,
                version=found.version if found else 0,
            )
        start, end = move.log_start, 0
        if move.manifest is not None:
            self._check_owner(move.manifest)
            if move.manifest.deleted:
                raise PartitionDropped(f"{move.manifest.where} is deleted")
            start = max(start, move.manifest.log_start)
            end = move.manifest.entries[-1].last_offset + 1 if move.manifest.entries else 0
        clipped = (clip(run, end) for run in move.runs if run.last_offset >= start)
        return replace(move, runs=tuple(run for run in clipped if run is not None))

    def _check_owner(self, manifest: Manifest) -> None:
        if manifest.owner_epoch > self.owner_epoch:
            raise Fenced(
                f"{manifest.where} was moved with owner epoch {manifest.owner_epoch}, "
                f"this run has {self.owner_epoch}: another broker uses the bucket"
            )

    def _hand_off(
        self, planned: PlannedObject, ready: dict[Key, PartitionMove], result: PassResult
    ) -> None:
        pieces = [piece for piece in planned.pieces if piece.move.key in ready]
        if not pieces:
            return
        body = Body()
        for piece in pieces:
            body.add(
                piece.move.topic_id,
                piece.move.partition,
                max(run.sealed_ms for run in piece.runs),
                partial(_read_all, piece),
                piece.runs[-1].producers,
            )
        first = pieces[0]
        make_name = (
            self.uploader.own_name(*first.move.key, first.first_offset, first.last_offset)
            if planned.own
            else self.uploader.shared_name
        )
        try:
            name = self.uploader.upload(make_name, body)
        except StoreUnavailable:
            raise
        except LogError as error:  # reading what was to be sent failed: not the bucket's fault
            self._fail(pieces, error, ready, result)
            return
        self._move_all(name, pieces, body.entries, ready, result)

    def _move_all(
        self,
        name: str,
        pieces: Sequence[Piece],
        entries: Sequence[Entry],
        ready: dict[Key, PartitionMove],
        result: PassResult,
    ) -> None:
        """The object is there: each partition in it may name it now."""
        by_key: dict[Key, list[Entry]] = {}
        for piece, entry in zip(pieces, entries, strict=True):
            by_key.setdefault(piece.move.key, []).append(entry)
        self.expect(name, by_key)
        owner.verify(self.store, self.owner_epoch)
        for key, of_key in by_key.items():
            if key in ready:
                self._move(ready[key], of_key, ready, result)

    def _move(
        self,
        move: PartitionMove,
        entries: Sequence[Entry],
        ready: dict[Key, PartitionMove],
        result: PassResult,
    ) -> None:
        base = move.manifest or Manifest(
            cluster_id=self.cluster_id,
            topic_hex=move.topic_id.hex(),
            topic_name=move.topic_name,
            partition=move.partition,
            log_start=move.log_start,
        )
        try:
            moved = manifest_moves.move(
                self.store,
                self.owner_epoch,
                Versioned(base, move.version),
                lambda manifest: self._change(manifest, move, entries),
            )
        except StoreUnavailable:
            result.outcomes[move.key] = Outcome(move.manifest, VERSION_UNKNOWN)
            raise
        except PartitionDropped as error:
            result.outcomes[move.key] = Outcome(None, VERSION_UNKNOWN, error, dropped=True)
            self.settle(move.key)
            del ready[move.key]
        except Contradiction as error:
            result.outcomes[move.key] = Outcome(move.manifest, VERSION_UNKNOWN, error)
            del ready[move.key]
        else:
            self.settle(move.key)
            ready[move.key] = replace(move, manifest=moved.manifest, version=moved.version)
            result.outcomes[move.key] = Outcome(moved.manifest, moved.version)

    def _change(
        self, manifest: Manifest, move: PartitionMove, entries: Sequence[Entry]
    ) -> Manifest:
        """Everything the partition wants, on whatever manifest is there now.

        The log start first: what lies below it leaves, and need not be followed by anything.
        Entries that the manifest already reaches are left out: our own, or those of an
        earlier move whose reply was lost.
        """
        changed = manifest.with_log_start(
            move.log_start, owner_epoch=self.owner_epoch, delete_after_ms=self.delete_after_ms()
        )
        end = changed.entries[-1].last_offset + 1 if changed.entries else 0
        known = {hole.first_offset for hole in changed.holes}
        return changed.append_entries(
            [
                entry
                for entry in entries
                if entry.first_offset >= end and entry.last_offset >= changed.log_start
            ],
            owner_epoch=self.owner_epoch,
            leader_epochs=move.leader_epochs or None,
            holes=[
                hole
                for hole in move.holes
                if hole.first_offset not in known and hole.last_offset >= changed.log_start
            ],
            topic_name=move.topic_name,
        )

    def _fail(
        self,
        pieces: Sequence[Piece],
        error: LogError,
        ready: dict[Key, PartitionMove],
        result: PassResult,
    ) -> None:
        """An object that cannot be made: with one partition its own fault, else one by one."""
        if len(pieces) == 1:
            move = pieces[0].move
            result.outcomes[move.key] = Outcome(
                ready[move.key].manifest, ready[move.key].version, error
            )
            ready.pop(move.key)
            return
        for piece in pieces:
            self._hand_off(PlannedObject(own=True, pieces=[piece]), ready, result)

    def expect(self, name: str, keys: Iterable[Key]) -> None:
        """Moves that name this object are about to be tried for these partitions."""
        self._unsettled[name] = set(keys)

    def settle(self, key: Key) -> None:
        """The manifest moved: no older move of this partition can happen any more."""
        for name in [name for name, keys in self._unsettled.items() if key in keys]:
            self._unsettled[name].discard(key)
            if not self._unsettled[name]:
                del self._unsettled[name]

    # -- the end of a topic ----------------------------------------------------

    def bury(self, topic_id: bytes, topic_name: str, partition: int) -> Versioned:
        """The tombstone of a partition: all its objects are to go, nothing comes after it."""
        self.open()
        found = manifest_moves.load(self.store, topic_id, partition)
        known = found or Versioned(
            Manifest(
                cluster_id=self.cluster_id,
                topic_hex=topic_id.hex(),
                topic_name=topic_name,
                partition=partition,
            ),
            0,
        )
        owner.verify(self.store, self.owner_epoch)

        def change(manifest: Manifest) -> Manifest:
            if manifest.deleted:
                return manifest
            return manifest.tombstone(
                owner_epoch=self.owner_epoch, delete_after_ms=self.delete_after_ms()
            )

        moved = manifest_moves.move(self.store, self.owner_epoch, known, change, bury=True)
        self.settle((topic_id, partition))
        return moved


def _read_all(piece: Piece) -> Runs:
    for run in piece.runs:
        yield from run.read()


def _needs_move(move: PartitionMove) -> bool:
    """Whether something besides data is new."""
    manifest = move.manifest
    if manifest is None:  # nothing was handed over yet: the first data brings it all along
        return move.log_start > 0
    return (
        move.log_start > manifest.log_start
        or (bool(move.leader_epochs) and move.leader_epochs != manifest.leader_epochs)
        or any(
            hole not in manifest.holes for hole in move.holes if hole.last_offset >= move.log_start
        )
    )


def _compare_with_local(move: PartitionMove, found: Versioned | None) -> None:
    """Contradiction if bucket and journal cannot both be right."""
    end = found.manifest.tiered_end if found else 0
    if move.manifest is not None and end < move.manifest.tiered_end:
        raise Contradiction(
            f"{move.manifest.where} in the bucket ends at {end}, this broker handed over up to "
            f"{move.manifest.tiered_end}: the bucket was set back; bring back the newer one"
        )
    if found is not None and not found.manifest.deleted and end > move.high_watermark:
        raise Contradiction(
            f"{found.manifest.where} in the bucket ends at {end}, this broker at "
            f"{move.high_watermark}: the data directory is older than the bucket; use "
            "`ister archive restore` into an empty one"
        )
