"""Sweeping: everything that nothing names goes, nothing that something names."""

from __future__ import annotations

import pytest

from ister.wal.errors import Fenced
from ister.wal.merge import merge
from ister.wal.sweep import forget_tombstone, sweep_doomed, sweep_orphans
from ister.wal.tests.handoff_kit import TOPIC, TinyLog, bucket_manifest, check_nothing_lost
from ister.wal.tests.test_merge import known_of, many
from ister.wal.tier.chunk_cache import TierReader
from ister.wal.tier.moves import Versioned, load
from ister.wal.tier.object_store import StoreUnavailable
from ister.wal.tier.owner import claim
from ister.wal.tier.tests.dict_store import Crash, DictStore

GRACE_S = 1.0


def names_in_use(store: DictStore) -> set[str]:
    used: set[str] = set()
    for register in store.calm().registers("manifests/"):
        _, topic, partition = register.split("/")
        manifest = bucket_manifest(store, (bytes.fromhex(topic), int(partition)))
        used |= manifest.objects | {line.object for line in manifest.to_delete}
    return used


def known(log: TinyLog, partition: int) -> Versioned:
    found = load(log.store.calm(), TOPIC, partition)
    assert found is not None
    return found


def test_what_a_merge_replaced_goes_after_the_grace() -> None:
    """Readers of the older manifest have their time; then objects and lines go."""
    store = DictStore()
    log = many(store)
    moved = merge(log.handoff, TierReader(store), known_of(log))
    doomed = {line.object for line in moved.manifest.to_delete}
    assert sweep_doomed(log.handoff, moved) == moved
    assert sweep_orphans(log.handoff).deleted == 0
    assert doomed <= set(store.objects)
    log.clock.advance(GRACE_S)
    moved = sweep_doomed(log.handoff, moved)
    assert moved.manifest.to_delete == ()
    sweep_orphans(log.handoff)
    assert set(store.objects) == moved.manifest.objects
    check_nothing_lost(log)


def test_a_shared_object_goes_with_the_last_manifest_that_names_it() -> None:
    """One partition drops its line; the other one can still read."""
    store = DictStore()
    log = TinyLog(store, partitions=2)
    log[0].append([3])
    log[1].append([3])
    log.hand_off()
    (name,) = store.objects
    log[0].log_start = 3
    log.hand_off()
    log.clock.advance(GRACE_S)
    assert sweep_doomed(log.handoff, known(log, 0)).manifest.to_delete == ()
    assert sweep_orphans(log.handoff).deleted == 0
    check_nothing_lost(log)
    log[1].log_start = 3
    for partition in log.partitions.values():
        partition.version = -1
    log.hand_off()
    assert sweep_orphans(log.handoff).deleted == 0  # its line is there until the grace ends
    log.clock.advance(GRACE_S)
    sweep_doomed(log.handoff, known(log, 1))
    assert name in store.objects
    assert sweep_orphans(log.handoff).deleted == 1
    assert not store.objects


def test_orphans_of_an_older_run_go_and_its_late_move_fails() -> None:
    """Fence, look again, delete: a swap of the dead run that lands afterwards changes nothing."""

    class Held(DictStore):
        held: tuple[str, bytes, int] | None = None
        hold = False

        def swap(self, name: str, value: bytes, expected: int) -> int:
            if self.hold and name.startswith("manifests/"):
                self.held, self.hold = (name, value, expected), False
                raise Crash("while the request is on its way")
            return super().swap(name, value, expected)

    store = Held()
    log = TinyLog(store)
    log[0].append([3])
    log.hand_off()
    log[0].append([3])
    store.hold = True
    with pytest.raises(Crash):
        log.hand_off()
    log.restart()
    assert sweep_orphans(log.handoff).deleted == 1
    assert store.held is not None
    with pytest.raises(Exception, match="manifests"):
        store.swap(*store.held)
    check_nothing_lost(log)
    log.hand_off()
    check_nothing_lost(log)
    assert set(store.objects) == names_in_use(store)


