"""Which offset belongs to a time: the first record at or after it, and the latest one of all.

Sources are asked in the order of offsets: bucket, sealed files, open file. Each
says which batch may hold the answer (largest timestamp of a batch), and the
batch itself decides, record by record, decompressed off the owner's thread with
an output limit. Only durable records from the log start on count.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ister.wal import driver as lanes
from ister.wal.errors import LogError, StorageError
from ister.wal.files import JournalFile
from ister.wal.log import Log
from ister.wal.partition import Partition
from ister.wal.reader import SidecarCache, read_slice
from ister.wal.records import first_at_or_after, max_timestamp_record, records
from ister.wal.tail import TailIndex
from ister.wal.tier.chunk_cache import TierReader


class Found(NamedTuple):
    offset: int
    timestamp_ms: int


Done = Callable[[Found | None, LogError | None], None]


class _Place(NamedTuple):
    """A journal file that holds batches of the partition, and its index if it is in memory."""

    file: JournalFile
    tail: TailIndex | None


class _Question(NamedTuple):
    """All that a look-up needs, taken on the owner's thread."""

    partition: Partition
    log_start: int
    below: int
    places: list[_Place]


class TimeIndex:
    """Look-ups by time over all sources of a log."""

    def __init__(self, log: Log, sidecars: SidecarCache, tier: TierReader) -> None:
        self._log = log
        self._sidecars = sidecars
        self._tier = tier

    def offset_for_time(self, partition: Partition, timestamp_ms: int, done: Done) -> None:
        """The first record with a timestamp at or after `timestamp_ms`; None: there is none."""
        question = self._ask(partition)
        self._run(question, lambda: self._first_at(question, timestamp_ms), done)

    def max_timestamp(self, partition: Partition, done: Done) -> None:
        """The first record that has the largest timestamp; None: the partition is empty."""
        question = self._ask(partition)
        self._run(question, lambda: self._largest(question), done)

    def _ask(self, partition: Partition) -> _Question:
        places: list[_Place] = []
        for sequence in partition.file_sequences:
            journal = self._log.journal
            if sequence == journal.file.sequence:
                tail = partition.open_tail
                places.append(_Place(journal.file, tail))  # only ever grows
            elif (file := self._log.sealed.get(sequence)) is not None:
                places.append(_Place(file, (partition.sealing or {}).get(sequence)))
        for place in places:
            place.file.pins += 1
        return _Question(partition, partition.log_start, partition.high_watermark, places)

    def _run(self, question: _Question, work: Callable[[], Found | None], done: Done) -> None:
        def answered(found: Found | None, error: BaseException | None) -> None:
            for place in question.places:
                place.file.release()
            if error is None:
                done(found, None)
            elif isinstance(error, LogError):
                done(None, error)
            else:
                failure = StorageError(f"the look-up by time failed: {error}")
                failure.__cause__ = error
                done(None, failure)

        if question.log_start >= question.below:
            answered(None, None)
        else:
            self._log.driver.submit(lanes.READ, work, answered)

    # -- in the READ lane -------------------------------------------------------------

    def _first_at(self, question: _Question, timestamp_ms: int) -> Found | None:
        manifest = question.partition.manifest
        start = question.log_start
        while manifest is not None:
            candidate = self._tier.find_time(manifest, timestamp_ms, start)
            if candidate is None:
                break
            found = _first_in(candidate.data, timestamp_ms, question)
            if found is not None:
                return found
            start = candidate.last_offset + 1
        floor = manifest.tiered_end if manifest is not None else 0
        for place in question.places:
            found = self._first_in_file(place, question, timestamp_ms, floor)
            if found is not None:
                return found
        return None

    def _first_in_file(
        self, place: _Place, question: _Question, timestamp_ms: int, floor: int
    ) -> Found | None:
        tail = self._tail(place, question)
        if tail is None:
            return None
        for number, largest in enumerate(tail.timestamps):
            if largest < timestamp_ms:
                continue
            if tail.bases[number] >= question.below:  # the open file grows meanwhile
                break
            if tail.next_of(number) <= max(floor, question.log_start):
                continue
            found = _first_in(self._batch(place, tail, number, question), timestamp_ms, question)
            if found is not None:
                return found
        return None

    def _largest(self, question: _Question) -> Found | None:
        best = self._largest_in_bucket(question)
        for place in question.places:
            tail = self._tail(place, question)
            if tail is not None:
                best = self._largest_in_file(place, tail, question, best)
        return best

    def _largest_in_bucket(self, question: _Question) -> Found | None:
        manifest = question.partition.manifest
        if manifest is None:
            return None
        candidate = self._tier.find_max_time(manifest, question.log_start)
        if candidate is None:
            return None
        best = _largest_in(candidate.data, question)
        if candidate.base_offset < question.log_start:  # what made it win may lie below
            rest = self._tier.find_max_time(manifest, candidate.last_offset + 1)
            other = _largest_in(rest.data, question) if rest is not None else None
            best = _larger(best, other)
        return best

    def _largest_in_file(
        self, place: _Place, tail: TailIndex, question: _Question, best: Found | None
    ) -> Found | None:
        """The largest of `best` and what the file has; only the batch that wins is read.

        The one on the log start is read at once: its largest record may lie below it."""
        winner = -1
        largest = -2 if best is None else best.timestamp_ms  # a record without a time has -1
        for number, timestamp in enumerate(tail.timestamps):
            if tail.bases[number] >= question.below:  # the open file grows meanwhile
                break
            if timestamp <= largest or tail.next_of(number) <= question.log_start:
                continue
            if tail.bases[number] < question.log_start:
                found = _largest_in(self._batch(place, tail, number, question), question)
                best = _larger(best, found)
                largest = -2 if best is None else best.timestamp_ms
                continue
            winner, largest = number, timestamp
        if winner >= 0:
            return _largest_in(self._batch(place, tail, winner, question), question)
        return best

    def _tail(self, place: _Place, question: _Question) -> TailIndex | None:
        if place.tail is not None:
            return place.tail
        key = (question.partition.topic_id, question.partition.index)
        return self._sidecars.tail(place.file.sequence, key)

    def _batch(
        self, place: _Place, tail: TailIndex, number: int, question: _Question
    ) -> bytes | memoryview:
        part = tail.slice(tail.bases[number], 0, question.below)
        assert part is not None
        partition = question.partition
        buffer = read_slice(place.file, part, partition.holes, partition.epochs).buffers[0]
        return bytes(buffer) if isinstance(buffer, bytearray) else buffer


