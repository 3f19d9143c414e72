"""The cache of recent batches: references, whole batches, bounded in bytes."""

from __future__ import annotations

import random

from ister.wal.cache import Cache, CachedRun, weight_of


def filled(count: int, size: int = 10) -> CachedRun:
    run = CachedRun()
    for number in range(count):
        run.add(2 * number, 2 * number + 2, b"%04d" % number + bytes(size - 4))
    return run


def test_reads_whole_batches_from_the_one_that_holds_the_offset() -> None:
    """The first one even when it is larger than max_bytes."""
    run = filled(5)
    assert run.read(3, 1, 100) == ([run.buffers[1]], 10, 2, 4)
    assert run.read(3, 29, 100) == (run.buffers[1:3], 20, 2, 6)
    assert run.read(0, 1000, 100) == (run.buffers, 50, 0, 10)


def test_nothing_at_or_above_the_bound() -> None:
    """A reader stops at the high watermark."""
    run = filled(5)
    assert run.read(2, 1000, 6) == (run.buffers[1:3], 20, 2, 6)
    assert run.read(10, 1000, 100) is None


def test_an_evicted_offset_needs_a_colder_source() -> None:
    """None, and never the batch behind it."""
    run = filled(5)
    run.evict_first()
    assert run.read(1, 1000, 100) is None
    assert run.read(2, 1000, 100) is not None


def test_sizes_stay_right_when_evicted_places_are_given_back() -> None:
    """The running sum goes on over what has left the lists."""
    run = filled(600)
    for _ in range(400):
        run.evict_first()
    assert len(run.buffers) < 600
    assert run.read(800, 35, 10_000) == (run.buffers[-200:-197], 30, 800, 806)
    for _ in range(200):
        run.evict_first()
    run.add(1200, 1202, b"last")
    assert run.read(1201, 100, 10_000) == ([b"last"], 4, 1200, 1202)


def test_the_oldest_commits_go_first_and_the_bound_holds() -> None:
    """Whole commits, in the order in which they came, against a plain model."""
    rng = random.Random(4)
    cache = Cache(2000)
    runs = [CachedRun(), CachedRun(), CachedRun()]
    kept: list[list[tuple[CachedRun, int, bytes]]] = []
    for number in range(3000):
        commit = []
        for run in rng.sample(runs, rng.randint(1, 3)):
            data = b"%06d" % number + bytes(rng.randrange(100))
            base = run.next_offset
            run.add(base, base + 1, data)
            commit.append((run, base, data))
        kept.append(commit)
        cache.add_commit([run for run, _, _ in commit], sum(len(d) for _, _, d in commit))
        while sum(len(data) for commit in kept for _, _, data in commit) > 2000:
            for run, base, _ in kept.pop(0):
                assert run.read(base, 1, 1 << 60) is None
        assert cache.bytes == sum(len(data) for commit in kept for _, _, data in commit)
    for commit in kept:
        for run, base, data in commit:
            assert run.read(base, 1, 1 << 60) == ([data], len(data), base, base + 1)
    cache.evict_all()
    assert cache.bytes == 0
    assert all(run.read(run.next_offset - 1, 1, 1 << 60) is None for run in runs)


def test_a_view_weighs_what_it_pins() -> None:
    """A small view of a large buffer keeps all of it."""
    assert weight_of(memoryview(bytes(1000))[:10]) == 1000
    assert weight_of(memoryview(bytearray(1000))[:10]) == 1000
    assert weight_of(bytes(10)) == 10
