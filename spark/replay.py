"""Records out of the lake or the archive back into a topic, as they were.

    python -m ister.spark.replay --lake PATH --topic orders --target orders-again
                                 --bootstrap HOST:PORT [--rate 1000] [--progress PATH] [--dry-run]

Key, value, headers and timestamp are kept (Spark's own sink cannot set a timestamp, so tasks
speak to the broker themselves), and the order of each partition: a source partition goes to
one target partition, its number modulo theirs, by one task at a time. Each record gets a
header `ister.replay` with its origin, topic/partition/offset, by which a consumer can drop
what comes twice: delivery is at least once. It goes in rounds; after each the offsets
are noted in `--progress`, and the next start goes on behind them.

Nothing goes in circles: the target must be another topic, and a record that came out of the
target once is left out and counted.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ister.spark import jobs
from ister.spark.files import Files, HadoopFiles
from ister.spark.options import BadOption
from ister.spark.parquet_lake import Lake
from ister.wal.clock import Clock, SystemClock

HEADER = "ister.replay"
ROUND_RECORDS = 100_000  # of all partitions together, without a rate
BATCH_BYTES = 512 * 1024
Offsets = dict[int, int]


def replay(
    rows: DataFrame,
    topic: str,
    bootstrap: str,
    target: str,
    *,
    files: Files,
    progress_path: str | None = None,
    rate: int | None = None,
    dry_run: bool = False,
    clock: Clock | None = None,
    sleep: Callable[[float], None] = time.sleep,
    progress: jobs.Progress | None = None,
) -> jobs.Report:
    """Send the rows of one topic (columns of the lake) to `target`; what was done."""
    if target == topic:
        raise BadOption(f"the target is the source, {topic}: it would go in circles")
    clock = clock or SystemClock()
    wanted = rows.where(F.col("topic") == topic)
    ranges = _ranges(wanted)
    done = _load(files, progress_path, topic, target)
    todo = {p: (max(first, done.get(p, first)), end) for p, (first, end) in ranges.items()}
    total = sum(max(0, end - first) for first, end in todo.values())
    if dry_run:
        return {"dry_run": True, "records": total, "partitions": len(todo)}
    sent = skipped = 0
    begun = clock.monotonic()
    for bounds in _rounds(todo, rate or ROUND_RECORDS):
        part = wanted.where(_within(bounds)).repartition(len(bounds), "partition")
        ordered = part.sortWithinPartitions("partition", "offset")
        send = partial(_send, bootstrap=bootstrap, target=target)
        for more, left_out in ordered.rdd.mapPartitions(send).collect():
            sent += more
            skipped += left_out
        done |= {number: end for number, (_, end) in bounds.items()}
        _save(files, progress_path, topic, target, done)
        if progress is not None:
            progress.say(f"{sent} of {total} records")
        if rate is not None:
            ahead = (sent + skipped) / rate - (clock.monotonic() - begun)
            if ahead > 0:
                sleep(ahead)
    return {"dry_run": False, "records": sent, "skipped": skipped, "partitions": len(todo)}


def _ranges(rows: DataFrame) -> dict[int, tuple[int, int]]:
    found = rows.groupBy("partition").agg(F.min("offset"), F.max("offset")).collect()
    return {number: (first, last + 1) for number, first, last in found}


def _rounds(todo: dict[int, tuple[int, int]], records: int) -> Iterator[dict[int, tuple[int, int]]]:
    """The next offsets of each partition, together about `records`."""
    left = {number: span for number, span in sorted(todo.items()) if span[0] < span[1]}
    while left:
        each = max(1, records // len(left))
        bounds = {n: (first, min(end, first + each)) for n, (first, end) in left.items()}
        yield bounds
        left = {n: (bounds[n][1], end) for n, (_, end) in left.items() if bounds[n][1] < end}


def _within(bounds: dict[int, tuple[int, int]]) -> Any:
    inside = F.lit(False)
    for number, (first, end) in bounds.items():
        offset = F.col("offset")
        inside = inside | ((F.col("partition") == number) & (offset >= first) & (offset < end))
    return inside


# -- in a task -----------------------------------------------------------------------------


def _send(rows: Iterable[Any], *, bootstrap: str, target: str) -> Iterator[tuple[int, int]]:
    """Send the rows of a task in order; (sent, left out)."""
    from ister.gateway.kafka_client.batches import size_of
    from ister.gateway.kafka_client.cluster import Cluster

    sent = skipped = 0
    with Cluster(bootstrap) as cluster:
        writer = _Writer(cluster, target)
        for row in rows:
            record = _record(row, target)
            if record is None:
                skipped += 1
                continue
            writer.add(row["partition"], record, size_of(record))
            sent += 1
        writer.flush()
    yield sent, skipped


class _Writer:
    """Batches for the partitions of a topic, each sent before the next of its partition."""

    def __init__(self, cluster: Any, target: str) -> None:
        numbers = sorted(p.partition_index for p in cluster.topic(target).partitions)
        self._target = target
        self._numbers = numbers
        self._leaders = {
            number: connection
            for connection, led in cluster.by_leader(target, numbers).items()
            for number in led
        }
        self._waiting: list[Any] = []
        self._bytes = 0
        self._number = -1

    def add(self, source_partition: int, record: Any, size: int) -> None:
        number = self._numbers[source_partition % len(self._numbers)]
        if number != self._number or self._bytes + size > BATCH_BYTES:
            self.flush()
        self._number = number
        self._waiting.append(record)
        self._bytes += size

    def flush(self) -> None:
        from ister.gateway.kafka_client import data
        from ister.gateway.kafka_client.batches import encode

        if self._waiting:
            leader = self._leaders[self._number]
            data.produce(leader, self._target, self._number, encode(self._waiting))
        self._waiting = []
        self._bytes = 0


def _record(row: Any, target: str) -> Any:
    """The record to send; None if it came out of the target once."""
    from ister.gateway.kafka_client.batches import NewRecord

    headers = [
        (header["key"].encode(), None if header["value"] is None else bytes(header["value"]))
        for header in row["headers"] or ()
    ]
    for name, value in headers:
        if name == HEADER.encode() and (value or b"").decode().rsplit("/", 2)[0] == target:
            return None
    origin = f"{row['topic']}/{row['partition']}/{row['offset']}"
    return NewRecord(
        None if row["key"] is None else bytes(row["key"]),
        None if row["value"] is None else bytes(row["value"]),
        row["milliseconds"],
        (*headers, (HEADER.encode(), origin.encode())),
    )


# -- where it was --------------------------------------------------------------------------


def _load(files: Files, path: str | None, topic: str, target: str) -> Offsets:
    text = files.read(path) if path else None
    if text is None:
        return {}
    found = json.loads(text)
    if (found["topic"], found["target"]) != (topic, target):
        raise BadOption(
            f"{path} is the progress of {found['topic']} to {found['target']}: give another file"
        )
    return {int(number): offset for number, offset in found["offsets"].items()}


def _save(files: Files, path: str | None, topic: str, target: str, done: Offsets) -> None:
    if path:
        files.write(path, json.dumps({"topic": topic, "target": target, "offsets": done}))


# -- the command ---------------------------------------------------------------------------


def with_milliseconds(rows: DataFrame) -> DataFrame:
    """What a record's timestamp was, exactly."""
    return rows.withColumn("milliseconds", F.unix_millis("timestamp"))


