"""One cluster for ever, one run at a time."""

from __future__ import annotations

import pytest

from ister.wal.errors import Contradiction, Damaged, Fenced
from ister.wal.tier.object_store import StoreUnavailable
from ister.wal.tier.owner import OWNER, bind_cluster, claim, read_cluster, verify
from ister.wal.tier.tests.dict_store import DictStore


def test_each_run_gets_a_higher_epoch_and_fences_the_last() -> None:
    """The newest run wins; the one before finds out."""
    store = DictStore()
    assert claim(store, "a", 1) == 1
    verify(store, 1)
    assert claim(store, "b", 2) == 2
    verify(store, 2)
    with pytest.raises(Fenced):
        verify(store, 1)


@pytest.mark.parametrize("fault", ["before", "lost"])
@pytest.mark.parametrize("fail_at", range(2))
def test_a_claim_may_be_repeated(fault: str, fail_at: int) -> None:
    """Whatever call fails and however, the same run ends with one epoch, once."""
    store = DictStore()
    claim(store, "before", 0)
    store.reset(fail_at, fault)
    try:
        epoch = claim(store, "run", 1)
    except StoreUnavailable:
        epoch = claim(store, "run", 1)
    assert epoch == 2
    assert claim(store, "run", 1) == 2


def test_a_claim_in_between_is_seen() -> None:
    """Two runs at once get different epochs."""

    class Racing(DictStore):
        raced = False

        def swap(self, name: str, value: bytes, expected: int) -> int:
            if not self.raced:
                self.raced = True
                claim(self, "other", 0)
            return super().swap(name, value, expected)

    store = Racing()
    assert claim(store, "run", 0) == 2
    verify(store, 2)


def test_a_bucket_belongs_to_one_cluster() -> None:
    """Bound once, the same for ever; another cluster is refused with words."""
    store = DictStore()
    assert read_cluster(store) is None
    bind_cluster(store, "one")
    bind_cluster(store, "one")
    with pytest.raises(Contradiction, match="belongs to cluster one"):
        bind_cluster(store, "two")


def test_a_damaged_register_is_said() -> None:
    """A flipped byte in the owner register is damage, not a new first owner."""
    store = DictStore()
    claim(store, "a", 1)
    data, version = store.values[OWNER]
    store.values[OWNER] = (data[:-2] + b"x" + data[-1:], version)
    with pytest.raises(Damaged):
        claim(store, "b", 1)
