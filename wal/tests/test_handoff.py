"""Handoff: what is trimmed is in the bucket, whatever fails, dies or comes twice."""

from __future__ import annotations

import pytest

from ister.wal.errors import Contradiction, Damaged, Fenced, StorageError
from ister.wal.handoff_plan import PartitionMove, SealedRun, clip, plan
from ister.wal.tests.handoff_kit import (
    TOPIC,
    TinyLog,
    bucket_manifest,
    check_nothing_lost,
    sealed_run,
)
from ister.wal.tier.manifest import EpochStart
from ister.wal.tier.moves import PartitionDropped
from ister.wal.tier.tests.dict_store import Crash, DictStore

OBJECTS_OF_A_PASS = 2


def filled(store: DictStore, *, partitions: int = 3) -> TinyLog:
    """Some small partitions, and one that is large enough for an object of its own."""
    log = TinyLog(store, partitions)
    for index in range(partitions):
        log[index].append([2, 1])
        log[index].append([3])
    log[0].append([1] * 3, size=2_000_000)
    return log


# -- planning --------------------------------------------------------------------


def a_move(partition: int, *runs: SealedRun) -> PartitionMove:
    return PartitionMove(TOPIC, "orders", partition, 0, 10**6, runs=runs)


def test_large_tails_get_their_own_object_and_small_ones_share() -> None:
    """Own objects from a threshold on; the rest fills shared objects up to the target."""
    moves = [
        a_move(0, sealed_run(0, [1], size=5_000)),
        a_move(1, sealed_run(0, [1], size=50)),
        a_move(2, sealed_run(0, [1], size=60)),
        a_move(3, sealed_run(0, [1], size=800)),
    ]
    planned = plan(moves, target_bytes=1000, own_bytes=4000)
    shape = [(item.own, [piece.move.partition for piece in item.pieces]) for item in planned]
    assert shape == [(True, [0]), (False, [1, 2]), (False, [3])]


def test_runs_join_up_to_the_target_and_never_across_a_gap() -> None:
    """One section for runs that follow each other; a hole or the target size ends it."""
    runs = [sealed_run(0, [1], size=300), sealed_run(1, [1], size=300)]
    runs += [sealed_run(5, [1], size=300), sealed_run(6, [1], size=900)]
    planned = plan([a_move(0, *runs)], target_bytes=1000, own_bytes=1)
    pieces = [(item.pieces[0].first_offset, item.pieces[0].last_offset) for item in planned]
    assert pieces == [(0, 1), (5, 5), (6, 6)]


def test_a_run_is_clipped_at_a_batch() -> None:
    """What is in the bucket already is not sent again."""
    run = sealed_run(0, [2, 2, 2, 2])
    for end in (0, 2, 4, 6):
        clipped = clip(run, end)
        assert clipped is not None
        entries = [entry for _, part in clipped.read() for entry in part]
        assert [entry[0] for entry in entries] == list(range(end, 8, 2))
        sizes = sum(len(buffer) for buffer, _ in clipped.read())
        assert sizes == sum(entry[2] for entry in entries)
    assert clip(run, 8) is None


# -- one pass --------------------------------------------------------------------


def test_a_pass_moves_every_partition() -> None:
    """Everything given is in the bucket, named by manifests with the owner's epoch."""
    store = DictStore()
    log = filled(store)
    result = log.hand_off()
    assert result.error is None
    assert result.objects == len(store.objects) == OBJECTS_OF_A_PASS
    assert [log[index].manifest.tiered_end for index in range(3)] == [9, 6, 6]  # type: ignore[union-attr]
    assert all(not partition.runs for partition in log.partitions.values())
    assert log[1].manifest == bucket_manifest(store, (TOPIC, 1))
    assert log[1].manifest.owner_epoch == 1
    check_nothing_lost(log)


def test_the_next_pass_needs_no_reading() -> None:
    """A manifest that this run moved is known: one put, one check of the owner, one swap."""
    store = DictStore()
    log = filled(store, partitions=1)
    log.hand_off()
    log[0].append([4])
    store.reset()
    log.hand_off()
    assert [operation for operation, _ in store.calls] == ["put", "read", "swap"]
    check_nothing_lost(log)


def test_nothing_new_costs_nothing() -> None:
    """A pass without anything to say does not touch the bucket."""
    store = DictStore()
    log = filled(store)
    log.hand_off()
    store.reset()
    log.hand_off()
    assert store.calls == []


