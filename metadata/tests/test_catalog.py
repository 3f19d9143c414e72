"""Topics, tombstones, the cluster id and the counters, against the store they live in."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import msgspec
import pytest

from ister.metadata import cursors, records
from ister.metadata.catalog import Catalog, Topic, encode_id, new_id
from ister.metadata.errors import InvalidPartitions, TopicExists, UnknownTopic
from ister.metadata.memory import MemoryStore
from ister.metadata.sqlite import SqliteStore
from ister.metadata.store import (
    Conflict,
    NewerFormat,
    Store,
    StoreDamaged,
    StoreUnavailable,
    Transaction,
)

RANDOM = random.Random(7)


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path):
    opened = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "metadata.db")
    yield opened
    opened.close()


@pytest.fixture
def catalog(store):
    return Catalog.open(store, RANDOM)


def create(
    store: Store,
    catalog: Catalog,
    name: str = "t",
    partitions: int = 3,
    configs: dict[str, str] | None = None,
) -> Topic:
    return catalog.commit(store, catalog.create(name, partitions, configs or {}, 1000, RANDOM))


def same(one: Catalog, other: Catalog) -> bool:
    """In all that is kept, versions included."""
    return one.__dict__ == other.__dict__


def test_the_cluster_id_is_made_once(store):
    """22 url-safe characters, the same after a restart, never replaced."""
    first = Catalog.open(store, RANDOM)
    assert len(first.cluster_id) == 22
    assert Catalog.open(store, RANDOM).cluster_id == first.cluster_id
    with pytest.raises(ValueError, match="already"):
        first.found(RANDOM)


def test_two_that_found_one_cluster(store):
    """The second is a conflict, and finds the id of the first."""
    first, second = Catalog.load(store), Catalog.load(store)
    first.commit(store, first.found(RANDOM, "A" * 22))
    with pytest.raises(Conflict):
        second.commit(store, second.found(RANDOM))
    assert Catalog.load(store).cluster_id == "A" * 22


def test_a_topic_is_there_after_a_restart(store, catalog):
    """Name, id, partitions, configs and time."""
    topic = create(store, catalog, configs={"retention.ms": "5"})
    assert len(topic.id) == 16
    assert (topic.name, topic.partitions, topic.created_ms) == ("t", 3, 1000)
    assert topic.configs == {"retention.ms": "5"}
    assert catalog.topics_by_name == {"t": topic}
    assert catalog.topics_by_id == {topic.id: topic}
    assert same(Catalog.load(store), catalog)


def test_a_plan_changes_nothing_until_it_is_applied(store, catalog):
    """Neither memory nor store."""
    topic = create(store, catalog)
    before = list(store.scan(""))
    catalog.create("u", 1, {}, 0, RANDOM)
    catalog.grow(topic.id, 9)
    catalog.configure(topic.id, {"a": "b"})
    catalog.delete(topic.id, 0)
    catalog.reserve_producer_ids()
    catalog.reserve_offsets(topic.id, 0, 10)
    catalog.store_wall_time(5)
    assert list(store.scan("")) == before
    assert same(Catalog.load(store), catalog)


def test_what_cannot_be_is_refused_at_planning(store, catalog):
    """Each with the error that says why."""
    topic = create(store, catalog)
    with pytest.raises(TopicExists):
        catalog.create("t", 1, {}, 0, RANDOM)
    with pytest.raises(InvalidPartitions):
        catalog.create("u", 0, {}, 0, RANDOM)
    for partitions in (2, 3):
        with pytest.raises(InvalidPartitions):
            catalog.grow(topic.id, partitions)
    unknown = b"x" * 16
    plans: list[Callable[[], object]] = [
        partial(catalog.grow, unknown, 9),
        partial(catalog.configure, unknown, {}),
        partial(catalog.delete, unknown, 0),
        partial(catalog.forget, topic.id),
        partial(catalog.reserved_offsets, unknown, 0),
    ]
    for plan in plans:
        with pytest.raises(UnknownTopic):
            plan()


def test_grow_and_configure(store, catalog):
    """The id stays; configs are replaced as a whole."""
    topic = create(store, catalog, configs={"a": "1"})
    catalog.commit(store, catalog.grow(topic.id, 5))
    changed = catalog.commit(store, catalog.configure(topic.id, {"b": "2"}))
    assert (changed.id, changed.partitions, changed.configs) == (topic.id, 5, {"b": "2"})
    assert catalog.topics_by_name["t"] is catalog.topics_by_id[topic.id] is changed
    assert same(Catalog.load(store), catalog)


def test_two_creations_of_one_name(store, catalog):
    """Planned at the same time: one is made, the other is a conflict and leaves nothing."""
    first = catalog.create("t", 1, {}, 0, RANDOM)
    second = catalog.create("t", 2, {}, 0, RANDOM)
    catalog.commit(store, first)
    with pytest.raises(Conflict):
        catalog.commit(store, second)
    assert same(Catalog.load(store), catalog)
    assert list(catalog.topics_by_id) == [first.result.id]


def test_two_changes_of_one_topic(store, catalog):
    """The second is a conflict: no update is lost in silence. Planned anew it goes through."""
    topic = create(store, catalog)
    grow, configure = catalog.grow(topic.id, 9), catalog.configure(topic.id, {"a": "1"})
    delete = catalog.delete(topic.id, 0)
    catalog.commit(store, grow)
    for late in (configure, delete):
        with pytest.raises(Conflict):
            catalog.commit(store, late)
    catalog.commit(store, catalog.configure(topic.id, {"a": "1"}))
    assert catalog.topics_by_id[topic.id].partitions == 9
    assert same(Catalog.load(store), catalog)


def test_an_id_that_comes_twice_is_a_conflict(store, catalog):
    """Neither a living topic nor a tombstone is met again."""
    change = catalog.create("t", 1, {}, 0, random.Random(1))
    catalog.commit(store, change)
    with pytest.raises(Conflict):
        catalog.commit(store, catalog.create("u", 1, {}, 0, random.Random(1)))
    catalog.commit(store, catalog.delete(change.result.id, 0))
    with pytest.raises(Conflict):
        catalog.commit(store, catalog.create("u", 1, {}, 0, random.Random(1)))


def test_delete_and_create_again(store, catalog):
    """A new id; no cursor and no offset block of the former life; its tombstone stays."""
    old, other = create(store, catalog), create(store, catalog, "other")
    for topic in (old, other):
        store.commit(cursors.commit_cursors(topic.id, "g", {0: cursors.Cursor(offset=5)}))
        catalog.commit(store, catalog.reserve_offsets(topic.id, 0, 100))
    tombstone = catalog.commit(store, catalog.delete(old.id, 2000))
    new = create(store, catalog, "t")
    assert new.id != old.id
    assert catalog.tombstones == {old.id: tombstone}
    assert (tombstone.name, tombstone.partitions, tombstone.deleted_ms) == ("t", 3, 2000)
    assert [found.key.topic_id for found in cursors.load_cursors(store)] == [other.id]
    assert catalog.reserved_offsets(new.id, 0) == 0
    assert catalog.reserved_offsets(other.id, 0) == 100
    assert old.id not in catalog.topics_by_id
    assert same(Catalog.load(store), catalog)


def test_a_forgotten_tombstone_leaves_no_key(store, catalog):
    """After delete and forget the store is as before the creation."""
    before = [key for key, _ in store.scan("")]
    topic = create(store, catalog)
    catalog.commit(store, catalog.delete(topic.id, 0))
    catalog.commit(store, catalog.forget(topic.id))
    assert [key for key, _ in store.scan("")] == before
    assert same(Catalog.load(store), catalog)


# -- counters ------------------------------------------------------------------


def test_producer_ids_come_in_blocks_and_never_again(store, catalog):
    """Blocks follow each other, across restarts; the store has each before it is used."""
    seen = []
    for _ in range(3):
        catalog = Catalog.load(store)
        seen += catalog.commit(store, catalog.reserve_producer_ids())
        seen += catalog.commit(store, catalog.reserve_producer_ids(5))
    assert seen == list(range(3015))


def test_two_reservations_of_producer_ids(store, catalog):
    """Planned at the same time they are the same ids: one is a conflict."""
    first, second = catalog.reserve_producer_ids(), catalog.reserve_producer_ids()
    catalog.commit(store, first)
    with pytest.raises(Conflict):
        catalog.commit(store, second)
    assert catalog.commit(store, catalog.reserve_producer_ids()).start == first.result.stop


def test_producer_ids_after_a_lost_reply():
    """The block is burnt; after a fresh load the next one follows it."""
    store = MemoryStore()
    catalog = Catalog.open(store, RANDOM)
    store.lose_next_reply()
    with pytest.raises(StoreUnavailable):
        catalog.commit(store, catalog.reserve_producer_ids())
    with pytest.raises(Conflict):
        catalog.commit(store, catalog.reserve_producer_ids())
    catalog.adopt(Catalog.load(store))
    assert catalog.commit(store, catalog.reserve_producer_ids()) == range(1000, 2000)


def test_offset_blocks(store, catalog):
    """They only rise, per partition, and are there after a restart."""
    topic = create(store, catalog)
    assert catalog.commit(store, catalog.reserve_offsets(topic.id, 1, 500)) == range(0, 500)
    assert catalog.commit(store, catalog.reserve_offsets(topic.id, 1, 600)) == range(500, 600)
    assert [catalog.reserved_offsets(topic.id, partition) for partition in range(3)] == [0, 600, 0]
    with pytest.raises(ValueError, match="reserved already"):
        catalog.reserve_offsets(topic.id, 1, 600)
    with pytest.raises(InvalidPartitions):
        catalog.reserve_offsets(topic.id, 3, 600)
    assert same(Catalog.load(store), catalog)


def test_an_offset_block_that_races_the_deletion_leaves_nothing(store, catalog):
    """As with cursors."""
    topic = create(store, catalog)
    late = catalog.reserve_offsets(topic.id, 0, 10)
    catalog.commit(store, catalog.delete(topic.id, 0))
    with pytest.raises(Conflict):
        catalog.commit(store, late)
    assert list(store.scan(records.OFFSETS)) == []


def test_the_wall_time_is_kept(store, catalog):
    """It may go back: whoever reads it decides what that means."""
    for now_ms in (2000, 1000):
        catalog.commit(store, catalog.store_wall_time(now_ms))
        assert Catalog.load(store).wall_time_ms == catalog.wall_time_ms == now_ms


# -- crashes, damage, formats --------------------------------------------------


class Crash(BaseException):
    pass


def _script(store: MemoryStore) -> None:
    catalog = Catalog.open(store, random.Random(1))
    topic = create(store, catalog)
    catalog.commit(store, catalog.reserve_offsets(topic.id, 0, 10))
    store.commit(cursors.commit_cursors(topic.id, "g", {0: cursors.Cursor(offset=5)}))
    catalog.commit(store, catalog.delete(topic.id, 0))
    create(store, catalog)
    catalog.commit(store, catalog.forget(topic.id))


@pytest.mark.parametrize("point", ["before", "after"])
@pytest.mark.parametrize("at", range(7))
def test_a_crash_at_every_commit_leaves_a_whole_catalog(point, at):
    """Whatever the point, it loads, and nothing belongs to a topic that is not there."""
    count = 0

    def crash(reached: str) -> None:
        nonlocal count
        if reached == point:
            count += 1
            if count > at:
                raise Crash

    store = MemoryStore(crash)
    with pytest.raises(Crash):
        _script(store)
    after = store.reopen()
    catalog = Catalog.load(after)
    assert not catalog.topics_by_id.keys() & catalog.tombstones.keys()
    owners = {found.key.topic_id for found in cursors.load_cursors(after)}
    owners |= {records.split_offsets_key(key)[0] for key, _ in after.scan(records.OFFSETS)}
    assert owners <= catalog.topics_by_id.keys()


def test_names_and_topics_that_disagree_are_damage(store, catalog):
    """A topic without its name, or a name without its topic, is not opened."""
    create(store, catalog)
    store.commit(Transaction(delete=[records.name_key("t")]))
    with pytest.raises(StoreDamaged, match="names"):
        Catalog.load(store)


def test_a_record_that_cannot_be_read_is_named(store, catalog):
    """The message has the key and what to do."""
    store.commit(Transaction(put={records.CLUSTER: b"{"}))
    with pytest.raises(StoreDamaged, match=r"catalog/cluster.*restore"):
        Catalog.load(store)


def test_a_newer_catalog_is_refused(store, catalog):
    """By the format in the cluster's record."""
    store.commit(Transaction(put={records.CLUSTER: msgspec.json.encode({"format": 2})}))
    with pytest.raises(NewerFormat, match="format 2"):
        Catalog.load(store)


def test_an_unknown_key_is_skipped(store, catalog):
    """A later version may add keys without a new format."""
    store.commit(Transaction(put={"catalog/zebras": b"?"}))
    assert Catalog.load(store).cluster_id == catalog.cluster_id


def test_ids_are_version_4_and_never_look_like_an_option():
    """As Kafka makes them: random, 22 characters, no leading dash."""
    randomness = random.Random(3)
    for _ in range(500):
        made = new_id(randomness)
        assert len(made) == 16
        assert made[6] >> 4 == 4
        assert made[8] >> 6 == 2
        assert len(encode_id(made)) == 22
        assert not encode_id(made).startswith("-")
