"""Memory stays flat however much is appended while the bucket is down.

The index of a sealed file goes beside it on the disk and leaves memory, so what is kept is
that of the open file, the cache, and a few numbers for each file and partition.
"""

from __future__ import annotations

import gc
import os
import random
import sys
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest

from ister.wal.fs import OsFileSystem
from ister.wal.log import Moment
from ister.wal.opening import TopicInfo
from ister.wal.settings import TopicSettings
from ister.wal.tests.batches import make_batch
from ister.wal.tests.crash_kit import LONG
from ister.wal.tests.harness import SMALL, TOPIC, Harness
from ister.wal.tier.faulty import FaultyStore
from ister.wal.tier.memory import MemoryStore

MiB = 1024 * 1024
BATCHES = 50_000_000 if LONG else 60_000
PARTITIONS = 50
COMMIT = 1000  # batches
SETTINGS = replace(
    SMALL,
    journal_file_bytes=64 * MiB if LONG else MiB // 4,
    journal_first_file_bytes=MiB // 4,
    commit_bytes_max=MiB // 4,
    cache_bytes=MiB // 4,
)
INDEX_BYTES = 28  # of one batch in memory, at least
GROWTH_MAX = (
    32 * MiB if LONG else MiB * 3 // 8
)  # far below what the index of all batches would take


def used_bytes() -> int:
    """Of this process (LONG: counting every allocation would take hours), or of its objects."""
    gc.collect()
    if not LONG:
        return tracemalloc.get_traced_memory()[0]
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def append_many(harness: Harness, count: int) -> None:
    partitions = [harness.partition(index) for index in range(PARTITIONS)]
    data = make_batch([b""], base_timestamp=harness.clock.wall_ms())
    for number in range(count):
        partition = partitions[number % PARTITIONS]
        harness.log.append(partition, data, Moment.DURABLE, lambda _: None)
        if number % COMMIT == COMMIT - 1:
            harness.tick(0.01)


@pytest.mark.fault
@pytest.mark.timeout(7200 if LONG else 120)
@pytest.mark.skipif(LONG and sys.platform != "linux", reason="/proc")
def test_memory_does_not_follow_the_backlog(tmp_path: Path) -> None:
    """Many small batches, nothing handed over: the same memory at a quarter and at the end."""
    bucket = FaultyStore(MemoryStore(), random.Random(1))
    bucket.down()
    harness = Harness(
        OsFileSystem(),
        data=str(tmp_path / "data"),
        bucket=bucket,
        settings=SETTINGS,
        topics=[TopicInfo(TOPIC, "t", PARTITIONS, TopicSettings())],
    ).open()
    if not LONG:
        tracemalloc.start()
    try:
        append_many(harness, BATCHES // 4)
        before, files = used_bytes(), len(harness.log.sealed)
        append_many(harness, BATCHES - BATCHES // 4)
        grown = used_bytes() - before
    finally:
        if not LONG:
            tracemalloc.stop()
    assert len(harness.log.sealed) > files + 5
    assert harness.service.backlog_bytes > BATCHES * 69
    assert sum(harness.partition(n).high_watermark for n in range(PARTITIONS)) == BATCHES
    assert grown < GROWTH_MAX < INDEX_BYTES * BATCHES // 4
    harness.close()
