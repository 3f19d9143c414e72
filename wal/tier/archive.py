"""A bucket read on its own: no broker, no data directory, nothing written.

`Archive` finds its way through the manifests: they name topic, partition, offsets and
objects. It lists, iterates batches and records of a range, and verifies everything: each
object of each manifest byte for byte, each checksum, each seam; and tells what nothing
names. A broker may write to the bucket meanwhile: an object that goes while it is read
was in a manifest that has moved on, so a manifest with findings is read again before
they are believed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from crc32c import crc32c

from ister.wal.errors import Contradiction, Damaged, LogError, StorageError, UnknownPartition
from ister.wal.fs import FileSystem
from ister.wal.records import Record, records
from ister.wal.tier import moves, open_store
from ister.wal.tier.chunk_cache import ChunkCache, TierBatch, TierReader
from ister.wal.tier.manifest import PREFIX, Entry, Manifest, parse_key
from ister.wal.tier.object_store import Missing, ObjectStore, StoreUnavailable
from ister.wal.tier.owner import read_cluster

OBJECT_PREFIXES = ("segments/", "shared/")

Progress = Callable[[int, int], None]  # bytes done, bytes in all


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it should be, and where."""

    where: str
    what: str


@dataclass(slots=True)
class VerifyReport:
    partitions: int = 0
    entries: int = 0
    records: int = 0
    bytes: int = 0
    findings: list[Finding] = field(default_factory=list)
    orphans: list[tuple[str, int]] = field(default_factory=list)  # name, size: named by nothing
    doomed: int = 0  # objects that wait for their time to go

    @property
    def is_sound(self) -> bool:
        return not self.findings


