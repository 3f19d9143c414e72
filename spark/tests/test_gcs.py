"""A bucket of Google Cloud Storage: the same reader, as a task runs it, on the emulator."""

from __future__ import annotations

from pathlib import Path

import pytest

import ister.archive
from ister.archive.tests.buckets import Bucket
from ister.archive.tests.test_scan import batch
from ister.spark.options import parse
from ister.spark.source import ArchiveReader
from ister.wal.tests.gcs_server import BUCKET, gcs_address, new_prefix
from ister.wal.tier import open_store

__all__ = ["gcs_address"]

pytestmark = pytest.mark.slow


def test_the_archive_in_the_cloud(
    gcs_address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planned and read through gs://, with credentials of the environment alone."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs_address)
    url = f"gs://{BUCKET}/{new_prefix()}"
    made = Bucket(tmp_path, open_store(url))
    made.add([batch(0, 10), batch(10, 10, codec=4)])
    made.add([batch(20, 5)])
    made.publish()
    made.store.close()
    reader = ArchiveReader(parse({"path": url, "subscribe": "orders", "bytesPerTask": "300"}))
    tasks = reader.partitions()
    assert len(tasks) > 1
    rows = [row for task in tasks for found in reader.read(task) for row in found.to_pylist()]
    assert [row["offset"] for row in rows] == list(range(25))
    table = ister.archive.scan(url, "orders", 8, 22).read_all()
    assert table["value"].to_pylist() == [f"{n}".encode() for n in range(8, 22)]
