"""Snapshots of metadata: the newest sound one comes back, whatever failed while it was written."""

from __future__ import annotations

import pytest

from ister.wal.errors import Damaged, Fenced
from ister.wal.snapshot import KEPT, PREFIX, REGISTER, read_snapshot, write_snapshot
from ister.wal.tests.handoff_kit import TinyLog
from ister.wal.tier.object_store import StoreUnavailable
from ister.wal.tier.owner import claim
from ister.wal.tier.tests.dict_store import Crash, DictStore


def content_of(store: DictStore) -> bytes | None:
    found = read_snapshot(store.calm())
    return found.content if found else None


def test_the_newest_comes_back_with_its_time() -> None:
    """Written, read; a few older ones are kept, the rest is deleted."""
    store = DictStore()
    log = TinyLog(store)
    assert read_snapshot(store) is None
    for number in range(KEPT + 3):
        log.clock.advance(10)
        write_snapshot(log.handoff, b"content %d" % number)
    found = read_snapshot(store)
    assert found is not None
    assert found == (log.clock.wall_ms(), b"content %d" % (KEPT + 2), [])
    assert len(store.objects) == KEPT


def test_the_same_content_only_renews_the_time() -> None:
    """Nothing new is not uploaded again."""
    store = DictStore()
    log = TinyLog(store)
    first = write_snapshot(log.handoff, b"same")
    log.clock.advance(100)
    second = write_snapshot(log.handoff, b"same")
    assert (second.object, second.taken_ms) == (first.object, first.taken_ms + 100_000)
    assert len(store.objects) == 1


@pytest.mark.parametrize("fault", ["before", "lost", "crash-before", "crash-after"])
def test_any_call_may_fail(fault: str) -> None:
    """The old snapshot or the new one is there at every moment; the next try leaves no rest."""
    probe = DictStore()
    log = TinyLog(probe)
    write_snapshot(log.handoff, b"old")
    probe.reset()
    write_snapshot(log.handoff, b"new")
    for fail_at in range(len(probe.calls)):
        store = DictStore()
        log = TinyLog(store)
        write_snapshot(log.handoff, b"old")
        store.reset(fail_at, fault)
        try:
            write_snapshot(log.handoff, b"new")
        except StoreUnavailable:
            pass
        except Crash:
            log.restart()
        assert content_of(store) in (b"old", b"new")
        store.reset()
        write_snapshot(log.handoff, b"newer")
        assert content_of(store) == b"newer"
        named = store.values[REGISTER][0]
        assert all(name.encode() in named for name in store.objects if name.startswith(PREFIX))


def test_a_damaged_snapshot_is_said_and_the_one_before_it_taken() -> None:
    """A flipped byte or a lost object costs one version, not all of them."""
    store = DictStore()
    log = TinyLog(store)
    write_snapshot(log.handoff, b"old")
    newest = write_snapshot(log.handoff, b"new")
    store.objects[newest.object] = b"nex"
    found = read_snapshot(store)
    assert found is not None
    assert found.content == b"old"
    assert len(found.damages) == 1
    store.objects.clear()
    with pytest.raises(Exception, match="not in dict"):
        read_snapshot(store)


def test_every_flipped_byte_of_the_register_is_damage() -> None:
    """The register is under a checksum too."""
    store = DictStore()
    write_snapshot(TinyLog(store).handoff, b"content")
    value, version = store.values[REGISTER]
    for position in range(len(value)):
        broken = bytearray(value)
        broken[position] ^= 2
        store.values[REGISTER] = (bytes(broken), version)
        with pytest.raises(Damaged):
            read_snapshot(store)


def test_an_older_run_is_fenced() -> None:
    """Only the owner writes snapshots."""
    store = DictStore()
    log = TinyLog(store)
    write_snapshot(log.handoff, b"one")
    claim(store, "newer", 0)
    with pytest.raises(Fenced):
        write_snapshot(log.handoff, b"two")
    assert content_of(store) == b"one"
