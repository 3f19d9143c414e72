"""`format("ister")` in a real session: Spark finds it, reads it, goes on from a checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import ister.archive
from ister.archive.tests.buckets import TIME, Bucket
from ister.spark.tests.kit import patiently
from ister.wal.tests.batches import make_batch

pytestmark = pytest.mark.spark


def batch(first: int, codec: int = 0) -> bytes:
    """Five records with everything that a record can have."""
    return make_batch(
        [b"v%d" % n if n % 3 else None for n in range(first, first + 5)],
        keys=[b"k%d" % n if n % 2 else None for n in range(first, first + 5)],
        headers=[[(b"h", b"1"), (b"h", None)] if n % 2 else [] for n in range(first, first + 5)],
        timestamps=[TIME + n for n in range(first, first + 5)],
        base_offset=first,
        codec=codec,
    )


@pytest.fixture
def bucket(tmp_path: Path) -> Bucket:
    """orders/0 with every codec and in two segments, orders/1 with one batch."""
    made = Bucket(tmp_path / "bucket")
    made.add([batch(5 * codec, codec) for codec in range(5)])
    made.add([batch(25)])
    made.add([batch(0)], partition=1)
    return made.publish()


def rows(frame: DataFrame) -> list[dict[str, object]]:
    found = [row.asDict(recursive=True) for row in frame.collect()]
    for row in found:
        for name in ("key", "value"):
            row[name] = None if row[name] is None else bytes(row[name])
        for header in row.get("headers") or ():
            header["value"] = None if header["value"] is None else bytes(header["value"])
        row["timestamp"] = row["timestamp"].timestamp()
    return sorted(found, key=lambda row: (row["partition"], row["offset"]))


def test_batch(spark: SparkSession, bucket: Bucket) -> None:
    """All columns are what a scan gives, in the Kafka source's schema, however it is cut."""
    options = {"path": bucket.url, "subscribe": "orders", "includeHeaders": "true"}
    frame = spark.read.format("ister").options(**options, bytesPerTask="200").load()
    plain = ister.archive.scan(bucket.url, "orders", headers=True).read_all().to_pylist()
    for row in plain:
        row["timestamp"] = row["timestamp"].timestamp()
    assert rows(frame) == plain
    assert frame.rdd.getNumPartitions() > 2
    kafka = spark.read.format("kafka").option("kafka.bootstrap.servers", "127.0.0.1:1")
    assert kafka.options(subscribe="x", includeHeaders="true").load().schema == frame.schema


def test_loss(spark: SparkSession, bucket: Bucket) -> None:
    """A missing segment fails the query with its offsets; by option the rest comes."""
    bucket.file_of(bucket.entries[0][0]).unlink()
    source = spark.read.format("ister").options(path=bucket.url, subscribe="orders")
    with pytest.raises(PySparkException, match=r"offsets 0\.\.24 of orders/0"):
        source.load().count()
    found = source.option("failOnDataLoss", "false").load()
    assert [(row["partition"], row["offset"]) for row in rows(found)] == [
        *((0, n) for n in range(25, 30)),
        *((1, n) for n in range(5)),
    ]
    assert source.option("startingOffsets", '{"orders":{"0":30,"1":5}}').load().count() == 0


def test_stream(spark: SparkSession, bucket: Bucket, tmp_path: Path) -> None:
    """Bounded batches; started again with the same checkpoint, only what is new comes."""

    def run() -> list[int]:
        source = spark.readStream.format("ister").options(
            path=bucket.url, subscribe="orders", startingOffsets="earliest", maxOffsetsPerTrigger=20
        )
        query = (
            source.load()
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .option("path", str(tmp_path / "out"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return [progress["numInputRows"] for progress in query.recentProgress]

    counts = patiently(run)
    assert sum(counts) == 35
    assert max(counts) <= 21
    bucket.add([batch(30, 4)])
    bucket.publish()
    assert sum(patiently(run)) == 5
    read = spark.read.parquet(str(tmp_path / "out"))
    places = [(row["partition"], row["offset"]) for row in rows(read)]
    assert places == [*((0, n) for n in range(35)), *((1, n) for n in range(5))]
