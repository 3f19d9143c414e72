"""The lake: Parquet by topic and date, with a manifest of each batch that went in.

    topic=orders/date=2026-11-18/{batch}-00000.parquet     data, for any reader
    _ister/manifests/{batch}.json    what a batch brought: offset ranges, files; written last
    _ister/pending/{batch}.json      files that are being moved into place
    _ister/staging/{batch}/          files that are being written
    _ister/hidden/topic=.../         compacted files whose predecessors are still in place
    _ister/dead_letters/             records that did not decode, as they came

Spark passes over names that begin with `_`, so plain `spark.read.parquet(lake)` sees the data
and nothing else. A batch goes in so: write it to staging, note the moves in pending, move,
write the manifest, clear up. Dead at any point, the same batch (or any next job, by
`recover`) goes on from there: before pending nothing was visible and staging is written
again; after it the moves are done again from the note. So a plain reader never sees an
offset twice, and a reader by manifest (`read`) sees whole batches only.

A manifest may also take files out (`compact.py`). What is in the lake is the sum of all
manifests. One job writes at a time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote

from msgspec import Struct
from msgspec import json as msgspec_json
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from ister.spark import intervals
from ister.spark.files import Files, HadoopFiles

COLUMNS = (
    "key binary, value binary, partition int, offset bigint, timestamp timestamp, "
    "timestampType int, headers array<struct<key: string, value: binary>>"
)
SCHEMA = COLUMNS + ", topic string, date date"
ORDER = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
_BATCH = re.compile(r"[A-Za-z0-9._-]{1,150}")


class Span(Struct, frozen=True):
    """Offsets first..end (end not included) of a partition."""

    topic: str
    partition: int
    first: int
    end: int
    records: int


class LakeFile(Struct, frozen=True):
    path: str  # below the lake
    spans: tuple[Span, ...]


class Manifest(Struct, frozen=True):
    batch: str
    job: str
    spans: tuple[Span, ...] = ()  # of the whole batch, dead letters included
    files: tuple[LakeFile, ...] = ()
    dead_letters: tuple[LakeFile, ...] = ()
    removed: tuple[str, ...] = ()


class LakeError(Exception):
    """The lake is not what its manifests say, or the job cannot write to it."""


class Lake:
    def __init__(self, spark: SparkSession, path: str, files: Files | None = None) -> None:
        self.spark = spark
        self.path = path.rstrip("/")
        self.files: Files = HadoopFiles(spark) if files is None else files

    # -- what is there ----------------------------------------------------------------

    def manifests(self) -> list[Manifest]:
        found = []
        for info in self.files.list(self._own("manifests")):
            if info.name.startswith(("_", ".")):
                continue
            text = self.files.read(info.path)
            if text is not None:
                found.append(msgspec_json.decode(text, type=Manifest))
        return found

    def has(self, batch: str) -> bool:
        return self.files.exists(self._own("manifests", f"{batch}.json"))

    def current(self, manifests: Iterable[Manifest] | None = None) -> dict[str, LakeFile]:
        """The files that make up the lake, by path."""
        known = self.manifests() if manifests is None else list(manifests)
        removed = {path for manifest in known for path in manifest.removed}
        return {
            file.path: file
            for manifest in known
            for file in manifest.files
            if file.path not in removed
        }

    def covered(self) -> dict[tuple[str, int], list[intervals.Range]]:
        """The offsets that batches brought, dead letters included, by topic and partition."""
        found: dict[tuple[str, int], list[intervals.Range]] = {}
        for manifest in self.manifests():
            for span in manifest.spans:
                found.setdefault((span.topic, span.partition), []).append((span.first, span.end))
        return {place: intervals.union(ranges) for place, ranges in found.items()}

    def read(self) -> DataFrame:
        """The lake by its manifests: whole batches, each record once, and its date."""
        return self.read_files(self.current())

    def read_files(self, paths: Iterable[str]) -> DataFrame:
        hidden = self.hidden()
        wanted = set(paths)
        frame = self._frame(self.path, sorted(wanted - hidden))
        if wanted & hidden:
            frame = frame.unionByName(self._frame(self._own("hidden"), sorted(wanted & hidden)))
        return frame.select(*ORDER, "date")

    def dead_letters(self) -> DataFrame:
        """Records that did not decode: the same columns and why."""
        paths = [f.path for manifest in self.manifests() for f in manifest.dead_letters]
        schema = f"{SCHEMA}, error string"
        if not paths:
            return self.spark.createDataFrame([], schema)
        base = self._own("dead_letters")
        full = [f"{self.path}/{path}" for path in sorted(paths)]
        return self.spark.read.schema(schema).option("basePath", base).parquet(*full)

    # -- a batch goes in --------------------------------------------------------------

    def put(
        self, batch: str, job: str, frame: DataFrame, dead: DataFrame | None = None
    ) -> Manifest:
        """Put the rows of a batch in, once: a batch that is there already changes nothing."""
        if not _BATCH.fullmatch(batch):
            raise LakeError(f"{batch!r} cannot be the name of a batch")
        text = self.files.read(self._own("manifests", f"{batch}.json"))
        if text is not None:
            self._clear(batch)
            return msgspec_json.decode(text, type=Manifest)
        pending = self.files.read(self._own("pending", f"{batch}.json"))
        if pending is None:
            pending = self._stage(batch, job, frame, dead)
        return self._finish(pending)

    def recover(self) -> list[str]:
        """Finish the batches that a dead job left half moved; their names."""
        done = []
        for info in self.files.list(self._own("pending")):
            text = self.files.read(info.path)
            if text is not None and not info.name.startswith(("_", ".")):
                done.append(self._finish(text).batch)
        return done

    def _stage(self, batch: str, job: str, frame: DataFrame, dead: DataFrame | None) -> str:
        """Write the files where nobody sees them, look at what was written, note the moves."""
        moves: list[tuple[str, str]] = []
        data, spans = self._write(batch, "data", frame, "", moves)
        letters: list[LakeFile] = []
        if dead is not None:
            letters, more = self._write(batch, "dead", dead, "_ister/dead_letters/", moves)
            spans += more
        manifest = Manifest(batch, job, _joined(spans), tuple(data), tuple(letters))
        note = json.dumps(
            {"manifest": msgspec_json.encode(manifest).decode(), "moves": moves}, indent=1
        )
        self.files.write(self._own("pending", f"{batch}.json"), note)
        return note

    def _write(
        self, batch: str, part: str, frame: DataFrame, place: str, moves: list[tuple[str, str]]
    ) -> tuple[list[LakeFile], list[Span]]:
        folder = self._own("staging", batch, part)
        dated = frame.withColumn("date", F.to_date("timestamp"))
        dated.sortWithinPartitions("topic", "date", "partition", "offset").write.mode(
            "overwrite"
        ).partitionBy("topic", "date").parquet(folder)
        runs = self._runs(folder)
        found: list[LakeFile] = []
        for number, staged in enumerate(sorted(runs)):
            below, _, _ = staged.rpartition("/")
            target = f"{place}{below}/{batch}-{number:05d}.parquet"
            moves.append((f"_ister/staging/{batch}/{part}/{staged}", target))
            found.append(LakeFile(target, _hulls(runs[staged])))
        return found, [span for spans in runs.values() for span in spans]

    def _runs(self, folder: str) -> dict[str, list[Span]]:
        """The unbroken runs of offsets in each file under a folder, read back from the files."""
        written = self.spark.read.schema(SCHEMA).option("basePath", folder).parquet(folder)
        window = Window.partitionBy("file", "topic", "partition").orderBy("offset")
        rows = (
            written.withColumn("file", F.col("_metadata.file_path"))
            .select("file", "topic", "partition", "offset")
            .withColumn("run", F.col("offset") - F.row_number().over(window))
            .groupBy("file", "topic", "partition", "run")
            .agg(F.min("offset"), F.max("offset"), F.count("*"))
            .collect()
        )
        marker = f"/_ister/{folder.rpartition('/_ister/')[2]}/"
        found: dict[str, list[Span]] = {}
        for file, topic, partition, _, first, last, count in rows:
            below = unquote(file.partition(marker)[2])  # Spark gives paths as URIs
            found.setdefault(below, []).append(Span(topic, partition, first, last + 1, count))
        return found

    def _finish(self, note: str) -> Manifest:
        """Move what the note says (what is moved already stays), then the manifest."""
        found: dict[str, Any] = json.loads(note)
        manifest = msgspec_json.decode(found["manifest"], type=Manifest)
        if not manifest.spans:  # nothing came: nothing to keep
            self._clear(manifest.batch)
            return manifest
        for source, target in found["moves"]:
            if self.files.exists(f"{self.path}/{source}"):
                self.files.move(f"{self.path}/{source}", f"{self.path}/{target}")
            elif not self.files.exists(f"{self.path}/{target}"):
                raise LakeError(f"{source} of batch {manifest.batch} is gone, and not at {target}")
        self.commit(manifest)
        self._clear(manifest.batch)
        return manifest

    def commit(self, manifest: Manifest) -> None:
        """From here on the batch is in the lake."""
        path = self._own("manifests", f"{manifest.batch}.json")
        self.files.write(path, msgspec_json.format(msgspec_json.encode(manifest)).decode())

    def _clear(self, batch: str) -> None:
        self.files.delete(self._own("pending", f"{batch}.json"))
        self.files.delete(self._own("staging", batch))

    # -- places -----------------------------------------------------------------------

    def _own(self, *parts: str) -> str:
        return "/".join([self.path, "_ister", *parts])

    def hidden(self) -> set[str]:
        """Files that `compact` has not shown yet, by their path below the lake."""
        root = self._own("hidden")
        found: set[str] = set()
        folders = [root]
        while folders:
            for info in self.files.list(folders.pop()):
                if info.is_folder:
                    folders.append(info.path)
                elif info.name.endswith(".parquet"):
                    found.add(info.path[len(root) + 1 :])
        return found

    def _frame(self, base: str, paths: list[str]) -> DataFrame:
        if not paths:
            return self.spark.createDataFrame([], SCHEMA)
        full = [f"{base}/{path}" for path in paths]
        return self.spark.read.schema(SCHEMA).option("basePath", base).parquet(*full)


def lake(spark: SparkSession, path: str) -> DataFrame:
    """The lake at `path`, read by its manifests."""
    return Lake(spark, path).read()


def _hulls(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Of each partition one span from the first to the last; `records` tells what is in it."""
    found: dict[tuple[str, int], list[Span]] = {}
    for span in spans:
        found.setdefault((span.topic, span.partition), []).append(span)
    return tuple(
        Span(
            topic,
            partition,
            min(span.first for span in group),
            max(span.end for span in group),
            sum(span.records for span in group),
        )
        for (topic, partition), group in sorted(found.items())
    )


def _joined(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Runs that touch as one: exactly the offsets that are there."""
    found: dict[tuple[str, int], list[intervals.Range]] = {}
    for span in spans:
        found.setdefault((span.topic, span.partition), []).append((span.first, span.end))
    return tuple(
        Span(topic, partition, first, end, end - first)
        for (topic, partition), ranges in sorted(found.items())
        for first, end in intervals.union(ranges)
    )