def _parser() -> argparse.ArgumentParser:
    made = jobs.parser("replay", "Records of the lake or the archive back into a topic.")
    source = made.add_mutually_exclusive_group(required=True)
    source.add_argument("--lake", help="folder of a lake")
    source.add_argument("--archive", help="bucket: file:///path or gs://bucket/prefix")
    made.add_argument("--topic", required=True, help="the topic that they were in")
    made.add_argument("--target", required=True, help="the topic to send to; it must exist")
    made.add_argument("--bootstrap", required=True, help="address of the broker")
    made.add_argument("--where", help="a condition in SQL, on the columns of the lake")
    made.add_argument("--rate", type=int, help="records a second at most, about")
    made.add_argument("--progress", help="file to note offsets in, and to go on from")
    made.add_argument("--dry-run", action="store_true", help="count, send nothing")
    return made


def run(given: argparse.Namespace, spark: SparkSession, progress: jobs.Progress) -> jobs.Report:
    if given.lake:
        rows = Lake(spark, given.lake).read()
    else:
        options = {"path": given.archive, "subscribe": given.topic, "includeHeaders": "true"}
        rows = spark.read.format("ister").options(**options).load()
    return replay(
        with_milliseconds(rows.where(given.where) if given.where else rows),
        given.topic,
        given.bootstrap,
        given.target,
        files=HadoopFiles(spark),
        progress_path=given.progress,
        rate=given.rate,
        dry_run=given.dry_run,
        progress=progress,
    )


def main(argv: Sequence[str] | None = None) -> int:
    return jobs.main("replay", _parser(), run, argv)


if __name__ == "__main__":
    sys.exit(main())
