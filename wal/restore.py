"""A broker rebuilt from its bucket: metadata and a checkpoint, from snapshot and manifests.

The bucket is only read. What comes back is everything that was tiered: topics with their
ids and configs, cursors, leader epochs, producer state, and for each partition exactly the
offsets of its manifest. What was durable on the lost disk and not yet tiered is gone; so
- the leader epoch of every partition rises above any that was ever given, so that clients
  notice and ask again;
- cursors above the restored end are set back to it, and counted;
- the counters that must not go back (producer ids, offsets of non-reliable topics) go on
  behind a margin (`metadata/snapshot.py`).

The manifests are newer than the snapshot. A topic that they know and the snapshot does not
comes back under its name with default configs; one whose manifests are tombstones does not
come back. With no snapshot at all the manifests alone do: configs and cursors are gone.

The checkpoint is written first, the metadata last, in one transaction: a restore that dies
is simply run again, and a broker does not start on half of one, because metadata without
topics beside a bucket with topics is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgspec

from ister.metadata import records as metadata_records
from ister.metadata.cursors import decode_cursor, encode_cursor, split_cursor_key
from ister.metadata.memory import MemoryStore as MetadataScratch
from ister.metadata.snapshot import import_snapshot
from ister.metadata.store import ABSENT, Store, Transaction
from ister.wal import checkpoint as checkpoints
from ister.wal.clock import Clock
from ister.wal.errors import Contradiction, LogError
from ister.wal.fs import FileSystem
from ister.wal.handoff_plan import Key
from ister.wal.opening import CHECKPOINT_DIRECTORY, JOURNAL_DIRECTORY, lock_directory
from ister.wal.snapshot import read_snapshot
from ister.wal.tier import moves
from ister.wal.tier.chunk_cache import TierReader
from ister.wal.tier.manifest import PREFIX, Manifest, encode, parse_key
from ister.wal.tier.object_store import ObjectStore, StoreUnavailable
from ister.wal.tier.owner import read_cluster, read_owner

Progress = Callable[[int, int], None]  # partitions done, partitions in all


@dataclass(frozen=True, slots=True)
class RestoredPartition:
    topic: str
    topic_id: bytes
    partition: int
    log_start: int
    next_offset: int  # the last offset that is there, and one
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class CursorSetBack:
    group: str
    topic: str
    partition: int
    offset_before: int
    offset: int


@dataclass(slots=True)
class RestoreReport:
    cluster_id: str
    snapshot_taken_ms: int | None  # None: there was none
    snapshot_age_ms: int | None
    topics: int = 0
    partitions: list[RestoredPartition] = field(default_factory=list)
    cursors: int = 0
    cursors_set_back: list[CursorSetBack] = field(default_factory=list)
    newer_than_snapshot: list[str] = field(default_factory=list)  # topics with default configs
    deleted_since_snapshot: list[str] = field(default_factory=list)  # topics that stay away
    damages: list[str] = field(default_factory=list)  # what could not be read

    def gone_at_least(self) -> dict[tuple[str, int], int]:
        """Records that a consumer had committed and that are not in the bucket, by partition."""
        gone: dict[tuple[str, int], int] = {}
        for cursor in self.cursors_set_back:
            key = cursor.topic, cursor.partition
            gone[key] = max(gone.get(key, 0), cursor.offset_before - cursor.offset)
        return gone


def restore(
    bucket: ObjectStore,
    *,
    fs: FileSystem,
    data: str,
    metadata: Store,
    clock: Clock,
    progress: Progress | None = None,
) -> RestoreReport:
    """Fill an empty data directory and an empty metadata store from the bucket."""
    lock = lock_directory(fs, data)
    try:
        return _Restore(bucket, fs, data, metadata, clock, progress).run()
    finally:
        lock.release()


class _Restore:
    def __init__(
        self,
        bucket: ObjectStore,
        fs: FileSystem,
        data: str,
        metadata: Store,
        clock: Clock,
        progress: Progress | None,
    ) -> None:
        self._bucket = bucket
        self._fs = fs
        self._data = data
        self._metadata = metadata
        self._clock = clock
        self._progress = progress
        self._reader = TierReader(bucket)

    def run(self) -> RestoreReport:
        self._refuse_what_is_there()
        cluster_id = read_cluster(self._bucket)
        if cluster_id is None:
            raise Contradiction(
                f"{self._bucket.url} holds nothing that a broker handed over: check the address"
            )
        manifests = self._load_manifests(cluster_id)
        report, entries = self._load_entries(cluster_id)
        self._drop_deleted(entries, manifests, report)
        self._add_newer(entries, manifests, report)
        ends = self._write_checkpoint(entries, manifests, report)
        self._set_back_cursors(entries, ends, report)
        self._metadata.commit(Transaction(expect={metadata_records.CLUSTER: ABSENT}, put=entries))
        return report

    # -- before ----------------------------------------------------------------

    def _refuse_what_is_there(self) -> None:
        for key, _ in self._metadata.scan(""):
            raise Contradiction(
                f"{self._data} has metadata already ({key!r}): restore into an empty directory"
            )
        journal = f"{self._data}/{JOURNAL_DIRECTORY}"
        if self._fs.exists(journal) and self._fs.listdir(journal):
            raise Contradiction(
                f"{journal} has files already: restore into an empty directory, and keep this "
                "one, it may hold records that the bucket does not"
            )

    def _load_manifests(self, cluster_id: str) -> dict[Key, Manifest]:
        manifests: dict[Key, Manifest] = {}
        for name in list(self._bucket.registers(PREFIX)):
            key = parse_key(name)
            found = moves.load(self._bucket, *key)
            if found is None:
                continue
            if found.manifest.cluster_id != cluster_id:
                raise Contradiction(
                    f"{name} belongs to cluster {found.manifest.cluster_id}, the bucket to "
                    f"{cluster_id}: two buckets were mixed; put the right manifest back"
                )
            manifests[key] = found.manifest
        return manifests

    def _load_entries(self, cluster_id: str) -> tuple[RestoreReport, dict[str, bytes]]:
        """What the metadata will hold, as far as the snapshot knows it."""
        found = read_snapshot(self._bucket)
        scratch = MetadataScratch()
        if found is None:
            cluster = metadata_records.ClusterRecord(cluster_id=cluster_id)
            entries = {metadata_records.CLUSTER: metadata_records.encode(cluster)}
            return RestoreReport(cluster_id, None, None), entries
        snapshot = import_snapshot(scratch, found.content)
        if snapshot.cluster_id != cluster_id:
            raise Contradiction(
                f"the snapshot belongs to cluster {snapshot.cluster_id}, the bucket to "
                f"{cluster_id}: two buckets were mixed; put the right snapshot back"
            )
        age_ms = max(0, self._clock.wall_ms() - found.taken_ms)
        report = RestoreReport(cluster_id, found.taken_ms, age_ms)
        report.damages = [str(damage) for damage in found.damages]
        return report, {key: entry.value for key, entry in scratch.scan("")}

    # -- the snapshot against the manifests --------------------------------------

    def _drop_deleted(
        self, entries: dict[str, bytes], manifests: dict[Key, Manifest], report: RestoreReport
    ) -> None:
        """A tombstone in the bucket is newer than a snapshot that still has the topic."""
        dead = {manifest.topic_id for manifest in manifests.values() if manifest.deleted}
        for topic_id in dead:
            key = metadata_records.topic_key(topic_id)
            value = entries.pop(key, None)
            if value is None:
                continue
            topic = metadata_records.decode(metadata_records.TopicRecord, key, value)
            report.deleted_since_snapshot.append(topic.name)
            _drop_name(entries, topic.name, topic_id)
            cursors = f"{metadata_records.CURSORS}{topic_id.hex()}/"
            for prefix in (cursors, metadata_records.offsets_prefix(topic_id)):
                for found in [key for key in entries if key.startswith(prefix)]:
                    del entries[found]
        for manifest_key in [key for key, manifest in manifests.items() if manifest.deleted]:
            del manifests[manifest_key]

    def _add_newer(
        self, entries: dict[str, bytes], manifests: dict[Key, Manifest], report: RestoreReport
    ) -> None:
        """Topics and partitions that were made after the snapshot."""
        for topic_id, held in _by_topic(manifests.values()).items():
            key = metadata_records.topic_key(topic_id)
            partitions = max(manifest.partition for manifest in held) + 1
            if metadata_records.tombstone_key(topic_id) in entries:
                for manifest in held:  # deleted, but its tombstones were not in the bucket yet
                    del manifests[(topic_id, manifest.partition)]
                continue
            if key in entries:
                topic = metadata_records.decode(metadata_records.TopicRecord, key, entries[key])
                if topic.partitions < partitions:
                    grown = msgspec.structs.replace(topic, partitions=partitions)
                    entries[key] = metadata_records.encode(grown)
                continue
            name = self._free_name(entries, held[0])
            report.newer_than_snapshot.append(name)
            entries[key] = metadata_records.encode(
                metadata_records.TopicRecord(
                    name=name,
                    partitions=partitions,
                    configs={},
                    created_ms=min(manifest_time(manifest) for manifest in held),
                )
            )
            entries[metadata_records.name_key(name)] = metadata_records.encode(
                metadata_records.NameRecord(topic_id=topic_id.hex())
            )

    def _free_name(self, entries: dict[str, bytes], manifest: Manifest) -> str:
        """Its own name; if another topic has that now, one that says where it comes from."""
        name = manifest.topic_name or f"restored-{manifest.topic_hex}"
        if metadata_records.name_key(name) in entries:
            return f"restored-{manifest.topic_hex}"
        return name

    # -- what is written ---------------------------------------------------------

    def _write_checkpoint(
        self, entries: dict[str, bytes], manifests: dict[Key, Manifest], report: RestoreReport
    ) -> dict[Key, int]:
        """Where every partition stands; gives the restored end of each reliable one."""
        owner, _ = read_owner(self._bucket)
        floor = owner.epoch if owner else 0
        topics = sorted(_reliable_topics(entries))
        report.topics = sum(key.startswith(metadata_records.TOPICS) for key in entries)
        total = sum(count for _, _, count in topics)
        partition_records: list[checkpoints.PartitionRecord] = []
        for name, topic_id, count in topics:
            for index in range(count):
                manifest = manifests.get((topic_id, index))
                record = self._partition(topic_id, index, manifest, floor, report)
                partition_records.append(record)
                report.partitions.append(
                    RestoredPartition(
                        name,
                        topic_id,
                        index,
                        record.log_start,
                        record.next_offset,
                        record.epochs[-1][0],
                    )
                )
                if self._progress is not None:
                    self._progress(len(partition_records), total)
        self._write(report.cluster_id, partition_records)
        return {(record.topic_id, record.index): record.next_offset for record in partition_records}

    def _write(self, cluster_id: str, partition_records: list[checkpoints.PartitionRecord]) -> None:
        directory = f"{self._data}/{CHECKPOINT_DIRECTORY}"
        self._fs.makedirs(f"{self._data}/{JOURNAL_DIRECTORY}")
        self._fs.makedirs(directory)
        last, _ = checkpoints.load(self._fs, directory)  # of a restore that died
        checkpoints.write(
            self._fs,
            directory,
            checkpoints.Checkpoint(
                generation=(last.generation if last else 0) + 1,
                cluster_id=cluster_id,
                written_ms=self._clock.wall_ms(),
                first_sequence=0,
                scan_from=0,
                commit_next=1,
                partitions=partition_records,
            ),
        )

    def _partition(
        self,
        topic_id: bytes,
        index: int,
        manifest: Manifest | None,
        epoch_floor: int,
        report: RestoreReport,
    ) -> checkpoints.PartitionRecord:
        """`epoch_floor` is the owner epoch: it rises with every run, so no run was above it."""
        if manifest is None:
            return checkpoints.PartitionRecord(
                topic_id, index, 0, 0, 0, [(epoch_floor + 1, 0)], [], b"", b""
            )
        end = manifest.tiered_end
        epochs = [(start.epoch, start.start_offset) for start in manifest.leader_epochs]
        epochs = [(epoch, start) for epoch, start in epochs if start < end]
        known = max([start.epoch for start in manifest.leader_epochs], default=-1)
        epochs.append((max(known, epoch_floor) + 1, end))
        return checkpoints.PartitionRecord(
            topic_id,
            index,
            end,
            manifest.log_start,
            end,
            epochs,
            [(hole.first_offset, hole.last_offset, hole.reason) for hole in manifest.holes],
            self._producers(manifest, report),
            encode(manifest),
        )

    def _producers(self, manifest: Manifest, report: RestoreReport) -> bytes:
        """Of the last section. One that cannot be read costs the duplicates' memory, said aloud."""
        if not manifest.entries:
            return b""
        try:
            return self._reader.section(manifest, manifest.entries[-1]).producers
        except StoreUnavailable:
            raise
        except LogError as error:
            report.damages.append(f"{manifest.where}: no producer state: {error}")
            return b""

    def _set_back_cursors(
        self, entries: dict[str, bytes], ends: dict[Key, int], report: RestoreReport
    ) -> None:
        """A cursor above the restored end would wait for offsets that are given again."""
        names = {topic_id: name for name, topic_id, _ in _reliable_topics(entries)}
        for key in [key for key in entries if key.startswith(metadata_records.CURSORS)]:
            where = split_cursor_key(key)
            report.cursors += 1
            end = ends.get((where.topic_id, where.partition))
            cursor = decode_cursor(key, entries[key])
            if end is None or cursor.offset <= end:
                continue
            moved = msgspec.structs.replace(
                cursor, offset=end, leader_epoch=-1, adjusted_from=cursor.offset
            )
            entries[key] = encode_cursor(moved)
            report.cursors_set_back.append(
                CursorSetBack(
                    where.group, names[where.topic_id], where.partition, cursor.offset, end
                )
            )


