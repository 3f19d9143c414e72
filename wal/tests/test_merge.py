"""Merging: few entries, the same bytes, whatever fails."""

from __future__ import annotations

import pytest

from ister.wal.errors import Fenced, StorageError
from ister.wal.merge import ENTRIES_SLACK, choose, merge
from ister.wal.tests.handoff_kit import TOPIC, TinyLog, bucket_manifest, check_nothing_lost
from ister.wal.tier.chunk_cache import TierReader
from ister.wal.tier.manifest import Entry, Hole
from ister.wal.tier.moves import Versioned, load
from ister.wal.tier.object_store import StoreUnavailable
from ister.wal.tier.owner import claim
from ister.wal.tier.tests.dict_store import Crash, DictStore
from ister.wal.tier.tests.sections import make_manifest


def entries_of(sizes: list[int]) -> list[Entry]:
    return [Entry(f"o{n}", 0, size + 200, n, n, 1, size, 0, 0, 0) for n, size in enumerate(sizes)]


def many(store: DictStore, passes: int = ENTRIES_SLACK + 4) -> TinyLog:
    log = TinyLog(store)
    for _ in range(passes):
        log[0].append([2, 1])
        log.hand_off()
    return log


def known_of(log: TinyLog) -> Versioned:
    found = load(log.store.calm(), TOPIC, 0)
    assert found is not None
    return found


def test_short_manifests_are_left_alone() -> None:
    """Up to bytes / target and a constant, nothing is copied."""
    assert choose(make_manifest(entries_of([10] * ENTRIES_SLACK)), 1000) is None
    large = entries_of([1000] * 10 + [10] * ENTRIES_SLACK)
    assert choose(make_manifest(large), 1000) is None


def test_the_cheapest_neighbours_go_first() -> None:
    """Small ones are merged, the large one beside them is not copied."""
    row = choose(make_manifest(entries_of([900_000] + [10] * 20)), 1_000_000)
    assert row is not None
    assert [entry.first_offset for entry in row] == list(range(1, 21))


def test_nothing_is_merged_across_a_hole() -> None:
    """A section is contiguous, so a hole stays between two entries."""
    entries = entries_of([10] * 20)
    shifted = [
        Entry(e.object, 0, e.size, e.first_offset + 5, e.last_offset + 5, 1, e.data_size, 0, 0, 0)
        for e in entries[12:]
    ]
    manifest = make_manifest([*entries[:12], *shifted], holes=(Hole(12, 16, "x"),))
    row = choose(manifest, 1000)
    assert row is not None
    assert [entry.first_offset for entry in row] == list(range(12))


@pytest.mark.parametrize("sizes", [[7] * 300, [900, 10] * 60, [400, 600, 30, 5] * 40])
def test_the_bound_holds(sizes: list[int]) -> None:
    """Merged until nothing is left to merge: at most bytes / target and the constant."""
    target = 1000
    entries = entries_of(sizes)
    for _ in range(1000):
        manifest = make_manifest(entries)
        row = choose(manifest, target)
        if row is None:
            break
        at = entries.index(row[0])
        size = sum(entry.data_size for entry in row)
        first, last = row[0].first_offset, row[-1].last_offset
        entries[at : at + len(row)] = [
            Entry(f"m{first}", 0, size + 200, first, last, last - first + 1, size, 0, 0, 0)
        ]
    assert len(entries) <= sum(sizes) // target + ENTRIES_SLACK


def test_copying_stays_moderate() -> None:
    """A quiet partition: the bytes that are copied in all are a few times what was handed over."""
    entries: list[Entry] = []
    copied = 0
    for n in range(3000):
        entries.append(Entry(f"o{n}", 0, 300, n, n, 1, 100, 0, 0, 0))
        row = choose(make_manifest(entries), 10**9)
        if row is not None:
            at = entries.index(row[0])
            size = sum(entry.data_size for entry in row)
            copied += size
            first, last = row[0].first_offset, row[-1].last_offset
            merged = Entry(f"m{n}", 0, size + 200, first, last, last - first + 1, size, 0, 0, 0)
            entries[at : at + len(row)] = [merged]
    assert copied < 40 * 3000 * 100


def test_a_merge_keeps_every_byte() -> None:
    """One object of its own with the same batches, the last producer state, the old ones doomed."""
    store = DictStore()
    log = many(store)
    before = known_of(log)
    moved = merge(log.handoff, TierReader(store), before)
    assert moved.manifest == bucket_manifest(store, (TOPIC, 0))
    assert len(moved.manifest.entries) < len(before.manifest.entries)
    assert moved.manifest.tiered_end == before.manifest.tiered_end
    assert len(moved.manifest.to_delete) > ENTRIES_SLACK - 2
    merged = moved.manifest.entries[0]
    assert merged.object.startswith("segments/")
    section = TierReader(store).section(moved.manifest, merged)
    assert section.producers == f"at {merged.last_offset}".encode()
    check_nothing_lost(log)


@pytest.mark.parametrize("fault", ["before", "lost", "crash-before", "crash-after"])
def test_any_call_of_a_merge_may_fail(fault: str) -> None:
    """The old entries or the new one: nothing between, and the next try finishes."""
    probe = DictStore()
    log = many(probe)
    probe.reset()
    merge(log.handoff, TierReader(probe), known_of(log))
    calls = len(probe.calls)
    for fail_at in range(calls):
        store = DictStore()
        log = many(store)
        store.reset(fail_at, fault)
        try:
            merge(log.handoff, TierReader(store), known_of(log))
        except StoreUnavailable:
            pass
        except Crash:
            log.restart()
        check_nothing_lost(log)
        store.reset()
        merge(log.handoff, TierReader(store), known_of(log))
        check_nothing_lost(log)
        assert choose(bucket_manifest(store, (TOPIC, 0)), log.target_bytes) is None


def test_a_stale_manifest_heals() -> None:
    """Merged already, with a lost reply: the second merge ends with what is in the bucket."""
    store = DictStore()
    log = many(store)
    stale = known_of(log)
    merged = merge(log.handoff, TierReader(store), stale)
    assert merge(log.handoff, TierReader(store), stale) == merged
    assert bucket_manifest(store, (TOPIC, 0)) == merged.manifest


def test_a_fenced_run_does_not_merge() -> None:
    """The owner is checked when the merged object is up."""
    store = DictStore()
    log = many(store)
    claim(store, "newer", 0)
    with pytest.raises(Fenced):
        merge(log.handoff, TierReader(store), known_of(log))
    check_nothing_lost(log)


def test_a_part_that_is_gone_stops_the_merge() -> None:
    """What cannot be read is not replaced."""
    store = DictStore()
    log = many(store)
    before = known_of(log)
    row = choose(before.manifest, log.target_bytes)
    assert row is not None
    del store.objects[row[3].object]
    with pytest.raises(StorageError):
        merge(log.handoff, TierReader(store), before)
    assert bucket_manifest(store, (TOPIC, 0)) == before.manifest
