"""Buckets for tests, made without a broker: any batches, any codec, several segments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from crc32c import crc32c

from ister.wal.batch import read_header
from ister.wal.fs import OsFileSystem
from ister.wal.tier.directory import LEAF, DirectoryStore
from ister.wal.tier.manifest import Entry, Hole, Manifest, encode, key
from ister.wal.tier.object_store import ObjectStore
from ister.wal.tier.owner import bind_cluster, claim
from ister.wal.tier.segment import SectionWriter

TOPIC_ID = bytes(range(1, 17))
CLUSTER = "cluster-of-the-tests-0"
TIME = 1_700_000_000_000


class Bucket:
    """A directory (or `store`) as a bucket; `add` puts a segment, `publish` moves the manifest."""

    def __init__(self, path: Path, store: ObjectStore | None = None) -> None:
        self.path = path
        self.store: ObjectStore = store or DirectoryStore(OsFileSystem(), str(path))
        self.url = self.store.url
        self.entries: dict[int, list[Entry]] = {}
        self.holes: dict[int, list[Hole]] = {}
        self.log_start: dict[int, int] = {}
        self._versions: dict[int, int] = {}
        self._attempt = 0

    def add(
        self, batches: Sequence[bytes], partition: int = 0, topic_id: bytes = TOPIC_ID
    ) -> Entry:
        """A segment with these batches (offsets already set)."""
        writer = SectionWriter(topic_id, partition, TIME)
        data = b""
        for batch in batches:
            header = read_header(batch)
            row = (header.base_offset, header.count, len(batch), header.max_timestamp)
            data += bytes(writer.add(batch, [row]))
        data += writer.finish(b"")
        self._attempt += 1
        last = writer.next_offset - 1
        name = (
            f"segments/{topic_id.hex()}/{partition:010d}/"
            f"{writer.first_offset:020d}-{last:020d}-1-{self._attempt}"
        )
        self.store.put(name, [data])
        entry = Entry(
            name,
            0,
            writer.size,
            writer.first_offset,
            last,
            writer.records,
            writer.data_size,
            writer.max_timestamp,
            TIME,
            crc32c(data),
        )
        self.entries.setdefault(partition, []).append(entry)
        return entry

    def lose(self, first: int, last: int, partition: int = 0) -> None:
        """A known hole."""
        self.holes.setdefault(partition, []).append(Hole(first, last, "lost in a test"))

    def publish(self, topic: str = "orders", topic_id: bytes = TOPIC_ID) -> Bucket:
        if not self._versions:
            bind_cluster(self.store, CLUSTER)
            claim(self.store, "run", TIME)
        for partition, entries in self.entries.items():
            manifest = Manifest(
                cluster_id=CLUSTER,
                topic_hex=topic_id.hex(),
                topic_name=topic,
                partition=partition,
                owner_epoch=1,
                log_start=self.log_start.get(partition, entries[0].first_offset),
                holes=tuple(self.holes.get(partition, ())),
                entries=tuple(entries),
            )
            version = self._versions.get(partition, 0)
            name = key(topic_id, partition)
            self._versions[partition] = self.store.swap(name, encode(manifest), version)
        return self

    def file_of(self, entry: Entry) -> Path:
        """The file of an object, to be hurt."""
        return self.path / "objects" / (entry.object + LEAF)
