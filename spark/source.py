"""`format("ister")`: the archive as a batch and as a stream, with the Kafka source's columns.

The driver reads manifests, never objects (but for look-ups by time), and cuts the range
into slices; a task opens the bucket itself, with the credentials of its machine, and
yields Arrow batches. Loss is raised where it is met, or, with failOnDataLoss=false, logged
there and skipped.

The stream's offsets are those of the archive's end; what is not handed over yet comes
with a later trigger. `commit` does nothing: Spark does not call it for the last batch.
Filters are not taken: bounds are options, and a filter that is not rechecked is a risk.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from ister.archive.ranges import Loss, OnLoss, Slice, raise_loss, slices
from ister.spark import offsets
from ister.spark.options import LATEST, Request, parse
from ister.wal.tier.archive import Archive
from ister.wal.tier.chunk_cache import TierReader

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, "
    "timestamp timestamp, timestampType int"
)
HEADERS = ", headers array<struct<key: string, value: binary>>"


class IsterDataSource(DataSource):
    """What Spark calls; the work is in the two readers."""

    @classmethod
    def name(cls) -> str:
        return "ister"

    def schema(self) -> str:
        headers = str(self.options.get("includeHeaders", "false")).lower() == "true"
        return SCHEMA + (HEADERS if headers else "")

    def reader(self, schema: StructType) -> DataSourceReader:
        return ArchiveReader(parse(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return ArchiveStreamReader(parse(self.options, streaming=True))


class ArchiveTask(InputPartition):
    """One slice; no credentials."""

    def __init__(self, url: str, piece: Slice, headers: bool, fail: bool) -> None:
        self.url = url
        self.piece = piece
        self.headers = headers
        self.fail = fail


class ArchiveReader(DataSourceReader):
    def __init__(self, request: Request) -> None:
        self._request = request

    def partitions(self) -> Sequence[InputPartition]:
        request = self._request
        with closing(Archive.open(request.url)) as archive:
            manifests = offsets.find(archive, request)
            reader = TierReader(archive.store)
            start = offsets.resolve(
                request.start,
                manifests,
                reader,
                no_time=LATEST if request.latest_if_no_time else None,
                name="the start",
            )
            end = offsets.resolve(request.end, manifests, reader, no_time=LATEST, name="the end")
        return _tasks(request, manifests, start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition)


class ArchiveStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, request: Request) -> None:
        self._request = request
        self._target: dict[offsets.Partition, int] | None = None  # frozen by AvailableNow

    def initialOffset(self) -> dict[str, Any]:
        request = self._request
        with closing(Archive.open(request.url)) as archive:
            start = offsets.resolve(
                request.start,
                offsets.find(archive, request),
                TierReader(archive.store),
                no_time=LATEST if request.latest_if_no_time else None,
                name="the start",
            )
        return offsets.to_json(start)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        begun = offsets.from_json(start)
        target = dict(self._newest() if self._target is None else self._target)
        for place, offset in begun.items():  # never back, whatever became of a topic
            target[place] = max(offset, target.get(place, offset))
        if isinstance(limit, ReadMaxRows):
            target = offsets.share(begun, target, limit.max_rows)
        return offsets.to_json(target)

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self._request.offsets_per_trigger_max
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return offsets.to_json(self._newest())

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._newest()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        request = self._request
        with closing(Archive.open(request.url)) as archive:
            manifests = offsets.find(archive, request)
        begun, until = offsets.from_json(start), offsets.from_json(end)
        on_loss = _on_loss(request.fail_on_data_loss)
        for place in sorted(set(until) - set(manifests)):
            first = begun.get(place, 0)
            if until[place] > first:
                loss = Loss(place.topic, place.number, first, until[place], "the topic is gone")
                on_loss(loss)
        chosen = {place: manifests[place] for place in until if place in manifests}
        # A partition that is new since the last batch is read from its beginning.
        begin = {place: begun.get(place, chosen[place].log_start) for place in chosen}
        return _tasks(request, chosen, begin, until)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition)

    def _newest(self) -> dict[offsets.Partition, int]:
        request = self._request
        with closing(Archive.open(request.url)) as archive:
            manifests = offsets.find(archive, request)
            end = offsets.resolve(
                request.end, manifests, TierReader(archive.store), no_time=LATEST, name="the end"
            )
        return {place: min(end[place], found.tiered_end) for place, found in manifests.items()}


def _tasks(
    request: Request,
    manifests: offsets.Manifests,
    start: Mapping[offsets.Partition, int],
    end: Mapping[offsets.Partition, int],
) -> list[InputPartition]:
    on_loss = _on_loss(request.fail_on_data_loss)
    tasks: list[InputPartition] = []
    for place, manifest in manifests.items():
        first, until = offsets.clip(manifest, start[place], end[place], on_loss, wanted_end=True)
        tasks += [
            ArchiveTask(request.url, piece, request.headers, request.fail_on_data_loss)
            for piece in slices(manifest, first, until, request.bytes_per_task)
        ]
    return tasks


def _read(partition: InputPartition) -> Iterator[pa.RecordBatch]:
    from ister.archive.reading import read

    if not isinstance(partition, ArchiveTask):  # Spark's stand-in for "no partitions"
        return
    with closing(Archive.open(partition.url)) as archive:
        yield from read(
            archive.store,
            partition.piece,
            headers=partition.headers,
            on_loss=_on_loss(partition.fail),
        )


def _on_loss(fail: bool) -> OnLoss:
    return raise_loss if fail else _log_loss


def _log_loss(loss: Loss) -> None:
    logging.getLogger("ister.spark").warning("skipped: %s", loss)
