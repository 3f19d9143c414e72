"""Ister for Spark: the archive as a source, the hand-over to the live tail, the lake.

`spark.read.format("ister")` needs no registration where the package is installed
(`pyspark_ister`). Nothing here is imported before it is used: a job that only reads the
lake needs no Arrow decoding, and `import ister.spark` needs no Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ister.spark.handover import history_then_live, live_from
    from ister.spark.parquet_lake import lake

__all__ = ["history_then_live", "lake", "live_from", "register"]

_PLACES = {
    "history_then_live": "ister.spark.handover",
    "lake": "ister.spark.parquet_lake",
    "live_from": "ister.spark.handover",
}


def register(spark: SparkSession) -> None:
    """Make `format("ister")` known to a session that did not find it by itself."""
    from ister.spark.source import IsterDataSource

    spark.dataSource.register(IsterDataSource)


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_PLACES[name]), name)
