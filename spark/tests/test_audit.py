"""One fault of each kind gives exactly that finding; a sound archive and lake give none."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from crc32c import crc32c
from pyspark.sql import SparkSession

from ister.archive.tests.buckets import TIME, Bucket
from ister.spark import audit, backfill
from ister.spark.parquet_lake import Lake
from ister.spark.tests.kit import Kit
from ister.wal.tests.batches import make_batch
from ister.wal.tier import envelope
from ister.wal.tier.directory import LEAF
from ister.wal.tier.manifest import FORMAT_VERSION, MAGIC, Entry, Manifest, key
from ister.wal.tier.object_store import ObjectStore

pytestmark = pytest.mark.spark


def batch(first: int, count: int, value: bytes = b"v") -> bytes:
    return make_batch(
        [value + b"%d" % n for n in range(first, first + count)],
        base_offset=first,
        timestamps=[TIME + n for n in range(first, first + count)],
    )


class Case:
    """A bucket with orders/0, offsets 0..29 in three segments, and a lake with 0..24 of it."""

    def __init__(self, spark: SparkSession, path: Path) -> None:
        self.spark = spark
        self.path = path
        self.bucket = path / "bucket"
        self.lake = path / "lake"
        self.entries: list[Entry] = []

    def make(self) -> None:
        made = Bucket(self.bucket)
        for first in (0, 10, 20):
            self.entries.append(made.add([batch(first, 5), batch(first + 5, 5)]))
        made.publish()
        url, lake = f"file://{self.bucket}", Lake(self.spark, str(self.lake))
        for first, end in ((0, 10), (10, 25)):
            backfill.backfill(self.spark, url, "orders", lake, start=first, end=end)

    def copy(self, path: Path) -> Case:
        shutil.copytree(self.path, path)
        other = Case(self.spark, path)
        other.entries = self.entries
        return other

    def run(self, **options: object) -> dict[str, list[tuple[str, int, int]]]:
        """(kind, first, end) of findings and of what is explained."""
        report = audit.audit(
            self.spark,
            f"file://{self.bucket}",
            "orders",
            lake=Lake(self.spark, str(self.lake)),
            **options,  # type: ignore[arg-type]
        )
        return {
            name: [(n["kind"], n["first"], n["end"]) for n in report[name]]
            for name in ("findings", "explained")
        }

    # -- faults ---------------------------------------------------------------------

    def segment(self, index: int) -> Path:
        return self.bucket / "objects" / (self.entries[index].object + LEAF)

    def set_manifest(self, change: Callable[[Manifest], Manifest]) -> None:
        """Write what no broker would, with a right checksum."""
        store: ObjectStore = Bucket(self.bucket).store
        name = key(bytes(range(1, 17)), 0)
        data, version = store.read(name)
        _, body = envelope.unwrap(MAGIC, FORMAT_VERSION, data, name)
        changed = msgspec.json.encode(change(msgspec.json.decode(body, type=Manifest)))
        store.swap(name, envelope.wrap(MAGIC, FORMAT_VERSION, changed), version)

    def lake_file(self, index: int) -> Path:
        """The file with 0..9, or the one with 10..24."""
        found = sorted(self.lake.glob("topic=*/date=*/*.parquet"), key=_first_offset)
        return found[index]


def _first_offset(path: Path) -> int:
    return int(pq.read_table(path, columns=["offset"])["offset"][0].as_py())


@pytest.fixture(scope="module")
def original(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Case:
    case = Case(spark, tmp_path_factory.mktemp("audit") / "original")
    case.path.mkdir()
    case.make()
    return case


@pytest.fixture
def case(original: Case, tmp_path: Path) -> Case:
    return original.copy(tmp_path / "case")


NOT_YET = ("not yet in the lake", 25, 30)


def test_all_is_well(case: Case) -> None:
    """No finding; what the lake has not got yet is explained."""
    assert case.run() == {"findings": [], "explained": [NOT_YET]}


def test_a_missing_segment(case: Case) -> None:
    case.segment(1).unlink()
    assert case.run()["findings"] == [("missing segment", 10, 20)]


def test_a_truncated_segment(case: Case) -> None:
    data = case.segment(1).read_bytes()
    case.segment(1).write_bytes(data[:-20])
    assert case.run()["findings"] == [("truncated segment", 10, 20)]


def test_a_damaged_segment(case: Case) -> None:
    data = bytearray(case.segment(1).read_bytes())
    data[70] ^= 1
    case.segment(1).write_bytes(data)
    assert case.run()["findings"] == [("damaged segment", 10, 20)]


def test_manifests_that_contradict_themselves(case: Case) -> None:
    """A hole, a duplicated and an overlapping segment; readers refuse such a manifest."""
    first, second, third = case.entries

    def with_entries(*entries: Entry) -> Callable[[Manifest], Manifest]:
        return lambda manifest: msgspec.structs.replace(manifest, entries=entries)

    case.set_manifest(with_entries(first, third))
    assert case.run()["findings"] == [("hole", 10, 20)]
    case.set_manifest(with_entries(first, second, second, third))
    assert case.run()["findings"] == [("duplicated segment", 10, 20)]
    bucket = Bucket(case.bucket)
    bucket._attempt = 10
    overlapping = bucket.add([batch(5, 5), batch(10, 10)])
    case.set_manifest(with_entries(first, overlapping, third))
    assert case.run()["findings"] == [("overlapping segment", 5, 10)]


def test_a_changed_byte_with_right_checksums(case: Case) -> None:
    """Only the comparison with the lake can tell."""
    case.segment(1).unlink()
    bucket = Bucket(case.bucket)
    bucket._attempt = 10
    forged = bucket.add([batch(10, 5), batch(15, 1, b"x"), batch(16, 4)])
    entries = (case.entries[0], forged, case.entries[2])
    case.set_manifest(lambda manifest: msgspec.structs.replace(manifest, entries=entries))
    assert crc32c(bucket.file_of(forged).read_bytes()) == forged.crc
    assert case.run()["findings"] == [("record altered", 15, 16)]


def test_a_lost_file_of_the_lake(case: Case) -> None:
    case.lake_file(1).unlink()
    assert case.run()["findings"] == [("lake file lost", 10, 25)]


def test_a_doubled_file_of_the_lake(case: Case) -> None:
    source = case.lake_file(1)
    shutil.copy(source, source.with_name("copy.parquet"))
    assert case.run()["findings"] == [("lake file doubled", 10, 25)]


def test_rows_of_the_lake_altered_doubled_and_lost(case: Case) -> None:
    """A file written over by other hands, under its own name."""
    path = case.lake_file(1)
    table = pq.read_table(path, partitioning=None)
    values = table["value"].to_pylist()
    values[2] = b"forged"
    altered = table.set_column(
        table.schema.get_field_index("value"), "value", pa.array(values, pa.binary())
    )
    kept = pa.concat_tables([altered.slice(0, 10), altered.slice(3, 1), altered.slice(11)])
    at = kept.schema.get_field_index("timestamp")
    times = kept["timestamp"].cast(pa.timestamp("us", tz="UTC"))
    pq.write_table(kept.set_column(at, "timestamp", times), path)
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    assert sorted(case.run()["findings"]) == [
        ("duplicate in lake", 13, 14),
        ("lake row lost", 20, 21),
        ("record altered", 12, 13),
    ]


def test_receipts(case: Case, tmp_path: Path) -> None:
    """A receipt for what is there is fine; one for what is nowhere is a finding."""
    lines = [{"topic": "orders", "partition": 0, "offset": n} for n in (3, 29, 31)]
    path = tmp_path / "receipts.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in lines))
    receipts = audit.read_receipts(str(path))
    assert case.run(receipts=receipts, quick=True)["findings"] == [
        ("receipt without record", 31, 32)
    ]


def test_not_yet_handed_over_is_pending(spark: SparkSession, kit: Kit) -> None:
    """In the journal alone: explained, and a receipt for it too."""
    topic = kit.topic()
    kit.send(topic, ["a", "b", "c"])
    kit.wait_archived(topic, {0: 3})
    kit.broker.faults.bucket_down()
    try:
        kit.send(topic, ["d", "e"])
        receipts = [audit.Receipt(topic, 0, 4), audit.Receipt(topic, 0, 5)]
        report = audit.audit(spark, kit.bucket, topic, receipts=receipts, data=kit.data)
    finally:
        kit.broker.faults.bucket_up()
    kinds = [(note["kind"], note["first"], note["end"]) for note in report["explained"]]
    assert kinds == [("pending", 3, 5), ("pending", 4, 5)]
    found = [(note["kind"], note["first"]) for note in report["findings"]]
    assert found == [("receipt without record", 5)]


def test_retention_and_holes_are_explained(case: Case) -> None:
    """What left by rule is no finding."""

    def raised(manifest: Manifest) -> Manifest:
        return msgspec.structs.replace(manifest, log_start=10, entries=manifest.entries[1:])

    case.set_manifest(raised)
    assert case.run() == {"findings": [], "explained": [NOT_YET, ("retention", 0, 10)]}


def test_the_command(case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 0 or 3, JSON, and a page with a picture."""
    html = tmp_path / "audit.html"
    line = ["--archive", f"file://{case.bucket}", "--topic", "orders", "--lake", str(case.lake)]
    assert audit.main([*line, "--quick", "--json", "--html", str(html)]) == 0
    assert json.loads(capsys.readouterr().out)["findings"] == []
    assert "accounted for" in html.read_text()
    case.segment(0).unlink()
    assert audit.main([*line, "--quick", "--html", str(html)]) == 3
    assert "missing segment" in html.read_text()
    assert "<svg" in html.read_text()
