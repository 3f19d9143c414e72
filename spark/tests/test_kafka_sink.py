"""Spark's own Kafka sink, unchanged, against Ister."""

from __future__ import annotations

from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from ister.spark.tests.kit import Kit, places, values

pytestmark = pytest.mark.spark
FAILED = (PySparkException, Py4JJavaError)  # of the driver's Python, of its JVM


def write(frame: DataFrame, kit: Kit, **options: Any) -> None:
    writer = frame.write.format("kafka").option("kafka.bootstrap.servers", kit.broker.bootstrap)
    writer.options(**options).save()


def read(spark: SparkSession, kit: Kit, topic: str) -> DataFrame:
    options = {"kafka.bootstrap.servers": kit.broker.bootstrap, "includeHeaders": "true"}
    return spark.read.format("kafka").options(**options, subscribe=topic).load()


def test_everything_that_it_can_set(spark: SparkSession, kit: Kit) -> None:
    """Key, value, headers, partition; the option topic beats the column."""
    topic, other = kit.topic(3), kit.topic()
    rows = [
        (b"k", b"1", other, 2, [("h", b"x")]),
        (None, b"2", other, 0, None),
    ]
    schema = (
        "key binary, value binary, topic string, partition int, "
        "headers array<struct<key: string, value: binary>>"
    )
    frame = spark.createDataFrame(rows, schema)
    write(frame, kit, topic=topic, includeHeaders="true")
    found = {row["partition"]: row for row in read(spark, kit, topic).collect()}
    assert found.keys() == {0, 2}
    assert bytes(found[2]["key"]) == b"k"
    assert [(h["key"], bytes(h["value"])) for h in found[2]["headers"]] == [("h", b"x")]
    assert found[0]["headers"] is None
    write(frame.drop("partition"), kit)
    assert sorted(values(read(spark, kit, other))) == ["1", "2"]


def test_what_it_refuses(spark: SparkSession, kit: Kit) -> None:
    """No topic, no value, a wrong type, a mode, a topic that is not there."""
    topic = kit.topic()
    good = spark.createDataFrame([("a",)], "value string")
    with pytest.raises(FAILED):
        write(good, kit)
    with pytest.raises(FAILED):
        write(good.selectExpr("value as key"), kit, topic=topic)
    with pytest.raises(FAILED):
        write(spark.range(1).selectExpr("id as value"), kit, topic=topic)
    with pytest.raises(FAILED):
        good.write.format("kafka").mode("overwrite").options(
            **{"kafka.bootstrap.servers": kit.broker.bootstrap}, topic=topic
        ).save()
    with pytest.raises(FAILED):
        write(good, kit, topic="nowhere", **{"kafka.max.block.ms": "1000"})
    assert places(read(spark, kit, topic)) == []


def test_large_rows_and_a_small_buffer(spark: SparkSession, kit: Kit) -> None:
    """Rows of half a megabyte through a buffer of one."""
    topic = kit.topic()
    frame = spark.range(6).selectExpr("repeat('x', 500000) as value")
    write(frame, kit, topic=topic, **{"kafka.buffer.memory": "1048576"})
    (row,) = read(spark, kit, topic).selectExpr("sum(length(value))").collect()
    assert row[0] == 3_000_000
