"""The report of a real broker: samples taken, read back and summed up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import SparkSession

from ister.spark import lag_report
from ister.spark.tests.kit import Kit

pytestmark = pytest.mark.spark


def test_the_command(
    spark: SparkSession, kit: Kit, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Lag and handoff of a topic with a group that is behind; bad samples are said."""
    topic = kit.topic(2)
    kit.send(topic, [f"{n}" for n in range(5)])
    kit.wait_archived(topic, {0: 5})
    settings = {"bootstrap.servers": kit.broker.bootstrap, "group.id": topic, "log_level": 0}
    consumer = Consumer(settings)
    consumer.commit(offsets=[TopicPartition(topic, 0, 2)], asynchronous=False)
    consumer.close()
    samples, html = tmp_path / "samples.jsonl", tmp_path / "lag.html"
    line = ["--samples", str(samples), "--archive", kit.bucket, "--html", str(html), "--json"]
    watching = ["--watch", kit.broker.bootstrap, "--topics", topic, "--groups", topic]
    assert lag_report.main([*line, *watching, "--seconds", "1"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["samples"] == 4
    assert [(row["group"], row["partition"], row["records"]) for row in found["lags"]] == [
        (topic, 0, 3)
    ]
    assert found["handoff_delay_ms"]["segments"] >= 1
    assert "<svg" in html.read_text()
    assert lag_report.main([*line, "--watch", kit.broker.bootstrap]) == 2
    samples.write_text('{"topic":"x"}\n')
    assert lag_report.main(line) == 2
