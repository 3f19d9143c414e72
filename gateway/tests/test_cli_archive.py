"""`ister archive`: every command on a bucket in a directory, with its exit codes."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ister.gateway.cli.main import app
from ister.gateway.tests import formats
from ister.wal.clock import ManualClock
from ister.wal.fs import OsFileSystem
from ister.wal.handoff import Handoff
from ister.wal.handoff_plan import PartitionMove
from ister.wal.tests.handoff_kit import TOPIC, sealed_run
from ister.wal.tier.directory import DirectoryStore
from ister.wal.tier.tests.sections import CLUSTER

runner = CliRunner()


@pytest.fixture
def bucket(tmp_path: Path) -> Path:
    """One topic with two partitions, handed over without a broker."""
    path = tmp_path / "bucket"
    store = DirectoryStore(OsFileSystem(), str(path))
    moves = [
        PartitionMove(TOPIC, "orders", n, 0, 5, runs=(sealed_run(0, [3, 2]),)) for n in range(2)
    ]
    result = Handoff(store, CLUSTER, "run", ManualClock()).run(moves)
    assert result.error is None
    return path


def run(*arguments: str) -> tuple[int, str]:
    result = runner.invoke(app, ["archive", *arguments], catch_exceptions=False)
    return result.exit_code, result.stdout


def test_list(bucket: Path) -> None:
    """Names, offsets, sizes; as words and as JSON."""
    code, text = run("list", f"file://{bucket}")
    assert code == 0
    assert "orders/1: offsets 0..5" in text
    code, text = run("list", f"file://{bucket}", "--json")
    rows = json.loads(text)["partitions"]
    assert [(row["topic"], row["partition"], row["end"]) for row in rows] == [
        ("orders", 0, 5),
        ("orders", 1, 5),
    ]


def test_dump(bucket: Path) -> None:
    """One record a line, of the range that was asked for."""
    code, text = run(
        "dump", f"file://{bucket}", "--topic", "orders", "--partition", "1", "--start", "2"
    )
    lines = [json.loads(line) for line in text.splitlines()]
    assert code == 0
    assert [line["offset"] for line in lines] == [2, 3, 4]
    assert lines[0]["value"] == "2:" + 18 * "."
    code, text = run("dump", f"file://{bucket}")
    assert len(text.splitlines()) == 10


def test_dump_refuses_what_is_not_there(bucket: Path) -> None:
    """An unknown topic or format is a bad argument, in words."""
    assert run("dump", f"file://{bucket}", "--topic", "nope")[0] == 2
    assert run("dump", f"file://{bucket}", "--format", "csv")[0] == 2


def test_dump_parquet(bucket: Path, tmp_path: Path) -> None:
    """All columns of a range in one file that any reader of Parquet takes."""
    from pyarrow.parquet import read_table

    out = tmp_path / "out.parquet"
    code, _ = run(
        *("dump", f"file://{bucket}", "--topic", "orders", "--start", "2", "--end", "4"),
        *("--format", "parquet", "--output", str(out)),
    )
    assert code == 0
    rows = read_table(out).to_pylist()
    assert [(row["partition"], row["offset"]) for row in rows] == [(0, 2), (0, 3), (1, 2), (1, 3)]
    assert rows[0]["value"] == b"2:" + 18 * b"."


def test_verify_tells_damage_by_its_exit_code(bucket: Path) -> None:
    """0 when all holds, 3 when a byte changed."""
    code, text = run("verify", f"file://{bucket}")
    assert code == 0
    assert "all holds" in text
    (path,) = [path for path in bucket.rglob("*") if "shared" in str(path) and path.is_file()]
    data = bytearray(path.read_bytes())
    data[20] ^= 1
    path.chmod(0o644)
    path.write_bytes(bytes(data))
    code, text = run("verify", f"file://{bucket}", "--json")
    assert code == 3
    assert len(json.loads(text)["findings"]) == 1


def test_restore(bucket: Path, tmp_path: Path) -> None:
    """Fills an empty directory, prints the last offsets; a second time it refuses with 3."""
    data = tmp_path / "data"
    code, text = run("restore", f"file://{bucket}", "--data", str(data))
    assert code == 0
    assert "orders/0: last offset 4, epoch 2" in text
    assert "no snapshot of metadata" in text
    assert (data / "metadata.sqlite").exists()
    assert run("restore", f"file://{bucket}", "--data", str(data))[0] == 3


def test_restore_says_what_came_back(tmp_path: Path) -> None:
    """Of a bucket with a snapshot: its age, cursors, and the last offset of each partition."""
    with tarfile.open(Path(formats.__file__).parent / "1.tar.xz") as archive:
        for entry in archive:
            content = archive.extractfile(entry)
            place = tmp_path / entry.name
            place.mkdir() if content is None else place.write_bytes(content.read())
    url = f"file://{tmp_path}/data/bucket"
    code, text = run("restore", url, "--data", str(tmp_path / "one"))
    assert code == 0
    assert "snapshot of metadata:" in text
    assert "orders/0: last offset 9, epoch" in text
    assert "1 cursors into" in text
    code, text = run("restore", url, "--data", str(tmp_path / "two"), "--json")
    report = json.loads(text)
    assert report["snapshot_age_ms"] > 0
    assert [part["last_offset"] for part in report["partitions"] if part["topic"] == "orders"] == [
        9,
        2,
    ]
    assert report["cursors_set_back"] == []


def test_a_wrong_address_is_said(tmp_path: Path) -> None:
    """Nothing there: 3 with words; not an address: 2."""
    assert run("list", f"file://{tmp_path}/none")[0] == 3
    assert run("verify", "ftp://somewhere")[0] == 2
