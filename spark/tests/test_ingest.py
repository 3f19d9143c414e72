"""Topics and archive into the lake: the same rows, each once, over kills and hand-overs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from ister.spark import backfill, ingest
from ister.spark.files import HadoopFiles
from ister.spark.parquet_lake import Lake
from ister.spark.tests.kit import Kit
from ister.spark.tests.lakes import Died, DyingFiles, by_manifest, everything, plain

pytestmark = pytest.mark.spark


def source(spark: SparkSession, kit: Kit, topic: str, **options: str) -> DataFrame:
    given = {"kafka.bootstrap.servers": kit.broker.bootstrap, "subscribe": topic}
    given |= {"startingOffsets": "earliest", "includeHeaders": "true"}
    return spark.readStream.format("kafka").options(**given, **options).load()


def run(spark: SparkSession, kit: Kit, topic: str, path: Path, changes: int | None = None) -> int:
    """One run of ingest until there is no more; how many records it put in."""
    files = HadoopFiles(spark)
    lake = Lake(spark, str(path), files if changes is None else DyingFiles(files, changes))
    report = ingest.ingest(
        spark,
        source(spark, kit, topic, maxOffsetsPerTrigger="4"),
        lake,
        f"{path}/_ister/checkpoint",
    )
    return int(report["records"])


def test_killed_between_write_and_manifest(spark: SparkSession, kit: Kit, tmp_path: Path) -> None:
    """Files written, moved, not yet named: the next run has each record once."""
    topic = kit.topic(2)
    kit.send(topic, [f"{n}" for n in range(6)], key=True, headers=[("h", b"x")])
    kit.send(topic, ["x"], partition=1)
    path = tmp_path / "lake"
    for changes in (2, 1):  # behind the note of the moves; behind the first of them
        with pytest.raises((StreamingQueryException, Died)):
            run(spark, kit, topic, path, changes)
        seen = plain(spark, path)
        assert len(seen) == len(set(seen))
    run(spark, kit, topic, path)
    expected = [*((topic, 0, n) for n in range(6)), (topic, 1, 0)]
    assert plain(spark, path) == by_manifest(spark, path) == expected
    assert run(spark, kit, topic, path) == 0


def test_backfill_is_ingest(spark: SparkSession, kit: Kit, tmp_path: Path) -> None:
    """All columns of the same range are equal; again is nothing; no broker is asked."""
    topic = kit.topic(2)
    kit.send(topic, ["a", None, "c"], key=True, headers=[("h", b"x"), ("h", b"y")])
    kit.send(topic, ["d"] * 3, partition=1, first_time=1_700_006_399_000)  # over midnight
    kit.wait_archived(topic, {0: 3, 1: 3})
    run(spark, kit, topic, tmp_path / "ingested")
    lake = Lake(spark, str(tmp_path / "filled"))
    report = backfill.backfill(spark, kit.bucket, topic, lake, batch_bytes=100)
    assert report["records"] == 6
    assert everything(spark, tmp_path / "filled") == everything(spark, tmp_path / "ingested")
    before = sorted(p for p in (tmp_path / "filled").rglob("*") if p.is_file())
    again = backfill.backfill(spark, kit.bucket, topic, lake)
    assert again == {"batches": 0, "records": 0}
    assert before == sorted(p for p in (tmp_path / "filled").rglob("*") if p.is_file())


def test_they_meet_at_an_offset(spark: SparkSession, kit: Kit, tmp_path: Path) -> None:
    """Backfill up to N, ingest from the beginning: nothing twice, nothing left out."""
    topic = kit.topic()
    kit.send(topic, [f"{n}" for n in range(9)])
    kit.wait_archived(topic, {0: 9})
    path = tmp_path / "lake"
    backfill.backfill(spark, kit.bucket, topic, Lake(spark, str(path)), start=2, end=5)
    assert run(spark, kit, topic, path) == 6
    expected = [(topic, 0, n) for n in range(9)]
    assert plain(spark, path) == by_manifest(spark, path) == expected
    assert Lake(spark, str(path)).covered() == {(topic, 0): [(0, 9)]}


def test_what_does_not_decode(spark: SparkSession, kit: Kit, tmp_path: Path) -> None:
    """Goes to the dead letters as it came, with the reason, and counts as brought."""
    topic = kit.topic()
    kit.send(topic, ['{"a":1}', "no", None, b"\xff"])
    lake = Lake(spark, str(tmp_path / "lake"))
    frame = source(spark, kit, topic)
    ingest.ingest(spark, frame, lake, f"{lake.path}/_ister/checkpoint", check="json")
    assert by_manifest(spark, tmp_path / "lake") == [(topic, 0, 0), (topic, 0, 2)]
    dead = lake.dead_letters().orderBy("offset").collect()
    assert [(row["offset"], bytes(row["value"]), row["error"]) for row in dead] == [
        (1, b"no", "not JSON"),
        (3, b"\xff", "not JSON"),
    ]
    assert lake.covered() == {(topic, 0): [(0, 4)]}


def test_commands(
    spark: SparkSession, kit: Kit, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command lines, with a report and their exit codes."""
    topic = kit.topic()
    kit.send(topic, ["a", "b"])
    kit.wait_archived(topic, {0: 2})
    place = ["--lake", str(tmp_path / "lake"), "--json"]
    code = ingest.main(["--bootstrap", kit.broker.bootstrap, "--topics", topic, *place])
    assert (code, json.loads(capsys.readouterr().out)["records"]) == (0, 2)
    code = backfill.main(["--archive", kit.bucket, "--topic", topic, *place])
    assert (code, json.loads(capsys.readouterr().out)["records"]) == (0, 0)
    assert backfill.main(["--archive", kit.bucket, "--topic", "nope", *place]) == 2
    assert backfill.main(["--archive", "s3://x", "--topic", topic, *place]) == 2
    with pytest.raises(SystemExit) as stopped:
        ingest.main(["--lake", "x"])
    assert stopped.value.code == 2