def test_holes_log_start_and_epochs_come_along() -> None:
    """A known hole explains a gap; a log start alone is a move too."""
    store = DictStore()
    log = TinyLog(store)
    log[0].append([5])
    log[0].lose(3)
    log[0].epochs = (EpochStart(0, 0), EpochStart(1, 8))
    log[0].append([2])
    log.hand_off()
    manifest = bucket_manifest(store, (TOPIC, 0))
    assert [(e.first_offset, e.last_offset) for e in manifest.entries] == [(0, 4), (8, 9)]
    assert (manifest.holes, manifest.leader_epochs) == (log[0].holes, log[0].epochs)
    log[0].log_start = 6
    log.hand_off()
    manifest = bucket_manifest(store, (TOPIC, 0))
    assert (manifest.log_start, len(manifest.entries), manifest.to_delete) == (6, 1, ())
    log[0].log_start = 10
    log.hand_off()
    assert len(bucket_manifest(store, (TOPIC, 0)).to_delete) == 1
    check_nothing_lost(log)


def test_what_lies_below_the_log_start_is_not_uploaded() -> None:
    """Runs that were deleted before they were handed over leave no trace and no gap."""
    store = DictStore()
    log = TinyLog(store)
    log[0].append([5])
    log.hand_off()
    log[0].append([5])
    log[0].append([5])
    log[0].log_start = 12
    log.hand_off()
    manifest = bucket_manifest(store, (TOPIC, 0))
    assert [(e.first_offset, e.last_offset) for e in manifest.entries] == [(10, 14)]
    check_nothing_lost(log)


# -- faults ----------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["before", "lost", "crash-before", "crash-after"])
def test_any_call_may_fail_or_be_the_last(fault: str) -> None:
    """Each call of two passes once refused, once without a reply, once the last of a process."""
    probe = filled(DictStore())
    probe.hand_off()
    probe[1].append([7])
    probe.hand_off()
    calls = len(probe.store.calls)
    assert calls > 10
    for fail_at in range(calls):
        store = DictStore()
        log = filled(store)
        store.reset(fail_at, fault)
        for number in range(5):
            if number == 1:
                log[1].append([7])
            try:
                log.hand_off()
            except Crash:
                log.restart()
            check_nothing_lost(log)
        assert [log[index].manifest.tiered_end for index in range(3)] == [9, 13, 6]  # type: ignore[union-attr]
        assert all(not partition.errors for partition in log.partitions.values())
        if fault == "lost" and store.calls[fail_at][0] == "put":  # known as ours: nothing twice
            assert len(store.objects) == OBJECTS_OF_A_PASS + 1


def test_a_412_is_success_only_with_the_same_bytes() -> None:
    """Somebody else's bytes under our name: a new attempt number, the old object untouched."""
    store = DictStore()
    log = TinyLog(store)
    log[0].append([5])
    name = "shared/0000000001-0000000001"
    store.objects[name] = b"not ours"
    log.hand_off()
    assert store.objects[name] == b"not ours"
    assert [e.object for e in bucket_manifest(store, (TOPIC, 0)).entries] == [name[:-1] + "2"]
    check_nothing_lost(log)


def test_same_length_or_longer_is_not_the_same() -> None:
    """The checksum decides: a flipped byte or one byte more is a new attempt."""
    good = DictStore()
    log = TinyLog(good)
    log[0].append([5])
    log.hand_off()
    (name, data) = next(iter(good.objects.items()))
    for other in (data[:-1] + b"?", data + b"?", data[:-1], b""):
        store = DictStore()
        store.objects[name] = other
        log = TinyLog(store)
        log[0].append([5])
        log.hand_off()
        check_nothing_lost(log)
        assert bucket_manifest(store, (TOPIC, 0)).entries[0].object != name


def test_a_move_that_lands_late_is_found() -> None:
    """A swap that was on its way when it was given up lands later: nothing is doubled or lost."""

    class Delayed(DictStore):
        held: tuple[str, bytes, int] | None = None
        hold = False

        def swap(self, name: str, value: bytes, expected: int) -> int:
            if self.hold and name.startswith("manifests/"):
                self.hold = False
                self.held = (name, value, expected)
                raise StorageUnavailableError("timed out")
            if self.held is not None and name.startswith("manifests/"):
                held, self.held = self.held, None
                super().swap(*held)
            return super().swap(name, value, expected)

    from ister.wal.tier.object_store import StoreUnavailable as StorageUnavailableError

    store = Delayed()
    log = TinyLog(store)
    log[0].append([5])
    store.hold = True
    assert log.hand_off().error is not None
    assert not all(log.handoff.is_settled(name) for name in store.objects)
    log[0].append([4])
    for _ in range(2):
        log.hand_off()
        check_nothing_lost(log)
    assert bucket_manifest(store, (TOPIC, 0)).tiered_end == 9
    assert all(log.handoff.is_settled(name) for name in store.objects)


