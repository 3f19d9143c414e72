"""From the archive to the broker at an exact offset: every record once."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

import ister.spark
from ister.spark.tests.kit import Kit, patiently, places, wait_for

pytestmark = pytest.mark.spark


def test_batch(spark: SparkSession, kit: Kit) -> None:
    """Archive and broker overlap; the union has each offset once, and where it says."""
    topic = kit.topic(2)
    kit.send(topic, ["a", "b", "c"])
    kit.send(topic, ["d"], partition=1)
    kit.wait_archived(topic, {0: 3, 1: 1})
    kit.broker.faults.bucket_down()
    try:
        kit.send(topic, ["e", "f"])  # these stay in the journal
        border = ister.spark.live_from(spark, kit.bucket, topic)
        assert border == {topic: {"0": 3, "1": 1}}
        frame = ister.spark.history_then_live(spark, kit.bucket, topic, kit.broker.bootstrap)
        assert places(frame) == [*((0, n) for n in range(5)), (1, 0)]
    finally:
        kit.broker.faults.bucket_up()


def test_stream_and_again(spark: SparkSession, kit: Kit, tmp_path: Path) -> None:
    """History first, then live; started again it goes on, though the archive has grown."""
    topic = kit.topic()
    kit.send(topic, ["a", "b", "c"])
    kit.wait_archived(topic, {0: 3})
    out = tmp_path / "out"

    def append(batch: DataFrame, _: int) -> None:
        batch.write.mode("append").parquet(str(out))

    def write(frame: DataFrame) -> DataStreamWriter:
        return frame.writeStream.foreachBatch(append)

    def start() -> StreamingQuery:
        return ister.spark.history_then_live(
            spark,
            kit.bucket,
            topic,
            kit.broker.bootstrap,
            checkpoint=str(tmp_path / "checkpoint"),
            write=write,
        )

    def run(until: int) -> None:
        query = patiently(start)
        try:
            wait_for(lambda: spark.read.schema(query_schema).parquet(str(out)).count() >= until)
        finally:
            query.stop()

    query_schema = "partition int, offset bigint"
    kit.send(topic, ["d"])
    run(4)
    kit.send(topic, ["e", "f"])
    kit.wait_archived(topic, {0: 6})
    run(6)
    assert places(spark.read.parquet(str(out))) == [(0, n) for n in range(6)]
