"""One Spark session and one broker for all tests here.

Both are slow to come: a session takes seconds, and each first use of a part of Spark more.
Tests keep to topics and folders of their own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ister.spark.tests.kit import Kit
from ister.testing import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from ister.spark.session import session

    # Workers are processes of their own: they find the package of this checkout.
    os.environ["PYTHONPATH"] = str(ROOT)
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["SPARK_MASTER"] = "local[2]"
    folder = tmp_path_factory.mktemp("spark")
    made = session(
        "ister-tests",
        {
            "spark.sql.shuffle.partitions": "2",
            "spark.default.parallelism": "2",
            "spark.driver.memory": "1g",
            # Queries over a few rows: compiling them costs more than it gains.
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.sql.adaptive.enabled": "false",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.local.dir": str(folder / "local"),
            "spark.sql.streaming.pollingDelay": "10ms",
            "spark.ui.showConsoleProgress": "false",
        },
    )
    made.sparkContext.setLogLevel("OFF")
    gateway = made.sparkContext._gateway
    yield made
    made.stop()
    assert gateway is not None
    gateway.shutdown()
    process = gateway.proc
    process.stdin.close()  # the JVM ends when this does
    process.wait(60)


@pytest.fixture(scope="session")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kit]:
    """A broker that hands over to its bucket at once, so that the archive has what was sent."""
    settings = {
        "ister.handoff.ms": 100,
        "ister.handoff.bytes": 1024,
        "auto.create.topics.enable": False,
    }
    bucket = f"file://{tmp_path_factory.mktemp('bucket')}"
    data = tmp_path_factory.mktemp("broker") / "data"
    with Broker(data, bucket=bucket, settings=settings) as broker:
        yield Kit(broker, bucket, str(data))
