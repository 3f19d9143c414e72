"""What is ready to be handed off: the batches of sealed journal files, partition by partition.

Built on the owner's thread from integers; the bytes are read later, in the
HANDOFF lane, in large pieces, each batch checked on its way out of the file.
A file is pinned from the plan until the pass is over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import zip_longest

from ister.wal.errors import Damaged, StorageError
from ister.wal.files import JournalFile
from ister.wal.fs import Buffer
from ister.wal.handoff_plan import PartitionMove, SealedRun
from ister.wal.partition import Hole, Partition
from ister.wal.reader import SidecarCache, read_slice
from ister.wal.settings import MiB
from ister.wal.sidecar import Key
from ister.wal.tail import TailIndex
from ister.wal.tier.manifest import EpochStart
from ister.wal.tier.manifest import Hole as ManifestHole
from ister.wal.tier.segment import BatchEntry

IsClosing = Callable[[], bool]

_PIECE_BYTES = 4 * MiB  # read from a journal file at a time


def move_of(
    partition: Partition,
    topic_name: str,
    files: dict[int, JournalFile],
    sidecars: SidecarCache,
    is_closing: IsClosing,
) -> PartitionMove:
    """What this partition wants of a pass over `files` (by sequence).

    Once `is_closing` says so the pass ends at the next piece: the next run takes it up again."""
    return PartitionMove(
        partition.topic_id,
        topic_name,
        partition.index,
        partition.log_start,
        partition.high_watermark,
        tuple(EpochStart(epoch, start) for epoch, start in partition.epochs),
        tuple(ManifestHole(*hole) for hole in partition.holes),
        tuple(_runs(partition, files, sidecars, is_closing)),
        partition.manifest,
        partition.manifest_version,
    )


def _runs(
    partition: Partition,
    files: dict[int, JournalFile],
    sidecars: SidecarCache,
    is_closing: IsClosing,
) -> Iterator[SealedRun]:
    floor = max(partition.tiered_end, partition.log_start)
    for number, sequence in enumerate(partition.file_sequences):
        end = partition.file_end(number)
        if sequence in files and end > floor:
            yield from _runs_of_file(partition, number, files[sequence], end, sidecars, is_closing)


def _runs_of_file(
    partition: Partition,
    number: int,
    file: JournalFile,
    end: int,
    sidecars: SidecarCache,
    is_closing: IsClosing,
) -> Iterator[SealedRun]:
    """One run, or several where a known hole lies between."""
    key = (partition.topic_id, partition.index)
    holes, epochs = partition.holes, partition.epochs
    producers = partition.producers
    state = b"" if producers is None else producers.encode(end)
    start = partition.file_starts[number]
    inside = [hole for hole in holes if start <= hole.first < end]
    stops = [hole.first for hole in inside] + [end]
    for stop, hole in zip_longest(stops, inside):
        if start < stop:
            yield SealedRun(
                start,
                stop - 1,
                partition.file_bytes[number] // len(stops),
                file.last_append_ms,
                partial(read_run, file, key, start, stop, holes, epochs, sidecars, is_closing),
                state,
            )
        if hole is not None:
            start = hole.last + 1


def read_run(
    file: JournalFile,
    key: Key,
    start: int,
    stop: int,
    holes: Sequence[Hole],
    epochs: Sequence[tuple[int, int]],
    sidecars: SidecarCache,
    is_closing: IsClosing,
) -> Iterator[tuple[Buffer, Sequence[BatchEntry]]]:
    """In the HANDOFF lane: the batches start..stop of a partition, in pieces."""
    tail = sidecars.tail(file.sequence, key)
    while start < stop:
        if is_closing():
            raise StorageError("the log is closing; the next run hands this off")
        part = tail.slice(start, _PIECE_BYTES, stop) if tail is not None else None
        if tail is None or part is None:
            raise Damaged(file.path, 0, f"the index does not have offset {start}")
        try:
            chunk = read_slice(file, part, holes, epochs)
        except OSError as error:  # this partition's trouble, not the bucket's
            raise StorageError(f"{file.path} cannot be read: {error}") from error
        data = chunk.buffers[0] if len(chunk.buffers) == 1 else b"".join(chunk.buffers)
        # Behind the last batch a known hole may lie, and the slice ends behind that one.
        yield data, _entries(tail, start, min(part.next_offset, stop))
        start = part.next_offset


def _entries(tail: TailIndex, start: int, stop: int) -> list[BatchEntry]:
    number = tail.find(start)
    entries: list[BatchEntry] = []
    while number < len(tail) and tail.bases[number] < stop:
        base = tail.bases[number]
        count = min(tail.next_of(number), stop) - base
        entries.append((base, count, tail.sizes[number], tail.timestamps[number]))
        number += 1
    return entries
