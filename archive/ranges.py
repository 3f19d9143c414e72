"""What of a partition is asked for, and how it is cut into pieces of work.

A `Slice` is a run of offsets of one partition with the part of its manifest that it
needs: small, can be pickled, names no credentials, and stays readable for the grace time
of the bucket even when the manifest moves on. Bounds are slices of Python's kind: what
lies above the end of the archive is not there yet and is left out; but what lies below the
log start was there once, and a known hole was too: each is a `Loss`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from msgspec.structs import replace

from ister.wal.records import records
from ister.wal.tier.chunk_cache import TierReader
from ister.wal.tier.manifest import Entry, Manifest

SLICE_BYTES = 32 * 1024 * 1024  # of one task: seconds of work, and enough tasks for all cores

Bound = int | datetime | Mapping[int, int] | None


class Loss(NamedTuple):
    """Offsets first..end (end not included) that were asked for and cannot be had."""

    topic: str
    partition: int
    first: int
    end: int
    reason: str

    def __str__(self) -> str:
        return (
            f"offsets {self.first}..{self.end - 1} of {self.topic}/{self.partition}: {self.reason}"
        )


class DataLoss(Exception):
    """Something that was asked for cannot be had; `loss` says what and why."""

    def __init__(self, loss: Loss) -> None:
        super().__init__(str(loss))
        self.loss = loss

    def __reduce__(self) -> tuple[type[DataLoss], tuple[Loss]]:
        return DataLoss, (self.loss,)  # it travels from a task to its driver


OnLoss = Callable[[Loss], None]


def raise_loss(loss: Loss) -> None:
    raise DataLoss(loss)


@dataclass(frozen=True, slots=True)
class Slice:
    """Offsets start..end (end not included) of one partition."""

    manifest: Manifest  # only with the entries of this slice
    start: int
    end: int

    @property
    def bytes(self) -> int:
        """About what is to be read."""
        return sum(_part(entry, self.start, self.end) for entry in self.manifest.entries)


def bounds(
    manifest: Manifest, start: Bound, end: Bound, reader: TierReader, on_loss: OnLoss = raise_loss
) -> tuple[int, int]:
    """The offsets that `start` and `end` mean in this partition, inside what is there."""
    last = manifest.tiered_end
    first = _resolve(manifest, start, reader, manifest.log_start)
    until = min(last, _resolve(manifest, end, reader, last))
    if first < min(until, manifest.log_start):
        gone = min(until, manifest.log_start)
        reason = f"retention has removed what was below {manifest.log_start}"
        on_loss(Loss(manifest.topic_name, manifest.partition, first, gone, reason))
    first = max(first, manifest.log_start)
    return first, max(first, until)


def offset_at(manifest: Manifest, timestamp_ms: int, reader: TierReader) -> int | None:
    """The first offset whose record is not older; None: the archive has none."""
    start = manifest.log_start
    while True:
        batch = reader.find_time(manifest, timestamp_ms, start)
        if batch is None:
            return None
        for record in records(batch.data):
            if record.offset >= manifest.log_start and record.timestamp >= timestamp_ms:
                return record.offset
        start = batch.last_offset + 1  # its header claimed more than its records hold


def slices(manifest: Manifest, start: int, end: int, bytes_max: int = SLICE_BYTES) -> list[Slice]:
    """start..end in pieces of about `bytes_max`; together they are exactly that range.

    Known holes stay inside the pieces, so that whoever reads them meets them.
    """
    if start >= end:
        return []
    cuts = [start]
    size = 0
    for first, part in _parts(manifest, start, end, bytes_max):
        if size and size + part > bytes_max:
            cuts.append(first)
            size = 0
        size += part
    return [
        _slice(manifest, first, stop) for first, stop in zip(cuts, [*cuts[1:], end], strict=True)
    ]


def _parts(manifest: Manifest, start: int, end: int, bytes_max: int) -> Iterator[tuple[int, int]]:
    """(first offset, bytes) of entries in the range; a large one in several parts."""
    for entry in manifest.entries:
        first, stop = max(start, entry.first_offset), min(end, entry.last_offset + 1)
        if first >= stop:
            continue
        size = _part(entry, start, end)
        count = min(stop - first, -(-size // bytes_max))
        for number in range(count):
            yield first + (stop - first) * number // count, size // count


def _slice(manifest: Manifest, start: int, end: int) -> Slice:
    inside = [e for e in manifest.entries if e.last_offset >= start and e.first_offset < end]
    holes = [h for h in manifest.holes if h.last_offset >= start and h.first_offset < end]
    own = replace(manifest, entries=tuple(inside), holes=tuple(holes), to_delete=())
    return Slice(own, start, end)


def _part(entry: Entry, start: int, end: int) -> int:
    """Bytes of an entry that lie in start..end, as if its records were all of one size."""
    records_inside = min(end, entry.last_offset + 1) - max(start, entry.first_offset)
    return max(1, entry.data_size * max(0, records_inside) // entry.records)


def _resolve(manifest: Manifest, bound: Bound, reader: TierReader, default: int) -> int:
    if bound is None:
        return default
    if isinstance(bound, datetime):
        if bound.tzinfo is None:
            bound = bound.replace(tzinfo=UTC)
        found = offset_at(manifest, int(bound.timestamp() * 1000), reader)
        return manifest.tiered_end if found is None else found
    if isinstance(bound, Mapping):
        return bound.get(manifest.partition, default)
    return bound
