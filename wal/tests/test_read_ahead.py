"""Read ahead of an open log: a cold reader finds the next chunk fetched."""

from __future__ import annotations

from dataclasses import replace

from ister.wal.settings import MiB
from ister.wal.tests.harness import SMALL, Harness
from ister.wal.tier.chunk_cache import CHUNK_BYTES

SETTINGS = replace(
    SMALL,
    journal_file_bytes=8 * MiB,
    journal_first_file_bytes=4 * MiB,
    commit_bytes_max=MiB,
    handoff_bytes=8 * MiB,
    cache_bytes=0,
)


def tiered() -> Harness:
    """Three chunks in the bucket and nothing here."""
    harness = Harness(settings=SETTINGS).open()
    for _ in range(3 * CHUNK_BYTES // 60_000):
        harness.append(bytes(60_000))
        harness.run()
    for _ in range(4):
        harness.tick(61)
    assert harness.partition().tiered_end == harness.partition().high_watermark
    assert harness.errors == []
    return harness


def test_the_next_chunk_is_there_before_it_is_asked_for() -> None:
    """Fetched in the READ lane behind the read that came near it."""
    harness = tiered()
    cache = harness.opened.tier.cache
    harness.read(0, 1000)
    fetched = cache.misses
    second = CHUNK_BYTES // 60_000 + 1
    chunk = harness.read(second, 1000)
    assert chunk.source == "bucket"
    assert chunk.first_offset == second
    assert cache.misses == fetched + 1  # the third, ahead of its reader


def test_a_log_that_closes_fetches_nothing_more() -> None:
    """The lanes come to their end."""
    harness = tiered()
    harness.read(0, 1000)
    spawn = harness.opened.tier._spawn
    assert spawn is not None
    harness.close()
    ran: list[bool] = []
    spawn(lambda: ran.append(True))
    harness.run()
    assert ran == []
