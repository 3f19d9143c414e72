"""Opening a data directory: lock, checkpoint, recovery, and the parts put together.

    DATA/LOCK                       one process at a time
    DATA/journal/{sequence}.log     journal files, {sequence}.idx their sidecars
    DATA/checkpoint/{generation}.ckpt
    DATA/spare                      room for when the disk is full

Nothing is published before it is synced: recovery copies the last file into a
new one, then a checkpoint that stands on it is written, and only then may the
old files be used again. Cut anywhere, the next opening finds the old state or
the new one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ister.wal import checkpoint as checkpoints
from ister.wal import driver as lanes
from ister.wal.checkpointer import Checkpointer, record_of
from ister.wal.clock import Clock
from ister.wal.cold import ColdReader
from ister.wal.driver import Driver
from ister.wal.errors import Contradiction, Damaged, InUse
from ister.wal.files import JournalFiles
from ister.wal.fs import FileSystem, Lock
from ister.wal.log import Log
from ister.wal.partition import Hole, Partition
from ister.wal.producers import Producers
from ister.wal.reader import SidecarCache
from ister.wal.recovery import Recovered, Recovery, Report
from ister.wal.rings import ReserveOffsets, Rings
from ister.wal.settings import LogSettings, TopicSettings
from ister.wal.sidecar import SUFFIX as SIDECAR_SUFFIX
from ister.wal.sidecar import Key
from ister.wal.spare import Spare
from ister.wal.tier.chunk_cache import Spawn, TierReader
from ister.wal.tier.manifest import decode as decode_manifest
from ister.wal.tier.object_store import ObjectStore

LOCK_NAME = "LOCK"
JOURNAL_DIRECTORY = "journal"
CHECKPOINT_DIRECTORY = "checkpoint"


class TopicInfo(NamedTuple):
    """A topic as the metadata knows it."""

    topic_id: bytes
    name: str
    partitions: int
    settings: TopicSettings


class OpenLog(NamedTuple):
    """An open log and what it was made of."""

    log: Log
    reader: ColdReader
    checkpointer: Checkpointer
    sidecars: SidecarCache
    tier: TierReader
    lock: Lock
    report: Report


def lock_directory(fs: FileSystem, data: str) -> Lock:
    fs.makedirs(data)
    try:
        return fs.lock(f"{data}/{LOCK_NAME}")
    except BlockingIOError as error:
        raise InUse(data, f"{data}/{LOCK_NAME}") from error


def open_log(
    *,
    fs: FileSystem,
    data: str,
    lock: Lock,
    cluster_id: str,
    topics: Iterable[TopicInfo],
    tombstones: set[bytes],
    bucket: ObjectStore,
    settings: LogSettings,
    clock: Clock,
    driver: Driver,
    reserve_offsets: ReserveOffsets,
    on_error: Callable[[BaseException], None],
) -> OpenLog:
    """The log as it was left, ready to go on."""
    journal_directory = f"{data}/{JOURNAL_DIRECTORY}"
    checkpoint_directory = f"{data}/{CHECKPOINT_DIRECTORY}"
    fs.makedirs(journal_directory)
    fs.makedirs(checkpoint_directory)
    checkpoint, damages = checkpoints.load(fs, checkpoint_directory)
    if checkpoint is None and damages:
        raise damages[0]
    partitions = _partitions(topics, checkpoint, cluster_id, tombstones, settings, clock)
    recovered = Recovery(
        fs,
        journal_directory,
        settings,
        cluster_id,
        checkpoint,
        partitions,
        tombstones,
        clock.wall_ms(),
    ).run()
    recovered.report.damages[:0] = damages
    _publish(partitions)
    generation = _write_checkpoint(
        fs, checkpoint_directory, checkpoint, recovered, partitions, cluster_id, clock
    )
    files = JournalFiles(fs, journal_directory, settings, driver, lambda: None)
    files.sequence_next = recovered.sequence_next
    _sweep_sidecars(fs, journal_directory, recovered)
    rings = Rings(reserve_offsets, clock)
    log = Log(
        settings=settings,
        driver=driver,
        clock=clock,
        files=files,
        cluster_id=cluster_id,
        partitions=partitions,
        rings=rings,
    )
    _hand_over_files(log, files, recovered)
    for partition in partitions.values():
        if not partition.settings.reliable:
            rings.add(partition)
    sidecars = SidecarCache(
        fs, journal_directory, log.sealed, lambda error: driver.post(lambda: on_error(error))
    )
    tier = TierReader(bucket, spawn=_read_ahead(log, driver))
    checkpointer = Checkpointer(
        log,
        fs,
        journal_directory,
        checkpoint_directory,
        cluster_id,
        sidecars,
        generation,
        Spare(fs, data, settings.spare_bytes),
        on_error,
    )
    reader = ColdReader(log, sidecars, tier, on_error)
    return OpenLog(log, reader, checkpointer, sidecars, tier, lock, recovered.report)


def _read_ahead(log: Log, driver: Driver) -> Spawn:
    """Fetch in the READ lane, whoever asks: lanes are entered from the owner's thread alone."""

    def submit(work: Callable[[], None]) -> None:
        if not log.closed:
            driver.submit(lanes.READ, work, _ignore)

    return lambda work: driver.post(lambda: submit(work))


