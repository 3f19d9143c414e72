"""Throughput, lag, time to drain, handoff delay and hot partitions, from samples over time.

    python -m ister.spark.lag_report --watch HOST:PORT --topics orders --groups billing
                                     --seconds 60 --samples FILE       (takes samples, reports)
    python -m ister.spark.lag_report --samples FILE [--archive URL] [--html FILE] [--json]

Samples are JSON lines in files that Spark can read, and `--watch` adds to a local one:
`{"time_ms":1,"topic":"orders","partition":0,"head":7,"committed":{"billing":5}}`. With
`--archive`, the handoff delay is the time from the newest record of a segment to its
sealing. The arithmetic is in `lag.py`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from html import escape
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from ister.spark import jobs, lag
from ister.spark.options import BadOption
from ister.wal.clock import SystemClock
from ister.wal.tier.archive import Archive

SCHEMA = "time_ms bigint, topic string, partition int, head bigint, committed map<string, bigint>"
_WIDTH = 400
_OFFSET_FETCH_BY_NAME = 7  # later versions ask for several groups at a time


def report(samples: Sequence[lag.Sample], delays_ms: Sequence[float] = ()) -> jobs.Report:
    """All figures of a history."""
    return {
        "samples": len(samples),
        "partitions": [flow._asdict() for flow in lag.flows(samples)],
        "lags": [each._asdict() for each in lag.lags(samples)],
        "handoff_delay_ms": {
            "p50": lag.percentile(delays_ms, 0.5),
            "p99": lag.percentile(delays_ms, 0.99),
            "segments": len(delays_ms),
        },
    }


def read_samples(spark: SparkSession, path: str) -> list[lag.Sample]:
    rows = spark.read.schema(SCHEMA).option("mode", "FAILFAST").json(path).collect()
    if any(None in (row["time_ms"], row["topic"], row["partition"], row["head"]) for row in rows):
        raise BadOption(f"{path} has a line without time_ms, topic, partition or head")
    return [
        lag.Sample(
            row["time_ms"], row["topic"], row["partition"], row["head"], row["committed"] or {}
        )
        for row in rows
    ]


def handoff_delays_ms(url: str, topics: set[str]) -> list[float]:
    with closing(Archive.open(url)) as archive:
        return [
            float(max(0, entry.sealed_ms - entry.max_timestamp))
            for manifest in archive.manifests()
            if manifest.topic_name in topics
            for entry in manifest.entries
            if entry.max_timestamp >= 0
        ]


def watch(
    bootstrap: str, topics: Sequence[str], groups: Sequence[str], seconds: int, path: str
) -> None:
    """A sample of every partition each second, added to a file."""
    from ister.gateway.kafka_client.cluster import Cluster

    with Cluster(bootstrap) as cluster, Path(path).open("a") as out:
        for number in range(seconds + 1):
            if number:
                time.sleep(1)
            for sample in _sample(cluster, topics, groups):
                out.write(json.dumps(sample._asdict()) + "\n")
            out.flush()


def _sample(cluster: Any, topics: Sequence[str], groups: Sequence[str]) -> list[lag.Sample]:
    from ister.gateway.kafka_client.data import LATEST, list_offsets_of

    now_ms = SystemClock().wall_ms()
    committed = {group: _committed(cluster, group) for group in groups}
    found = []
    for topic in topics:
        numbers = [part.partition_index for part in cluster.topic(topic).partitions]
        heads: dict[int, int] = {}
        for connection, led in cluster.by_leader(topic, numbers).items():
            heads |= list_offsets_of(connection, topic, led, LATEST)
        for number in sorted(heads):
            own = {g: by[topic, number] for g, by in committed.items() if (topic, number) in by}
            found.append(lag.Sample(now_ms, topic, number, heads[number], own))
    return found


def _committed(cluster: Any, group: str) -> dict[tuple[str, int], int]:
    from ister.gateway.kafka_client.errors import Refused
    from ister.gateway.protocol.api import ApiKey
    from ister.gateway.protocol.messages import offset_fetch as messages

    request = messages.OffsetFetchRequest(group_id=group, topics=None)
    answer = cluster.coordinator(group).ask(
        ApiKey.OFFSET_FETCH, messages, request, _OFFSET_FETCH_BY_NAME
    )
    if answer.error_code:
        raise Refused(f"offsets of {group}", answer.error_code)
    return {
        (topic.name, part.partition_index): part.committed_offset
        for topic in answer.topics
        for part in topic.partitions
        if part.committed_offset >= 0
    }


def page(found: jobs.Report) -> str:
    """Tables and bars, without scripts."""
    flows = _bars("Records a second", found["partitions"], "per_second", ("topic", "partition"))
    lags = _bars("Lag in records", found["lags"], "records", ("group", "topic", "partition"))
    delay = found["handoff_delay_ms"]
    words = (
        f"Handoff delay of {delay['segments']} segments: "
        f"p50 {delay['p50']} ms, p99 {delay['p99']} ms"
    )
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Lag</title>'
        f"<h1>Throughput and lag</h1>{flows}{lags}<p>{words}</p></html>\n"
    )


def _bars(title: str, rows: list[dict[str, Any]], value: str, names: tuple[str, ...]) -> str:
    most = max([row[value] for row in rows], default=0) or 1
    lines = "".join(
        f"<tr><td>{escape('/'.join(str(row[name]) for name in names))}<td>{row[value]:.0f}"
        f'<td><svg width="{_WIDTH}" height="12"><rect width="{_WIDTH * row[value] / most:.0f}" '
        'height="12" fill="#4878a8"/></svg>'
        for row in rows
    )
    return f"<h2>{title}</h2><table>{lines}</table>"


def _parser() -> argparse.ArgumentParser:
    made = jobs.parser("lag_report", "Throughput and lag, from samples over time.")
    made.add_argument("--samples", required=True, help="JSON lines; with --watch they are added")
    made.add_argument("--watch", metavar="HOST:PORT", help="take samples of this broker first")
    made.add_argument("--topics", default="", help="of --watch, with commas between")
    made.add_argument("--groups", default="", help="of --watch, with commas between")
    made.add_argument("--seconds", type=int, default=60, help="of --watch; a sample each second")
    made.add_argument("--archive", help="bucket, for the handoff delay")
    made.add_argument("--html", help="write tables and bars to this file")
    return made


def run(given: argparse.Namespace, spark: SparkSession, progress: jobs.Progress) -> jobs.Report:
    if given.watch:
        topics, groups = _names(given.topics), _names(given.groups)
        if not topics:
            raise BadOption("--watch needs --topics")
        progress.say(f"taking samples for {given.seconds} s")
        watch(given.watch, topics, groups, given.seconds, given.samples)
    samples = read_samples(spark, given.samples)
    names = {sample.topic for sample in samples}
    found = report(samples, handoff_delays_ms(given.archive, names) if given.archive else ())
    if given.html:
        Path(given.html).write_text(page(found))
    return found


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def main(argv: Sequence[str] | None = None) -> int:
    return jobs.main("lag_report", _parser(), run, argv)


if __name__ == "__main__":
    sys.exit(main())