def test_an_orphan_without_a_manifest_waits() -> None:
    """A first move of an older run may be on its way: only time tells."""
    store = DictStore()
    log = TinyLog(store)
    log[0].append([3])
    store.reset(fail_at=7, fault="crash-before")  # the swap of the manifest
    with pytest.raises(Crash):
        log.hand_off()
    assert len(store.objects) == 1
    log.restart()
    swept = sweep_orphans(log.handoff)
    assert (swept.deleted, swept.kept) == (0, 1)  # a bucket that does not say how old it is
    store.created_ms = log.clock.wall_ms()
    swept = sweep_orphans(log.handoff)
    assert (swept.deleted, swept.kept) == (0, 1)
    log.clock.advance(GRACE_S)
    assert sweep_orphans(log.handoff).deleted == 1


def test_what_is_not_ours_stays() -> None:
    """Names of another form and objects of a newer run are not touched."""
    store = DictStore()
    log = TinyLog(store)
    log[0].append([3])
    log.hand_off()
    others = ["segments/readme", "shared/0000000009-0000000001", "shared/x", "else/1-2"]
    for name in others:
        store.objects[name] = b"x"
    sweep_orphans(log.handoff)
    assert set(others) <= set(store.objects)


def test_a_fenced_run_deletes_nothing() -> None:
    """The owner is asked before anything is deleted."""
    store = DictStore()
    log = many(store)
    moved = merge(log.handoff, TierReader(store), known_of(log))
    log.clock.advance(GRACE_S)
    claim(store, "newer", 0)
    before = set(store.objects)
    with pytest.raises(Fenced):
        sweep_doomed(log.handoff, moved)
    with pytest.raises(Fenced):
        sweep_orphans(log.handoff)
    assert set(store.objects) == before


def test_a_deleted_topic_leaves_nothing() -> None:
    """Tombstone, then objects, then the tombstone itself."""
    store = DictStore()
    log = TinyLog(store)
    log[0].append([3], size=2_000_000)
    log.hand_off()
    buried = log.handoff.bury(TOPIC, "orders", 0)
    assert not forget_tombstone(log.handoff, TOPIC, 0)
    log.clock.advance(GRACE_S)
    sweep_doomed(log.handoff, buried)
    assert forget_tombstone(log.handoff, TOPIC, 0)
    assert forget_tombstone(log.handoff, TOPIC, 0)
    assert not store.objects
    assert not any(name.startswith("manifests/") for name in store.values)


def test_tombstones_that_nobody_remembers_are_swept() -> None:
    """After a restore the metadata may not know the topic any more: its objects go all the same."""
    store = DictStore()
    log = TinyLog(store)
    log[0].append([3], size=2_000_000)
    log.hand_off()
    log.handoff.bury(TOPIC, "orders", 0)
    log.restart()
    sweep_orphans(log.handoff)
    assert len(store.objects) == 1
    log.clock.advance(GRACE_S)
    sweep_orphans(log.handoff)
    assert not store.objects


def life(log: TinyLog) -> None:
    """Handoffs, a merge, a trim, sweeps: everything that writes to a bucket."""
    log.hand_off()
    merge(log.handoff, TierReader(log.store), known_of(log))
    log[0].version = -1
    log[0].log_start = max(log[0].log_start, 30)
    log.hand_off()
    log.clock.advance(GRACE_S)
    sweep_doomed(log.handoff, known_of(log))
    sweep_orphans(log.handoff)


@pytest.mark.parametrize("fault", ["before", "lost", "crash-before", "crash-after"])
def test_any_call_of_a_whole_life_may_fail(fault: str) -> None:
    """Whatever fails, nothing is lost; and when all is well again, nothing is left over."""
    probe = DictStore()
    log = many(probe)
    log[0].append([2])
    probe.reset()
    life(log)
    for fail_at in range(len(probe.calls)):
        store = DictStore()
        log = many(store)
        log[0].append([2])
        store.reset(fail_at, fault)
        for _ in range(3):
            try:
                life(log)
            except StoreUnavailable:
                log[0].version = -1
            except Crash:
                log.restart()
            check_nothing_lost(log)
        assert bucket_manifest(store, (TOPIC, 0)).log_start == 30
        assert set(store.objects) == bucket_manifest(store, (TOPIC, 0)).objects
