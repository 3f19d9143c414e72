"""Found by Spark itself (top-level modules named `pyspark_*`): makes `format("ister")` known."""

from ister.spark.source import IsterDataSource as DefaultSource

__all__ = ["DefaultSource"]
