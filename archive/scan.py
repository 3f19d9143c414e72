"""`scan`: the records of a topic out of a bucket, as a stream of Arrow record batches.

No broker, no Spark. DuckDB, pandas and polars take the reader as it is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import pyarrow as pa

from ister.archive.columns import schema
from ister.archive.ranges import Bound, OnLoss, bounds, raise_loss, slices
from ister.archive.reading import read
from ister.wal.tier.archive import Archive
from ister.wal.tier.chunk_cache import TierReader
from ister.wal.tier.manifest import Manifest


def scan(
    url: str,
    topic: str,
    start: Bound = None,
    end: Bound = None,
    *,
    partitions: Collection[int] | None = None,
    headers: bool = False,
    on_loss: OnLoss = raise_loss,
) -> pa.RecordBatchReader:
    """Records start..end (end not included) of a topic (its name or id), in order per partition.

    A bound is an offset for all partitions, offsets by partition, or a time (the first
    record not older). What cannot be had raises DataLoss at the place where it is
    missed, or is given to `on_loss` and skipped. An unknown topic or partition is
    UnknownPartition, raised here; bytes are read only as the reader is.
    """
    archive = Archive.open(url)
    try:
        manifests = archive.find(topic)
        if partitions is not None:
            manifests = [_of(archive, topic, number) for number in sorted(set(partitions))]
    except BaseException:
        archive.close()
        raise
    batches = _batches(archive, manifests, start, end, headers, on_loss)
    return pa.RecordBatchReader.from_batches(schema(headers), batches)


def _of(archive: Archive, topic: str, partition: int) -> Manifest:
    (manifest,) = archive.find(topic, partition)
    return manifest


def _batches(
    archive: Archive,
    manifests: list[Manifest],
    start: Bound,
    end: Bound,
    headers: bool,
    on_loss: OnLoss,
) -> Iterator[pa.RecordBatch]:
    try:
        reader = TierReader(archive.store)
        for manifest in manifests:
            first, until = bounds(manifest, start, end, reader, on_loss)
            for piece in slices(manifest, first, until):
                yield from read(archive.store, piece, headers=headers, on_loss=on_loss)
    finally:
        archive.close()
