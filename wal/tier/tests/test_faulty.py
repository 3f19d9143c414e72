"""The bucket that fails on purpose does what its knobs say."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from ister.wal.memory_fs import MemoryFileSystem
from ister.wal.tier.directory import DirectoryStore
from ister.wal.tier.faulty import FaultyStore
from ister.wal.tier.memory import MemoryStore
from ister.wal.tier.object_store import AlreadyThere, Conflict, Missing, StoreUnavailable


@pytest.fixture
def store() -> FaultyStore:
    return FaultyStore(MemoryStore(), random.Random(1))


def test_no_knob_no_fault(store: FaultyStore) -> None:
    """Untouched, it is the store underneath, and counts."""
    store.put("a", [b"x"])
    version = store.swap("r", b"v", 0)
    assert store.get("a") == b"x"
    assert store.read("r") == (b"v", version)
    assert [info.name for info in store.list("")] == ["a"]
    assert list(store.registers("")) == ["r"]
    store.delete("a")
    store.remove("r")
    assert store.calls == dict.fromkeys(
        ["put", "get", "list", "delete", "read", "swap", "registers", "remove"], 1
    )


def test_fail_by_operation_name_and_times(store: FaultyStore) -> None:
    """Only matching calls fail, as often as told, and nothing happens."""
    fault = store.fail("put", "segments/*", times=2)
    store.put("other", [b"x"])
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            store.put("segments/a", [b"x"])
    assert [info.name for info in store.list("")] == ["other"]
    store.put("segments/a", [b"x"])
    assert fault.hits == 2
    assert store.calls["put"] == 4


def test_fail_with_another_error(store: FaultyStore) -> None:
    """The error can be chosen."""
    store.fail("get", error=Missing, times=1)
    store.put("a", [b"x"])
    with pytest.raises(Missing):
        store.get("a")
    assert store.get("a") == b"x"


def test_probability_follows_the_seed() -> None:
    """The same seed gives the same faults; about as many as told."""

    def outcomes(seed: int) -> list[bool]:
        store = FaultyStore(MemoryStore(), random.Random(seed))
        store.fail("delete", probability=0.3)
        results = []
        for _ in range(200):
            try:
                store.delete("a")
                results.append(True)
            except StoreUnavailable:
                results.append(False)
        return results

    assert outcomes(5) == outcomes(5) != outcomes(6)
    assert 30 < outcomes(5).count(False) < 90


def test_lose_reply(store: FaultyStore) -> None:
    """It happened, but nobody was told."""
    store.lose_reply(times=2)
    with pytest.raises(StoreUnavailable):
        store.put("a", [b"x"])
    with pytest.raises(StoreUnavailable):
        store.swap("r", b"v", 0)
    with pytest.raises(AlreadyThere):
        store.put("a", [b"x"])
    with pytest.raises(Conflict):
        store.swap("r", b"v", 0)
    assert store.get("a") == b"x"
    assert store.read("r")[0] == b"v"


@pytest.mark.parametrize("after_bytes", [0, 3, 5, 10, 100])
def test_tear(after_bytes: int) -> None:
    """A torn put shows nothing and leaves nothing, wherever it was torn."""
    fs = MemoryFileSystem()
    store = FaultyStore(DirectoryStore(fs, "/b", random.Random(1)), random.Random(1))
    store.tear("a", after_bytes, times=1)
    with pytest.raises(StoreUnavailable):
        store.put("a", [b"01234", b"56789"])
    assert list(store.list("")) == []
    assert fs.listdir("/b/tmp") == []
    store.put("a", [b"01234", b"56789"])
    assert store.get("a") == b"0123456789"


def test_down_and_up(store: FaultyStore) -> None:
    """Down, nothing answers; up, everything is as before."""
    store.put("a", [b"x"])
    store.down()
    calls: list[Callable[[], object]] = [
        lambda: store.get("a"),
        lambda: store.list(""),
        lambda: store.swap("r", b"", 0),
        lambda: store.registers(""),
    ]
    for call in calls:
        with pytest.raises(StoreUnavailable):
            call()
    store.up()
    assert store.get("a") == b"x"


def test_delay_goes_through_the_sleep() -> None:
    """Latency is a call of the sleep that was passed in."""
    slept: list[float] = []
    store = FaultyStore(MemoryStore(), random.Random(1), slept.append)
    fault = store.delay(2.5, "put")
    store.put("a", [b"x"])
    store.get("a")
    assert slept == [2.5]
    fault.clear()
    store.put("b", [b"x"])
    assert slept == [2.5]


def test_crash_hook_stands_around_every_call(store: FaultyStore) -> None:
    """The hook is called before and after; what it raises goes through."""
    seen: list[tuple[str, str, str]] = []
    store.crash = lambda when, operation, name: seen.append((when, operation, name))
    store.put("a", [b"x"])
    assert seen == [("before", "put", "a"), ("after", "put", "a")]

    class Crash(BaseException):
        pass

    def die(when: str, operation: str, name: str) -> None:
        if when == "after":
            raise Crash

    store.crash = die
    with pytest.raises(Crash):
        store.put("b", [b"x"])
    store.clear()
    assert store.get("b") == b"x"
