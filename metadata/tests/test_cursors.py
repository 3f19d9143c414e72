"""Cursor records, their keys, and what a commit and a deletion leave behind."""

from __future__ import annotations

import contextlib
import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ister.metadata import cursors
from ister.metadata.catalog import Catalog, Topic
from ister.metadata.cursors import Cursor, CursorKey
from ister.metadata.memory import MemoryStore
from ister.metadata.store import ABSENT, Conflict, NewerFormat, Store, StoreDamaged, Transaction

TOPIC = bytes(range(16))
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
NUMBERS = st.integers(-1, 2**63 - 1)


@given(
    st.builds(
        Cursor,
        offset=NUMBERS,
        leader_epoch=NUMBERS,
        metadata=TEXT,
        time_ms=NUMBERS,
        generation=NUMBERS,
        adjusted_from=st.none() | NUMBERS,
    )
)
def test_a_cursor_comes_back_as_it_was(cursor):
    """Every field round-trips."""
    assert cursors.decode_cursor("key", cursors.encode_cursor(cursor)) == cursor


@given(st.binary(min_size=16, max_size=16), st.integers(0, 2**31 - 1), TEXT)
def test_a_key_comes_back_as_it_was(topic_id, partition, group):
    """Groups may have any name, slashes included."""
    key = cursors.cursor_key(topic_id, partition, group)
    assert cursors.split_cursor_key(key) == (topic_id, partition, group)
    assert key.startswith(cursors.cursors_prefix(topic_id))


@given(st.binary(max_size=60))
def test_any_bytes_are_a_cursor_or_an_error(data):
    """Garbage never gets further than an error of ours."""
    with contextlib.suppress(StoreDamaged, NewerFormat):
        cursors.decode_cursor("key", data)


def test_a_newer_record_is_refused_and_an_addition_is_skipped():
    """A higher format is refused, whatever its fields; unknown fields alone are not."""
    for fields in ({"format": 2, "offset": 1}, {"format": 2, "offset": "one"}):
        with pytest.raises(NewerFormat, match="format 2"):
            cursors.decode_cursor("key", msgspec.json.encode(fields))
    data = msgspec.json.encode({"format": 1, "offset": 7, "mood": "good"})
    assert cursors.decode_cursor("key", data).offset == 7


@pytest.mark.parametrize(
    "key", ["cursors/", "cursors/00/1/g", f"cursors/{TOPIC.hex()}/x/g", f"x/{TOPIC.hex()}/1/g"]
)
def test_a_key_that_is_not_a_cursors_is_refused(key):
    """It is named in the error."""
    with pytest.raises(StoreDamaged, match="key"):
        cursors.split_cursor_key(key)


@pytest.mark.parametrize(("topic_id", "partition"), [(b"short", 0), (TOPIC, -1), (TOPIC, 2**31)])
def test_a_place_that_cannot_be_is_refused(topic_id, partition):
    """Ids have 16 bytes, partitions are Kafka's int32."""
    with pytest.raises(ValueError, match=r".+"):
        cursors.cursor_key(topic_id, partition, "g")


def test_how_a_cursor_is_shown():
    """By name, in the namespace `default`."""
    shown = cursors.display_path("orders", 3, "billing")
    assert shown == "/topics/default/orders/3/subscriptions/billing/cursor"


# -- plans ---------------------------------------------------------------------


@pytest.fixture
def store():
    return MemoryStore()


@pytest.fixture
def catalog(store):
    return Catalog.open(store, random.Random(1))


def create(store: Store, catalog: Catalog, name: str = "t", seed: int = 2) -> Topic:
    return catalog.commit(store, catalog.create(name, 4, {}, 0, random.Random(seed)))


def test_commit_load_delete(store, catalog):
    """Cursors are found by place and by topic, with rising versions, until deleted."""
    topic, other = create(store, catalog), create(store, catalog, "u", 3)
    store.commit(cursors.commit_cursors(topic.id, "g", {0: Cursor(offset=1), 3: Cursor(offset=2)}))
    store.commit(cursors.commit_cursors(other.id, "g", {0: Cursor(offset=3)}))
    first = cursors.load_cursor(store, topic.id, 3, "g")
    assert first is not None
    assert first.cursor.offset == 2
    store.commit(cursors.commit_cursors(topic.id, "g", {3: Cursor(offset=1)}))
    second = cursors.load_cursor(store, topic.id, 3, "g")
    assert second is not None
    assert second.version > first.version
    assert [found.key.partition for found in cursors.load_cursors(store, topic.id)] == [0, 3]
    assert len(list(cursors.load_cursors(store))) == 3
    store.commit(cursors.delete_cursors([found.key for found in cursors.load_cursors(store)]))
    assert list(cursors.load_cursors(store)) == []
    assert cursors.load_cursor(store, topic.id, 3, "g") is None


def test_the_caller_may_expect_more(store, catalog):
    """A group's own record fences commits and deletions."""
    topic = create(store, catalog)
    plan = cursors.commit_cursors(topic.id, "g", {0: Cursor(offset=1)}, {"groups/g": 5})
    with pytest.raises(Conflict):
        store.commit(plan)
    store.commit(cursors.commit_cursors(topic.id, "g", {0: Cursor(offset=1)}, {"groups/g": ABSENT}))
    with pytest.raises(Conflict):
        store.commit(cursors.delete_cursors([CursorKey(topic.id, 0, "g")], {"groups/g": 5}))


def test_a_commit_survives_a_change_of_the_topic(store, catalog):
    """Planned before the topic was configured or grown, it still goes through."""
    topic = create(store, catalog)
    plan = cursors.commit_cursors(topic.id, "g", {0: Cursor(offset=1)})
    catalog.commit(store, catalog.configure(topic.id, {"retention.ms": "1"}))
    catalog.commit(store, catalog.grow(topic.id, 5))
    assert store.commit(plan)


@pytest.mark.parametrize("deletion_first", [False, True])
@pytest.mark.parametrize("recreated", [False, True])
def test_a_commit_that_races_the_deletion_leaves_nothing(store, catalog, deletion_first, recreated):
    """In whichever order the two come, also in one group, also if the name is used again."""
    topic = create(store, catalog)
    commit = cursors.commit_cursors(topic.id, "g", {0: Cursor(offset=1)})
    deletion = catalog.delete(topic.id, 0)
    group: list[Transaction] = [commit, deletion.transaction]
    if deletion_first:
        group.reverse()
    results = store.commit_many(group)
    assert isinstance(results[0 if not deletion_first else 1], Conflict) is deletion_first
    deletion.apply(results[group.index(deletion.transaction)])
    if recreated:
        create(store, catalog, seed=3)
    with pytest.raises(Conflict):
        store.commit(commit)
    assert list(cursors.load_cursors(store)) == []
