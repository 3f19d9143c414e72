"""The manifest of a partition: the truth about what was handed over.

A register (`manifests/{topic id hex}/{partition:010d}`) that moves by
compare-and-set. Values are immutable; every change gives a new `Manifest`, and
`check` holds for each of them:
- entries are in order and contiguous: each starts where the last one ended, or
  behind known holes; the first one may begin below the log start, and no entry ends
  below it;
- what leaves the entries is listed in `to_delete` with the time after which the
  object may go, so that readers who planned on an older manifest can finish;
- `deleted` (a tombstone) is final: a topic's id never comes back.

Encoded as an envelope (`envelope.py`) around JSON. Entries, holes and the like are
JSON arrays in the order of their fields, because there may be many thousands.
A later version may add fields behind the last one; a reader of this version reads
them as defaults do, so every field that comes later needs a default.

Who moves a manifest, and when, is not decided here: `handoff`, `merge`, `sweep`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise

import msgspec
from msgspec import Struct, field

from ister.wal.errors import Contradiction, Damaged
from ister.wal.tier import envelope

MAGIC = b"ISTRMANI"
FORMAT_VERSION = 1
PREFIX = "manifests/"


class Entry(Struct, frozen=True, array_like=True):
    """One section: where it is and what it holds."""

    object: str
    start: int  # first byte of the section in the object
    size: int  # bytes of the section: data, table, producer state, footer
    first_offset: int
    last_offset: int
    records: int
    data_size: int  # bytes of batches, at the start of the section
    max_timestamp: int
    sealed_ms: int  # not before the append of the last batch
    crc: int  # crc32c of the section


class Hole(Struct, frozen=True, array_like=True):
    """Offsets that are known to be lost; readers get the next batch behind them."""

    first_offset: int
    last_offset: int
    reason: str


class Doomed(Struct, frozen=True, array_like=True):
    """An object that this partition no longer needs, and when it may go."""

    object: str
    after_ms: int


class EpochStart(Struct, frozen=True, array_like=True):
    epoch: int
    start_offset: int


class Manifest(Struct, frozen=True):
    cluster_id: str
    topic_hex: str = field(name="topic_id")
    topic_name: str = ""
    partition: int = 0
    owner_epoch: int = 0
    log_start: int = 0
    leader_epochs: tuple[EpochStart, ...] = ()
    holes: tuple[Hole, ...] = ()
    entries: tuple[Entry, ...] = ()
    to_delete: tuple[Doomed, ...] = ()
    deleted: bool = False

    @property
    def topic_id(self) -> bytes:
        return bytes.fromhex(self.topic_hex)

    @property
    def tiered_end(self) -> int:
        """The offset behind the last one in the bucket; known holes and the log start count."""
        end = self.entries[-1].last_offset + 1 if self.entries else self.log_start
        return behind_holes(self.holes, end)

    @property
    def tiered_bytes(self) -> int:
        return sum(entry.data_size for entry in self.entries)

    @property
    def objects(self) -> frozenset[str]:
        return frozenset(entry.object for entry in self.entries)

    def find(self, offset: int) -> int | None:
        """Index of the entry with the batch of `offset`, or of the next one behind a hole."""
        index = bisect_right(self.entries, offset, key=lambda entry: entry.first_offset) - 1
        if index < 0 or self.entries[index].last_offset < offset:
            index += 1
        return index if index < len(self.entries) else None

    # -- changes: each gives a new, checked manifest ---------------------------

    def append_entries(
        self,
        entries: Sequence[Entry],
        *,
        owner_epoch: int,
        leader_epochs: Iterable[EpochStart] | None = None,
        holes: Iterable[Hole] = (),
        topic_name: str | None = None,
    ) -> Manifest:
        """What was uploaded follows what is there; new holes may stand between."""
        known = {hole.first_offset: hole for hole in self.holes}
        known.update((hole.first_offset, hole) for hole in holes)
        return self._change(
            owner_epoch,
            entries=(*self.entries, *entries),
            holes=tuple(known[first] for first in sorted(known)),
            leader_epochs=self.leader_epochs if leader_epochs is None else tuple(leader_epochs),
            topic_name=self.topic_name if topic_name is None else topic_name,
        )

    def with_log_start(self, log_start: int, *, owner_epoch: int, delete_after_ms: int) -> Manifest:
        """The log start rises; entries that end below it leave. Never goes back."""
        log_start = max(log_start, self.log_start)
        kept = tuple(entry for entry in self.entries if entry.last_offset >= log_start)
        gone = [entry for entry in self.entries if entry.last_offset < log_start]
        return self._change(
            owner_epoch,
            log_start=log_start,
            entries=kept,
            holes=tuple(hole for hole in self.holes if hole.last_offset >= log_start),
            to_delete=self._doom(gone, kept, delete_after_ms),
        )

    def replace(
        self, old: Sequence[Entry], new: Entry, *, owner_epoch: int, delete_after_ms: int
    ) -> Manifest:
        """One entry in place of several that stand side by side and hold the same offsets."""
        index = self.entries.index(old[0]) if old and old[0] in self.entries else -1
        if index < 0 or self.entries[index : index + len(old)] != tuple(old):
            raise Contradiction(f"{self.where}: entries to be replaced are not there")
        same = (new.first_offset, new.last_offset, new.records, new.data_size) == (
            old[0].first_offset,
            old[-1].last_offset,
            sum(entry.records for entry in old),
            sum(entry.data_size for entry in old),
        )
        if not same:
            raise Contradiction(f"{self.where}: a merged entry is not the sum of its parts")
        kept = (*self.entries[:index], new, *self.entries[index + len(old) :])
        return self._change(
            owner_epoch, entries=kept, to_delete=self._doom(old, kept, delete_after_ms)
        )

    def tombstone(self, *, owner_epoch: int, delete_after_ms: int) -> Manifest:
        """The topic is gone: nothing is read from here any more, all objects may go."""
        return self._change(
            owner_epoch,
            log_start=max(self.log_start, self.tiered_end),
            entries=(),
            holes=(),
            to_delete=self._doom(self.entries, (), delete_after_ms),
            deleted=True,
        )

    def without_doomed(self, objects: frozenset[str], *, owner_epoch: int) -> Manifest:
        """Objects that were deleted need no line any more."""
        left = tuple(doomed for doomed in self.to_delete if doomed.object not in objects)
        return self._change(owner_epoch, to_delete=left)

    def with_owner(self, owner_epoch: int) -> Manifest:
        return self._change(owner_epoch)

    def _change(self, owner_epoch: int, **fields: object) -> Manifest:
        if self.deleted and fields.keys() - {"to_delete"}:
            raise Contradiction(f"{self.where}: nothing follows a tombstone")
        if owner_epoch < self.owner_epoch:
            raise Contradiction(f"{self.where}: owner epoch {owner_epoch} after {self.owner_epoch}")
        changed = msgspec.structs.replace(self, owner_epoch=owner_epoch, **fields)
        changed.check()
        return changed

    def _doom(
        self, gone: Sequence[Entry], kept: Sequence[Entry], after_ms: int
    ) -> tuple[Doomed, ...]:
        """Objects that no entry here uses any more, once each, earliest first."""
        used = {entry.object for entry in kept}
        doomed = {line.object: line for line in self.to_delete}
        for entry in gone:
            if entry.object not in used:
                doomed.setdefault(entry.object, Doomed(entry.object, after_ms))
        return tuple(sorted(doomed.values(), key=lambda line: (line.after_ms, line.object)))

    # -- invariants ------------------------------------------------------------

    @property
    def where(self) -> str:
        return key(self.topic_id, self.partition)

    def check(self) -> None:
        """Contradiction if this is not a manifest that may be written or believed."""
        for problem in self._problems():
            raise Contradiction(f"{self.where}: {problem}")

    def _problems(self) -> Iterable[str]:
        if self.log_start < 0:
            yield f"log start {self.log_start}"
        yield from _hole_problems(self.holes)
        yield from _epoch_problems(self.leader_epochs)
        expected = self.log_start
        for index, entry in enumerate(self.entries):
            yield from _entry_problems(entry)
            if index == 0:
                if entry.last_offset < self.log_start:
                    yield f"entry {_span(entry)} ends below the log start {self.log_start}"
                if entry.first_offset <= self.log_start:
                    expected = entry.first_offset
            if entry.first_offset not in (expected, behind_holes(self.holes, expected)):
                yield f"entry {_span(entry)} does not follow {expected - 1}"
            expected = entry.last_offset + 1
        used = self.objects
        for doomed in self.to_delete:
            if doomed.object in used:
                yield f"{doomed.object} is to be deleted and in use"
        if self.deleted and self.entries:
            yield "a tombstone with entries"


def key(topic_id: bytes, partition: int) -> str:
    return f"{PREFIX}{topic_id.hex()}/{partition:010d}"


def parse_key(name: str) -> tuple[bytes, int]:
    """Topic id and partition of a manifest's name."""
    _, topic_hex, partition = name.split("/")
    return bytes.fromhex(topic_hex), int(partition)


