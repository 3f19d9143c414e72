"""Spark's own Kafka source, unchanged, in batches against Ister."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from ister.spark.tests.kit import TIME, Kit, places, values

pytestmark = pytest.mark.spark
FAILED = (PySparkException, Py4JJavaError)  # of the driver's Python, of its JVM


def read(spark: SparkSession, kit: Kit, **options: Any) -> DataFrame:
    source = spark.read.format("kafka").option("kafka.bootstrap.servers", kit.broker.bootstrap)
    return source.options(**options).load()


@pytest.fixture(scope="module")
def topic(kit: Kit) -> str:
    """Two partitions with offsets 0..5 and 0..2, a second apart, and an empty third."""
    name = kit.topic(3, "batch-input")
    kit.send(name, [f"a{n}" for n in range(6)])
    kit.send(name, [f"b{n}" for n in range(3)], partition=1)
    return name


def by_partition(topic: str, *numbers: int) -> str:
    return json.dumps({topic: {str(index): number for index, number in enumerate(numbers)}})


def test_start_positions(spark: SparkSession, kit: Kit, topic: str) -> None:
    """Each way to name partitions with each way to name a start, with and without loss checks."""
    strategies: list[dict[str, Any]] = [
        {"subscribe": topic},
        {"subscribePattern": "batch-inp.*"},
        {"assign": json.dumps({topic: [0, 1, 2]})},
    ]
    times = by_partition(topic, TIME + 4000, TIME + 1500, TIME)
    starts: list[tuple[dict[str, Any], tuple[int, int]]] = [
        ({"startingOffsets": "earliest"}, (0, 0)),
        ({"startingOffsets": by_partition(topic, 2, -2, 0)}, (2, 0)),
        (
            {"startingOffsetsByTimestamp": times, "startingOffsetsByTimestampStrategy": "latest"},
            (4, 2),
        ),
        (
            {"startingTimestamp": TIME + 1001, "startingOffsetsByTimestampStrategy": "latest"},
            (2, 2),
        ),
    ]
    for number, (strategy, (start, first)) in enumerate(itertools.product(strategies, starts)):
        lenient = str(number % 2 == 0).lower()
        frame = read(spark, kit, **strategy, **start, failOnDataLoss=lenient)
        expected = [*((0, n) for n in range(first[0], 6)), *((1, n) for n in range(first[1], 3))]
        assert places(frame) == expected, (strategy, start)


def test_ends(spark: SparkSession, kit: Kit, topic: str) -> None:
    """Ending offsets by partition and by time; a time without a record is the end."""
    ends: list[tuple[dict[str, Any], tuple[int, int]]] = [
        ({"endingOffsets": by_partition(topic, 4, -1, 0)}, (4, 3)),
        ({"endingTimestamp": TIME + 2000}, (2, 2)),
        ({"endingTimestamp": TIME + 10**7}, (6, 3)),
        ({"endingOffsets": by_partition(topic, 1, 1, 0), "endingTimestamp": TIME + 1000}, (1, 1)),
    ]
    for end, last in ends:
        frame = read(spark, kit, subscribe=topic, **end)
        expected = [*((0, n) for n in range(last[0])), *((1, n) for n in range(last[1]))]
        assert places(frame) == expected, end


def test_what_cannot_be(spark: SparkSession, kit: Kit, topic: str) -> None:
    """Refused in words: no record of a time, start behind end, partitions left out, loss."""
    refused: list[tuple[dict[str, Any], str]] = [
        ({"startingTimestamp": TIME + 10**7}, "No offset matched"),
        (
            {
                "startingOffsets": by_partition(topic, 4, 0, 0),
                "endingOffsets": by_partition(topic, 2, 0, 0),
            },
            "(?i)offset",
        ),
        ({"startingOffsets": by_partition(topic, 4)}, "don't match what are assigned"),
        ({"startingOffsets": "latest"}, "starting offset can't be latest"),
        ({"kafka.auto.offset.reset": "latest"}, "auto.offset.reset"),
        ({"assign": json.dumps({topic: [0]})}, "Only one"),
    ]
    for options, words in refused:
        with pytest.raises(FAILED, match=words):
            read(spark, kit, subscribe=topic, **options).count()


def test_a_range_that_was_deleted(spark: SparkSession, kit: Kit) -> None:
    """DeleteRecords raises the start: failOnDataLoss says so, or the rest comes."""
    topic = kit.topic()
    kit.send(topic, [f"{n}" for n in range(10)])
    kit.delete_records(topic, 4)
    start = {"subscribe": topic, "startingOffsets": by_partition(topic, 1)}
    with pytest.raises(FAILED, match=r"(?i)data.?loss|out of range"):
        read(spark, kit, **start).count()
    assert places(read(spark, kit, **start, failOnDataLoss="false")) == [
        (0, n) for n in range(4, 10)
    ]
    assert places(read(spark, kit, subscribe=topic)) == [(0, n) for n in range(4, 10)]


def test_columns(spark: SparkSession, kit: Kit) -> None:
    """Null keys and values, headers, times, and one frame used twice."""
    topic = kit.topic()
    kit.send(topic, [None, b"\x00\xff", ""], key=True, headers=[("h", b"1"), ("h", b"2")])
    frame = read(spark, kit, subscribe=topic, includeHeaders="true")
    rows = sorted(frame.collect(), key=lambda row: row["offset"])
    assert [row["value"] for row in rows] == [None, bytearray(b"\x00\xff"), bytearray()]
    assert [row["key"] for row in rows] == [bytearray(b"k%d" % n) for n in range(3)]
    assert [(h["key"], bytes(h["value"])) for h in rows[0]["headers"]] == [("h", b"1"), ("h", b"2")]
    assert {row["timestampType"] for row in rows} == {0}
    assert rows[1]["timestamp"].timestamp() * 1000 == TIME + 1000
    assert frame.join(frame.select("offset"), "offset").count() == 3


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_codecs_and_read_committed(spark: SparkSession, kit: Kit, codec: str) -> None:
    """What a producer compressed, read as if there were transactions."""
    topic = kit.topic()
    kit.send(topic, [f"{n}" * 50 for n in range(20)], codec=codec)
    frame = read(spark, kit, subscribe=topic, **{"kafka.isolation.level": "read_committed"})
    assert values(frame) == [f"{n}" * 50 for n in range(20)]


def test_split_partitions(spark: SparkSession, kit: Kit, topic: str) -> None:
    """minPartitions and maxRecordsPerPartition read one partition from several places at once."""
    many = read(spark, kit, subscribe=topic, minPartitions=7)
    assert many.rdd.getNumPartitions() >= 5
    assert len(set(places(many))) == many.count() == 9
    assert read(spark, kit, subscribe=topic, maxRecordsPerPartition=2).count() == 9


def test_group_ids(spark: SparkSession, kit: Kit, topic: str) -> None:
    """A prefix or a whole group id change nothing but the name."""
    assert read(spark, kit, subscribe=topic, groupIdPrefix="mine").count() == 9
    assert read(spark, kit, subscribe=topic, **{"kafka.group.id": "mine"}).count() == 9
