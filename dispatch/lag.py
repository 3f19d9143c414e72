"""Which partitions the heartbeat compares when, and who was forgotten there.

Pure integers: intervals and times in milliseconds are handed in. Partitions are kept by
interval; each interval has its beat, so that one topic at 50 ms does not make ten
thousand others be compared twenty times a second. The interval is the topic's setting and
may change at any time: a partition that is found in the wrong place moves at the beat of
its old interval, one whose heartbeat was off (0) within `REVIEW_MS`.

A parked read missed a wake-up only if the head has moved past the one at which it was
evaluated, and still is past it one turn later (what was on its way has arrived then), its
client takes answers, and its minimum is there, which the read itself knows. Anything else
is a reader that rightly waits, and a subscription behind the head whose reader is not
parked is lag, not a missed wake-up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ister.dispatch.parked import ParkedRead, Waiting
from ister.wal.partition import Partition

OFF = 0
INTERVAL_MIN_MS = 50
INTERVAL_MAX_MS = 1_000
REVIEW_MS = 1_000  # how often those are looked at whose heartbeat is off


def interval_problem(interval_ms: int) -> str | None:
    """What is wrong with an interval; None: nothing."""
    if interval_ms == OFF or INTERVAL_MIN_MS <= interval_ms <= INTERVAL_MAX_MS:
        return None
    return f"0 (off) or between {INTERVAL_MIN_MS} and {INTERVAL_MAX_MS} is wanted"


class Beats:
    """Partitions by their interval, and when each interval is due.

    Invariant: a partition stands under one interval; an interval without partitions has
    no beat.
    """

    def __init__(self) -> None:
        self._partitions: dict[int, dict[Partition, None]] = {}
        self._interval_of: dict[Partition, int] = {}
        self._due_ms: dict[int, int] = {}

    def watch(self, partition: Partition, now_ms: int) -> None:
        """Compare it from now on; again: nothing changes."""
        if partition not in self._interval_of:
            self._enter(partition, partition.settings.heartbeat_interval_ms, now_ms)

    def unwatch(self, partition: Partition) -> None:
        interval_ms = self._interval_of.pop(partition, None)
        if interval_ms is None:
            return
        partitions = self._partitions[interval_ms]
        del partitions[partition]
        if not partitions:
            del self._partitions[interval_ms], self._due_ms[interval_ms]

    @property
    def next_due_ms(self) -> int | None:
        """When there is something to compare; None: not until somebody is watched."""
        return min(self._due_ms.values(), default=None)

    def due(self, now_ms: int) -> list[Partition]:
        """The partitions to compare now. Sets the next beats."""
        found: list[Partition] = []
        moved: list[Partition] = []
        for interval_ms, due_ms in list(self._due_ms.items()):
            if due_ms > now_ms:
                continue
            here = self._partitions[interval_ms]
            moved += [each for each in here if each.settings.heartbeat_interval_ms != interval_ms]
            if interval_ms != OFF:
                found += here
            following = due_ms + (interval_ms or REVIEW_MS)
            # A loop that was held up does not make up for beats that it missed.
            self._due_ms[interval_ms] = (
                following if following > now_ms else now_ms + (interval_ms or REVIEW_MS)
            )
        for partition in moved:
            self.unwatch(partition)
            self._enter(partition, partition.settings.heartbeat_interval_ms, now_ms)
        return found

    def _enter(self, partition: Partition, interval_ms: int, now_ms: int) -> None:
        self._interval_of[partition] = interval_ms
        partitions = self._partitions.get(interval_ms)
        if partitions is None:
            partitions = self._partitions[interval_ms] = {}
            self._due_ms[interval_ms] = now_ms + (interval_ms or REVIEW_MS)
        partitions[partition] = None

    def __len__(self) -> int:
        return len(self._interval_of)

    def check(self) -> None:
        """The invariant; for tests."""
        assert self._partitions.keys() == self._due_ms.keys()
        assert all(self._partitions.values())
        assert self._interval_of == {
            partition: interval
            for interval, partitions in self._partitions.items()
            for partition in partitions
        }


def suspects(
    partitions: Iterable[Partition], waiting: Mapping[Partition, Waiting]
) -> list[tuple[Partition, ParkedRead, int]]:
    """Parked reads that the head has passed (with the head they know), or that are broken."""
    found: list[tuple[Partition, ParkedRead, int]] = []
    find = waiting.get
    for partition in partitions:
        here = find(partition)
        if here is not None and here.low < partition.high_watermark:
            head = partition.high_watermark
            here.measure()
            for read, evaluated in here.reads.items():
                if evaluated < head or read.broken:
                    found.append((partition, read, evaluated))
    return found


def still_forgotten(
    partition: Partition, read: ParkedRead, evaluated: int, waiting: Mapping[Partition, Waiting]
) -> bool:
    """One turn later: nobody has woken it meanwhile, and its client takes answers."""
    here = waiting.get(partition)
    return (
        here is not None
        and here.reads.get(read) == evaluated
        and (evaluated < partition.high_watermark or read.broken)
        and not read.paused
    )
