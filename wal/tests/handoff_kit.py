"""A log as small as handoff allows: partitions with runs, which are trimmed when tiered."""

from __future__ import annotations

from collections.abc import Sequence

from ister.wal.clock import ManualClock
from ister.wal.errors import LogError
from ister.wal.handoff import Handoff, PassResult
from ister.wal.handoff_plan import VERSION_UNKNOWN, Key, PartitionMove, Runs, SealedRun
from ister.wal.tier.chunk_cache import TierReader
from ister.wal.tier.manifest import EpochStart, Hole, Manifest, decode
from ister.wal.tier.manifest import key as manifest_key
from ister.wal.tier.object_store import Missing
from ister.wal.tier.tests.dict_store import DictStore
from ister.wal.tier.tests.sections import CLUSTER, TIME, make_run

TOPIC = bytes(range(1, 17))


def sealed_run(
    first: int, counts: Sequence[int], *, size: int = 20, sealed_ms: int = TIME
) -> SealedRun:
    buffer, entries = make_run(first, counts, size=size)

    def read() -> Runs:
        half = len(entries) // 2
        cut = sum(entry[2] for entry in entries[:half])
        if half:
            yield buffer[:cut], entries[:half]
        yield memoryview(buffer)[cut:], entries[half:]

    last = first + sum(counts) - 1
    return SealedRun(first, last, len(buffer), sealed_ms, read, producers=f"at {last}".encode())


class TinyPartition:
    def __init__(self, topic_id: bytes, index: int) -> None:
        self.topic_id = topic_id
        self.index = index
        self.log_start = 0
        self.end = 0
        self.runs: list[SealedRun] = []
        self.holes: tuple[Hole, ...] = ()
        self.epochs: tuple[EpochStart, ...] = (EpochStart(0, 0),)
        self.manifest: Manifest | None = None
        self.version = VERSION_UNKNOWN
        self.dropped = False
        self.errors: list[LogError] = []
        self.all_bytes: dict[int, bytes] = {}  # base offset -> batch, for ever

    def append(self, counts: Sequence[int], *, size: int = 20, sealed_ms: int = TIME) -> None:
        run = sealed_run(self.end, counts, size=size, sealed_ms=sealed_ms)
        for buffer, entries in run.read():
            position = 0
            for base, _, batch_size, _ in entries:
                self.all_bytes[base] = bytes(buffer[position : position + batch_size])
                position += batch_size
        self.runs.append(run)
        self.end = run.last_offset + 1

    def lose(self, count: int) -> None:
        """A known hole."""
        self.holes = (*self.holes, Hole(self.end, self.end + count - 1, "lost in a test"))
        self.end += count

    def move(self) -> PartitionMove:
        return PartitionMove(
            topic_id=self.topic_id,
            topic_name="orders",
            partition=self.index,
            log_start=self.log_start,
            high_watermark=self.end,
            leader_epochs=self.epochs,
            holes=self.holes,
            runs=tuple(self.runs),
            manifest=self.manifest,
            version=self.version,
        )


class TinyLog:
    """Partitions, a bucket, and the part of the real log that handoff talks to."""

    def __init__(self, store: DictStore, partitions: int = 1) -> None:
        self.store = store
        self.clock = ManualClock()
        self.partitions = {
            (TOPIC, index): TinyPartition(TOPIC, index) for index in range(partitions)
        }
        self.runs = 0
        self.target_bytes = 1 << 24
        self.restart()

    def restart(self) -> None:
        """A new run: what was known of versions is forgotten."""
        self.runs += 1
        self.handoff = Handoff(
            self.store,
            CLUSTER,
            f"run-{self.runs}",
            self.clock,
            target_bytes=self.target_bytes,
            delete_grace_ms=1000,
        )
        for partition in self.partitions.values():
            partition.version = VERSION_UNKNOWN

    def hand_off(self) -> PassResult:
        result = self.handoff.run([p.move() for p in self.partitions.values() if not p.dropped])
        for key, outcome in result.outcomes.items():
            partition = self.partitions[key]
            partition.version = outcome.version
            partition.dropped = outcome.dropped
            if outcome.error is not None:
                partition.errors.append(outcome.error)
            if outcome.manifest is not None:
                partition.manifest = outcome.manifest
            if outcome.manifest is not None and outcome.version > 0:
                end = outcome.manifest.tiered_end
                partition.runs = [run for run in partition.runs if run.last_offset >= end]
        return result

    def __getitem__(self, index: int) -> TinyPartition:
        return self.partitions[(TOPIC, index)]


def bucket_manifest(store: DictStore, key: Key) -> Manifest:
    data, _ = store.calm().read(manifest_key(*key))
    return decode(data)


def check_nothing_lost(log: TinyLog) -> None:
    """Whatever the log trimmed is in the bucket, byte for byte; what is there is right."""
    reader = TierReader(log.store.calm())
    for key, partition in log.partitions.items():
        if partition.dropped:
            continue
        kept = {run.first_offset for run in partition.runs}
        tiered: dict[int, bytes] = {}
        try:
            manifest = bucket_manifest(log.store, key)
        except Missing:
            manifest = None
        if manifest is not None and manifest.entries:
            offset = max(manifest.log_start, manifest.entries[0].first_offset)
            while offset < manifest.tiered_end and manifest.find(offset) is not None:
                for batch in reader.read(manifest, offset, 10**9):
                    tiered[batch.base_offset] = bytes(batch.data)
                    offset = batch.last_offset + 1
        for base, data in tiered.items():
            assert partition.all_bytes[base] == data
        first_kept = min(kept, default=partition.end)
        for base in partition.all_bytes:
            if partition.log_start <= base < first_kept:
                assert base in tiered, f"{base} of {key[1]} is nowhere"
