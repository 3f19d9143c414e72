"""The archive into the lake: the same rows as `ingest`, and not one request to a broker.

    python -m ister.spark.backfill --archive file:///data/bucket --topic orders --lake PATH

What the lake has already is left out, so it may run before, after and beside what ingest
brought, and running it again does nothing. The rest goes in as batches of about
`--batch-mb` for each partition; the name of a batch is made of its offsets, so that one that
was cut off is recognised and finished.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import datetime

from pyspark.sql import SparkSession

from ister.archive.ranges import SLICE_BYTES, Bound, bounds, slices
from ister.spark import intervals, jobs
from ister.spark.options import BadOption
from ister.spark.parquet_lake import ORDER, Lake
from ister.wal.errors import UnknownPartition
from ister.wal.tier.archive import Archive
from ister.wal.tier.chunk_cache import TierReader

Part = dict[int, intervals.Range]  # of each partition at most one range


def backfill(
    spark: SparkSession,
    url: str,
    topic: str,
    lake: Lake,
    *,
    start: Bound = None,
    end: Bound = None,
    batch_bytes: int = SLICE_BYTES,
    progress: jobs.Progress | None = None,
) -> jobs.Report:
    """Everything of the range that is in the archive and not in the lake."""
    lake.recover()
    records = batches = 0
    parts = list(_parts(url, topic, lake, start, end, batch_bytes))
    for part in parts:
        offsets = {str(partition): span for partition, span in part.items()}
        options = {
            "path": url,
            "assign": json.dumps({topic: sorted(part)}),
            "startingOffsets": json.dumps({topic: {p: r[0] for p, r in offsets.items()}}),
            "endingOffsets": json.dumps({topic: {p: r[1] for p, r in offsets.items()}}),
            "includeHeaders": "true",
        }
        frame = spark.read.format("ister").options(**options).load().select(*ORDER)
        manifest = lake.put(_name(topic, part), "backfill", frame)
        batches += 1
        records += sum(span.records for span in manifest.spans)
        if progress is not None:
            progress.say(f"batch {batches} of {len(parts)}, {records} records")
    return {"batches": batches, "records": records}


def _parts(
    url: str, topic: str, lake: Lake, start: Bound, end: Bound, batch_bytes: int
) -> Iterator[Part]:
    """What is missing, in batches: the next piece of each partition, as long as there is one."""
    covered = lake.covered()
    queues: dict[int, list[intervals.Range]] = {}
    with closing(Archive.open(url)) as archive:
        reader = TierReader(archive.store)
        for manifest in archive.find(topic):
            first, until = bounds(manifest, start, end, reader)
            known = covered.get((manifest.topic_name, manifest.partition), [])
            queues[manifest.partition] = [
                (piece.start, piece.end)
                for low, high in intervals.subtract([(first, until)], known)
                for piece in slices(manifest, low, high, batch_bytes)
            ]
    while any(queues.values()):
        yield {number: ranges.pop(0) for number, ranges in queues.items() if ranges}


def _name(topic: str, part: Part) -> str:
    text = json.dumps([topic, sorted(part.items())])
    return f"backfill-{hashlib.sha256(text.encode()).hexdigest()[:24]}"


def _bound(text: str | None) -> Bound:
    """An offset, or a time as ISO 8601 (UTC unless it says otherwise)."""
    if text is None:
        return None
    if text.isdigit():
        return int(text)
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise BadOption(f"{text!r} is neither an offset nor a time like 2026-11-18T10:00") from None


def _parser() -> argparse.ArgumentParser:
    made = jobs.parser("backfill", "The archive into a Parquet lake, without a broker.")
    made.add_argument("--archive", required=True, help="bucket: file:///path or gs://bucket/prefix")
    made.add_argument("--topic", required=True)
    made.add_argument("--lake", required=True, help="folder of the lake, on any of Spark's systems")
    made.add_argument("--from", dest="start", help="offset or time (ISO 8601); default: all")
    made.add_argument("--to", dest="end", help="offset or time, not included")
    made.add_argument("--batch-mb", type=int, default=SLICE_BYTES >> 20)
    return made


def run(given: argparse.Namespace, spark: SparkSession, progress: jobs.Progress) -> jobs.Report:
    try:
        return backfill(
            spark,
            given.archive,
            given.topic,
            Lake(spark, given.lake),
            start=_bound(given.start),
            end=_bound(given.end),
            batch_bytes=max(1, given.batch_mb) << 20,
            progress=progress,
        )
    except UnknownPartition as error:
        raise BadOption(str(error)) from error


def main(argv: Sequence[str] | None = None) -> int:
    return jobs.main("backfill", _parser(), run, argv)


if __name__ == "__main__":
    sys.exit(main())
