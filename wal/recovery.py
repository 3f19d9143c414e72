"""From what a crash left to a log that may go on: scan, verify, cut, copy, publish.

The rules (the design's words):
- Frames are written one at a time, each synced before the next. So the first
  bad frame is a torn tail if no valid frame of a higher commit number stands
  behind it, and damage if one does. The search looks at every byte; lengths in
  a bad frame are not trusted. An end mark is a frame too: in a file that has
  one, any bad byte before it is damage.
- A file that has a successor ends where the successor's header says.
- Nothing is published that may not be on the platter: what is accepted of the
  last file is copied into a new one, synced, and only then does its name make
  it count. Until then the old file does, so this may be cut at any point.
- What was durable and is in no file is damage too (`_Coverage`).
- Damage is refused with words, or, if the operator said so, becomes a known
  hole: offsets that are never given again and a leader epoch that rises.

Deliberately not here: the bucket. Opening needs none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from ister.wal import batch
from ister.wal.chain import Chain, Found
from ister.wal.checkpoint import Checkpoint
from ister.wal.errors import Contradiction, Damaged
from ister.wal.files import JournalFile, create_file, file_name, write_zeros
from ister.wal.frame import (
    ENTRY,
    ENTRY_SIZE,
    FLAG_END,
    FLAG_PRODUCERS,
    FRAMES_START,
    TERMINATOR,
    FileHeader,
    Frame,
    FrameScanner,
    encode_file_header,
    encode_frame,
)
from ister.wal.fs import FileSystem
from ister.wal.partition import Hole, Partition
from ister.wal.producers import Producers
from ister.wal.salvage import Lost, lost_batches
from ister.wal.settings import LogSettings
from ister.wal.sidecar import (
    Key,
    Sidecar,
    decode_directory,
    encode,
    sidecar_name,
    write_sidecar,
)
from ister.wal.tail import TailIndex

_COPY_ROOM = 2  # a copy gets room for twice its content, within the file size
_ASIDE = ".new"  # of a copy that is not whole yet; opening removes what was left of one


@dataclass(slots=True)
class Report:
    """What opening found and did, for a person."""

    files: int = 0
    frames: int = 0
    batches: int = 0
    bytes_scanned: int = 0
    clean: bool = True  # the last run ended with an end mark (or there was none)
    cut_bytes: int = 0  # of a torn tail
    cut_where: str = ""
    damages: list[Damaged] = field(default_factory=list)
    sidecars_rebuilt: int = 0


@dataclass(slots=True)
class Recovered:
    """The journal as it may be gone on with."""

    file: JournalFile  # the open file: header written, frames up to `position`
    position: int
    commit_next: int
    sealed: list[JournalFile]
    spares: list[JournalFile]
    sequence_next: int
    report: Report


class _Coverage:
    """Up to where each partition's offsets are known to be somewhere."""

    def __init__(self, partitions: dict[Key, Partition], continue_past_damage: bool) -> None:
        self._partitions = partitions
        self._continue = continue_past_damage
        self._covered = {key: p.tiered_end for key, p in partitions.items()}
        self.damages: list[Damaged] = []
        self.broken: set[Key] = set()

    def span(self, key: Key, first: int, next_offset: int, where: str) -> None:
        """A file holds first..next_offset of a partition."""
        covered = self.covered(key)
        if first > covered:
            self._lost(key, covered, first - 1, where)
        self._covered[key] = max(self._covered[key], next_offset)

    def reached(self, key: Key, next_offset: int) -> None:
        """What a file holds goes on without a gap up to there."""
        self._covered[key] = max(self._covered[key], next_offset)

    def covered(self, key: Key) -> int:
        return max(self._covered[key], self._partitions[key].log_start)

    def finish(self, where: str) -> None:
        """What was durable must now be somewhere."""
        for key, partition in self._partitions.items():
            covered = self.covered(key)
            if partition.log_end > covered and partition.settings.reliable:
                self._lost(key, covered, partition.log_end - 1, where)

    def _lost(self, key: Key, first: int, last: int, where: str) -> None:
        partition = self._partitions[key]
        for hole in partition.holes:
            if hole.first <= first <= hole.last:
                first = hole.last + 1
        if first > last:
            return
        self.damages.append(
            Damaged(where, 0, f"offsets {first}..{last} of {key[0].hex()}/{key[1]} are in no file")
        )
        if self._continue:
            hole = Hole(first, last, f"damage in {where.rpartition('/')[2]}")
            partition.holes = (*partition.holes, hole)
            self.broken.add(key)


