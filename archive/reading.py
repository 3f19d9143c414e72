"""A slice of a partition out of the bucket, checked, as Arrow record batches.

Each chunk comes checked (blocks, batches, seams: `chunk_cache.py`); here the offsets are
followed over the whole slice: what comes must begin where the last ended. Known holes,
objects that are gone or damaged and batches that nobody can decode are a `Loss`, given to
`on_loss`, which raises or takes a note; then reading goes on behind it, chunk by chunk. A
bucket that does not answer is no loss: that error goes to the caller.

The next chunk is fetched while the last one is decoded.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pyarrow as pa

from ister.archive.columns import arrow_batches
from ister.archive.ranges import Loss, OnLoss, Slice, raise_loss
from ister.wal.errors import CorruptBatch, Damaged, StorageError, UnsupportedCodec
from ister.wal.tier.chunk_cache import TierBatch, TierReader, chunk_of
from ister.wal.tier.manifest import Entry
from ister.wal.tier.object_store import ObjectStore, StoreUnavailable


class Gap(NamedTuple):
    """Instead of batches: offsets up to `end` (not included) cannot be had."""

    end: int
    reason: str


def read(
    store: ObjectStore, piece: Slice, *, headers: bool = False, on_loss: OnLoss = raise_loss
) -> Iterator[pa.RecordBatch]:
    """The records of a slice in order."""
    expected = piece.start
    name, partition = piece.manifest.topic_name, piece.manifest.partition
    for step in _ahead(_steps(TierReader(store), piece)):
        if isinstance(step, Gap):
            on_loss(Loss(name, partition, expected, step.end, step.reason))
            expected = step.end
            continue
        for batch in _decoded(step, piece, headers, on_loss):
            trimmed = _trim(batch, expected, piece.end)
            if trimmed.num_rows:
                yield trimmed
        expected = min(step[-1].last_offset + 1, piece.end)
    if expected < piece.end:
        reason = "neither in an entry of the manifest nor in a known hole"
        on_loss(Loss(name, partition, expected, piece.end, reason))


def _steps(reader: TierReader, piece: Slice) -> Iterator[list[TierBatch] | Gap]:
    """Chunks of batches and gaps, in order of offsets, none of them empty."""
    expected = piece.start
    for entry in piece.manifest.entries:
        if entry.first_offset > expected:
            yield Gap(entry.first_offset, _hole_reason(piece, expected))
            expected = entry.first_offset
        stop = min(entry.last_offset + 1, piece.end)
        for step in _entry_steps(reader, piece, entry, expected, stop):
            yield step
            expected = step.end if isinstance(step, Gap) else step[-1].last_offset + 1
        expected = stop
    if expected < piece.end and any(hole.last_offset >= expected for hole in piece.manifest.holes):
        yield Gap(piece.end, _hole_reason(piece, expected))


def _entry_steps(
    reader: TierReader, piece: Slice, entry: Entry, start: int, stop: int
) -> Iterator[list[TierBatch] | Gap]:
    try:
        section = reader.section(piece.manifest, entry)
    except StoreUnavailable:
        raise
    except (Damaged, StorageError) as error:
        yield Gap(stop, str(error))
        return
    while start < stop:
        try:
            for chunk in reader.stream(piece.manifest, entry, start):
                wanted = [b for b in chunk if b.last_offset >= start and b.base_offset < stop]
                if not wanted:
                    return
                yield wanted
                start = wanted[-1].last_offset + 1
            return
        except StoreUnavailable:
            raise
        except (Damaged, StorageError) as error:
            _, last = chunk_of(section, section.locate(start))
            behind = last + 1 < section.footer.block_count
            start = min(stop, section.offsets[last + 1] if behind else stop)
            yield Gap(start, str(error))


def _decoded(
    batches: list[TierBatch], piece: Slice, headers: bool, on_loss: OnLoss
) -> Iterator[pa.RecordBatch]:
    name, partition = piece.manifest.topic_name, piece.manifest.partition
    done = batches[0].base_offset
    try:
        for found in arrow_batches([b.data for b in batches], name, partition, headers=headers):
            yield found
            done += found.num_rows  # whole batches, one behind the other
        return
    except (CorruptBatch, UnsupportedCodec):
        pass  # one of the next ones: find out which, and keep the others
    for batch in batches:
        if batch.base_offset < done:
            continue
        try:
            yield from arrow_batches([batch.data], name, partition, headers=headers)
        except (CorruptBatch, UnsupportedCodec) as error:
            first, end = max(batch.base_offset, piece.start), min(batch.last_offset + 1, piece.end)
            on_loss(Loss(name, partition, first, end, f"cannot be decoded: {error}"))


def _trim(batch: pa.RecordBatch, start: int, end: int) -> pa.RecordBatch:
    """Without the records outside start..end; offsets in a batch are dense."""
    first = batch.column("offset")[0].as_py()
    skip = max(0, start - first)
    return batch.slice(skip, max(0, min(batch.num_rows, end - first) - skip))


def _hole_reason(piece: Slice, offset: int) -> str:
    for hole in piece.manifest.holes:
        if hole.first_offset <= offset <= hole.last_offset:
            return f"a known hole: {hole.reason}"
    return "neither in an entry of the manifest nor in a known hole"


def _ahead(steps: Iterator[list[TierBatch] | Gap]) -> Iterator[list[TierBatch] | Gap]:
    """One step ahead on a thread, so that fetching and decoding overlap."""
    with ThreadPoolExecutor(1, "ister-archive-read") as pool:
        coming = pool.submit(next, steps, None)
        while (step := coming.result()) is not None:
            coming = pool.submit(next, steps, None)
            yield step
