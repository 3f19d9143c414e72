"""One conformance suite for every engine, and a model test against a dictionary."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ister.metadata.memory import MemoryStore
from ister.metadata.sqlite import SqliteStore
from ister.metadata.store import ABSENT, PRESENT, Conflict, Store, StoreUnavailable, Transaction

ENGINES: dict[str, Callable[[Path], Store]] = {
    "sqlite": lambda directory: SqliteStore(directory / "metadata.db"),
    "memory": lambda directory: MemoryStore(),
}


@pytest.fixture(params=sorted(ENGINES))
def store(request, tmp_path) -> Iterator[Store]:
    opened = ENGINES[request.param](tmp_path)
    yield opened
    opened.close()


def put(store: Store, **values: bytes) -> int:
    return store.commit(Transaction(put=values))


def keys(store: Store, prefix: str = "") -> list[str]:
    return [key for key, _ in store.scan(prefix)]


def test_what_was_put_is_there(store):
    """A value comes back as it was, with the revision that wrote it as its version."""
    revision = put(store, a=b"\x00\xff", b=b"")
    assert store.get("a") == (b"\x00\xff", revision)
    assert store.get("b") == (b"", revision)
    assert store.get("c") is None


def test_a_version_is_never_used_again(store):
    """Versions rise with every write, also across deletion."""
    seen = [put(store, a=b"1"), put(store, a=b"1")]
    store.commit(Transaction(delete=["a"]))
    seen.append(put(store, a=b"1"))
    assert seen == sorted(set(seen))
    assert store.get("a") == (b"1", seen[-1])


def test_a_conflict_changes_nothing(store):
    """All expectations hold, or nothing of the transaction happens."""
    version = put(store, a=b"1", b=b"1")
    with pytest.raises(Conflict) as caught:
        store.commit(
            Transaction(
                expect={"a": version, "b": version + 1},
                put={"c": b"1"},
                delete=["a"],
                delete_prefix=["b"],
            )
        )
    assert (caught.value.key, caught.value.expected, caught.value.found) == (
        "b",
        version + 1,
        version,
    )
    assert keys(store) == ["a", "b"]


@pytest.mark.parametrize(
    ("key", "expected", "holds"),
    [
        ("there", ABSENT, False),
        ("there", PRESENT, True),
        ("gone", ABSENT, True),
        ("gone", PRESENT, False),
        ("never", ABSENT, True),
        ("never", PRESENT, False),
        ("never", 1, False),
    ],
)
def test_absent_and_present(store, key, expected, holds):
    """ABSENT: there is no such key (any more). PRESENT: at whatever version."""
    put(store, there=b"", gone=b"")
    store.commit(Transaction(delete=["gone"]))
    results = store.commit_many([Transaction(expect={key: expected}, put={"done": b""})])
    assert isinstance(results[0], int) is holds
    assert (store.get("done") is not None) is holds


def test_many_are_applied_in_order_each_seeing_those_before_it(store):
    """In a group a conflict concerns its own transaction alone."""
    create = Transaction(expect={"a": ABSENT}, put={"a": b"first"})
    again = Transaction(expect={"a": ABSENT}, put={"a": b"second", "b": b""})
    other = Transaction(expect={"a": PRESENT}, put={"c": b""})
    first, second, third = store.commit_many([create, again, other])
    assert isinstance(second, Conflict)
    assert second.found == first
    assert third > first
    assert keys(store) == ["a", "c"]
    assert store.get("a") == (b"first", first)


def test_a_group_of_nothing(store):
    """An empty group and an empty transaction are allowed."""
    assert store.commit_many([]) == []
    first = store.commit(Transaction())
    assert store.commit(Transaction()) > first


def test_scan_is_in_key_order_and_keeps_to_the_prefix(store):
    """Order is that of code points, whatever the characters; a prefix is not a pattern."""
    names = ["a/1", "a/10", "a/2", "a/é", "a/\U0010ffff", "a/\x00", "a0", "A/1", "a%", "a_", "b"]
    store.commit(Transaction(put={name: name.encode() for name in names}))
    assert keys(store) == sorted(names)
    assert keys(store, "a/") == sorted(name for name in names if name.startswith("a/"))
    assert keys(store, "a/\U0010ffff") == ["a/\U0010ffff"]
    assert keys(store, "%") == []
    assert all(entry.value == key.encode() for key, entry in store.scan(""))


def test_a_deleted_prefix_takes_exactly_what_begins_with_it(store):
    """Neighbours in the key order stay."""
    names = ["a", "a/", "a/1", "a/\U0010ffff", "a0", "b"]
    store.commit(Transaction(put=dict.fromkeys(names, b"")))
    store.commit(Transaction(delete_prefix=["a/"]))
    assert keys(store) == ["a", "a0", "b"]


def test_a_scan_sees_one_state(store):
    """What is committed while a scan runs does not show in it."""
    store.commit(Transaction(put={f"k{number:04d}": b"old" for number in range(2000)}))
    scan = store.scan("k")
    first = next(scan)
    store.commit(Transaction(put={"k1999": b"new"}, delete=["k1000"]))
    found = dict([first, *scan])
    assert len(found) == 2000
    assert found["k1999"].value == b"old"
    assert store.get("k1999").value == b"new"


def test_a_closed_store_says_so(store):
    """After close nothing is answered, and closing twice is no error."""
    store.close()
    store.close()
    with pytest.raises(StoreUnavailable):
        store.get("a")
    with pytest.raises(StoreUnavailable):
        list(store.scan(""))
    with pytest.raises(StoreUnavailable):
        store.commit(Transaction())


def test_threads_may_share_a_store(store):
    """Commits of several threads are one after the other: no update is lost."""

    def count() -> None:
        done = 0
        while done < 20:
            entry = store.get("n")
            version, value = (0, 0) if entry is None else (entry.version, int(entry.value))
            try:
                store.commit(Transaction(expect={"n": version}, put={"n": b"%d" % (value + 1)}))
            except Conflict:
                continue
            done += 1

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.get("n").value == b"80"


@pytest.mark.parametrize(
    "fields",
    [
        {"put": {"a": b""}, "delete": ["a"]},
        {"put": {"a/b": b""}, "delete_prefix": ["a/"]},
        {"delete_prefix": [""]},
        {"put": {"": b""}},
        {"put": {"\ud800": b""}},
        {"expect": {"\ud800": 0}},
    ],
)
def test_a_transaction_that_no_engine_could_run_is_refused(fields):
    """Refused when it is made, so that it cannot spoil the group it would be in."""
    with pytest.raises(ValueError, match=r".+"):
        Transaction(**fields)


# -- against a dictionary ------------------------------------------------------

KEYS = st.text(alphabet="ab/é\U0010ffff", min_size=1, max_size=3)


@st.composite
def plans(draw) -> tuple[dict[str, str], dict[str, bytes], list[str], list[str]]:
    """Expectations as words, since versions are only known while running."""
    expect = draw(
        st.dictionaries(KEYS, st.sampled_from(["same", "absent", "present", "stale"]), max_size=2)
    )
    puts = draw(st.dictionaries(KEYS, st.binary(max_size=3), max_size=3))
    prefixes = draw(st.lists(KEYS, max_size=1))
    deletes = draw(st.lists(KEYS, max_size=2))
    puts = {
        key: value
        for key, value in puts.items()
        if key not in deletes and not key.startswith(tuple(prefixes))
    }
    return expect, puts, deletes, prefixes


def _holds(model: dict[str, tuple[bytes, int]], key: str, version: int) -> bool:
    found = model[key][1] if key in model else 0
    return found != 0 if version == PRESENT else found == version


def _run(store: Store, groups) -> None:
    model: dict[str, tuple[bytes, int]] = {}
    for group in groups:
        transactions = []
        for words, puts, deletes, prefixes in group:
            versions = {
                key: {
                    "same": model[key][1] if key in model else 0,
                    "absent": ABSENT,
                    "present": PRESENT,
                    "stale": 1,
                }[word]
                for key, word in words.items()
            }
            transactions.append(Transaction(versions, puts, deletes, prefixes))
        for transaction, result in zip(transactions, store.commit_many(transactions), strict=True):
            expected = all(_holds(model, *item) for item in transaction.expect.items())
            assert isinstance(result, int) is expected
            if isinstance(result, int):
                gone = tuple(transaction.delete_prefix)
                model = {
                    key: entry
                    for key, entry in model.items()
                    if key not in transaction.delete and not key.startswith(gone)
                }
                model |= {key: (value, result) for key, value in transaction.put.items()}
        assert list(store.scan("")) == sorted(model.items())
        assert list(store.scan("a")) == sorted(i for i in model.items() if i[0][0] == "a")


@pytest.mark.parametrize("engine", sorted(ENGINES))
@settings(max_examples=60, deadline=None)
@given(groups=st.lists(st.lists(plans(), max_size=4), max_size=5))
def test_an_engine_behaves_as_a_dictionary(engine, groups):
    """Any groups of any transactions: the same conflicts and the same content as a dict."""
    with tempfile.TemporaryDirectory() as directory:
        store = ENGINES[engine](Path(directory))
        try:
            _run(store, groups)
        finally:
            store.close()
