"""What a partition, a parked reader, a reader of the cache and a head cost.

python -m bench.footprint
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from itertools import count

from ister.dispatch.parked import ParkedRead
from ister.dispatch.tests.kit import Bench
from ister.wal.partition import Partition
from ister.wal.settings import LogSettings, TopicSettings
from ister.wal.tests.harness import TOPIC, Harness

IDLE_PARTITIONS = 10_000
READERS = 100  # at once


class Waiting(ParkedRead):
    """A reader at the head of one partition, as small as one can be."""

    def __init__(self, partition: Partition) -> None:
        super().__init__("consumer-1", "127.0.0.1")
        self.partitions = (partition,)
        self.heads = (partition.high_watermark,)
        self.deadline = 1e9


def bytes_each(times: int, make: Callable[[int], object]) -> float:
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    kept = [make(number) for number in range(times)]
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    del kept
    return used / times


def microseconds_each(times: int, call: Callable[[], object]) -> float:
    """The best of five rounds."""
    best = float("inf")
    for _ in range(5):
        started = time.perf_counter()
        for _ in range(times):
            call()
        best = min(best, time.perf_counter() - started)
    return best / times * 1e6


def measure() -> None:
    harness = Harness(settings=LogSettings(journal_first_file_bytes=64 << 20)).open()
    log = harness.log
    numbers = count(10)
    idle = bytes_each(
        IDLE_PARTITIONS, lambda _: log.add_partitions(TOPIC, [next(numbers)], TopicSettings())
    )
    print(f"an idle partition: {idle:.0f} bytes (goal below 2048)")
    for _ in range(2000):
        harness.append(bytes(900))
    harness.run()
    partition = harness.partition()
    parked = Bench(parked_max=1 << 20).parked
    waiting = bytes_each(READERS, lambda _: (read := Waiting(partition), parked.park(read)))
    print(f"a parked reader, {READERS} at once: {waiting:.0f} bytes (goal below 4096)")
    reader = bytes_each(READERS, lambda n: log.read_now(partition, n, 1 << 20))
    print(
        f"a reader catching up from the cache with its megabyte, {READERS} at once: "
        f"{reader:.0f} bytes (goal below 102400)"
    )
    head = microseconds_each(100_000, lambda: partition.high_watermark)
    print(f"reading a head: {head:.3f} us (goal below 1)")

    def open_at_latest() -> None:
        at = partition.high_watermark
        assert log.read_now(partition, at, 1 << 20) is not None
        parked.park(Waiting(partition))

    latest = microseconds_each(READERS, open_at_latest)
    print(f"opening a reader at Latest, {READERS} at once: {latest:.1f} us (goal below 100)")


if __name__ == "__main__":
    measure()
