"""Metadata into the bucket and back."""

from __future__ import annotations

import random

import pytest

from ister.metadata import cursors, records
from ister.metadata.catalog import Catalog
from ister.metadata.errors import StoreNotEmpty
from ister.metadata.memory import MemoryStore
from ister.metadata.snapshot import (
    MAGIC,
    OFFSET_MARGIN,
    PRODUCER_ID_MARGIN,
    export_snapshot,
    import_snapshot,
    read_snapshot,
)
from ister.metadata.sqlite import SqliteStore
from ister.metadata.store import NewerFormat, StoreDamaged, Transaction

RANDOM = random.Random(7)


@pytest.fixture
def source():
    """A store with a reliable and a non-reliable topic, a tombstone, cursors and counters."""
    store = MemoryStore()
    catalog = Catalog.open(store, RANDOM)
    for name, configs in [
        ("kept", {"retention.ms": "1"}),
        ("ring", {records.DISPATCH_MODE: records.NON_RELIABLE}),
        ("gone", {}),
    ]:
        topic = catalog.commit(store, catalog.create(name, 2, configs, 5, RANDOM))
        cursor = cursors.Cursor(offset=9, metadata="é")
        store.commit(cursors.commit_cursors(topic.id, "a/g", {0: cursor}))
    catalog.commit(store, catalog.reserve_offsets(catalog.topics_by_name["ring"].id, 0, 100))
    catalog.commit(store, catalog.delete(catalog.topics_by_name["gone"].id, 6))
    catalog.commit(store, catalog.reserve_producer_ids())
    store.commit(Transaction(put={"binary": bytes(range(256))}))
    return store


@pytest.fixture(params=["memory", "sqlite"])
def target(request, tmp_path):
    opened = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "metadata.db")
    yield opened
    opened.close()


def test_everything_comes_back(source, target):
    """Topics, ids, configs, tombstones, cursors, unknown keys; the snapshot tells its time."""
    restored = import_snapshot(target, export_snapshot(source, taken_ms=77))
    before, after = Catalog.load(source), Catalog.load(target)
    assert (restored.cluster_id, restored.taken_ms) == (before.cluster_id, 77)
    assert after.cluster_id == before.cluster_id
    assert after.topics_by_name["kept"] == before.topics_by_name["kept"]
    assert after.tombstones == before.tombstones
    assert [(c.key, c.cursor) for c in cursors.load_cursors(target)] == [
        (c.key, c.cursor) for c in cursors.load_cursors(source)
    ]
    assert target.get("binary").value == bytes(range(256))
    assert [key for key, _ in target.scan("")] == [key for key, _ in source.scan("")]


def test_producer_ids_do_not_go_back(source, target):
    """Those handed out after the snapshot are not handed out again."""
    data = export_snapshot(source)
    lost = Catalog.load(source)
    for _ in range(50):
        used = lost.commit(source, lost.reserve_producer_ids())
    import_snapshot(target, data)
    catalog = Catalog.load(target)
    first = catalog.commit(target, catalog.reserve_producer_ids()).start
    assert first == 1000 + PRODUCER_ID_MARGIN
    assert first >= used.stop


def test_producer_ids_begin_behind_the_margin_if_the_snapshot_knows_none(target):
    """Blocks may have been taken since."""
    empty = MemoryStore()
    Catalog.open(empty, RANDOM)
    import_snapshot(target, export_snapshot(empty))
    assert Catalog.load(target).next_producer_id == PRODUCER_ID_MARGIN


def test_offsets_of_non_reliable_topics_do_not_go_back(source, target):
    """Neither with a block, nor without one, nor in a partition that is added later."""
    import_snapshot(target, export_snapshot(source))
    catalog = Catalog.load(target)
    ring, kept = catalog.topics_by_name["ring"].id, catalog.topics_by_name["kept"].id
    catalog.commit(target, catalog.grow(ring, 3))
    found = [catalog.reserved_offsets(ring, partition) for partition in range(3)]
    assert found == [100 + OFFSET_MARGIN, OFFSET_MARGIN, OFFSET_MARGIN]
    assert catalog.reserved_offsets(kept, 0) == 0


def test_a_restore_of_a_restore_rises_again(source, target):
    """The margins add up."""
    middle = MemoryStore()
    import_snapshot(middle, export_snapshot(source))
    import_snapshot(target, export_snapshot(middle))
    catalog = Catalog.load(target)
    assert catalog.next_producer_id == 1000 + 2 * PRODUCER_ID_MARGIN
    assert catalog.reserved_offsets(catalog.topics_by_name["ring"].id, 1) == 2 * OFFSET_MARGIN


def test_entries_may_be_adjusted_on_the_way(source, target):
    """The caller sets cursors back, or leaves entries out, in the same transaction."""

    def adjust(key: str, value: bytes) -> bytes | None:
        if key == "binary":
            return None
        if key.startswith(records.CURSORS):
            return cursors.encode_cursor(cursors.Cursor(offset=4, adjusted_from=9))
        return value

    import_snapshot(target, export_snapshot(source), adjust=adjust)
    assert target.get("binary") is None
    assert {found.cursor.offset for found in cursors.load_cursors(target)} == {4}


def test_only_an_empty_store_is_filled(source):
    """Nothing is mixed or overwritten."""
    data = export_snapshot(source)
    before = list(source.scan(""))
    with pytest.raises(StoreNotEmpty):
        import_snapshot(source, data)
    assert list(source.scan("")) == before


class Crash(BaseException):
    pass


@pytest.mark.parametrize(("point", "complete"), [("before", False), ("after", True)])
def test_a_crash_leaves_nothing_or_everything(source, point, complete):
    """A restore is one transaction."""

    def crash(reached: str) -> None:
        if reached == point:
            raise Crash

    target = MemoryStore(crash)
    with pytest.raises(Crash):
        import_snapshot(target, export_snapshot(source))
    count = len(list(target.reopen().scan("")))
    assert count == (len(list(source.scan(""))) if complete else 0)


def test_a_flipped_byte_at_every_position_is_noticed(source):
    """Damage or another format; never other content."""
    data = export_snapshot(source)
    for position in range(len(data)):
        bad = bytearray(data)
        bad[position] ^= 0x10
        with pytest.raises((StoreDamaged, NewerFormat)):
            read_snapshot(bytes(bad))


@pytest.mark.parametrize("cut", [0, 7, 15, 16, 40, -1])
def test_a_cut_snapshot_is_noticed(source, cut):
    """Wherever it ends."""
    with pytest.raises(StoreDamaged):
        read_snapshot(export_snapshot(source)[:cut])


def test_a_newer_snapshot_is_refused_with_its_version(source):
    """Even though its checksum may be another one."""
    data = export_snapshot(source)
    newer = MAGIC + (2).to_bytes(4, "big") + data[12:]
    with pytest.raises(NewerFormat, match="format 2"):
        read_snapshot(newer)
