"""The archive source against Spark's Kafka source and its Parquet reader, on the same records.

    python -m bench.spark [--records 400000] [--rounds 5]

One broker and one session in one run; uncompressed records of 10 + 100 bytes in four
partitions. Each round reads everything with each source into nothing; figures are medians
and ratios. The broker has the records in its cache or its bucket, as it likes.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from contextlib import closing
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from ister.gateway.kafka_client import data
from ister.gateway.kafka_client.batches import NewRecord, encode
from ister.gateway.kafka_client.cluster import Cluster
from ister.spark.session import session
from ister.testing import Broker
from ister.wal.tier.archive import Archive

TOPIC = "bench"
PARTITIONS = 4
BATCH_RECORDS = 5_000


def fill(bootstrap: str, records: int) -> None:
    with Cluster(bootstrap) as cluster:
        leaders = {
            number: connection
            for connection, led in cluster.by_leader(TOPIC, range(PARTITIONS)).items()
            for number in led
        }
        for first in range(0, records, BATCH_RECORDS):
            number = first // BATCH_RECORDS % PARTITIONS
            batch = encode(
                [
                    NewRecord(b"%010d" % n, b"v" * 100, 1_700_000_000_000 + n)
                    for n in range(first, min(records, first + BATCH_RECORDS))
                ]
            )
            data.produce(leaders[number], TOPIC, number, batch)


def wait_archived(url: str, records: int) -> None:
    while True:
        with closing(Archive.open(url)) as archive:
            ours = [m for m in archive.manifests() if m.topic_name == TOPIC]
        if sum(manifest.tiered_end for manifest in ours) >= records:
            return
        time.sleep(0.2)


def read_all(frame: DataFrame) -> float:
    begun = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - begun


def frames(spark: SparkSession, url: str, bootstrap: str, parquet: str) -> dict[str, DataFrame]:
    ister = spark.read.format("ister").options(path=url, subscribe=TOPIC).load()
    kafka = {"kafka.bootstrap.servers": bootstrap, "subscribe": TOPIC}
    polls = {"kafka.max.poll.records": "5000"}
    ister.write.mode("overwrite").parquet(parquet)
    return {
        "ister": ister,
        "kafka": spark.read.format("kafka").options(**kafka).load(),
        "kafka, 5000 a poll": spark.read.format("kafka").options(**kafka, **polls).load(),
        "parquet": spark.read.parquet(parquet),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=400_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    os.environ.setdefault("PYTHONPATH", str(Path(__file__).resolve().parents[1]))
    with tempfile.TemporaryDirectory(prefix="ister-bench-") as folder:
        url = f"file://{folder}/bucket"
        settings = {"ister.handoff.ms": 500, "num.partitions": PARTITIONS}
        with Broker(f"{folder}/data", bucket=url, settings=settings) as broker:
            with Cluster(broker.bootstrap) as cluster:
                cluster.topic(TOPIC, create=True)
            fill(broker.bootstrap, given.records)
            wait_archived(url, given.records)
            spark = session("ister bench", {"spark.log.level": "ERROR"})
            sources = frames(spark, url, broker.bootstrap, f"{folder}/parquet")
            times: dict[str, list[float]] = {name: [] for name in sources}
            for number in range(given.rounds + 1):
                for name, frame in sources.items():
                    seconds = read_all(frame)
                    if number:  # the first round is for warming up
                        times[name].append(seconds)
            spark.stop()
    rates = {name: given.records / statistics.median(each) for name, each in times.items()}
    for name, rate in rates.items():
        print(f"{name:20} {rate:12,.0f} rows/s   {rate / rates['kafka']:.2f} x kafka")


if __name__ == "__main__":
    main()
