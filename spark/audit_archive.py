"""The archive's part of an audit: manifests, segments, and what the journal still has.

Manifests are decoded here without the checks of a reader, which would refuse to go on at
the first thing that is wrong: an audit wants to know all of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec

from ister.spark import intervals
from ister.wal import inspect
from ister.wal.fs import OsFileSystem
from ister.wal.tier import envelope
from ister.wal.tier.archive import Archive
from ister.wal.tier.manifest import FORMAT_VERSION, MAGIC, PREFIX, Entry, Manifest
from ister.wal.tier.object_store import Missing


class Note(NamedTuple):
    """Something about offsets first..end (end not included); `explained`: no finding."""

    kind: str
    partition: int
    first: int
    end: int
    what: str
    explained: bool = False

    def as_dict(self) -> dict[str, Any]:
        return self._asdict()


class Part(NamedTuple):
    """What there is of a partition."""

    partition: int
    log_start: int
    archive_end: int
    journal_end: int  # the archive's end, where no journal was looked at
    records: int
    segments: int


# With these a reader refuses the manifest, so records cannot be compared.
CONTRADICTIONS = ("hole", "duplicated segment", "overlapping segment")


class Evidence(NamedTuple):
    partitions: list[Part]
    notes: list[Note]

    @property
    def readable(self) -> bool:
        return not any(note.kind in CONTRADICTIONS for note in self.notes)

    def part(self, partition: int) -> Part:
        for part in self.partitions:
            if part.partition == partition:
                return part
        return Part(partition, 0, 0, 0, 0, 0)


def look(archive: Archive, topic: str, data: str | None = None) -> Evidence:
    """Everything about a topic (by name) that its manifests and segments tell."""
    partitions: list[Part] = []
    notes: list[Note] = []
    ends = _journal_ends(data) if data is not None else {}
    for manifest in _manifests(archive):
        if manifest.topic_name != topic or manifest.deleted:
            continue
        notes += _manifest_notes(manifest)
        notes += _segment_notes(archive, manifest)
        end = manifest.tiered_end
        journal = max(end, ends.get((manifest.topic_id, manifest.partition), end))
        if journal > end:
            what = "in the journal, not yet handed over"
            notes.append(Note("pending", manifest.partition, end, journal, what, True))
        partitions.append(
            Part(
                manifest.partition,
                manifest.log_start,
                end,
                journal,
                sum(entry.records for entry in manifest.entries),
                len(manifest.entries),
            )
        )
    return Evidence(sorted(partitions), notes)


def _manifests(archive: Archive) -> Iterator[Manifest]:
    for name in list(archive.store.registers(PREFIX)):
        data, _ = archive.store.read(name)
        _, body = envelope.unwrap(MAGIC, FORMAT_VERSION, data, name)
        yield msgspec.json.decode(body, type=Manifest)


def _manifest_notes(manifest: Manifest) -> list[Note]:
    """Gaps, overlaps and doubles between the entries; known holes are explained."""
    number = manifest.partition
    entries = sorted(manifest.entries, key=lambda entry: (entry.first_offset, entry.last_offset))
    holes = [(hole.first_offset, hole.last_offset + 1) for hole in manifest.holes]
    notes = [
        Note("known hole", number, hole.first_offset, hole.last_offset + 1, hole.reason, True)
        for hole in manifest.holes
    ]
    for before, after in pairwise(entries):
        end = before.last_offset + 1
        if _span(before) == _span(after):
            what = f"{after.object} and {before.object} hold the same offsets"
            notes.append(Note("duplicated segment", number, *_span(after), what))
        elif after.first_offset < end:
            what = f"{before.object} and {after.object}"
            reached = min(end, after.last_offset + 1)
            notes.append(Note("overlapping segment", number, after.first_offset, reached, what))
    covered = [_span(entry) for entry in entries]
    if covered:
        start = max(manifest.log_start, 0)
        whole = [(start, max(end for _, end in covered))]
        for first, end in intervals.subtract(whole, [*covered, *holes]):
            what = "neither in an entry nor in a known hole"
            notes.append(Note("hole", number, first, end, what))
    return notes


def _segment_notes(archive: Archive, manifest: Manifest) -> list[Note]:
    """Read every byte of every segment that the manifest names."""
    notes: list[Note] = []
    for entry in manifest.entries:
        what = _wrong(archive, manifest, entry)
        if what is not None:
            notes.append(Note(what[0], manifest.partition, *_span(entry), what[1]))
    return notes


def _wrong(archive: Archive, manifest: Manifest, entry: Entry) -> tuple[str, str] | None:
    """Kind and words of what is wrong with a segment."""
    try:
        last = archive.store.get(entry.object, entry.start + entry.size - 1, 1)
    except Missing:
        return "missing segment", f"{entry.object} is not there"
    if not last:
        return "truncated segment", f"{entry.object} ends before byte {entry.start + entry.size}"
    finding = archive.verify_entry(manifest, entry)
    return None if finding is None else ("damaged segment", f"{entry.object}: {finding.what}")


def _journal_ends(data: str) -> dict[tuple[bytes, int], int]:
    """By topic id and partition, the offset behind the last one in the journal."""
    fs = OsFileSystem()
    views, _ = inspect.journal_files(fs, data)
    ends: dict[tuple[bytes, int], int] = {}
    for view in views:
        for found in inspect.batches(fs, view, []):
            entry = found.entry
            if entry.records:
                key = (entry.topic_id, entry.partition)
                ends[key] = max(ends.get(key, 0), entry.base_offset + entry.records)
    return ends


def _span(entry: Entry) -> intervals.Range:
    return entry.first_offset, entry.last_offset + 1
