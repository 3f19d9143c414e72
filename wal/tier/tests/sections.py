"""Batches, sections and manifests for tests of the tier."""

from __future__ import annotations

from collections.abc import Sequence

from ister.wal.tests.batches import make_batch
from ister.wal.tier.manifest import Entry, Manifest
from ister.wal.tier.segment import BatchEntry, SectionWriter

TOPIC = bytes(range(1, 17))
CLUSTER = "cluster-of-the-tests-0"
TIME = 1_700_000_000_000
Run = tuple[bytes, list[BatchEntry]]


def make_run(
    first: int, counts: Sequence[int], *, size: int = 20, time: int = TIME, step: int = 1000
) -> Run:
    """Batches with the given counts of records; each batch is `step` ms younger than the last."""
    parts: list[bytes] = []
    entries: list[BatchEntry] = []
    offset = first
    for number, count in enumerate(counts):
        values = [f"{offset + i}:".encode().ljust(size, b".") for i in range(count)]
        stamp = time + number * step
        batch = make_batch(values, base_offset=offset, leader_epoch=3, base_timestamp=stamp)
        parts.append(batch)
        entries.append((offset, count, len(batch), stamp))
        offset += count
    return b"".join(parts), entries


def make_section(
    runs: Sequence[Run],
    *,
    topic_id: bytes = TOPIC,
    partition: int = 0,
    object_name: str = "segments/x",
    start: int = 0,
    sealed_ms: int = TIME,
    producers: bytes = b"state",
) -> tuple[bytes, Entry]:
    """The bytes of a section and the manifest entry that means it."""
    writer = SectionWriter(topic_id, partition, sealed_ms)
    data = b"".join(bytes(writer.add(buffer, entries)) for buffer, entries in runs)
    data += writer.finish(producers)
    entry = Entry(
        object=object_name,
        start=start,
        size=writer.size,
        first_offset=writer.first_offset,
        last_offset=writer.next_offset - 1,
        records=writer.records,
        data_size=writer.data_size,
        max_timestamp=writer.max_timestamp,
        sealed_ms=sealed_ms,
        crc=writer.crc,
    )
    return data, entry


def make_manifest(entries: Sequence[Entry] = (), **fields: object) -> Manifest:
    values: dict[str, object] = {
        "cluster_id": CLUSTER,
        "topic_hex": TOPIC.hex(),
        "topic_name": "orders",
        "owner_epoch": 1,
        "log_start": entries[0].first_offset if entries else 0,
        "entries": tuple(entries),
    }
    values.update(fields)
    return Manifest(**values)  # type: ignore[arg-type]
