"""Topics into the lake, each record exactly once.

    python -m ister.spark.ingest --bootstrap HOST:PORT --topics orders --lake PATH

A stream of Spark's Kafka source; every micro-batch is one batch of the lake
(`parquet_lake.py`), under a name made of an id that lives in the checkpoint and Spark's
number of the batch. Spark does a batch that was not committed again with the same offsets,
and the lake takes a name once.
Offsets that the lake has already, from a backfill or an older checkpoint, are left out, so
the two meet at any offset. The date is the UTC date of the record's timestamp.

With `--check utf8` or `json`, records whose value is not that go to the dead letters, as they
came, with the reason. A topic that was deleted and made again counts from 0 again and needs
a lake of its own.
"""

from __future__ import annotations

import argparse
import sys
import uuid
from collections.abc import Callable, Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ister.spark import jobs
from ister.spark.intervals import Range
from ister.spark.parquet_lake import ORDER, Lake

CHECKS: dict[str, Callable[[Column], Column]] = {
    "none": lambda value: F.lit(None),
    "utf8": lambda value: _unless(F.is_valid_utf8(value.cast("string")), "not UTF-8"),
    "json": lambda value: _unless(F.try_parse_json(value.cast("string")).isNotNull(), "not JSON"),
}


def ingest(
    spark: SparkSession,
    source: DataFrame,
    lake: Lake,
    checkpoint: str,
    *,
    check: str = "none",
    interval: str | None = None,
    progress: jobs.Progress | None = None,
) -> jobs.Report:
    """Run until there is no more (or for ever, with `interval`); what it did."""
    writer = _Writer(lake, _run_id(lake, checkpoint), check, progress)
    lake.recover()
    query = source.writeStream.foreachBatch(writer.write).option("checkpointLocation", checkpoint)
    if interval is None:
        query = query.trigger(availableNow=True)
    else:
        query = query.trigger(processingTime=interval)
    running = query.start()
    try:
        running.awaitTermination()
    finally:
        running.stop()
    return {"batches": writer.batches, "records": writer.records}


class _Writer:
    """What a micro-batch does; its state is what to say at the end."""

    def __init__(self, lake: Lake, run_id: str, check: str, progress: jobs.Progress | None) -> None:
        self._lake = lake
        self._run_id = run_id
        self._check = CHECKS[check]
        self._progress = progress
        self.batches = 0
        self.records = 0

    def write(self, frame: DataFrame, number: int) -> None:
        name = f"ingest-{self._run_id}-{number:010d}"
        rows = frame.select(*ORDER)
        if not self._lake.has(name):
            rows = rows.where(~_in_lake(self._lake))
        error = self._check(F.col("value"))
        good = rows.where(error.isNull())
        dead = rows.withColumn("error", error).where(F.col("error").isNotNull())
        checked = self._check is not CHECKS["none"]
        manifest = self._lake.put(name, "ingest", good, dead if checked else None)
        self.batches += 1
        self.records += sum(span.records for span in manifest.spans)
        if self._progress is not None:
            self._progress.say(f"{self.records} records in {self.batches} batches")


def _in_lake(lake: Lake) -> Column:
    """Whether a row is in the lake already."""
    known = F.lit(False)
    for (topic, partition), ranges in lake.covered().items():
        place = (F.col("topic") == topic) & (F.col("partition") == partition)
        known = known | (place & _within(ranges))
    return known


def _within(ranges: list[Range]) -> Column:
    inside = F.lit(False)
    for first, end in ranges:
        inside = inside | ((F.col("offset") >= first) & (F.col("offset") < end))
    return inside


def _run_id(lake: Lake, checkpoint: str) -> str:
    """Made with the checkpoint and gone with it: batch numbers count from 0 in each."""
    path = f"{checkpoint.rstrip('/')}/ister-run"
    found = lake.files.read(path)
    if found is None:
        found = uuid.uuid4().hex[:12]
        lake.files.write(path, found)
    return found


def _unless(fine: Column, reason: str) -> Column:
    """The reason why a value is not taken; a null value has nothing to be wrong."""
    return F.when(F.col("value").isNotNull() & ~F.coalesce(fine, F.lit(False)), F.lit(reason))


def _parser() -> argparse.ArgumentParser:
    made = jobs.parser("ingest", "Topics into a Parquet lake, each record exactly once.")
    made.add_argument("--bootstrap", required=True, help="address of the broker")
    which = made.add_mutually_exclusive_group(required=True)
    which.add_argument("--topics", help="names, with commas between")
    which.add_argument("--pattern", help="a regular expression that names match")
    made.add_argument("--lake", required=True, help="folder of the lake, on any of Spark's systems")
    made.add_argument("--checkpoint", help="default: _ister/checkpoint in the lake")
    made.add_argument("--starting", default="earliest", help="startingOffsets of the first start")
    made.add_argument("--max-offsets", type=int, help="records of one batch at most")
    made.add_argument("--interval", help='go on for ever, a batch every "10 seconds"')
    made.add_argument(
        "--check", choices=sorted(CHECKS), default="none", help="what a value must be"
    )
    made.add_argument("--allow-loss", action="store_true", help="failOnDataLoss=false")
    return made


def run(given: argparse.Namespace, spark: SparkSession, progress: jobs.Progress) -> jobs.Report:
    options = {
        "kafka.bootstrap.servers": given.bootstrap,
        "startingOffsets": given.starting,
        "includeHeaders": "true",
        "failOnDataLoss": str(not given.allow_loss).lower(),
    }
    options |= {"subscribe": given.topics} if given.topics else {"subscribePattern": given.pattern}
    if given.max_offsets:
        options["maxOffsetsPerTrigger"] = str(given.max_offsets)
    return ingest(
        spark,
        spark.readStream.format("kafka").options(**options).load(),
        Lake(spark, given.lake),
        given.checkpoint or f"{given.lake.rstrip('/')}/_ister/checkpoint",
        check=given.check,
        interval=given.interval,
        progress=progress,
    )


def main(argv: Sequence[str] | None = None) -> int:
    return jobs.main("ingest", _parser(), run, argv, kafka=True)


if __name__ == "__main__":
    sys.exit(main())
