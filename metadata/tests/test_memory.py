"""What the memory store adds for tests: crashes and lost replies."""

from __future__ import annotations

import pytest

from ister.metadata.memory import MemoryStore
from ister.metadata.store import StoreUnavailable, Transaction


class Crash(BaseException):
    pass


def crash_at(point: str):
    def hook(reached: str) -> None:
        if reached == point:
            raise Crash

    return hook


@pytest.mark.parametrize(("point", "applied"), [("before", False), ("after", True)])
def test_a_crash_before_or_after_a_commit(point, applied):
    """Before: nothing of the group is there after the crash. After: all of it."""
    store = MemoryStore(crash_at(point))
    group = [Transaction(put={"a": b"1"}), Transaction(put={"b": b"1"})]
    with pytest.raises(Crash):
        store.commit_many(group)
    after = store.reopen()
    assert [key for key, _ in after.scan("")] == (["a", "b"] if applied else [])


def test_a_lost_reply():
    """The commit is applied, its caller is not told; the next one is as usual."""
    store = MemoryStore()
    store.lose_next_reply()
    with pytest.raises(StoreUnavailable):
        store.commit(Transaction(put={"a": b"1"}))
    assert store.get("a") == (b"1", 1)
    assert store.commit(Transaction(put={"b": b"1"})) == 2


def test_the_old_run_cannot_reach_the_reopened_store():
    """A late call of the run that crashed changes nothing."""
    store = MemoryStore()
    store.commit(Transaction(put={"a": b"1"}))
    after = store.reopen()
    with pytest.raises(StoreUnavailable):
        store.commit(Transaction(put={"a": b"2"}))
    assert after.get("a") == (b"1", 1)
    assert after.commit(Transaction(put={"a": b"3"})) == 2


def test_a_copy_goes_its_own_way():
    """The copy and the original do not share anything."""
    store = MemoryStore()
    copy = store.copy()
    store.commit(Transaction(put={"a": b"1"}))
    assert copy.get("a") is None
