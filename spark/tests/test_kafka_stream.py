"""Spark's own Kafka source, unchanged, as a stream against Ister."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ister.spark.tests.kit import Kit, places, wait_for

pytestmark = pytest.mark.spark


class Run:
    """A stream from a topic into Parquet that can be started again and again."""

    def __init__(self, spark: SparkSession, kit: Kit, path: Path, **options: Any) -> None:
        self.spark = spark
        self._options = {"startingOffsets": "earliest", **options}
        self._options["kafka.bootstrap.servers"] = kit.broker.bootstrap
        self._path = path

    def start(self, **trigger: Any) -> StreamingQuery:
        frame = self.spark.readStream.format("kafka").options(**self._options).load()
        writer = frame.writeStream.format("parquet").option("path", str(self._path / "out"))
        writer = writer.option("checkpointLocation", str(self._path / "checkpoint"))
        return (writer.trigger(**trigger) if trigger else writer).start()

    def now(self) -> list[int]:
        """AvailableNow; rows of each batch."""
        query = self.start(availableNow=True)
        query.awaitTermination()
        return [p["numInputRows"] for p in query.recentProgress if p["numInputRows"]]

    @property
    def out(self) -> DataFrame:
        return self.spark.read.parquet(str(self._path / "out"))


def test_available_now_in_small_batches(spark: SparkSession, kit: Kit, tmp_path: Path) -> None:
    """The limit holds, a second run has nothing to do, and a third only what is new."""
    topic = kit.topic(2)
    kit.send(topic, [f"{n}" for n in range(7)])
    kit.send(topic, ["x"], partition=1)
    run = Run(spark, kit, tmp_path, subscribe=topic, maxOffsetsPerTrigger=4)
    counts = run.now()
    assert sum(counts) == 8
    assert max(counts) <= 5
    assert run.now() == []
    kit.send(topic, ["y"], partition=1)
    assert run.now() == [1]
    assert places(run.out) == [*((0, n) for n in range(7)), (1, 0), (1, 1)]


def test_partitions_are_added(spark: SparkSession, kit: Kit, tmp_path: Path) -> None:
    """A new partition begins at 0, so that nothing looks lost."""
    topic = kit.topic()
    kit.send(topic, ["a"])
    run = Run(spark, kit, tmp_path, subscribe=topic)
    assert run.now() == [1]
    kit.add_partitions(topic, 3)
    kit.send(topic, ["b"], partition=2)
    assert run.now() == [1]
    assert places(run.out) == [(0, 0), (2, 0)]


def test_a_topic_that_was_made_again(spark: SparkSession, kit: Kit, tmp_path: Path) -> None:
    """Offsets that went back are a loss; by option the stream goes on with what is there."""
    topic = kit.topic()
    kit.send(topic, ["a", "b", "c"])
    run = Run(spark, kit, tmp_path, subscribe=topic)
    assert run.now() == [3]
    kit.delete_topic(topic)
    kit.topic(name=topic)
    kit.send(topic, ["d"])
    with pytest.raises(PySparkException):
        run.now()
    lenient = Run(spark, kit, tmp_path, subscribe=topic, failOnDataLoss="false")
    lenient.now()
    kit.send(topic, ["e", "f", "g"])
    lenient.now()
    assert set(places(lenient.out)) >= {(0, 0), (0, 1), (0, 2), (0, 3)}


def test_a_pattern_with_a_deletion(spark: SparkSession, kit: Kit, tmp_path: Path) -> None:
    """Topics that match come and go."""
    first = kit.topic(name="pattern-a")
    kit.send(first, ["a"])
    run = Run(spark, kit, tmp_path, subscribePattern="pattern-.*", failOnDataLoss="false")
    assert run.now() == [1]
    second = kit.topic(name="pattern-b")
    kit.send(second, ["b"])
    kit.delete_topic(first)
    assert run.now() == [1]
    assert {row["topic"] for row in run.out.select("topic").collect()} == {first, second}


def test_the_broker_is_killed(spark: SparkSession, kit: Kit, tmp_path: Path) -> None:
    """kill -9 under a running query: it goes on by itself, each record once."""
    topic = kit.topic()
    kit.send(topic, ["a", "b"])
    run = Run(spark, kit, tmp_path, subscribe=topic)
    query = run.start()
    try:
        wait_for(lambda: bool(query.lastProgress) and _read_to(query, topic) == 2)
        kit.broker.crash()
        kit.send(topic, ["c"])
        wait_for(lambda: query.exception() is not None or _read_to(query, topic) == 3)
        assert query.exception() is None
    finally:
        query.stop()
    assert places(run.out) == [(0, 0), (0, 1), (0, 2)]


def test_the_driver_is_killed(spark: SparkSession, kit: Kit, tmp_path: Path) -> None:
    """A batch that was planned but not committed is done again, with the same offsets."""
    topic = kit.topic()
    kit.send(topic, ["a", "b", "c"])
    run = Run(spark, kit, tmp_path, subscribe=topic, maxOffsetsPerTrigger=2)
    run.now()
    (tmp_path / "checkpoint" / "commits" / "1").unlink()  # as if it had died before that
    (tmp_path / "checkpoint" / "commits" / ".1.crc").unlink(missing_ok=True)
    kit.send(topic, ["d"])
    run.now()
    assert places(run.out) == [(0, n) for n in range(4)]


def test_progress_tells_the_lag(spark: SparkSession, kit: Kit, tmp_path: Path) -> None:
    """Metrics of the source and a watermark are there."""
    topic = kit.topic()
    kit.send(topic, [f"{n}" for n in range(5)])
    options = {"kafka.bootstrap.servers": kit.broker.bootstrap, "subscribe": topic}
    frame = spark.readStream.format("kafka").options(**options, startingOffsets="earliest").load()
    counted = frame.withWatermark("timestamp", "1 second").groupBy("timestamp").count()
    query = (
        counted.writeStream.format("memory")
        .queryName("lag_test")
        .outputMode("update")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    source = query.recentProgress[0]["sources"][0]
    assert json.loads(source["endOffset"])[topic] == {"0": 5}
    assert source["metrics"]["maxOffsetsBehindLatest"] == "0"
    assert query.recentProgress[-1]["eventTime"]["watermark"].startswith("2023-11-14")


def test_real_time_mode(spark: SparkSession, kit: Kit, tmp_path: Path) -> None:
    """One long task per partition, records in milliseconds, into a topic."""
    source, target = kit.topic(), kit.topic()
    kit.send(source, ["a", "b"])
    options = {"kafka.bootstrap.servers": kit.broker.bootstrap}
    frame = spark.readStream.format("kafka").options(
        **options, subscribe=source, startingOffsets="earliest"
    )
    query = (
        frame.load()
        .select("key", "value")
        .writeStream.format("kafka")
        .options(**options, topic=target, checkpointLocation=str(tmp_path / "checkpoint"))
        .outputMode("update")
        .trigger(**{"realTime": "5 seconds"})
        .start()
    )
    try:
        found = spark.read.format("kafka").options(**options, subscribe=target)
        wait_for(lambda: query.exception() is not None or found.load().count() == 2)
        kit.send(source, ["c"])
        wait_for(lambda: query.exception() is not None or found.load().count() == 3)
        assert query.exception() is None
    finally:
        query.stop()


def _read_to(query: StreamingQuery, topic: str) -> int:
    progress = query.lastProgress
    end = progress["sources"][0]["endOffset"] if progress else None
    return json.loads(end)[topic]["0"] if end else 0