def _ignore(_: None, error: BaseException | None) -> None:
    """Whoever needs what was to be fetched meets the error itself."""


def _partitions(
    topics: Iterable[TopicInfo],
    checkpoint: checkpoints.Checkpoint | None,
    cluster_id: str,
    tombstones: set[bytes],
    settings: LogSettings,
    clock: Clock,
) -> dict[Key, Partition]:
    partitions = {
        (topic.topic_id, index): Partition(topic.topic_id, index, topic.settings)
        for topic in topics
        for index in range(topic.partitions)
    }
    if checkpoint is None:
        return partitions
    if checkpoint.cluster_id != cluster_id:
        raise Contradiction(
            f"the checkpoint belongs to cluster {checkpoint.cluster_id}, the metadata to "
            f"{cluster_id}: these files were mixed; put the right ones back"
        )
    for record in checkpoint.partitions:
        partition = partitions.get((record.topic_id, record.index))
        if partition is not None:
            _restore(partition, record, settings, clock)
        elif record.topic_id not in tombstones and record.next_offset > 0:
            raise Contradiction(
                f"the checkpoint has topic id {record.topic_id.hex()}, which the metadata does "
                "not know: metadata and journal are not of one time; put back the metadata that "
                "belongs to this journal"
            )
    return partitions


def _restore(
    partition: Partition, record: checkpoints.PartitionRecord, settings: LogSettings, clock: Clock
) -> None:
    partition.log_end = record.next_offset
    partition.log_start = record.log_start
    partition.tiered_end = record.tiered_end
    partition.epochs = list(record.epochs)
    partition.holes = tuple(Hole(*hole) for hole in record.holes)
    if record.producers:
        partition.producers = Producers.decode(record.producers, settings.producer_id_expiration_ms)
    if record.manifest:
        partition.manifest = decode_manifest(record.manifest)


def _publish(partitions: dict[Key, Partition]) -> None:
    """Everything recovered is on the platter now: readers may see it."""
    for partition in partitions.values():
        partition.high_watermark = partition.live_from = partition.log_end


def _write_checkpoint(
    fs: FileSystem,
    directory: str,
    checkpoint: checkpoints.Checkpoint | None,
    recovered: Recovered,
    partitions: dict[Key, Partition],
    cluster_id: str,
    clock: Clock,
) -> int:
    """Stand on the new file from here on; until this is durable the old files count."""
    generation = (checkpoint.generation if checkpoint else 0) + 1
    first = min([file.sequence for file in recovered.sealed] + [recovered.file.sequence])
    checkpoints.write(
        fs,
        directory,
        checkpoints.Checkpoint(
            generation,
            cluster_id,
            clock.wall_ms(),
            first,
            recovered.file.sequence,
            recovered.commit_next,
            [record_of(partition) for partition in partitions.values()],
        ),
    )
    return generation


def _hand_over_files(log: Log, files: JournalFiles, recovered: Recovered) -> None:
    log.sealed = {file.sequence: file for file in recovered.sealed}
    for file in (*recovered.sealed, recovered.file):
        files.add_existing(file)
    for spare in recovered.spares:
        files.add_spare(spare)
    log.journal.start(recovered.file, recovered.position, recovered.commit_next)


def _sweep_sidecars(fs: FileSystem, directory: str, recovered: Recovered) -> None:
    """Indexes of files that are gone, and halves of writes."""
    keep = {f"{file.sequence:020d}{SIDECAR_SUFFIX}" for file in recovered.sealed}
    for name in fs.listdir(directory):
        leftover = name.endswith(".new") or name.endswith(SIDECAR_SUFFIX)
        if leftover and name not in keep:
            with contextlib.suppress(FileNotFoundError):
                fs.unlink(f"{directory}/{name}")


def close_log(opened: OpenLog, done: Callable[[], None]) -> None:
    """End mark, last checkpoint, descriptors, lock."""
    log = opened.log

    def finish() -> None:
        for file in (*log.sealed.values(), log.journal.file):
            file.doomed = file.pins > 0  # the last reader closes it
            if not file.doomed:
                file.file.close()
        log.files.close()
        opened.lock.release()
        done()

    def drained() -> None:
        # What the lanes still do may read these files: let them come to their end first.
        log.driver.submit(lanes.READ, _nothing, lambda _, __: finish())

    def checkpointed() -> None:
        log.driver.submit(lanes.HANDOFF, _nothing, lambda _, __: drained())

    def ended() -> None:
        if log.journal.failed is not None:
            checkpointed()
        else:
            opened.checkpointer.request(checkpointed)

    log.close(ended)


def _nothing() -> None:
    pass


__all__ = ["Damaged", "OpenLog", "TopicInfo", "close_log", "lock_directory", "open_log"]
