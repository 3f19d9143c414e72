"""Non-reliable partitions: which rings exist, and the offsets they may give.

A ring (`ring.py`) gives offsets only from blocks that the metadata has reserved
durably; this asks for the next block in good time and, at start, for the first
one. After a restart the ring goes on at the next block, so no offset comes twice.

The leader epoch comes from the offset at which the run begins: every run reserves
a whole block first, so the number of blocks below it is higher each time, and
metadata alone decides it, however old the checkpoint is that was found.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ister.wal.batch import BatchHeader
from ister.wal.clock import Clock
from ister.wal.errors import StorageError
from ister.wal.fs import Buffer
from ister.wal.partition import Partition
from ister.wal.reader import LIVE, Chunk
from ister.wal.ring import OFFSET_BLOCK, Ring

_ASK_AGAIN_S = 5.0  # a block that was asked for and did not come


class ReserveOffsets(Protocol):
    def __call__(
        self, topic_id: bytes, partition: int, count: int, done: Callable[[int, int], None]
    ) -> None:
        """Reserve `count` offsets more, durably: done(first, behind the last).

        Never called back if it failed; the next append asks again."""


class Rings:
    """All rings of the log."""

    def __init__(self, reserve: ReserveOffsets, clock: Clock) -> None:
        self._reserve = reserve
        self._clock = clock
        self._asked: dict[Partition, float] = {}  # when a block was asked for
        self.dropped = 0

    def add(self, partition: Partition) -> None:
        """A partition begins (again): it is there once it has its first block."""
        self._ask(partition, OFFSET_BLOCK)

    def remove(self, partition: Partition) -> None:
        self._asked.pop(partition, None)
        partition.ring = None

    def append(
        self, partition: Partition, header: BatchHeader, data: Buffer, append_time_ms: int | None
    ) -> int:
        ring = partition.ring
        if ring is None:
            self._ask(partition, OFFSET_BLOCK)
            raise StorageError("no offsets are reserved yet: try again")
        ring.bytes_max = partition.settings.ring_bytes  # may have been changed
        try:
            base = ring.append(header, data, append_time_ms)
        finally:
            if ring.needs_block():
                self._ask(partition, ring.block_end() - ring.reserved_to)
        partition.log_start = partition.log_end = partition.high_watermark = ring.head
        return base

    def read(self, partition: Partition, offset: int, max_bytes: int) -> Chunk:
        ring = partition.ring
        if ring is None:
            self._ask(partition, OFFSET_BLOCK)
            raise StorageError("no offsets are reserved yet: try again")
        found = ring.read(offset, max_bytes)
        self.dropped += found.dropped
        return Chunk([*found.buffers], found.size, found.first_offset, found.next_offset, LIVE)

    def _ask(self, partition: Partition, count: int) -> None:
        now = self._clock.monotonic()
        if now - self._asked.get(partition, -_ASK_AGAIN_S) < _ASK_AGAIN_S:
            return
        self._asked[partition] = now

        def reserved(first: int, end: int) -> None:
            self._asked.pop(partition, None)
            if not partition.removed:
                self._extend(partition, first, end)

        self._reserve(partition.topic_id, partition.index, count, reserved)

    def _extend(self, partition: Partition, first: int, end: int) -> None:
        if partition.ring is not None:
            partition.ring.extend(end)
            return
        partition.log_start = partition.log_end = partition.high_watermark = first
        epoch = first // OFFSET_BLOCK
        if epoch > partition.leader_epoch:  # a life before this one: readers see that it is over
            partition.epochs.append((epoch, first))
        partition.ring = Ring(first, end, partition.leader_epoch, partition.settings.ring_bytes)
