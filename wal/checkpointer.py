"""Sidecars, checkpoints and trims: how the journal's past leaves memory and then the disk.

When a file is sealed: its index goes into a sidecar, then a checkpoint that
covers it is written. When files are handed off: a checkpoint that no longer
needs them is written, and only then are they recycled; and because an older
generation may still have to serve, a file goes only once two generations do
without it. All file work happens in the FILES lane, in order.

A write that meets a full disk gets the room of the spare (`spare.py`); one that
fails all the same is tried again by `retry`, which the owner calls now and then.
"""

from __future__ import annotations

from collections.abc import Callable

from ister.wal import checkpoint as format
from ister.wal import driver as lanes
from ister.wal.files import JournalFile
from ister.wal.fs import FileSystem
from ister.wal.log import Log
from ister.wal.partition import Partition
from ister.wal.reader import SidecarCache
from ister.wal.sidecar import encode, sidecar_name, write_sidecar
from ister.wal.spare import Spare
from ister.wal.tier.manifest import encode as encode_manifest

_SLICE = 500  # partitions taken in one go; appends wait for no more
_RETRY_EVERY_S = 1.0


class Checkpointer:
    """Owner of the checkpoint directory."""

    def __init__(
        self,
        log: Log,
        fs: FileSystem,
        journal_directory: str,
        checkpoint_directory: str,
        cluster_id: str,
        sidecars: SidecarCache,
        generation: int,
        spare: Spare,
        on_error: Callable[[BaseException], None],
    ) -> None:
        self._log = log
        self._fs = fs
        self._journal_directory = journal_directory
        self._checkpoint_directory = checkpoint_directory
        self._cluster_id = cluster_id
        self._sidecars = sidecars
        self._generation = generation
        self._spare = spare
        self._on_error = on_error
        self._running = False
        self._waiters: list[Callable[[], None]] = []
        self._running_waiters: list[Callable[[], None]] = []
        self._unindexed: list[tuple[JournalFile, list[Partition]]] = []  # sidecar failed
        self._failed = False  # the last checkpoint
        self._retried_at = 0.0
        self.trim_below = 0  # files below it are handed off
        self._covered_below = 0  # `first_sequence` of the newest checkpoint
        log.on_sealed = self.sealed

    def sealed(self, file: JournalFile, partitions: list[Partition]) -> None:
        """Write the sidecar of a file that was just sealed, then a checkpoint."""
        tails = {}
        for partition in partitions:
            tail = (partition.sealing or {}).get(file.sequence)
            if tail is not None:
                tails[partition.topic_id, partition.index] = tail
        sequence, end, sealed_ms = file.sequence, file.end, file.last_append_ms

        def work() -> None:
            buffers = encode(sequence, end, sealed_ms, tails)
            self._spare.run(
                lambda: write_sidecar(self._fs, self._journal_directory, sequence, buffers)
            )

        def done(_: None, error: BaseException | None) -> None:
            if error is not None:  # the index stays in memory; recovery scans the file
                self._on_error(error)
                self._unindexed.append((file, partitions))
                return
            for partition in partitions:
                partition.sidecar_written(sequence)
            self.request()

        self._log.driver.submit(lanes.FILES, work, done)

    def request(self, done: Callable[[], None] | None = None) -> None:
        """A checkpoint of what is durable now; `done` when it is on the platter."""
        if done is not None:
            self._waiters.append(done)
        if not self._running:
            self._running = True
            self._begin()

    def trim(self, below: int) -> None:
        """Files below that sequence are in the bucket, manifests moved: let them go."""
        if below > self.trim_below:
            self.trim_below = below
            self.request(lambda: self.request())  # two generations must do without them

    def _begin(self) -> None:
        self._running_waiters, self._waiters = self._waiters, []
        partitions = list(self._log.partitions.values())
        scan_from = self._scan_from()
        first = self._first_sequence()
        commit_next = self._log.journal.commit_next
        records: list[format.PartitionRecord] = []

        def take(start: int) -> None:
            for partition in partitions[start : start + _SLICE]:
                if not partition.removed:
                    records.append(record_of(partition))
            if start + _SLICE < len(partitions):
                self._log.driver.call_soon(lambda: take(start + _SLICE))
            else:
                self._write(scan_from, first, commit_next, records)

        take(0)

    def _scan_from(self) -> int:
        """The first file that has frames which are in no sidecar yet."""
        waiting = [
            sequence
            for partition in self._log.partitions.values()
            if partition.sealing
            for sequence in partition.sealing
        ]
        return min([*waiting, self._log.journal.file.sequence])

    def _first_sequence(self) -> int:
        live = [s for s in self._log.sealed if s >= self.trim_below]
        return min([*live, self._log.journal.file.sequence])

    def _write(
        self, scan_from: int, first: int, commit_next: int, records: list[format.PartitionRecord]
    ) -> None:
        self._generation += 1
        checkpoint = format.Checkpoint(
            self._generation,
            self._cluster_id,
            self._log.clock.wall_ms(),
            first,
            scan_from,
            commit_next,
            records,
        )
        self._log.driver.submit(
            lanes.FILES,
            lambda: self._spare.run(
                lambda: format.write(self._fs, self._checkpoint_directory, checkpoint)
            ),
            lambda _, error: self._written(first, error),
        )

    def _written(self, first: int, error: BaseException | None) -> None:
        self._running = False
        waiters, self._running_waiters = self._running_waiters, []
        self._failed = error is not None
        if error is not None:
            self._on_error(error)
            self._waiters = waiters + self._waiters  # answered by the next one that succeeds
            if self._log.closed:  # there is no next one; the journal has everything
                self._answer_all()
            return
        self._recycle_below(min(first, self._covered_below))
        self._covered_below = first
        for waiter in waiters:
            waiter()
        if self._waiters and not self._running:
            self.request()

    def _answer_all(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter()

    def retry(self) -> None:
        """Try again what failed, and have the spare again. Called now and then."""
        now = self._log.clock.monotonic()
        if now - self._retried_at < _RETRY_EVERY_S or self._log.closed:
            return
        self._retried_at = now
        unindexed, self._unindexed = self._unindexed, []
        for file, partitions in unindexed:
            if file.sequence in self._log.sealed:
                self.sealed(file, partitions)
        if (self._failed or self._waiters) and not self._running:
            self.request()
        self._log.driver.submit(lanes.FILES, self._spare.keep, self._kept)

    def _kept(self, _: None, error: BaseException | None) -> None:
        if error is not None:
            self._on_error(error)

    def _recycle_below(self, below: int) -> None:
        gone = [file for sequence, file in self._log.sealed.items() if sequence < below]
        if not gone:
            return
        for partition in self._log.partitions.values():
            partition.files_trimmed_below(below)
        for file in gone:
            del self._log.sealed[file.sequence]
            self._sidecars.forget(file.sequence)
            self._remove_sidecar(file.sequence)
            self._log.files.recycle(file)

    def _remove_sidecar(self, sequence: int) -> None:
        path = f"{self._journal_directory}/{sidecar_name(sequence)}"

        def work() -> None:
            if self._fs.exists(path):
                self._fs.unlink(path)

        self._log.driver.submit(lanes.FILES, work, lambda _, error: None)


def record_of(partition: Partition) -> format.PartitionRecord:
    """What is durable of a partition. Producers' batches above the durable end stay out."""
    producers = partition.producers
    manifest = partition.manifest
    return format.PartitionRecord(
        partition.topic_id,
        partition.index,
        partition.high_watermark,
        partition.log_start,
        partition.tiered_end,
        list(partition.epochs),
        [(hole.first, hole.last, hole.reason) for hole in partition.holes],
        b"" if producers is None else producers.encode(partition.high_watermark),
        b"" if manifest is None else encode_manifest(manifest),
    )
