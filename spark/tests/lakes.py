"""Files that die, and what a lake looks like to its two kinds of readers."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from ister.spark.files import FileInfo, Files
from ister.spark.parquet_lake import Lake

Place = tuple[str, int, int]  # topic, partition, offset


class Died(Exception):
    """The job is dead from here on."""


class DyingFiles:
    """Lets `changes` changes through; every later call of any kind dies, as after kill -9."""

    def __init__(self, files: Files, changes: int) -> None:
        self._files = files
        self._left = changes
        self.dead = False

    def read(self, path: str) -> str | None:
        self._check()
        return self._files.read(path)

    def write(self, path: str, text: str) -> None:
        self._change()
        self._files.write(path, text)

    def move(self, source: str, target: str) -> None:
        self._change()
        self._files.move(source, target)

    def delete(self, path: str) -> None:
        self._change()
        self._files.delete(path)

    def list(self, folder: str) -> list[FileInfo]:
        self._check()
        return self._files.list(folder)

    def exists(self, path: str) -> bool:
        self._check()
        return self._files.exists(path)

    def _check(self) -> None:
        if self.dead:
            raise Died

    def _change(self) -> None:
        self._check()
        if self._left == 0:
            self.dead = True
            raise Died
        self._left -= 1


def plain(spark: SparkSession, path: Path) -> list[Place]:
    """What anybody sees who reads the folder as Parquet."""
    if not any(path.glob("topic=*/date=*/*.parquet")):
        return []
    rows = spark.read.parquet(str(path)).select("topic", "partition", "offset").collect()
    return sorted((str(row[0]), row[1], row[2]) for row in rows)


def by_manifest(spark: SparkSession, path: Path) -> list[Place]:
    rows = Lake(spark, str(path)).read().select("topic", "partition", "offset").collect()
    return sorted((row[0], row[1], row[2]) for row in rows)


def everything(spark: SparkSession, path: Path) -> list[tuple[object, ...]]:
    """All columns of all rows, by manifest, to be compared."""
    found = []
    for row in Lake(spark, str(path)).read().collect():
        headers = [(h["key"], _bytes(h["value"])) for h in row["headers"] or ()]
        found.append(
            (
                *(row["topic"], row["partition"], row["offset"], row["timestamp"], row["date"]),
                *(row["timestampType"], _bytes(row["key"]), _bytes(row["value"]), tuple(headers)),
            )
        )
    return sorted(found, key=lambda row: row[:3])


def _bytes(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)
