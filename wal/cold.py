"""Reads that memory cannot answer: from a journal file, else from the bucket.

`ColdReader.read` decides on the owner's thread where the offset should be, reads
in the READ lane, and checks what comes back against what was asked: a chunk that
does not begin with the batch of that offset (or right behind a known hole or the
log start) is a gap. Whatever is wrong with one source (a gap, damage, a file just
trimmed), the next colder one is tried; when there is none the reader gets a
storage error, never an empty success and never "out of range".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from ister.wal import driver as lanes
from ister.wal.errors import Damaged, LogError, OffsetOutOfRange, StorageError
from ister.wal.files import JournalFile
from ister.wal.histogram import Histogram
from ister.wal.log import Log
from ister.wal.partition import Partition
from ister.wal.reader import (
    BUCKET,
    CACHE,
    JOURNAL,
    LIVE,
    Chunk,
    SidecarCache,
    behind_holes,
    read_slice,
)
from ister.wal.tail import Slice
from ister.wal.tier.chunk_cache import TierReader
from ister.wal.tier.manifest import Manifest

Done = Callable[[Chunk | None, LogError | None], None]
_Attempt = Callable[[], Chunk | None]


class ColdReader:
    """The two cold sources behind the log's memory."""

    def __init__(
        self,
        log: Log,
        sidecars: SidecarCache,
        tier: TierReader,
        report: Callable[[Damaged], None],
    ) -> None:
        self._log = log
        self._sidecars = sidecars
        self._tier = tier
        self._report = report
        # Reads that a cold source answered; those that memory answered are counted by the log.
        self.seconds = {JOURNAL: Histogram(), BUCKET: Histogram()}
        self.fallbacks: Counter[tuple[str, str]] = Counter()

    def read(self, partition: Partition, offset: int, max_bytes: int, done: Done) -> None:
        """Any source, warmest first. `done` may be called at once."""
        try:
            chunk = self._log.read_now(partition, offset, max_bytes)
        except LogError as error:
            done(None, error)
            return
        if chunk is not None:
            done(chunk, None)
            return
        at = behind_holes(partition.holes, offset)
        if at >= partition.high_watermark:  # nothing behind the hole yet
            done(Chunk([], 0, offset, offset, JOURNAL), None)
            return
        if not self._read_journal(partition, offset, at, max_bytes, done):
            self._read_bucket(partition, offset, at, max_bytes, done, None)

    def read_colder(
        self, partition: Partition, offset: int, max_bytes: int, than: str, done: Done
    ) -> None:
        """As `read`, but not from `than` or warmer: what came from there cannot be right."""
        at = behind_holes(partition.holes, offset)
        if than in (LIVE, CACHE) and self._read_journal(partition, offset, at, max_bytes, done):
            self.fallbacks[than, JOURNAL] += 1
            return
        cause = StorageError(f"what {than} has does not continue at offset {offset}")
        if than == BUCKET:
            self._give_up(partition, offset, max_bytes, done, cause)
        else:
            self._read_bucket(partition, offset, at, max_bytes, done, cause)

    # -- journal ---------------------------------------------------------------------

    def _read_journal(
        self, partition: Partition, offset: int, at: int, max_bytes: int, done: Done
    ) -> bool:
        """False: no journal file has that offset."""
        number = partition.file_for(at)
        if number is None:
            return False
        sequence = partition.file_sequences[number]
        file = self._file(sequence)
        if file is None:
            return False
        work = self._journal_work(partition, file, at, max_bytes)
        started = self._log.clock.monotonic()
        file.pins += 1

        def answered(chunk: Chunk | None, error: BaseException | None) -> None:
            file.release()
            if error is None and chunk is not None and self._continues(partition, at, chunk):
                self._deliver(chunk, started, done)
                return
            self._note(error)
            cause = error or _gap(at, chunk)
            self._read_bucket(partition, offset, at, max_bytes, done, cause)

        self._log.driver.submit(lanes.READ, work, answered)
        return True

    def _file(self, sequence: int) -> JournalFile | None:
        if sequence == self._log.journal.file.sequence:
            return self._log.journal.file
        return self._log.sealed.get(sequence)

    def _journal_work(
        self, partition: Partition, file: JournalFile, at: int, max_bytes: int
    ) -> _Attempt:
        holes, epochs = partition.holes, partition.epochs
        below = partition.high_watermark
        tail = partition.open_tail
        if file is not self._log.journal.file:
            tail = (partition.sealing or {}).get(file.sequence)
        if tail is not None:
            part = tail.slice(at, max_bytes, below)
            return lambda: None if part is None else read_slice(file, part, holes, epochs)
        key = (partition.topic_id, partition.index)

        def load() -> Chunk | None:
            loaded = self._sidecars.tail(file.sequence, key)
            part: Slice | None = loaded.slice(at, max_bytes, below) if loaded else None
            return None if part is None else read_slice(file, part, holes, epochs)

        return load

    # -- bucket ----------------------------------------------------------------------

    def _read_bucket(
        self,
        partition: Partition,
        offset: int,
        at: int,
        max_bytes: int,
        done: Done,
        cause: BaseException | None,
    ) -> None:
        if offset < partition.log_start:  # it moved meanwhile
            done(None, OffsetOutOfRange(offset, partition.log_start, partition.log_end))
            return
        manifest = partition.manifest
        if manifest is None or at >= manifest.tiered_end:
            self._give_up(partition, offset, max_bytes, done, cause)
            return
        if cause is not None:
            self.fallbacks[JOURNAL, BUCKET] += 1
        started = self._log.clock.monotonic()

        def answered(chunk: Chunk | None, error: BaseException | None) -> None:
            if error is None and chunk is not None and self._continues(partition, at, chunk):
                self._deliver(chunk, started, done)
                return
            self._note(error)
            self._give_up(partition, offset, max_bytes, done, error or _gap(at, chunk))

        self._log.driver.submit(
            lanes.READ, lambda: read_tier(self._tier, manifest, at, max_bytes), answered
        )

    def _give_up(
        self,
        partition: Partition,
        offset: int,
        max_bytes: int,
        done: Done,
        cause: BaseException | None,
    ) -> None:
        if partition.removed or offset < partition.log_start:
            done(None, OffsetOutOfRange(offset, partition.log_start, partition.log_end))
            return
        error = StorageError(f"offset {offset} cannot be read now: {cause or 'no source has it'}")
        error.__cause__ = cause
        done(None, error)

    def _continues(self, partition: Partition, at: int, chunk: Chunk) -> bool:
        """The chunk begins with the batch of `at`, and has something behind it."""
        return chunk.first_offset <= at < chunk.next_offset

    def _deliver(self, chunk: Chunk, started: float, done: Done) -> None:
        self.seconds[chunk.source].observe(self._log.clock.monotonic() - started)
        done(chunk, None)

    def _note(self, error: BaseException | None) -> None:
        if isinstance(error, Damaged):
            self._report(error)
        elif error is not None and not isinstance(error, LogError | OSError):
            raise error


def read_tier(tier: TierReader, manifest: Manifest, at: int, max_bytes: int) -> Chunk:
    batches = tier.read(manifest, at, max_bytes)
    return Chunk(
        [found.data for found in batches],
        sum(len(found.data) for found in batches),
        batches[0].base_offset,
        batches[-1].last_offset + 1,
        BUCKET,
    )


def _gap(at: int, chunk: Chunk | None) -> StorageError:
    found = "nothing" if chunk is None else f"offset {chunk.first_offset}"
    return StorageError(f"offset {at} should be there, {found} is")
