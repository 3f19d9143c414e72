"""What a partition, a parked position and a head cost.

python -m bench.footprint
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable

from ister.wal.partition import Partition
from ister.wal.settings import LogSettings, TopicSettings
from ister.wal.tests.harness import Harness

IDLE_PARTITIONS = 10_000
CATCHING_UP = 100


def bytes_each(count: int, make: Callable[[int], object]) -> float:
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    kept = [make(number) for number in range(count)]
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    del kept
    return used / count


def microseconds_each(count: int, call: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(5):
        started = time.perf_counter()
        for _ in range(count):
            call()
        best = min(best, time.perf_counter() - started)
    return best / count * 1e6


def main() -> None:
    settings = TopicSettings()
    idle = bytes_each(IDLE_PARTITIONS, lambda n: Partition(bytes(16), n, settings))
    print(f"idle partition: {idle:.0f} bytes (goal below 2048)")
    harness = Harness(settings=LogSettings(journal_first_file_bytes=64 << 20)).open()
    for _ in range(2000):
        harness.append(bytes(900))
    harness.run()
    partition = harness.partition()
    head = microseconds_each(100_000, lambda: partition.high_watermark)
    print(f"reading a head: {head:.3f} us (goal below 1)")
    latest = microseconds_each(
        10_000, lambda: harness.log.read_now(partition, partition.high_watermark, 1 << 20)
    )
    print(f"opening a reader at Latest: {latest:.2f} us (goal below 100)")
    reader = bytes_each(CATCHING_UP, lambda n: harness.log.read_now(partition, n, 1 << 20))
    print(
        f"a reader catching up from the cache, with its megabyte: {reader:.0f} bytes (goal 102400)"
    )


if __name__ == "__main__":
    main()