class Archive:
    """Everything that was handed over, as the manifests tell it."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self._reader = TierReader(store, ChunkCache(bytes_max=0))  # whoever dumps reads once

    @classmethod
    def open(cls, url: str, fs: FileSystem | None = None) -> Archive:
        return cls(open_store(url, fs))

    def close(self) -> None:
        self.store.close()

    @property
    def cluster_id(self) -> str | None:
        """None: this is no bucket of a broker, or nothing was handed over yet."""
        return read_cluster(self.store)

    # -- what is there ---------------------------------------------------------

    def manifests(self) -> list[Manifest]:
        """Of all live partitions, by topic name and partition."""
        found = [manifest for manifest in self._all_manifests() if not manifest.deleted]
        return sorted(found, key=lambda m: (m.topic_name, m.topic_hex, m.partition))

    def find(self, topic: str, partition: int | None = None) -> list[Manifest]:
        """Manifests of a topic, by its name or id (hex); UnknownPartition if there is none."""
        found = [
            manifest
            for manifest in self.manifests()
            if topic in (manifest.topic_name, manifest.topic_hex)
            and partition in (None, manifest.partition)
        ]
        if not found:
            where = topic if partition is None else f"{topic}/{partition}"
            raise UnknownPartition(f"{where} is not in {self.store.url}")
        if len({manifest.topic_hex for manifest in found}) > 1:
            ids = ", ".join(sorted({manifest.topic_hex for manifest in found}))
            raise Contradiction(f"several topics are called {topic}: give one of the ids {ids}")
        return found

    def _all_manifests(self) -> Iterator[Manifest]:
        for name in list(self.store.registers(PREFIX)):
            found = moves.load(self.store, *parse_key(name))
            if found is not None:
                yield found.manifest

    # -- what is in it ---------------------------------------------------------

    def batches(
        self, manifest: Manifest, start: int | None = None, end: int | None = None
    ) -> Iterator[TierBatch]:
        """Whole batches with offsets in start..end (end not included), in order, checked."""
        first = manifest.log_start if start is None else max(start, manifest.log_start)
        for entry in manifest.entries:
            if entry.last_offset < first or (end is not None and entry.first_offset >= end):
                continue
            for chunk in self._reader.stream(manifest, entry, first):
                for batch in chunk:
                    if end is not None and batch.base_offset >= end:
                        break
                    if batch.last_offset >= first:
                        yield batch

    def records(
        self, manifest: Manifest, start: int | None = None, end: int | None = None
    ) -> Iterator[Record]:
        """The records of start..end (end not included) from the log start on."""
        first = manifest.log_start if start is None else max(start, manifest.log_start)
        for batch in self.batches(manifest, start, end):
            for record in records(batch.data):
                if record.offset >= first and (end is None or record.offset < end):
                    yield record

    # -- is it right -----------------------------------------------------------

    def verify(self, progress: Progress | None = None) -> VerifyReport:
        """Read everything that the manifests name, and tell what is wrong or left over."""
        report = VerifyReport()
        held: list[Manifest] = []
        for name in list(self.store.registers(PREFIX)):
            manifest = self._load_checked(name, report)
            if manifest is not None:
                held.append(manifest)
        cluster_id = self._checked_cluster(report)
        total = sum(entry.size for manifest in held for entry in manifest.entries)
        for manifest in held:
            if manifest.cluster_id != cluster_id:
                what = f"belongs to cluster {manifest.cluster_id}, the bucket to {cluster_id}"
                report.findings.append(Finding(manifest.where, what))
            self._verify_manifest(manifest, report, total, progress)
        self._find_orphans(held, report)
        return report

    def _verify_manifest(
        self, manifest: Manifest, report: VerifyReport, total: int, progress: Progress | None
    ) -> None:
        report.partitions += not manifest.deleted
        for entry in manifest.entries:
            finding = self.verify_entry(manifest, entry)
            if finding is not None and self._still_named(manifest, entry):
                report.findings.append(finding)
            report.entries += 1
            report.records += entry.records
            report.bytes += entry.size
            if progress is not None:
                progress(report.bytes, total)

    def verify_entry(self, manifest: Manifest, entry: Entry) -> Finding | None:
        """What is wrong with one section of a manifest, read whole; None: it holds."""
        try:
            section = self._reader.section(manifest, entry)
            data_crc = 0
            for batches in self._reader.stream(manifest, entry):
                for batch in batches:
                    data_crc = crc32c(batch.data, data_crc)
            tail = self.store.get(
                entry.object, entry.start + entry.data_size, entry.size - entry.data_size
            )
        except StoreUnavailable:
            raise
        except Missing:
            return Finding(entry.object, "is in a manifest but not in the bucket")
        except (StorageError, Damaged, LogError) as error:
            return Finding(entry.object, str(error))
        if data_crc != section.footer.data_crc or crc32c(tail, data_crc) != entry.crc:
            return Finding(entry.object, "the checksum of the section is not the manifest's")
        return None

    def _still_named(self, manifest: Manifest, entry: Entry) -> bool:
        """False if a broker has moved the manifest on while we looked."""
        found = moves.load(self.store, manifest.topic_id, manifest.partition)
        return found is not None and entry in found.manifest.entries

    def _load_checked(self, name: str, report: VerifyReport) -> Manifest | None:
        try:
            found = moves.load(self.store, *parse_key(name))
        except StoreUnavailable:
            raise
        except (LogError, ValueError) as error:
            report.findings.append(Finding(name, str(error)))
            return None
        return found.manifest if found else None

    def _checked_cluster(self, report: VerifyReport) -> str | None:
        try:
            return self.cluster_id
        except Damaged as error:
            report.findings.append(Finding("cluster", str(error)))
            return None

    def _find_orphans(self, held: Iterable[Manifest], report: VerifyReport) -> None:
        named: set[str] = set()
        doomed: set[str] = set()
        for manifest in held:
            named |= manifest.objects
            doomed |= {line.object for line in manifest.to_delete}
        report.doomed = len(doomed - named)
        for prefix in OBJECT_PREFIXES:
            for info in self.store.list(prefix):
                if info.name not in named and info.name not in doomed:
                    report.orphans.append((info.name, info.size))
