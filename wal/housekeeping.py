"""What the log does for itself now and then: retention, deletion, merging, sweeping, snapshots.

`tick` runs on the owner's thread and starts at most one thing on the bucket at a
time (through `HandoffService.run_job`, so that it never meets a pass). Each job
may fail or die and is simply run again; one that fails by itself, not with the
bucket, is kept back for a while so that the others come to their turn.
Retention itself decides from integers and only moves log starts; what that frees
is removed by later moves and sweeps. Deleted topics are `burial.py`'s.

A manifest that came from the checkpoint is compared with the bucket before its
first change, as a pass does it: a bucket that was set back is a contradiction,
never a reason to forget what was handed over since.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Iterator
from functools import partial
from itertools import islice
from operator import length_hint

from ister.metadata.catalog import Catalog
from ister.metadata.errors import StoreOverloaded
from ister.metadata.service import CommitService
from ister.wal.backoff import Backoff
from ister.wal.burial import Burials
from ister.wal.errors import LogError
from ister.wal.handoff import Handoff, PartitionMove
from ister.wal.handoff_service import HandoffService
from ister.wal.log import Log
from ister.wal.merge import choose, merge
from ister.wal.partition import Partition
from ister.wal.retention import Extent, RetentionClock, decide, extents_of
from ister.wal.sweep import sweep_doomed, sweep_orphans
from ister.wal.tier.chunk_cache import TierReader
from ister.wal.tier.moves import Versioned
from ister.wal.topics import Topics

Pruned = Callable[[Partition, int, int], None]

_SLICE = 200  # partitions in one go: appends wait for no more
_JOBS_EVERY_S = 1.0  # looking for work costs a pass over all partitions
_ORPHANS_EVERY_S = 3600.0
_SNAPSHOT_EVERY_S = 60.0

_Job = Callable[[], object]
_JobDone = Callable[[object], None]
_KeyedJob = tuple[Hashable, _Job, _JobDone]  # what it is about, for keeping it back


class Housekeeping:
    """Owner of everything periodic but the handoff."""

    def __init__(
        self,
        log: Log,
        service: HandoffService,
        handoff: Handoff,
        tier: TierReader,
        topics: Topics,
        catalog: Catalog,
        commits: CommitService,
        write_snapshot: Callable[[], object],
        rng: random.Random,
        on_error: Callable[[BaseException], None],
    ) -> None:
        self._log = log
        self._service = service
        self._handoff = handoff
        self._tier = tier
        self._topics = topics
        self._catalog = catalog
        self._commits = commits
        self._write_snapshot = write_snapshot
        self._rng = rng
        self._on_error = on_error
        self.clock = RetentionClock(log.clock, catalog.wall_time_ms or None)
        self._burials = Burials(log, self.clock, handoff, topics, catalog, write_snapshot, on_error)
        self.on_pruned: Pruned = lambda partition, before, after: None
        self._retained_at = log.clock.monotonic()
        self._jobs_at = 0.0
        self._swept_at = 0.0
        self._snapshot_at = 0.0
        self._held_back: dict[Hashable, Backoff] = {}  # jobs that failed, not with the bucket
        self._pruning: set[Partition] = set()
        self.errors = 0  # of what is done here, not of jobs on the bucket

    def tick(self) -> None:
        now = self._log.clock.monotonic()
        self._store_time()
        if (now - self._retained_at) * 1000 >= self._log.settings.housekeeping_interval_ms:
            self._retained_at = now
            self.retain()
        if now - self._jobs_at >= _JOBS_EVERY_S and not self._service.busy:
            self._jobs_at = now
            self._forget()
            self._start_job(now)

    # -- retention -------------------------------------------------------------------

    def retain(self) -> None:
        """Move log starts as the topics' settings say, some partitions at a time."""
        self._retain_some(iter(list(self._log.partitions.values())))

    def _retain_some(self, partitions: Iterator[Partition]) -> None:
        now_ms = self.clock.now_ms()
        for partition in islice(partitions, _SLICE):
            if partition.removed:
                continue
            if partition.producers is not None and now_ms is not None:
                partition.producers.expire(now_ms)
            if partition.settings.reliable and partition.high_watermark > partition.log_start:
                self._retain(partition, now_ms)
        if length_hint(partitions) and not self._log.closed:
            self._log.driver.call_soon(lambda: self._retain_some(partitions))

    def _retain(self, partition: Partition, now_ms: int | None) -> None:
        settings = partition.settings
        tail = partition.open_tail
        decision = decide(
            _extents(partition, self._log),
            partition.log_start,
            now_ms=now_ms,
            retention_ms=settings.retention_ms,
            retention_bytes=settings.retention_bytes,
            grace_ms=self._log.settings.retention_grace_ms,
            open_bytes=tail.data_bytes if tail else 0,
            compact=settings.compact or not settings.deletes,
        )
        if decision.log_start > partition.log_start and partition not in self._pruning:
            self._prune(partition, partition.log_start, decision.log_start)

    def _prune(self, partition: Partition, before: int, after: int) -> None:
        def moved(error: LogError | None) -> None:
            self._pruning.discard(partition)
            if error is not None:
                self._failed(error)
            elif not partition.removed:
                self.on_pruned(partition, before, after)

        self._pruning.add(partition)
        try:
            self._log.move_log_start(partition, after, moved)
        except LogError as error:  # no room in the journal, or it failed: the next time
            moved(error)

    def _store_time(self) -> None:
        if not self._commits.idle:
            return
        now_ms = self.clock.to_store()
        if now_ms is None:
            return
        try:
            self._topics.store_time(now_ms, self._failed_if)
        except StoreOverloaded as error:
            self._failed(error)

    def _forget(self) -> None:
        try:
            self._burials.forget()
        except StoreOverloaded as error:
            self._failed(error)

    def _failed_if(self, error: BaseException | None) -> None:
        if error is not None:
            self._failed(error)

    def _failed(self, error: BaseException) -> None:
        self.errors += 1
        self._on_error(error)

    # -- one job on the bucket ---------------------------------------------------------

    def _start_job(self, now: float) -> None:
        for key, job, done in self._jobs(now):
            held = self._held_back.get(key)
            if held is not None and not held.is_due(now):
                continue
            if self._service.run_job(job, partial(self._job_done, key, done), self._holder(key)):
                return

    def _jobs(self, now: float) -> Iterator[_KeyedJob]:
        """What could be done, most urgent first."""
        for topic_id, (job, done) in self._burials.steps():
            yield topic_id, job, done
        for partition in self._log.partitions.values():
            if self._has_due(partition):
                yield (partition, *self._on_manifest(partition, sweep_doomed))
            elif partition.manifest and choose(partition.manifest, self._handoff.target_bytes):
                yield (partition, *self._on_manifest(partition, self._merge))
        if now - self._snapshot_at >= _SNAPSHOT_EVERY_S:
            yield "snapshot", self._write_snapshot, partial(self._note_snapshot, now)
        if now - self._swept_at >= _ORPHANS_EVERY_S:
            sweep = partial(sweep_orphans, self._handoff)
            yield "orphans", sweep, partial(self._note_sweep, now)

    def _job_done(self, key: Hashable, done: _JobDone, result: object) -> None:
        self._held_back.pop(key, None)
        done(result)

    def _holder(self, key: Hashable) -> Callable[[BaseException], None]:
        def hold_back(_: BaseException) -> None:
            backoff = self._held_back.setdefault(key, Backoff(self._rng))
            backoff.failed(self._log.clock.monotonic())

        return hold_back

    def _has_due(self, partition: Partition) -> bool:
        manifest = partition.manifest
        if manifest is None or not manifest.to_delete:
            return False
        now_ms = self.clock.now_ms()
        return now_ms is not None and any(line.after_ms <= now_ms for line in manifest.to_delete)

    def _on_manifest(
        self, partition: Partition, change: Callable[[Handoff, Versioned], Versioned]
    ) -> tuple[_Job, _JobDone]:
        move = self._service.move_alone(partition)

        def job() -> Versioned | None:
            known = self._known(move)
            return None if known is None else change(self._handoff, known)

        def done(moved: object) -> None:
            if isinstance(moved, Versioned):
                partition.manifest, partition.manifest_version = moved
                partition.tiered_end = max(partition.tiered_end, moved.manifest.tiered_end)

        return job, done

    def _known(self, move: PartitionMove) -> Versioned | None:
        """In the HANDOFF lane: the manifest to start from, compared if it was not yet."""
        if move.manifest is not None and move.version >= 0:
            return Versioned(move.manifest, move.version)
        result = self._handoff.run([move])
        if result.error is not None:
            raise result.error
        outcome = result.outcomes[move.key]
        if outcome.dropped or (outcome.manifest is None and outcome.error is None):
            return None
        if outcome.error is not None:
            raise outcome.error
        assert outcome.manifest is not None
        return Versioned(outcome.manifest, outcome.version)

    def _merge(self, handoff: Handoff, known: Versioned) -> Versioned:
        return merge(handoff, self._tier, known)

    def _note_snapshot(self, now: float, _: object) -> None:
        self._snapshot_at = now

    def _note_sweep(self, now: float, _: object) -> None:
        self._swept_at = now


def _extents(partition: Partition, log: Log) -> list[Extent]:
    """The partition as retention sees it: entries of the bucket, then sealed files."""
    manifest = partition.manifest
    extents = extents_of(manifest.entries) if manifest is not None else []
    for number, sequence in enumerate(partition.file_sequences):
        file = log.sealed.get(sequence)
        end = partition.file_end(number)
        if file is not None and end > partition.tiered_end:
            extents.append(
                Extent(
                    max(partition.file_starts[number], partition.tiered_end),
                    end - 1,
                    partition.file_bytes[number],
                    partition.file_times[number],
                    file.last_append_ms,
                )
            )
    return extents
