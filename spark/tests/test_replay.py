"""Records back into a topic as they were, in order, going on where it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from ister.spark import replay
from ister.spark.files import HadoopFiles
from ister.spark.options import BadOption
from ister.spark.tests.kit import TIME, Kit
from ister.spark.tests.lakes import Died, DyingFiles
from ister.wal.clock import ManualClock

pytestmark = pytest.mark.spark


def archived(spark: SparkSession, kit: Kit, topic: str) -> DataFrame:
    options = {"path": kit.bucket, "subscribe": topic, "includeHeaders": "true"}
    return replay.with_milliseconds(spark.read.format("ister").options(**options).load())


def arrived(spark: SparkSession, kit: Kit, topic: str) -> list[tuple[Any, ...]]:
    """partition, key, value, milliseconds, headers; in order."""
    options = {"kafka.bootstrap.servers": kit.broker.bootstrap, "includeHeaders": "true"}
    rows = spark.read.format("kafka").options(**options, subscribe=topic).load().collect()
    return [
        (
            row["partition"],
            None if row["key"] is None else bytes(row["key"]),
            bytes(row["value"]).decode(),
            int(row["timestamp"].timestamp() * 1000),
            [(h["key"], bytes(h["value"]).decode()) for h in row["headers"] or ()],
        )
        for row in sorted(rows, key=lambda row: (row["partition"], row["offset"]))
    ]


def test_as_they_were(spark: SparkSession, kit: Kit) -> None:
    """Key, value, headers and time are kept, and the order; the origin is added."""
    source, target = kit.topic(2), kit.topic(2)
    kit.send(source, [f"{n}" for n in range(5)], key=True, headers=[("h", b"x")])
    kit.send(source, ["z"], partition=1)
    kit.wait_archived(source, {0: 5, 1: 1})
    rows, files = archived(spark, kit, source), HadoopFiles(spark)
    address = kit.broker.bootstrap
    dry = replay.replay(rows, source, address, target, files=files, dry_run=True)
    assert (dry["records"], arrived(spark, kit, target)) == (6, [])
    report = replay.replay(rows, source, address, target, files=files)
    assert report["records"] == 6
    expected = [
        (0, b"k%d" % n, f"{n}", TIME + 1000 * n, [("h", "x"), (replay.HEADER, f"{source}/0/{n}")])
        for n in range(5)
    ]
    last = (1, None, "z", TIME, [(replay.HEADER, f"{source}/1/0")])
    assert arrived(spark, kit, target) == [*expected, last]


def test_rate_and_resume(spark: SparkSession, kit: Kit, tmp_path: Path) -> None:
    """Rounds of the rate's size; dead before a note, that round comes again, none is left out."""
    source, target = kit.topic(), kit.topic()
    kit.send(source, [f"{n}" for n in range(5)])
    kit.wait_archived(source, {0: 5})
    clock, slept = ManualClock(), []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock.advance(seconds)

    def run(changes: int) -> dict[str, Any]:
        return replay.replay(
            archived(spark, kit, source),
            source,
            kit.broker.bootstrap,
            target,
            files=DyingFiles(HadoopFiles(spark), changes),
            progress_path=str(tmp_path / "progress.json"),
            rate=2,
            clock=clock,
            sleep=sleep,
        )

    with pytest.raises(Died):
        run(1)  # the first round is noted, the second only sent
    assert slept == [1.0]
    assert run(9)["records"] == 3
    assert slept == [1.0, 1.0, 0.5]
    assert [row[2] for row in arrived(spark, kit, target)] == ["0", "1", "2", "3", "2", "3", "4"]
    assert run(9)["records"] == 0


def test_no_circles(spark: SparkSession, kit: Kit, tmp_path: Path) -> None:
    """Not into itself, and not back to where a record came from."""
    first, second = kit.topic(), kit.topic()
    kit.send(first, ["a"], headers=[(replay.HEADER, f"{second}/0/7".encode())])
    kit.send(first, ["b"])
    kit.wait_archived(first, {0: 2})
    rows, files = archived(spark, kit, first), HadoopFiles(spark)
    address = kit.broker.bootstrap
    with pytest.raises(BadOption, match="circles"):
        replay.replay(rows, first, address, first, files=files)
    report = replay.replay(rows, first, address, second, files=files)
    assert (report["records"], report["skipped"]) == (1, 1)
    path = tmp_path / "progress.json"
    path.write_text(json.dumps({"topic": "other", "target": second, "offsets": {}}))
    with pytest.raises(BadOption, match="another file"):
        replay.replay(rows, first, address, second, files=files, progress_path=str(path))


def test_the_command(spark: SparkSession, kit: Kit, capsys: pytest.CaptureFixture[str]) -> None:
    """A condition, a report, exit codes."""
    source, target = kit.topic(), kit.topic()
    kit.send(source, ["a", "b", "c"])
    kit.wait_archived(source, {0: 3})
    line = ["--archive", kit.bucket, "--topic", source, "--bootstrap", kit.broker.bootstrap]
    assert replay.main([*line, "--target", target, "--where", "offset >= 1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["records"] == 2
    assert replay.main([*line, "--target", source]) == 2
    assert replay.main([*line, "--target", "nowhere"]) == 1