def _first_in(data: bytes | memoryview, timestamp_ms: int, question: _Question) -> Found | None:
    """The first record of a batch at or after the time that lies in the log."""
    found = first_at_or_after(data, timestamp_ms)
    if found is None or found[0] >= question.below:
        return None
    offset, timestamp = found
    if offset < question.log_start:
        return _first_above(data, timestamp_ms, question)
    return Found(offset, timestamp)


def _larger(one: Found | None, other: Found | None) -> Found | None:
    """The one with the larger timestamp; the first of equals."""
    if one is None or other is None:
        return one or other
    return other if other.timestamp_ms > one.timestamp_ms else one


def _largest_in(data: bytes | memoryview, question: _Question) -> Found | None:
    """The first record of a batch with its largest timestamp, of those in the log."""
    offset, timestamp = max_timestamp_record(data)
    if offset >= question.log_start:
        return Found(offset, timestamp)
    best: Found | None = None
    for record in records(data):
        if record.offset >= question.log_start:
            best = _larger(best, Found(record.offset, record.timestamp))
    return best


def _first_above(data: bytes | memoryview, timestamp_ms: int, question: _Question) -> Found | None:
    """As `_first_in`, for a batch that begins below the log start."""
    for record in records(data):
        if record.offset >= question.log_start and record.timestamp >= timestamp_ms:
            return Found(record.offset, record.timestamp)
    return None
