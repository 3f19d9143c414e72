"""When the journal's past goes to the bucket. The owner's side of handoff.

`tick` is called every so often and decides, from integers: seal the open file if
what is in it waits too long; start a pass when enough is sealed or the oldest of
it is old enough; after a pass, note where each partition now stands in the bucket
and let the journal files go that every partition has left. Work on the bucket
runs in the HANDOFF lane, one thing at a time; when the bucket fails nothing stops
but this: the next try waits (`backoff.py`) and the backlog shows it.

A pass takes little: what makes an object for each partition. Files come back for their next
use when a pass ends, and while it runs the journal needs fresh ones. The next pass begins
at once if this one got something done.

A partition that fails by itself (its journal file cannot be read, its manifest
contradicts the log) is *held back* with a pause of its own. The files in which it
alone has something left are passed over, so that all others go on; what is kept
for it is part of the backlog, and files are still trimmed from the oldest on only.
A partition whose manifest is a tombstone was deleted: that is no failure.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from ister.wal import driver as lanes
from ister.wal.backoff import Backoff
from ister.wal.errors import Fenced, StorageError
from ister.wal.files import JournalFile
from ister.wal.frame import FRAMES_START
from ister.wal.handoff import Handoff, Outcome, PartitionMove, PassResult
from ister.wal.handoff_plan import OWN_OBJECT_BYTES
from ister.wal.opening import OpenLog
from ister.wal.partition import Partition
from ister.wal.sealed_runs import move_of

_PASS_FILES_MAX = 8  # journal files in one pass: bounds how long it takes and what it pins
_LOOK_EVERY_S = 1.0  # for log starts that the bucket does not know: a pass over all partitions
_NOTHING = 1 << 62  # above every sequence


class HandoffService:
    """Owner of the passes."""

    def __init__(
        self,
        opened: OpenLog,
        handoff: Handoff,
        topic_name: Callable[[bytes], str],
        rng: random.Random,
        on_error: Callable[[BaseException], None],
    ) -> None:
        self._log = opened.log
        self._checkpointer = opened.checkpointer
        self._sidecars = opened.sidecars
        self._handoff = handoff
        self._topic_name = topic_name
        self._on_error = on_error
        self._rng = rng
        self._backoff = Backoff(rng)
        self._held_back: dict[Partition, Backoff] = {}
        self._passed_over: set[int] = set()  # files in which only those have something left
        self._running = False
        self._looked_at = 0.0
        self._open_sequence = 0
        self._open_since_ms = 0
        self.fenced: Fenced | None = None
        self.objects = 0
        self.errors = 0

    @property
    def busy(self) -> bool:
        return self._running or self.fenced is not None or self._log.closed

    def run_job(
        self,
        work: Callable[[], object],
        done: Callable[[object], None],
        failed: Callable[[BaseException], None],
    ) -> bool:
        """Something else that touches the bucket, between passes; False: not now.

        `failed` hears of errors that are the job's own, not the bucket's."""
        if self.busy or not self._backoff.is_due(self._log.clock.monotonic()):
            return False
        self._running = True

        def finished(result: object, error: BaseException | None) -> None:
            self._running = False
            if error is None:
                done(result)
            elif isinstance(error, Fenced | StorageError):
                self._bucket_failed(error)
            else:
                self._count(error)
                failed(error)

        self._log.driver.submit(lanes.HANDOFF, work, finished)
        return True

    def move_alone(self, partition: Partition) -> PartitionMove:
        """What the partition wants of the bucket besides handing off data."""
        name = self._topic_name(partition.topic_id)
        return move_of(partition, name, {}, self._sidecars, self._is_closing)

    def _is_closing(self) -> bool:
        return self._log.closed

    # -- what is waiting -----------------------------------------------------------

    @property
    def backlog_bytes(self) -> int:
        """Journal bytes that are not in the bucket yet."""
        waiting = sum(file.end - FRAMES_START for file in self._waiting())
        return waiting + self._log.journal.position - FRAMES_START

    def oldest_age_ms(self) -> int:
        """How long the oldest of the backlog has been waiting, as far as it is known."""
        waiting = self._waiting()
        since_ms = _since_ms(waiting[0]) if waiting else self._open_since()
        return max(0, self._log.clock.wall_ms() - since_ms) if since_ms else 0

    def _open_since(self) -> int:
        """When the open file got its first batch, as far as it is known; 0: it has none."""
        journal = self._log.journal
        if journal.position == FRAMES_START:
            self._open_since_ms = 0
        elif journal.file.sequence != self._open_sequence or not self._open_since_ms:
            self._open_sequence = journal.file.sequence
            self._open_since_ms = journal.file.first_append_ms = self._log.clock.wall_ms()
        return self._open_since_ms

    def _waiting(self) -> list[JournalFile]:
        trimmed = self._checkpointer.trim_below
        return [file for s, file in sorted(self._log.sealed.items()) if s >= trimmed]

    # -- decisions -----------------------------------------------------------------

    def tick(self) -> None:
        self._seal_if_old()
        now = self._log.clock.monotonic()
        if self.busy or not self._backoff.is_due(now):
            return
        held = self._held_back
        for partition in [p for p in held if p.removed]:
            self._let_go(partition)
        again = [partition for partition, backoff in held.items() if backoff.is_due(now)]
        if again:
            self._start(self._files_of(again), again)
            return
        files = self._due()
        if not files and now - self._looked_at < _LOOK_EVERY_S:
            return
        self._looked_at = now
        sequences = {file.sequence for file in files}
        concerned = [
            partition
            for partition in self._log.partitions.values()
            if (_wants_move(partition) or not sequences.isdisjoint(partition.file_sequences))
            and partition not in held
        ]
        if files or concerned:
            self._start(files, concerned)

    def seal(self) -> None:
        """Hand off everything that is there, soon."""
        if self._log.journal.rotate():
            self._log.journal.kick_rotation()

    def _seal_if_old(self) -> None:
        since_ms = self._open_since()
        if since_ms and self._is_old(since_ms):
            self.seal()

    def _is_old(self, since_ms: int) -> bool:
        """Also if the clock was set back: nobody knows how long it has been then."""
        age_ms = self._log.clock.wall_ms() - since_ms
        return age_ms >= self._log.settings.handoff_ms or age_ms < 0

    def _due(self) -> list[JournalFile]:
        """Sealed files, oldest first, if they are worth a pass now."""
        if not self._waiting():
            return []
        unwritten = {
            sequence
            for partition in self._log.partitions.values()
            for sequence in partition.sealing or ()
        }
        enough = self._log.settings.handoff_bytes
        most = max(enough, len(self._log.partitions) * OWN_OBJECT_BYTES)
        files: list[JournalFile] = []
        size = 0  # of the files, not where they end: none is full to its last byte
        for file in self._waiting():
            if file.sequence in self._passed_over:
                continue
            if file.sequence in unwritten or len(files) == _PASS_FILES_MAX or size >= most:
                break
            files.append(file)
            size += file.size
        return files if files and (size >= enough or self._is_old(_since_ms(files[0]))) else []

    def _files_of(self, partitions: list[Partition]) -> list[JournalFile]:
        """The oldest files that were passed over for these."""
        found = [
            file
            for file in self._waiting()
            if file.sequence in self._passed_over
            and any(_still_in(partition, file.sequence) for partition in partitions)
        ]
        return found[:_PASS_FILES_MAX]

    # -- a pass ----------------------------------------------------------------------

    def _start(self, files: list[JournalFile], concerned: list[Partition]) -> None:
        by_sequence = {file.sequence: file for file in files}
        moves = [
            move_of(
                partition,
                self._topic_name(partition.topic_id),
                by_sequence,
                self._sidecars,
                self._is_closing,
            )
            for partition in concerned
        ]
        for file in files:
            file.pins += 1
        self._running = True
        self._log.driver.submit(
            lanes.HANDOFF,
            lambda: self._handoff.run(moves),
            lambda result, error: self._finished(files, concerned, result, error),
        )

    def _finished(
        self,
        files: list[JournalFile],
        concerned: list[Partition],
        result: PassResult | None,
        error: BaseException | None,
    ) -> None:
        self._running = False
        for file in files:
            file.release()
        if error is not None or result is None:
            self._bucket_failed(error or RuntimeError("a pass gave nothing"))
            return
        self.objects += result.objects
        for partition in concerned:
            outcome = result.outcomes.get((partition.topic_id, partition.index))
            if outcome is not None and not partition.removed:
                self._take(partition, outcome)
        if result.error is not None:
            self._bucket_failed(result.error)
        else:
            self._backoff.succeeded()
        self._pass_over(files)
        trimmed = self._checkpointer.trim_below
        self._trim()
        if self._checkpointer.trim_below > trimmed:  # else it would try the same for ever
            self._log.driver.call_soon(self.tick)  # more may be waiting

    def _take(self, partition: Partition, outcome: Outcome) -> None:
        """Where a partition stands in the bucket now."""
        partition.manifest_version = outcome.version
        if outcome.manifest is not None:
            partition.manifest = outcome.manifest
            partition.tiered_end = max(partition.tiered_end, outcome.manifest.tiered_end)
        if outcome.error is None:
            if partition in self._held_back:
                self._let_go(partition)
            return
        if self._log.closed:  # a pass that was cut short
            return
        # A tombstone in the bucket of a partition that lives here is a contradiction too.
        backoff = self._held_back.setdefault(partition, Backoff(self._rng))
        backoff.failed(self._log.clock.monotonic())
        self._count(outcome.error)

    def _bucket_failed(self, error: BaseException) -> None:
        if self._log.closed:  # a pass that was cut short
            return
        if isinstance(error, Fenced):
            self.fenced = error
        self._backoff.failed(self._log.clock.monotonic())
        self._count(error)

    def _count(self, error: BaseException) -> None:
        self.errors += 1
        self._on_error(error)

    def _let_go(self, partition: Partition) -> None:
        """It is not held back any more: look at what was passed over again."""
        del self._held_back[partition]
        self._passed_over.clear()

    def _pass_over(self, files: list[JournalFile]) -> None:
        """Note the files that all but those held back have left."""
        if not self._held_back:
            return
        for file in files:
            left = [p for p in self._log.partitions.values() if _still_in(p, file.sequence)]
            if left and all(partition in self._held_back for partition in left):
                self._passed_over.add(file.sequence)

    def _trim(self) -> None:
        """The oldest files that every partition has left."""
        needed = min(
            (_needs_from(partition) for partition in self._log.partitions.values()),
            default=_NOTHING,
        )
        gone = [file.sequence for file in self._waiting() if file.sequence < needed]
        if gone:
            self._passed_over.difference_update(gone)
            self._checkpointer.trim(gone[-1] + 1)


def _since_ms(file: JournalFile) -> int:
    """When its first batch came; of a file of an earlier run only the sealing is known."""
    return file.first_append_ms or file.last_append_ms


def _still_in(partition: Partition, sequence: int) -> bool:
    """Whether the file holds something of this partition that is nowhere else."""
    return any(
        held == sequence and _is_needed(partition, number)
        for number, held in enumerate(partition.file_sequences)
    )


def _needs_from(partition: Partition) -> int:
    """The oldest file that holds something of this partition that is nowhere else."""
    for number, held in enumerate(partition.file_sequences):
        if _is_needed(partition, number):
            return held
    return _NOTHING


def _is_needed(partition: Partition, number: int) -> bool:
    end = partition.file_end(number)
    return end > partition.tiered_end and end > partition.log_start


def _wants_move(partition: Partition) -> bool:
    """Whether its log start has moved on and the bucket does not know."""
    manifest = partition.manifest
    return manifest is not None and partition.log_start > manifest.log_start