def behind_holes(holes: Sequence[Hole], offset: int) -> int:
    """The next offset that is not in a known hole."""
    for hole in holes:
        if hole.first_offset <= offset <= hole.last_offset:
            offset = hole.last_offset + 1
    return offset


def encode(manifest: Manifest) -> bytes:
    manifest.check()
    return envelope.wrap(MAGIC, FORMAT_VERSION, msgspec.json.encode(manifest))


def decode(data: bytes, where: str = "manifest") -> Manifest:
    """Damaged, NewerFormat, or a manifest that holds its invariants."""
    _, body = envelope.unwrap(MAGIC, FORMAT_VERSION, data, where)
    try:
        manifest = msgspec.json.decode(body, type=Manifest)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise Damaged(where, envelope.BODY_START, str(error)) from error
    manifest.check()
    return manifest


def _span(entry: Entry) -> str:
    return f"{entry.first_offset}..{entry.last_offset} ({entry.object})"


def _entry_problems(entry: Entry) -> Iterable[str]:
    if not 0 <= entry.first_offset <= entry.last_offset:
        yield f"entry {_span(entry)} has no offsets"
    if entry.records != entry.last_offset - entry.first_offset + 1:
        yield f"entry {_span(entry)} has {entry.records} records"
    if entry.start < 0 or not 0 < entry.data_size < entry.size:
        yield f"entry {_span(entry)} has no bytes"


def _hole_problems(holes: Sequence[Hole]) -> Iterable[str]:
    end = -1
    for hole in holes:
        if not end < hole.first_offset <= hole.last_offset:
            yield f"hole {hole.first_offset}..{hole.last_offset} is out of order"
        end = hole.last_offset


def _epoch_problems(epochs: Sequence[EpochStart]) -> Iterable[str]:
    for before, after in pairwise(epochs):
        if after.epoch <= before.epoch or after.start_offset < before.start_offset:
            yield f"leader epoch {after.epoch} at {after.start_offset} is out of order"
