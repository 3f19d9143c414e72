"""`scan` over buckets in a directory: what comes, and what is said about what does not."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

import ister.archive
from ister.archive import DataLoss, Loss
from ister.archive.ranges import slices
from ister.archive.tests.buckets import TIME, Bucket
from ister.wal.errors import UnknownPartition
from ister.wal.tests.batches import make_batch, seal
from ister.wal.tier.archive import Archive


def batch(first: int, count: int, **fields: object) -> bytes:
    values = [f"{first + n}".encode() for n in range(count)]
    stamps = [TIME + 1000 * (first + n) for n in range(count)]
    return make_batch(values, base_offset=first, timestamps=stamps, **fields)  # type: ignore[arg-type]


@pytest.fixture
def bucket(tmp_path: Path) -> Bucket:
    """Partition 0: offsets 0..29 in three segments of two batches; partition 1: 0..4."""
    made = Bucket(tmp_path / "bucket")
    for first in (0, 10, 20):
        made.add([batch(first, 5), batch(first + 5, 5, codec=first // 10)])
    made.add([batch(0, 5, codec=4)], partition=1)
    return made.publish()


def offsets(reader: pa.RecordBatchReader) -> list[tuple[int, int]]:
    table = reader.read_all()
    return list(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))


def test_everything_in_order(bucket: Bucket) -> None:
    """Each offset once, values with it, and the schema of the Kafka source."""
    table = ister.archive.scan(bucket.url, "orders").read_all()
    assert table.schema == ister.archive.schema()
    seen = table.select(["partition", "offset"]).to_pylist()
    assert [(row["partition"], row["offset"]) for row in seen] == [
        *((0, n) for n in range(30)),
        *((1, n) for n in range(5)),
    ]
    assert table["value"].to_pylist()[:30] == [str(n).encode() for n in range(30)]


@pytest.mark.parametrize(("start", "end"), [(0, 30), (3, 4), (7, 22), (10, 20), (29, 99), (40, 50)])
def test_a_range(bucket: Bucket, start: int, end: int) -> None:
    """Any two offsets, inside a batch or at a seam; what is not there yet is left out."""
    found = offsets(ister.archive.scan(bucket.url, "orders", start, end, partitions=[0]))
    assert found == [(0, n) for n in range(start, min(end, 30))]


def test_bounds_by_partition_and_by_time(bucket: Bucket) -> None:
    """A mapping bounds the partitions it names; a time is the first record not older."""
    found = offsets(ister.archive.scan(bucket.url, "orders", {0: 28}, {1: 2}))
    assert found == [(0, 28), (0, 29), (1, 0), (1, 1)]
    at = datetime.fromtimestamp((TIME + 26_500) / 1000, UTC)
    assert offsets(ister.archive.scan(bucket.url, "orders", at)) == [(0, 27), (0, 28), (0, 29)]


def test_what_is_unknown_is_said_at_once(bucket: Bucket) -> None:
    """A topic or a partition that is not there is no empty result."""
    with pytest.raises(UnknownPartition):
        ister.archive.scan(bucket.url, "nope")
    with pytest.raises(UnknownPartition):
        ister.archive.scan(bucket.url, "orders", partitions=[7])


def test_only_what_is_needed_is_read(bucket: Bucket) -> None:
    """Segments outside the range are not touched: they may even be gone."""
    bucket.file_of(bucket.entries[0][0]).unlink()
    bucket.file_of(bucket.entries[0][2]).unlink()
    found = offsets(ister.archive.scan(bucket.url, "orders", 10, 20, partitions=[0]))
    assert found == [(0, n) for n in range(10, 20)]


def test_a_missing_segment(bucket: Bucket) -> None:
    """Raises with the offsets; by option it is reported and the rest comes."""
    bucket.file_of(bucket.entries[0][1]).unlink()
    with pytest.raises(DataLoss, match=r"offsets 10\.\.19 of orders/0"):
        offsets(ister.archive.scan(bucket.url, "orders"))
    _reported(bucket, (10, 20))


def test_a_truncated_segment(bucket: Bucket) -> None:
    """As a missing one: its footer is gone."""
    path = bucket.file_of(bucket.entries[0][1])
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(DataLoss, match=r"10\.\.19"):
        offsets(ister.archive.scan(bucket.url, "orders"))
    _reported(bucket, (10, 20))


def test_a_changed_byte(bucket: Bucket) -> None:
    """A flipped bit in the data is found by its checksum, never handed on."""
    path = bucket.file_of(bucket.entries[0][1])
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    with pytest.raises(DataLoss, match="checksum"):
        offsets(ister.archive.scan(bucket.url, "orders"))
    _reported(bucket, (10, 20))


def _reported(bucket: Bucket, lost: tuple[int, int]) -> None:
    losses: list[Loss] = []
    found = offsets(ister.archive.scan(bucket.url, "orders", partitions=[0], on_loss=losses.append))
    assert found == [(0, n) for n in range(30) if not lost[0] <= n < lost[1]]
    assert [(loss.partition, loss.first, loss.end) for loss in losses] == [(0, *lost)]


def test_damage_costs_its_chunk_only(tmp_path: Path) -> None:
    """In a large segment, what stands before and behind the damaged mebibyte is still read."""
    made = Bucket(tmp_path / "bucket")
    entry = made.add([make_batch([b"v" * 60_000] * 5, base_offset=n) for n in range(0, 60, 5)])
    made.publish()
    path = made.file_of(entry)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    losses: list[Loss] = []
    found = offsets(ister.archive.scan(made.url, "orders", on_loss=losses.append))
    (loss,) = losses
    assert 0 < loss.first < loss.end < 60
    assert [o for _, o in found] == [*range(loss.first), *range(loss.end, 60)]


def test_known_holes(tmp_path: Path) -> None:
    """A hole in the manifest raises, or is reported; reading goes on behind it."""
    made = Bucket(tmp_path / "bucket")
    made.add([batch(0, 5)])
    made.lose(5, 7)
    made.add([batch(8, 2)])
    made.lose(10, 11)
    made.publish()
    with pytest.raises(DataLoss, match="lost in a test"):
        offsets(ister.archive.scan(made.url, "orders"))
    losses: list[Loss] = []
    found = offsets(ister.archive.scan(made.url, "orders", on_loss=losses.append))
    assert [o for _, o in found] == [0, 1, 2, 3, 4, 8, 9]
    assert [(loss.first, loss.end) for loss in losses] == [(5, 8), (10, 12)]


def test_below_the_log_start(bucket: Bucket) -> None:
    """Asked for by name it is a loss; without a start, reading begins at the log start."""
    bucket.log_start[0] = 3
    bucket.publish()
    assert offsets(ister.archive.scan(bucket.url, "orders", None, 5, partitions=[0])) == [
        (0, 3),
        (0, 4),
    ]
    with pytest.raises(DataLoss, match="retention"):
        offsets(ister.archive.scan(bucket.url, "orders", 0, partitions=[0]))


def test_a_batch_that_nobody_can_decode(tmp_path: Path) -> None:
    """A right checksum over nonsense: that batch is lost, its neighbours are not."""
    made = Bucket(tmp_path / "bucket")
    made.add([batch(0, 2), seal(b"\xff" * 40, 3, base_offset=2), batch(5, 2)])
    made.publish()
    with pytest.raises(DataLoss, match="decoded"):
        offsets(ister.archive.scan(made.url, "orders"))
    losses: list[Loss] = []
    found = offsets(ister.archive.scan(made.url, "orders", on_loss=losses.append))
    assert [o for _, o in found] == [0, 1, 5, 6]
    assert [(loss.first, loss.end) for loss in losses] == [(2, 5)]


@pytest.mark.parametrize("bytes_max", [1, 100, 250, 1000, 10**9])
def test_slices_are_the_range(bucket: Bucket, bytes_max: int) -> None:
    """Whatever the budget: contiguous, nothing twice, and no more pieces than it asks for."""
    manifest = Archive.open(bucket.url).find("orders", 0)[0]
    pieces = slices(manifest, 2, 28, bytes_max)
    assert [piece.start for piece in pieces] == [2, *(piece.end for piece in pieces[:-1])]
    assert pieces[-1].end == 28
    assert sum(piece.bytes for piece in pieces) <= 1.2 * manifest.tiered_bytes + len(pieces)
    if bytes_max == 10**9:
        assert len(pieces) == 1


def test_an_undecodable_batch_behind_large_ones(tmp_path: Path) -> None:
    """What was given out before it was met does not come again."""
    made = Bucket(tmp_path / "bucket")
    large = [make_batch([b"v" * 3_000_000], base_offset=n, codec=4) for n in range(4)]
    made.add([*large, seal(b"\xff" * 40, 1, base_offset=4), batch(5, 2)])
    made.publish()
    losses: list[Loss] = []
    found = offsets(ister.archive.scan(made.url, "orders", on_loss=losses.append))
    assert [o for _, o in found] == [0, 1, 2, 3, 5, 6]
    assert [(loss.first, loss.end) for loss in losses] == [(4, 5)]


def test_without_arrow_the_extra_is_named() -> None:
    """A plain install has neither numpy nor pyarrow."""
    code = "import sys; sys.modules['numpy'] = None; import ister.archive"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 1
    assert "pip install 'ister[arrow]'" in result.stderr
