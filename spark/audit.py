"""Proof that every offset is there exactly once, in the archive and in the lake; or what is not.

    python -m ister.spark.audit --archive URL --topic orders [--lake PATH] [--receipts FILE]
                                [--data DIR] [--html FILE] [--quick] [--json]

Three steps. Manifests of the archive against each other (`audit_archive.py`): each offset in
one entry or one known hole. Every segment, byte for byte. Then, unless `--quick`, every
record of archive and lake is decoded and compared: partition, offset, checksum of key,
value, headers and timestamp. What one step has found is not found again by the next.

Explained, and no finding: below the log start (retention), a known hole, not yet handed
over (in the journal, `--data`; or in the lake beyond the archive's end), not yet in the lake.
Exit 0: every offset is accounted for; 3: findings.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from ister.spark import intervals, jobs
from ister.spark.audit_archive import Evidence, Note, look
from ister.spark.audit_page import page
from ister.spark.options import BadOption
from ister.spark.parquet_lake import Lake
from ister.wal.tier.archive import Archive

ROWS_TOLD_MAX = 1000  # ranges of one kind that are listed; the rest is counted


class Receipt(NamedTuple):
    """Evidence that a record was sent or acknowledged."""

    topic: str
    partition: int
    offset: int


def audit(
    spark: SparkSession,
    url: str,
    topic: str,
    *,
    lake: Lake | None = None,
    receipts: Iterable[Receipt] = (),
    data: str | None = None,
    quick: bool = False,
    progress: jobs.Progress | None = None,
) -> jobs.Report:
    """All that was found, and what explains the rest."""
    say = progress.say if progress is not None else lambda text: None
    say("segments of the archive")
    with closing(Archive.open(url)) as archive:
        evidence = look(archive, topic, data)
    notes = list(evidence.notes)
    if lake is not None:
        say("files of the lake")
        notes += _lake_files(lake, topic)
        if not quick and evidence.readable:
            say("every record")
            notes += _compare(spark, url, topic, lake, evidence, notes)
    notes += _receipts(receipts, topic, evidence)
    findings = [note for note in notes if not note.explained]
    return {
        "topic": topic,
        "partitions": [part._asdict() for part in evidence.partitions],
        "findings": [note.as_dict() for note in findings],
        "explained": [note.as_dict() for note in notes if note.explained],
        "compared": lake is not None and not quick and evidence.readable,
    }


# -- the lake ------------------------------------------------------------------------------


def _lake_files(lake: Lake, topic: str) -> list[Note]:
    """Files that manifests name and that are gone; files in sight that no manifest names."""
    current = lake.current()
    present = _present(lake)
    hidden = lake.hidden()
    notes: list[Note] = []
    for path, file in sorted(current.items()):
        if path not in present and path not in hidden:
            for span in file.spans:
                if span.topic == topic:
                    what = f"{path} is gone"
                    notes.append(Note("lake file lost", span.partition, span.first, span.end, what))
    for path in sorted(present - set(current)):
        strange = lake.read_files([path]).where(F.col("topic") == topic)
        rows = strange.groupBy("partition").agg(F.min("offset"), F.max("offset")).collect()
        for partition, first, last in rows:
            what = f"{path} is in sight and in no manifest: plain readers see its rows twice"
            notes.append(Note("lake file doubled", partition, first, last + 1, what))
    return notes


def _present(lake: Lake) -> set[str]:
    found: set[str] = set()
    for topic in lake.files.list(lake.path):
        if not topic.name.startswith("topic="):
            continue
        for date in lake.files.list(topic.path):
            for file in lake.files.list(date.path):
                if file.name.endswith(".parquet") and not file.name.startswith(("_", ".")):
                    found.add(file.path[len(lake.path) + 1 :])
    return found


def _compare(
    spark: SparkSession,
    url: str,
    topic: str,
    lake: Lake,
    evidence: Evidence,
    known: list[Note],
) -> list[Note]:
    """Every record of both, joined by partition and offset; only what differs comes back."""
    options = {"path": url, "subscribe": topic, "includeHeaders": "true"}
    archived = spark.read.format("ister").options(**options, failOnDataLoss="false").load()
    lost = {note.what.partition(" is gone")[0] for note in known if note.kind == "lake file lost"}
    paths = [path for path in lake.current() if path not in lost]
    dead = lake.dead_letters().drop("error", "date")
    rows = lake.read_files(paths).drop("date").unionByName(dead)
    in_lake = rows.where(F.col("topic") == topic)
    left = archived.select("partition", "offset", _checksum().alias("left"))
    right = (
        in_lake.select("partition", "offset", _checksum().alias("checksum"))
        .groupBy("partition", "offset")
        .agg(F.count("*").alias("copies"), F.first("checksum").alias("right"))
    )
    joined = left.join(right, ["partition", "offset"], "full_outer")
    kind = (
        F.when(F.col("copies") > 1, "duplicate")
        .when(F.col("right").isNull(), "only in archive")
        .when(F.col("left").isNull(), "only in lake")
        .when(F.col("left") != F.col("right"), "mismatch")
    )
    odd = joined.withColumn("kind", kind).where(F.col("kind").isNotNull())
    covered = {number: ranges for (name, number), ranges in lake.covered().items() if name == topic}
    notes: list[Note] = []
    for name, partition, ranges in _ranges(odd):
        notes += _judge(name, partition, ranges, evidence, covered.get(partition, []), known)
    return notes


def _checksum() -> Column:
    """64 bits over all that a producer gave; null and empty are not the same."""
    key, value = F.col("key"), F.col("value")
    return F.xxhash64(
        key.isNull(),
        key,
        value.isNull(),
        value,
        F.to_json(F.col("headers")),
        F.col("timestamp"),
    )


def _ranges(odd: DataFrame) -> list[tuple[str, int, list[intervals.Range]]]:
    """Rows of one kind and partition as ranges of offsets."""
    window = Window.partitionBy("kind", "partition").orderBy("offset")
    rows = (
        odd.withColumn("run", F.col("offset") - F.row_number().over(window))
        .groupBy("kind", "partition", "run")
        .agg(F.min("offset"), F.max("offset"))
        .collect()
    )
    found: dict[tuple[str, int], list[intervals.Range]] = {}
    for kind, partition, _, first, last in rows:
        found.setdefault((kind, partition), []).append((first, last + 1))
    return [(kind, number, sorted(ranges)) for (kind, number), ranges in sorted(found.items())]


def _judge(
    kind: str,
    partition: int,
    ranges: list[intervals.Range],
    evidence: Evidence,
    covered: list[intervals.Range],
    known: list[Note],
) -> list[Note]:
    """What a difference means, without what another step has found already."""
    told = [(note.first, note.end) for note in known if note.partition == partition]
    part = evidence.part(partition)
    if kind == "mismatch":
        what = "key, value, headers or timestamp differ between archive and lake"
        return _notes("record altered", partition, intervals.subtract(ranges, told), what)
    if kind == "duplicate":
        what = "more than once in the lake"
        return _notes("duplicate in lake", partition, intervals.subtract(ranges, told), what)
    if kind == "only in archive":
        waiting = intervals.subtract(ranges, covered)
        lost = intervals.subtract(ranges, [*told, *waiting])
        return [
            *_notes("lake row lost", partition, lost, "a batch brought it, the lake has it not"),
            *_notes("not yet in the lake", partition, waiting, "no batch brought it", True),
        ]
    below = intervals.subtract(ranges, [(part.log_start, 1 << 62)])
    above = intervals.subtract(ranges, [(0, part.archive_end)])
    inside = intervals.subtract(ranges, [*below, *above, *told])
    return [
        *_notes("retention", partition, below, "below the log start of the archive", True),
        *_notes("pending", partition, above, "in the lake, not yet handed over", True),
        *_notes("missing in archive", partition, inside, "in the lake, not in the archive"),
    ]


def _notes(
    kind: str, partition: int, ranges: list[intervals.Range], what: str, explained: bool = False
) -> list[Note]:
    told = [Note(kind, partition, *found, what, explained) for found in ranges[:ROWS_TOLD_MAX]]
    rest = ranges[ROWS_TOLD_MAX:]
    if rest:
        more = f"{what}; and {len(rest)} more ranges up to here"
        told.append(Note(kind, partition, rest[0][0], rest[-1][1], more, explained))
    return told


# -- receipts ------------------------------------------------------------------------------


def _receipts(receipts: Iterable[Receipt], topic: str, evidence: Evidence) -> list[Note]:
    """A receipt for an offset that is nowhere is a finding; one for the journal is pending."""
    notes: list[Note] = []
    for receipt in receipts:
        if receipt.topic != topic:
            continue
        place = (receipt.partition, receipt.offset, receipt.offset + 1)
        part = evidence.part(receipt.partition)
        if part.archive_end <= receipt.offset < part.journal_end:
            notes.append(Note("pending", *place, "has a receipt, is in the journal", True))
        elif receipt.offset >= part.archive_end:
            notes.append(Note("receipt without record", *place, "beyond everything that is there"))
    return notes


def read_receipts(path: str) -> list[Receipt]:
    """JSON lines with topic, partition and offset."""
    found = []
    for number, line in enumerate(Path(path).read_text().splitlines(), 1):
        try:
            row: dict[str, Any] = json.loads(line)
            found.append(Receipt(str(row["topic"]), int(row["partition"]), int(row["offset"])))
        except (ValueError, KeyError, TypeError) as error:
            raise BadOption(f"{path}, line {number}: {error!r}") from error
    return found


# -- the command ---------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    made = jobs.parser("audit", "Prove that every offset is there exactly once.")
    made.add_argument("--archive", required=True, help="bucket: file:///path or gs://bucket/prefix")
    made.add_argument("--topic", required=True)
    made.add_argument("--lake", help="compare with this lake too")
    made.add_argument("--receipts", help="JSON lines with topic, partition, offset")
    made.add_argument("--data", help="data directory of the broker: what is not yet handed over")
    made.add_argument("--html", help="write a report for people to this file")
    made.add_argument("--quick", action="store_true", help="do not decode and compare records")
    return made


def run(given: argparse.Namespace, spark: SparkSession, progress: jobs.Progress) -> jobs.Report:
    report = audit(
        spark,
        given.archive,
        given.topic,
        lake=Lake(spark, given.lake) if given.lake else None,
        receipts=read_receipts(given.receipts) if given.receipts else (),
        data=given.data,
        quick=given.quick,
        progress=progress,
    )
    if given.html:
        Path(given.html).write_text(page(report))
    return report


def main(argv: Sequence[str] | None = None) -> int:
    return jobs.main("audit", _parser(), run, argv)


if __name__ == "__main__":
    sys.exit(main())