class Recovery:
    """One opening of one journal directory. `run` is the whole of it."""

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        settings: LogSettings,
        cluster_id: str,
        checkpoint: Checkpoint | None,
        partitions: dict[Key, Partition],
        tombstones: set[bytes],
        now_ms: int,
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._settings = settings
        self._cluster_id = cluster_id
        self._checkpoint = checkpoint
        self._partitions = partitions
        self._tombstones = tombstones
        self._now_ms = now_ms
        self._report = Report()
        self._coverage = _Coverage(partitions, settings.continue_past_damage)
        self._covered_by_checkpoint = {key: p.log_end for key, p in partitions.items()}

    def run(self) -> Recovered:
        chain = Chain(
            self._fs,
            self._directory,
            self._cluster_id,
            self._checkpoint.first_sequence if self._checkpoint else 0,
            self._checkpoint.scan_from if self._checkpoint else 0,
            self._damaged,
        )
        chain.find()
        found, spares = chain.live, chain.spares
        self._report.files = len(found)
        sequence_next = max([f.sequence for f in (*found, *spares)], default=0) + 1
        commit_next = self._checkpoint.commit_next if self._checkpoint else 1
        sealed = [self._sealed(file, after) for file, after in pairwise(found)]
        last = found[-1] if found else None
        if last is None:
            recovered = self._first(commit_next, sequence_next)
        else:
            recovered = self._copy_last(last, spares, sequence_next)
        recovered.sealed = sealed
        if last is not None:
            spares.append(last)
        recovered.spares = [
            JournalFile(spare.sequence, spare.path, spare.file, spare.size)
            for spare in spares
            if spare.path != recovered.file.path and spare.file is not recovered.file.file
        ]
        return recovered

    def _damaged(self, damage: Damaged) -> None:
        self._report.damages.append(damage)
        if not self._settings.continue_past_damage:
            raise damage

    # -- files with a successor -----------------------------------------------------

    def _sealed(self, found: Found, after: Found) -> JournalFile:
        assert after.header is not None
        end = after.header.previous_end
        if after.header.previous_sequence != found.sequence:  # one between them is missing
            end = found.frames_end()
        file = JournalFile(found.sequence, found.path, found.file, found.size)
        file.end = end
        covered = self._checkpoint is not None and found.sequence < self._checkpoint.scan_from
        # Who goes on past damage wants to be past all of it: also of what an index vouches for.
        trusted = covered and not self._settings.continue_past_damage
        sidecar = self._load_sidecar(found) if trusted else None
        if sidecar is None or sidecar.end != end:
            sidecar = self._scan_sealed(found, end)
        file.last_append_ms = sidecar.last_append_ms
        for key, entry in sidecar.entries.items():
            partition = self._partitions.get(key)
            if partition is None:
                self._unknown(key, found.path)
                continue
            partition.found_in_file(
                found.sequence, entry.first_offset, entry.data_bytes, entry.max_timestamp
            )
            if covered:
                self._coverage.span(key, entry.first_offset, entry.next_offset, found.path)
        return file

    def _load_sidecar(self, found: Found) -> Sidecar | None:
        path = f"{self._directory}/{sidecar_name(found.sequence)}"
        try:
            file = self._fs.open(path)
        except FileNotFoundError:
            return None
        try:
            sidecar = decode_directory(file.pread, path)
            return sidecar if sidecar.sequence == found.sequence else None
        except Damaged as damage:
            self._report.damages.append(damage)
            return None
        finally:
            file.close()

    def _scan_sealed(self, found: Found, end: int) -> Sidecar:
        tails: dict[Key, TailIndex] = {}
        scanner = FrameScanner(found.file.pread, found.sequence, found.size)
        while scanner.position < end:
            frame = scanner.next()
            if frame is None:
                self._settle(tails)
                self._damage(found, scanner, end)
                continue
            self._apply(frame, frame.body_position, tails, found.path)
        self._settle(tails)
        buffers = encode(found.sequence, end, self._now_ms, tails)
        write_sidecar(self._fs, self._directory, found.sequence, buffers)
        self._report.sidecars_rebuilt += 1
        data = b"".join(buffers)
        return decode_directory(lambda size, position: data[position : position + size], "memory")

    def _damage(self, found: Found, scanner: FrameScanner, end: int) -> None:
        """The frame at the scanner's position is bad and something behind it is not."""
        position = scanner.position
        following = scanner.search(position + 1)
        scanner.position = end if following is None else min(following.position, end)
        size = scanner.position - position
        what = f"a frame does not hold; {size} bytes cannot be read"
        self._damaged(Damaged(found.path, position, what))
        reached = {key: self._coverage.covered(key) for key in self._partitions}
        for lost in lost_batches(memoryview(found.file.pread(size, position))):
            self._lost(lost, reached)

    def _lost(self, lost: Lost, reached: dict[Key, int]) -> None:
        """Offsets are dense: a batch that was there began where its partition had got to.

        If it does not, its name was hit, and it was of one of those that had got there:
        rather an offset that is never given than one that is given twice."""
        key = (lost.topic_id, lost.partition)
        keys = [key]
        if reached.get(key) not in lost.base_offsets:
            keys = [key for key, offset in reached.items() if offset == lost.base_offsets[1]]
        for key in keys:
            reached[key] += lost.records
            partition = self._partitions[key]
            partition.log_end = max(partition.log_end, reached[key])

    # -- the last file ----------------------------------------------------------------

    def _first(self, commit_next: int, sequence: int) -> Recovered:
        size = self._settings.journal_first_file_bytes
        file = create_file(self._fs, self._directory, sequence, size)
        header = FileHeader(sequence, 0, 0, commit_next, 0, self._cluster_id)
        self._publish(file, header, FRAMES_START)
        return Recovered(file, FRAMES_START, commit_next, [], [], sequence + 1, self._report)

    def _copy_last(self, last: Found, spares: list[Found], sequence: int) -> Recovered:
        """Copy what holds of the last file into a new one, frame by frame."""
        assert last.header is not None
        target = self._target(last, spares, sequence)
        tails: dict[Key, TailIndex] = {}
        position = FRAMES_START
        scanner = FrameScanner(last.file.pread, last.sequence, last.size)
        expected = last.header.first_commit
        ended = False
        while not ended:
            frame = scanner.next()
            if frame is None:
                self._settle(tails)
                if not self._behind(last, scanner, expected):
                    break
                continue
            expected = frame.commit + 1
            ended = bool(frame.flags & FLAG_END)
            if not ended:
                position = self._copy(frame, target, position, tails, last.path)
        self._settle(tails)
        self._report.clean = ended
        for key, tail in tails.items():
            partition = self._partitions[key]
            partition.found_in_file(sequence, tail.first_offset, 0, -1)
            partition.open_tail = tail
        header = FileHeader(
            sequence,
            last.header.previous_sequence,
            last.header.previous_end,
            last.header.first_commit,
            last.sequence,
            self._cluster_id,
        )
        self._publish(target, header, position)
        return Recovered(target, position, expected, [], [], sequence + 1, self._report)

    def _behind(self, last: Found, scanner: FrameScanner, expected: int) -> bool:
        """No valid frame at the scanner: a torn tail (False), or damage before more frames."""
        position = scanner.position
        following = scanner.search(position + 1)
        if following is not None and following.commit >= expected:
            self._damage(last, scanner, last.size)
            return True
        if scanner.something_at(position):
            claimed = scanner.claimed(position)
            self._report.cut_bytes = len(claimed) if claimed is not None else len(TERMINATOR)
            self._report.cut_where = f"{last.path} at {position}"
        return False

    def _target(self, last: Found, spares: list[Found], sequence: int) -> JournalFile:
        """Where the copy goes: a spare file that surely has room, or one that grows with it.

        It gets its name when it is whole: a file with frames of its own and no header is
        damage, which an unfinished copy must never be taken for."""
        aside = f"{self._directory}/{file_name(sequence)}{_ASIDE}"
        if self._fs.exists(aside):
            self._fs.unlink(aside)
        for spare in spares:
            if spare.header is None and spare.size >= last.size:
                spares.remove(spare)
                self._fs.rename(spare.path, aside)
                return JournalFile(sequence, aside, spare.file, spare.size)
        return JournalFile(sequence, aside, self._fs.open(aside, create=True), 0)

    def _copy(
        self,
        frame: Frame,
        target: JournalFile,
        position: int,
        tails: dict[Key, TailIndex],
        where: str,
    ) -> int:
        buffers = encode_frame(
            target.sequence,
            frame.commit,
            position,
            frame.flags,
            bytes(frame.directory),
            [frame.body],
        )
        target.file.pwrite(buffers, position)
        body_position = position + (frame.body_position - frame.position)
        self._apply(frame, body_position, tails, where)
        return position + (frame.end - frame.position)

    def _publish(self, file: JournalFile, header: FileHeader, position: int) -> None:
        """Everything on the platter, then the name that makes it count."""
        self._coverage.finish(self._directory)
        self._judge()
        if file.size == 0:
            wanted = max(position * _COPY_ROOM, self._settings.journal_first_file_bytes)
            room = position + len(TERMINATOR)
            file.size = max(min(wanted, self._settings.journal_file_bytes), room)
            write_zeros(file.file, position, file.size)
        file.file.pwrite([TERMINATOR], position)
        file.file.pwrite([encode_file_header(header)], 0)
        file.file.sync()
        if file.path.endswith(_ASIDE):
            name = file.path.removesuffix(_ASIDE)
            self._fs.rename(file.path, name)
            self._fs.sync_dir(self._directory)
            file.path = file.file.path = name

    # -- what a frame says ---------------------------------------------------------------

    def _apply(
        self, frame: Frame, body_position: int, tails: dict[Key, TailIndex], where: str
    ) -> None:
        self._report.frames += 1
        self._report.bytes_scanned += frame.end - frame.position
        self._report.batches += len(frame.directory) // ENTRY_SIZE
        with_producers = bool(frame.flags & FLAG_PRODUCERS)
        position = body_position
        for topic_id, index, base, count, size, timestamp in ENTRY.iter_unpack(frame.directory):
            key = (topic_id, index)
            tail = tails.get(key)
            if tail is None or base != tail.next_offset or not count:
                tail = self._begin(key, base, count, tails, where)
            if tail is not None:
                tail.add(base, base + count, position, size, timestamp)
                if with_producers and base >= self._covered_by_checkpoint[key]:
                    at = position - body_position
                    self._producer(self._partitions[key], base, frame.body[at : at + size])
            position += size

    def _begin(
        self, key: Key, base: int, count: int, tails: dict[Key, TailIndex], where: str
    ) -> TailIndex | None:
        """An entry that does not just continue the last one of its partition in this file.

        The index that it goes into; None: it is no batch of a topic that exists."""
        partition = self._partitions.get(key)
        if partition is None:
            self._unknown(key, where)
            return None
        if count == 0:
            partition.log_start = max(partition.log_start, base)
            partition.log_end = max(partition.log_end, base)
            return None
        tail = tails.get(key)
        if tail is None:
            tail = tails[key] = TailIndex()
        else:
            self._coverage.reached(key, tail.next_offset)
        self._coverage.span(key, base, base + count, where)
        return tail

    def _settle(self, tails: dict[Key, TailIndex]) -> None:
        """What the scanned frames reach, for everybody who asks the partitions."""
        for key, tail in tails.items():
            partition = self._partitions[key]
            partition.log_end = max(partition.log_end, tail.next_offset)
            self._coverage.reached(key, tail.next_offset)

    def _producer(self, partition: Partition, base: int, data: memoryview) -> None:
        header = batch.read_header(data)
        if header.producer_id >= 0:
            if partition.producers is None:
                partition.producers = Producers(self._settings.producer_id_expiration_ms)
            log_append_time = header.max_timestamp if header.is_log_append_time else -1
            partition.producers.record(
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                header.count,
                base,
                self._now_ms,
                durable_end=base,
                append_time_ms=log_append_time,
            )

    def _unknown(self, key: Key, where: str) -> None:
        if key[0] not in self._tombstones:
            raise Contradiction(
                f"{where} holds records of topic id {key[0].hex()}/{key[1]}, which the metadata "
                "does not know: metadata and journal are not of one time; put back the metadata "
                "that belongs to this journal"
            )

    def _judge(self) -> None:
        """Lost offsets: refuse, or go on with holes and a higher epoch."""
        damages, self._coverage.damages = self._coverage.damages, []
        self._report.damages += damages
        if damages and not self._settings.continue_past_damage:
            raise damages[0]
        for key in self._coverage.broken:
            self._partitions[key].raise_epoch()
        self._coverage.broken.clear()
