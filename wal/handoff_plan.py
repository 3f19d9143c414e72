"""What a handoff pass uploads, and into which objects. Pure; `handoff` does the work.

The log describes what is ready: for each partition a `PartitionMove` with its
`SealedRun`s, in order of offset (usually one for each journal file). Runs that follow
each other become one section, up to the target size; a known hole ends a section.
A partition with enough bytes gets objects of its own; the small tails of all others
share objects, so that ten thousand quiet partitions cost a few requests to upload.
All sections of a partition in one pass are of the same kind, so the objects of a plan,
taken in order, hold the offsets of every partition in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from ister.wal.fs import Buffer
from ister.wal.tier.manifest import EpochStart, Hole, Manifest
from ister.wal.tier.segment import BatchEntry

OWN_OBJECT_BYTES = 4 * 1024 * 1024  # from here on a request of its own costs less than a merge
VERSION_UNKNOWN = -1  # the manifest was not compared with the bucket yet

Key = tuple[bytes, int]  # topic id, partition
Runs = Iterator[tuple[Buffer, Sequence[BatchEntry]]]


@dataclass(frozen=True, slots=True)
class SealedRun:
    """Durable batches of one partition that follow each other without a gap.

    `read` gives them in order, as buffers of whole batches with their entries; it may be
    called several times (an upload that is tried again reads again) and must check what it
    reads: what it gives goes to the bucket as it is. `producers` is the producer state
    after the last batch, or empty.
    """

    first_offset: int
    last_offset: int
    size: int
    sealed_ms: int  # wall clock, not before the append of the last batch
    read: Callable[[], Runs]
    producers: bytes = b""


@dataclass(frozen=True, slots=True)
class PartitionMove:
    """What a partition wants of this pass. Without runs: only log start, epochs and holes move."""

    topic_id: bytes
    topic_name: str
    partition: int
    log_start: int
    high_watermark: int
    leader_epochs: tuple[EpochStart, ...] = ()
    holes: tuple[Hole, ...] = ()
    runs: tuple[SealedRun, ...] = ()
    manifest: Manifest | None = None  # as last seen
    version: int = VERSION_UNKNOWN  # of that manifest; 0: there is none

    @property
    def key(self) -> Key:
        return self.topic_id, self.partition

    @property
    def size(self) -> int:
        return sum(run.size for run in self.runs)


@dataclass(frozen=True, slots=True)
class Piece:
    """One section to be: runs of one partition that follow each other."""

    move: PartitionMove
    runs: tuple[SealedRun, ...]

    @property
    def size(self) -> int:
        return sum(run.size for run in self.runs)

    @property
    def first_offset(self) -> int:
        return self.runs[0].first_offset

    @property
    def last_offset(self) -> int:
        return self.runs[-1].last_offset


@dataclass(slots=True)
class PlannedObject:
    own: bool
    pieces: list[Piece] = field(default_factory=list)

    @property
    def size(self) -> int:
        return sum(piece.size for piece in self.pieces)


def plan(
    moves: Iterable[PartitionMove], target_bytes: int, own_bytes: int = OWN_OBJECT_BYTES
) -> list[PlannedObject]:
    """Objects in the order in which they must be uploaded and moved into manifests."""
    own: list[PlannedObject] = []
    shared: list[PlannedObject] = []
    filled = 0
    for move in moves:
        for piece in _pieces(move, target_bytes):
            if move.size >= own_bytes:
                own.append(PlannedObject(own=True, pieces=[piece]))
                continue
            if not shared or filled + piece.size > target_bytes:
                shared.append(PlannedObject(own=False))
                filled = 0
            shared[-1].pieces.append(piece)
            filled += piece.size
    return own + shared


def clip(run: SealedRun, from_offset: int) -> SealedRun | None:
    """What of a run is not below `from_offset` (a batch boundary); None if nothing is."""
    if run.last_offset < from_offset:
        return None
    if run.first_offset >= from_offset:
        return run

    def read() -> Runs:
        for buffer, entries in run.read():
            if entries[-1][0] < from_offset:
                continue
            skipped = sum(size for base, _, size, _ in entries if base < from_offset)
            kept = [entry for entry in entries if entry[0] >= from_offset]
            yield memoryview(buffer)[skipped:], kept

    return replace(run, first_offset=from_offset, read=read)


def _pieces(move: PartitionMove, target_bytes: int) -> Iterator[Piece]:
    """Runs joined into sections: up to the target size, never across a gap."""
    joined: list[SealedRun] = []
    size = 0
    for run in move.runs:
        follows = not joined or run.first_offset == joined[-1].last_offset + 1
        if joined and (not follows or size + run.size > target_bytes):
            yield Piece(move, tuple(joined))
            joined, size = [], 0
        joined.append(run)
        size += run.size
    if joined:
        yield Piece(move, tuple(joined))
