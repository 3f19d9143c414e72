"""A Spark session that works where it is started: on a laptop, in a test, under spark-submit.

Under spark-submit the session is the submitter's: nothing is set but the time zone. On its
own it is `local[*]`, with the connector's jars, this interpreter for the workers, and a
Java from PyPI where the machine has none. All of that must be known before the JVM starts.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from pyspark.sql import SparkSession

from ister.spark.jars import connector_jars
from ister.spark.java import java_home

_SUBMITTED = "PYSPARK_GATEWAY_PORT"  # set by spark-submit: the JVM is there already


def session(
    name: str, settings: Mapping[str, str] | None = None, *, kafka: bool = True
) -> SparkSession:
    """The running session, else a new one; `kafka`: with the connector of `format("kafka")`."""
    builder = SparkSession.builder.appName(name)
    if _SUBMITTED not in os.environ:
        _prepare_environment()
        builder = builder.master(os.environ.get("SPARK_MASTER", "local[*]"))
        builder = builder.config("spark.ui.enabled", "false")
        if kafka:
            builder = builder.config("spark.jars", ",".join(map(str, connector_jars())))
    for key, value in (settings or {}).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.conf.set("spark.sql.session.timeZone", "UTC")  # dates in the lake are UTC dates
    # Timestamps as every reader of Parquet knows them; Spark's own default is long deprecated.
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    return spark


def _prepare_environment() -> None:
    home = java_home()
    if home is not None:
        os.environ["JAVA_HOME"] = str(home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
