"""Batches go into the lake whole and once, wherever the job dies."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from ister.spark.files import HadoopFiles
from ister.spark.parquet_lake import SCHEMA, Lake, LakeError, Span
from ister.spark.tests.lakes import Died, DyingFiles, by_manifest, plain

pytestmark = pytest.mark.spark


def frame(spark: SparkSession, first: int, count: int, topic: str = "orders") -> DataFrame:
    """One record an hour, so that a batch has several dates."""
    start = 1_700_000_000
    rows = [
        (
            *(b"k", b"v%d" % n, 0, n, datetime.fromtimestamp(start + 3600 * n, UTC)),
            *(0, None, topic),
        )
        for n in range(first, first + count)
    ]
    schema = SCHEMA.removesuffix(", date date")
    return spark.createDataFrame(rows, schema).coalesce(1)


def test_a_batch(spark: SparkSession, tmp_path: Path) -> None:
    """By topic and UTC date, with a manifest that says exactly what is there; twice is once."""
    path = tmp_path / "lake"
    lake = Lake(spark, str(path))
    put = lake.put("one", "test", frame(spark, 5, 4))
    assert put.spans == (Span("orders", 0, 5, 9, 4),)
    assert sorted(p.parent.name for p in path.glob("topic=orders/*/*.parquet")) == [
        "date=2023-11-15"
    ]
    assert lake.put("one", "test", frame(spark, 100, 3)) == put
    lake.put("two", "test", frame(spark, 0, 3, topic="a b%"))
    expected = [*(("a b%", 0, n) for n in range(3)), *(("orders", 0, n) for n in range(5, 9))]
    assert plain(spark, path) == by_manifest(spark, path) == expected
    assert lake.covered() == {("orders", 0): [(5, 9)], ("a b%", 0): [(0, 3)]}
    assert lake.put("none", "test", _empty(spark)).spans == ()
    assert not lake.has("none")
    with pytest.raises(LakeError, match="name"):
        lake.put("../x", "test", frame(spark, 0, 1))


def _empty(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([], SCHEMA.removesuffix(", date date"))


def test_dead_at_every_step(spark: SparkSession, tmp_path: Path) -> None:
    """After each change a kill: plain readers see nothing twice, readers by manifest whole batches.

    The next try of the same batch, or any other job's `recover`, finishes it.
    """
    rows = frame(spark, 0, 40).cache()  # two days: two files
    expected = [("orders", 0, n) for n in range(40)]
    deaths = 0
    for changes in range(50):
        path = tmp_path / f"lake-{changes}"
        files = DyingFiles(HadoopFiles(spark), changes)
        try:
            Lake(spark, str(path), files).put("one", "test", rows)
        except Died:
            deaths += 1
        else:
            break
        seen = plain(spark, path)
        assert len(seen) == len(set(seen))
        manifest = by_manifest(spark, path)
        assert manifest in ([], expected)
        lake = Lake(spark, str(path))
        if changes % 2:
            lake.recover()
            assert len(plain(spark, path)) in (len(seen), 40)
        lake.put("one", "test", rows)
        assert plain(spark, path) == by_manifest(spark, path) == expected
        assert not lake.files.list(f"{path}/_ister/staging")
        assert lake.recover() == []
    assert deaths >= 6
    rows.unpersist()
