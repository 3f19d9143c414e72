"""What a data directory holds, as plain values: for whoever writes one and whoever tests it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from ister.gateway.app import Options, Storage
from ister.metadata import records as metadata_records
from ister.metadata import snapshot as metadata_snapshot
from ister.metadata import sqlite
from ister.metadata.cursors import load_cursors
from ister.wal import checkpoint, frame, producers, sidecar, snapshot
from ister.wal.batch import walk
from ister.wal.clock import Clock
from ister.wal.errors import LogError
from ister.wal.partition import Partition
from ister.wal.reader import Chunk
from ister.wal.records import records
from ister.wal.settings import LogSettings
from ister.wal.tier import manifest, owner, segment

# What is written today.
FORMATS = {
    "checkpoint": checkpoint.FORMAT_VERSION,
    "journal": frame.FORMAT_VERSION,
    "manifest": manifest.FORMAT_VERSION,
    "metadata": metadata_records.FORMAT,
    "metadata in the bucket": metadata_snapshot.FORMAT,
    "owner": owner.FORMAT_VERSION,
    "producers": producers.FORMAT_VERSION,
    "segment": segment.FORMAT_VERSION,
    "sidecar": sidecar.FORMAT_VERSION,
    "snapshot": snapshot.FORMAT_VERSION,
    "sqlite": sqlite.FORMAT,
}


async def describe(data: Path, clock: Clock, bucket: str | None = None) -> dict[str, Any]:
    """Open it, say what is there, close it."""
    errors: list[BaseException] = []
    settings = LogSettings(bucket_requests_per_second=0)
    options = Options(data=str(data), bucket_url=bucket, clock=clock, log=settings)
    storage = Storage(options, errors.append)
    catalog = storage.catalog
    found = {
        "cluster": catalog.cluster_id,
        "tombstones": sorted(tombstone.name for tombstone in catalog.tombstones.values()),
        "topics": {
            name: {
                "id": topic.id.hex(),
                "configs": dict(topic.configs),
                "partitions": [
                    await _partition(storage, partition)
                    for partition in storage.log.of_topic(topic.id)
                ],
            }
            for name, topic in sorted(catalog.topics_by_name.items())
        },
        "cursors": [
            [at.key.group, at.key.topic_id.hex(), at.key.partition, at.cursor.offset]
            for at in load_cursors(storage.store)
        ],
    }
    await storage.close()
    assert errors == []
    return found


async def _partition(storage: Storage, partition: Partition) -> dict[str, Any]:
    if not partition.settings.reliable:
        return {"reserved": storage.catalog.reserved_offsets(partition.topic_id, 0)}
    return {
        "log_start": partition.log_start,
        "end": partition.high_watermark,
        "epoch": partition.leader_epoch,
        "tiered_end": partition.tiered_end,
        "holes": [[hole.first, hole.last] for hole in partition.holes],
        "records": await _records(storage, partition),
    }


async def _records(storage: Storage, partition: Partition) -> list[list[Any]]:
    """[offset, value without its zeros] of every record."""
    found: list[list[Any]] = []
    at = partition.log_start
    while at < partition.high_watermark:
        chunk = await read(storage, partition, at)
        data = b"".join(chunk.buffers)
        for position, size, _ in walk(data):
            for record in records(data[position : position + size]):
                if record.offset >= at:
                    found.append([record.offset, (record.value or b"").rstrip(b"\0").decode()])
        at = chunk.next_offset
    return found


async def read(storage: Storage, partition: Partition, offset: int) -> Chunk:
    answered: asyncio.Future[tuple[Chunk | None, LogError | None]] = (
        asyncio.get_running_loop().create_future()
    )
    storage.reader.read(partition, offset, 1 << 20, lambda *answer: answered.set_result(answer))
    chunk, error = await answered
    if error is not None:
        raise error
    assert chunk is not None
    return chunk