def manifest_time(manifest: Manifest) -> int:
    """Roughly when the partition began to be there."""
    return manifest.entries[0].sealed_ms if manifest.entries else 0


def _by_topic(manifests: Iterable[Manifest]) -> dict[bytes, list[Manifest]]:
    topics: dict[bytes, list[Manifest]] = {}
    for manifest in manifests:
        topics.setdefault(manifest.topic_id, []).append(manifest)
    return topics


def _drop_name(entries: dict[str, bytes], name: str, topic_id: bytes) -> None:
    """The name, if it still means this topic (it may have been created anew)."""
    key = metadata_records.name_key(name)
    value = entries.get(key)
    if value is not None:
        record = metadata_records.decode(metadata_records.NameRecord, key, value)
        if record.topic_id == topic_id.hex():
            del entries[key]


def _reliable_topics(entries: dict[str, bytes]) -> list[tuple[str, bytes, int]]:
    """(name, id, partitions) of every topic that has a log."""
    found = []
    for key, value in entries.items():
        if key.startswith(metadata_records.TOPICS):
            topic = metadata_records.decode(metadata_records.TopicRecord, key, value)
            mode = topic.configs.get(metadata_records.DISPATCH_MODE)
            if mode != metadata_records.NON_RELIABLE:
                topic_id = bytes.fromhex(key.removeprefix(metadata_records.TOPICS))
                found.append((topic.name, topic_id, topic.partitions))
    return found
