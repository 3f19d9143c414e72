"""Compaction changes files and nothing else, wherever it dies."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ister.spark import compact
from ister.spark.files import HadoopFiles
from ister.spark.parquet_lake import Lake
from ister.spark.tests.lakes import Died, DyingFiles, by_manifest, everything, plain
from ister.spark.tests.test_parquet_lake import frame
from ister.wal.clock import ManualClock

pytestmark = pytest.mark.spark

EXPECTED = [("orders", 0, n) for n in range(2, 8)]


def make(spark: SparkSession, path: Path) -> Lake:
    """Three batches of two records, all of one date."""
    lake = Lake(spark, str(path))
    for number in range(3):
        lake.put(f"b{number}", "test", frame(spark, 2 + 2 * number, 2))
    return lake


def files(path: Path) -> list[Path]:
    return sorted(path.glob("topic=*/date=*/*.parquet"))


def test_small_files_become_one(spark: SparkSession, tmp_path: Path) -> None:
    """The same rows in one file; again there is nothing to do; old files go after their time."""
    path = tmp_path / "lake"
    lake = make(spark, path)
    before = everything(spark, path)
    clock = ManualClock()
    report = compact.compact(lake, clock=clock, grace_ms=1000)
    assert (report["files_before"], report["files_after"]) == (3, 1)
    assert len(files(path)) == 1
    assert everything(spark, path) == before
    assert plain(spark, path) == EXPECTED
    assert lake.covered() == {("orders", 0): [(2, 8)]}
    assert len(list(path.glob("_ister/old/**/*.parquet"))) == 3
    clock.advance(2)
    again = compact.compact(lake, clock=clock, grace_ms=1000)
    assert again == {"folders": 0, "files_before": 0, "files_after": 0, "deleted": 1}
    assert not list(path.glob("_ister/old/**/*.parquet"))


def test_dead_at_every_step(spark: SparkSession, tmp_path: Path) -> None:
    """Before each change a kill: a reader by manifest has everything, a plain one nothing twice."""
    path = tmp_path / "lake"
    make(spark, path / "original")
    clock = ManualClock()
    deaths = 0
    for changes in range(1, 50):
        folder = path / str(changes)
        shutil.copytree(path / "original", folder)
        dying = Lake(spark, str(folder), DyingFiles(HadoopFiles(spark), changes - 1))
        try:
            compact.compact(dying, clock=clock)
        except Died:
            deaths += 1
        else:
            break
        assert by_manifest(spark, folder) == EXPECTED
        seen = plain(spark, folder)
        assert len(seen) == len(set(seen))
        compact.compact(Lake(spark, str(folder)), clock=clock)
        assert by_manifest(spark, folder) == plain(spark, folder) == EXPECTED
        assert len(files(folder)) == 1
    assert deaths >= 7
