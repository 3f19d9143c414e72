"""The log: append, read, and what both stand on, put together.

Everything here runs on the owner's thread and answers by plain callbacks.
The journey of a batch: `append` checks it, asks the producer's state, reserves
a place in the journal, gives it its offsets, stamps it; the journal writes and
syncs the group; `_on_commit` puts the group into index and cache, moves the
high watermarks and calls the listener once with all partitions that moved.
A read looks at the cache (`read_now`); what is not there any more comes from
files or the bucket off the owner's thread (`cold.py`).

Neighbours: `opening.py` builds this from what is on disk, `checkpointer.py`
writes checkpoints and trims, `housekeeping.py` retains and merges, `handoff_service.py` hands off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import NamedTuple

from ister.wal import batch
from ister.wal.cache import Cache, cached_run, weight_of
from ister.wal.clock import Clock
from ister.wal.driver import Driver
from ister.wal.errors import (
    Closed,
    InvalidTimestamp,
    JournalFailed,
    OffsetOutOfRange,
    UnknownPartition,
)
from ister.wal.files import JournalFile, JournalFiles
from ister.wal.frame import frame_size
from ister.wal.fs import Buffer
from ister.wal.journal import Group, Journal, Waiter
from ister.wal.partition import Partition
from ister.wal.producers import Duplicate, Producers
from ister.wal.reader import CACHE, LIVE, Chunk
from ister.wal.rings import Rings
from ister.wal.settings import LogSettings, TopicSettings
from ister.wal.sidecar import Key
from ister.wal.tail import TailIndex

Listener = Callable[[list[Partition]], None]

_NO_BUFFERS: list[Buffer] = []


class Moment(IntEnum):
    """When an append is answered."""

    APPENDED = 0  # in memory
    WRITTEN = 1  # in the file
    DURABLE = 2  # synced


# As every append asks for them: members of an enum are looked up, and so are constructors.
_DURABLE, _WRITTEN = Moment.DURABLE, Moment.WRITTEN
_new = tuple.__new__


class Appended(NamedTuple):
    base_offset: int
    last_offset: int
    append_time_ms: int  # -1 unless the topic stamps LogAppendTime
    duplicate: bool


def _nobody(_: list[Partition]) -> None:
    pass


class Log:
    """All partitions of one data directory."""

    def __init__(
        self,
        *,
        settings: LogSettings,
        driver: Driver,
        clock: Clock,
        files: JournalFiles,
        cluster_id: str,
        partitions: dict[Key, Partition],
        rings: Rings,
    ) -> None:
        self.settings = settings
        self.driver = driver
        self.clock = clock
        self.files = files
        self.partitions = partitions
        self.rings = rings
        self.cache = Cache(settings.cache_bytes)
        self.journal = Journal(
            driver, files, settings, cluster_id, self._on_commit, self._sealed, self._failed, clock
        )
        self.sealed: dict[int, JournalFile] = {}  # files with a successor, by sequence
        self.listener: Listener = _nobody
        self.on_sealed: Callable[[JournalFile, list[Partition]], None] = lambda _, __: None
        self.on_failed: Callable[[JournalFailed], None] = lambda _: None
        self.commits = 0
        self.reads_live = 0  # reads that memory answered, at the head and behind it
        self.reads_cached = 0
        self.closed = False
        self._in_open_file = [p for p in partitions.values() if p.open_tail is not None]

    # -- topics --------------------------------------------------------------------

    def partition(self, topic_id: bytes, index: int) -> Partition:
        partition = self.partitions.get((topic_id, index))
        if partition is None:
            raise UnknownPartition(f"no partition {index} of topic id {topic_id.hex()}")
        return partition

    def add_partitions(
        self, topic_id: bytes, indexes: Iterable[int], settings: TopicSettings
    ) -> None:
        """Partitions that the metadata already knows, durably."""
        for index in indexes:
            partition = Partition(topic_id, index, settings)
            self.partitions[topic_id, index] = partition
            if not settings.reliable:
                self.rings.add(partition)

    def configure(self, topic_id: bytes, settings: TopicSettings) -> None:
        for partition in self.of_topic(topic_id):
            partition.settings = settings

    def remove_topic(self, topic_id: bytes) -> list[Partition]:
        """The topic is gone from the metadata: from now on nobody reads or appends here."""
        gone = self.of_topic(topic_id)
        for partition in gone:
            partition.removed = True
            self.rings.remove(partition)
            del self.partitions[topic_id, partition.index]
        return gone

    def of_topic(self, topic_id: bytes) -> list[Partition]:
        found: list[Partition] = []
        while (partition := self.partitions.get((topic_id, len(found)))) is not None:
            found.append(partition)
        return found

    # -- append --------------------------------------------------------------------

    def append(self, partition: Partition, data: Buffer, moment: Moment, done: Waiter) -> Appended:
        """Take one batch as a client sent it; `done` is called when `moment` is reached.

        The buffer is the log's from here on: it is stamped in place if it can be written."""
        settings = partition.settings
        header = batch.check(data, settings.batch_bytes_max)
        if partition.removed:
            raise UnknownPartition("the topic was deleted")
        now_ms = self.clock.wall_ms()
        timestamp = header.max_timestamp
        if not settings.log_append_time and (
            timestamp > now_ms + settings.timestamp_after_max_ms
            or timestamp < now_ms - settings.timestamp_before_max_ms
        ):
            self._check_time(timestamp, settings, now_ms)
        producer_id = header.producer_id
        if producer_id >= 0:
            duplicate = self._check_producer(partition, header)
            if duplicate is not None:
                return self._answer_duplicate(partition, duplicate, moment, done)
        if not settings.reliable:
            return self._append_ring(partition, header, data, now_ms, done)
        group = self.journal.reserve(len(data))
        base = partition.log_end
        count = header.count
        append_time_ms = None
        if settings.log_append_time:
            append_time_ms = timestamp = now_ms
        if type(data) is memoryview and not data.readonly and len(data) * 2 < weight_of(data):
            data = bytes(data)  # else a small batch would pin a large frame in the cache
        buffer = batch.stamp(data, base, partition.epochs[-1][0], append_time_ms)
        group.add(partition, base, count, buffer, timestamp, producer_id >= 0)
        partition.log_end = base + count
        if producer_id >= 0:
            assert partition.producers is not None
            partition.producers.record(
                producer_id,
                header.producer_epoch,
                header.base_sequence,
                count,
                base,
                now_ms,
                durable_end=partition.high_watermark,
                append_time_ms=-1 if append_time_ms is None else append_time_ms,
            )
        if moment is _DURABLE:
            group.durable_waiters.append(done)
        elif moment is _WRITTEN:
            group.written_waiters.append(done)
        else:
            done(None)
        stamped = -1 if append_time_ms is None else append_time_ms
        return _new(Appended, (base, base + count - 1, stamped, False))

    def _check_time(self, timestamp: int, settings: TopicSettings, now_ms: int) -> None:
        if timestamp > now_ms + settings.timestamp_after_max_ms:
            raise InvalidTimestamp(f"timestamp {timestamp} is too far ahead of {now_ms}")
        if timestamp >= 0 and timestamp < now_ms - settings.timestamp_before_max_ms:
            raise InvalidTimestamp(f"timestamp {timestamp} is too far behind {now_ms}")

    def _check_producer(self, partition: Partition, header: batch.BatchHeader) -> Duplicate | None:
        producers = partition.producers
        if producers is None:
            producers = partition.producers = Producers(self.settings.producer_id_expiration_ms)
        found = producers.check(
            header.producer_id, header.producer_epoch, header.base_sequence, header.count
        )
        return found if type(found) is Duplicate else None

    def _answer_duplicate(
        self, partition: Partition, duplicate: Duplicate, moment: Moment, done: Waiter
    ) -> Appended:
        """A retry: success with the original's offsets, once the original has got that far."""
        if moment is Moment.APPENDED or duplicate.last_offset < partition.high_watermark:
            done(None)
        else:
            self.journal.when_durable(done)
        return Appended(
            duplicate.base_offset, duplicate.last_offset, duplicate.append_time_ms, True
        )

    def _append_ring(
        self,
        partition: Partition,
        header: batch.BatchHeader,
        data: Buffer,
        now_ms: int,
        done: Waiter,
    ) -> Appended:
        append_time_ms = now_ms if partition.settings.log_append_time else None
        base = self.rings.append(partition, header, data, append_time_ms)
        if header.producer_id >= 0:
            assert partition.producers is not None
            partition.producers.record(
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                header.count,
                base,
                now_ms,
                durable_end=base,
                append_time_ms=-1 if append_time_ms is None else append_time_ms,
            )
        self.driver.call_soon(lambda: self.listener([partition]))
        done(None)
        last = base + header.count - 1
        return Appended(base, last, -1 if append_time_ms is None else append_time_ms, False)

    def _on_commit(self, group: Group) -> None:
        """A commit is durable: index, cache, watermarks, listener."""
        self.commits += 1
        sequence = group.file.sequence
        position = group.position + frame_size(len(group.buffers), 0)
        moved: dict[Partition, None] = {}
        runs = []
        weight = 0
        previous: Partition | None = None
        for (partition, base, next_offset, timestamp), buffer in zip(
            group.entries, group.buffers, strict=True
        ):
            size = len(buffer)
            if not partition.removed:
                if not size:
                    partition.log_start = max(partition.log_start, base)
                    moved[partition] = None
                    continue
                if partition is not previous:  # a busy one has many batches in a row
                    previous = partition
                    if partition not in moved:
                        partition.live_from = partition.high_watermark
                        moved[partition] = None
                    tail = self._open_tail(partition, sequence, base)
                    run = cached_run(partition)
                tail.add(base, next_offset, position, size, timestamp)
                run.add(base, next_offset, buffer)
                runs.append(run)
                weight += size if type(buffer) is bytes else weight_of(buffer)
                partition.high_watermark = next_offset
            position += size
        if runs:
            self.cache.add_commit(runs, weight)
        self.listener(list(moved))

    def _open_tail(self, partition: Partition, sequence: int, base: int) -> TailIndex:
        tail = partition.open_tail
        if tail is None:
            tail = partition.entered_file(sequence, base)
            self._in_open_file.append(partition)
        return tail

    # -- read ------------------------------------------------------------------------

    def read_now(self, partition: Partition, offset: int, max_bytes: int) -> Chunk | None:
        """What memory has from `offset` on; None: a colder source is needed.

        Between high watermark and log end a read is empty, and waits."""
        if not partition.settings.reliable:
            return self.rings.read(partition, offset, max_bytes)
        high_watermark = partition.high_watermark
        if offset >= high_watermark:
            if offset > partition.log_end:
                raise OffsetOutOfRange(offset, partition.log_start, partition.log_end)
            return _new(Chunk, (_NO_BUFFERS, 0, offset, offset, LIVE))
        if offset < partition.log_start:
            raise OffsetOutOfRange(offset, partition.log_start, partition.log_end)
        run = partition.cached
        if run is None:
            return None
        found = run.read(offset, max_bytes, high_watermark)
        if found is None:
            return None
        buffers, size, first, following = found
        if first >= partition.live_from:
            source = LIVE
            self.reads_live += 1
        else:
            source = CACHE
            self.reads_cached += 1
        return Chunk(buffers, size, first, following, source)

    # -- log start ---------------------------------------------------------------------

    def move_log_start(self, partition: Partition, offset: int, done: Waiter) -> None:
        """Raise the log start; `done` when that is durable here. Never goes back."""
        if offset > partition.high_watermark:
            raise OffsetOutOfRange(offset, partition.log_start, partition.high_watermark)
        if not partition.settings.reliable or offset <= partition.log_start:
            done(None)
            return
        group = self.journal.reserve(0)
        group.add_log_start(partition, offset)
        group.durable_waiters.append(done)

    # -- what the journal tells ----------------------------------------------------------

    def _sealed(self, file: JournalFile) -> None:
        file.last_append_ms = self.clock.wall_ms()
        self.sealed[file.sequence] = file
        left, self._in_open_file = self._in_open_file, []
        for partition in left:
            partition.left_file(file.sequence)
        self.on_sealed(file, left)

    def _failed(self, error: JournalFailed) -> None:
        self.on_failed(error)

    def close(self, done: Callable[[], None]) -> None:
        """Make durable what was accepted and leave the end mark."""
        if self.closed:
            raise Closed("the log is closed")
        self.closed = True
        self.journal.close(done)