def test_an_older_run_is_fenced() -> None:
    """Two owners: the newer one goes on, the older one stops and changes nothing."""
    store = DictStore()
    old = filled(store)
    old.hand_off()
    new = TinyLog(store, partitions=3)
    new.runs = 10
    new.partitions = old.partitions
    new.restart()
    new[1].append([2])
    new.hand_off()
    before = (dict(store.values), set(store.objects))
    new[1].append([2])
    for partition in old.partitions.values():
        partition.version = -1
    with pytest.raises(Fenced):
        old.hand_off()
    assert store.values == before[0]


def test_a_claim_between_upload_and_move_fences() -> None:
    """The owner is asked again when the object is up, before the first manifest moves."""

    class Stolen(DictStore):
        steal = False

        def put(self, name, chunks):
            super().put(name, chunks)
            if self.steal:
                from ister.wal.tier.owner import claim

                claim(self, "thief", 0)

    store = Stolen()
    log = TinyLog(store)
    log[0].append([5])
    store.steal = True
    with pytest.raises(Fenced):
        log.hand_off()
    assert "manifests" not in "".join(store.values)


def test_a_tombstone_is_never_replaced() -> None:
    """A handoff that comes after the deletion drops the partition and leaves the tombstone."""
    store = DictStore()
    log = filled(store)
    log.hand_off()
    log[1].append([4])
    log.handoff.bury(TOPIC, "orders", 1)
    log.handoff.bury(TOPIC, "orders", 1)
    log.hand_off()
    assert log[1].dropped
    assert isinstance(log[1].errors[0], PartitionDropped)
    dead = bucket_manifest(store, (TOPIC, 1))
    assert dead.deleted
    assert len(dead.to_delete) == 1
    check_nothing_lost(log)


@pytest.mark.parametrize("fault", ["before", "lost"])
def test_a_burial_may_be_repeated(fault: str) -> None:
    """Whatever call of it fails, the second burial ends in the same tombstone."""
    for fail_at in range(4):
        store = DictStore()
        log = filled(store)
        log.hand_off()
        store.reset(fail_at, fault)
        try:
            log.handoff.bury(TOPIC, "orders", 1)
        except StorageError:
            log.handoff.bury(TOPIC, "orders", 1)
        assert bucket_manifest(store, (TOPIC, 1)).deleted


# -- contradictions --------------------------------------------------------------


def test_a_bucket_that_was_set_back_is_a_contradiction() -> None:
    """Handed over and trimmed, but the manifest does not know it: said, for that one alone."""
    store = DictStore()
    log = filled(store)
    log.hand_off()
    older = store.values[f"manifests/{TOPIC.hex()}/0000000001"]
    log[1].append([4])
    log[2].append([4])
    log.hand_off()
    store.values[f"manifests/{TOPIC.hex()}/0000000001"] = older
    log.restart()
    log[1].append([4])
    log[2].append([4])
    log.hand_off()
    assert isinstance(log[1].errors[0], Contradiction)
    assert not log[2].errors
    assert bucket_manifest(store, (TOPIC, 2)).tiered_end == 14


def test_a_data_directory_older_than_the_bucket_is_a_contradiction() -> None:
    """The bucket knows offsets that this broker never gave: nothing is mixed."""
    store = DictStore()
    log = filled(store)
    log.hand_off()
    other = TinyLog(store)
    other.runs = 20
    other.restart()
    other[0].append([2])
    result = other.hand_off()
    assert isinstance(result.outcomes[(TOPIC, 0)].error, Contradiction)
    assert "restore" in str(other[0].errors[0])


def test_one_unreadable_tail_does_not_stop_the_others() -> None:
    """Damage in the journal of one partition is its own outcome; those it shared with go on."""
    store = DictStore()
    log = filled(store)

    def broken():
        raise Damaged("journal", 7, "a bad frame")
        yield

    good = log[1].runs[0]
    log[1].runs[0] = SealedRun(0, 2, good.size, good.sealed_ms, broken)
    log.hand_off()
    assert isinstance(log[1].errors[0], Damaged)
    assert [log[index].manifest is not None for index in range(3)] == [True, False, True]
    assert len(log[1].runs) == 2
    check_nothing_lost(log)
