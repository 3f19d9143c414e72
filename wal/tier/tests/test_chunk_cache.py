"""Cold reads: whole batches, checked, bounded, fetched once."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from ister.wal.errors import Damaged, OffsetOutOfRange, StorageError
from ister.wal.tier import chunk_cache
from ister.wal.tier.chunk_cache import ChunkCache, TierReader
from ister.wal.tier.manifest import Entry, Hole, Manifest
from ister.wal.tier.object_store import StoreUnavailable
from ister.wal.tier.tests.dict_store import DictStore
from ister.wal.tier.tests.sections import TIME, make_manifest, make_run, make_section


def stored(*firsts_and_counts: tuple[int, list[int]], size: int = 20) -> tuple[DictStore, Manifest]:
    """A bucket with one object for each (first offset, counts of batches), and its manifest."""
    store = DictStore()
    entries: list[Entry] = []
    holes: list[Hole] = []
    for number, (first, counts) in enumerate(firsts_and_counts):
        run = make_run(first, counts, size=size, time=TIME + first * 1000)
        data, entry = make_section([run], object_name=f"segments/{number}")
        store.objects[entry.object] = data
        if entries and entries[-1].last_offset + 1 < first:
            holes.append(Hole(entries[-1].last_offset + 1, first - 1, "damage"))
        entries.append(entry)
    return store, make_manifest(entries, holes=tuple(holes))


def offsets(reader: TierReader, manifest: Manifest, offset: int, max_bytes: int) -> list[int]:
    return [batch.base_offset for batch in reader.read(manifest, offset, max_bytes)]


def test_the_batch_with_the_offset_comes_whole() -> None:
    """A read inside a batch starts with that batch, and goes on over the seams of objects."""
    store, manifest = stored((0, [3, 3]), (6, [2, 2]))
    reader = TierReader(store)
    assert offsets(reader, manifest, 4, 10_000) == [3, 6, 8]
    assert offsets(reader, manifest, 0, 10_000) == [0, 3, 6, 8]
    assert offsets(reader, manifest, 9, 10_000) == [8]
    batch = reader.read(manifest, 3, 1)[0]
    assert bytes(batch.data) == make_run(3, [3], time=TIME + 1000)[0]


def test_max_bytes_bounds_all_but_the_first() -> None:
    """The first batch comes even when it is too large; nothing comes behind a full answer."""
    store, manifest = stored((0, [1] * 10))
    reader = TierReader(store)
    size = len(reader.read(manifest, 0, 1)[0].data)
    assert offsets(reader, manifest, 2, 1) == [2]
    assert offsets(reader, manifest, 2, 3 * size) == [2, 3, 4]
    assert offsets(reader, manifest, 2, 4 * size - 1) == [2, 3, 4]


def test_a_read_in_a_hole_gets_the_next_batch() -> None:
    """A known hole is passed, in front of a read and inside of one."""
    store, manifest = stored((0, [5]), (8, [5]))
    reader = TierReader(store)
    assert offsets(reader, manifest, 6, 10_000) == [8]
    assert offsets(reader, manifest, 1, 10_000) == [0, 8]


def test_behind_the_end_is_out_of_range() -> None:
    """What the manifest does not reach is not an empty success."""
    store, manifest = stored((0, [5]))
    with pytest.raises(OffsetOutOfRange):
        TierReader(store).read(manifest, 5, 100)


def test_an_object_that_is_not_there_is_a_storage_error() -> None:
    """Never out of range, never empty; and it works again when the bucket does."""
    store, manifest = stored((0, [5]))
    data = store.objects.pop("segments/0")
    reader = TierReader(store)
    with pytest.raises(StorageError):
        reader.read(manifest, 0, 100)
    store.objects["segments/0"] = data
    store.reset(fail_at=1)
    with pytest.raises(StoreUnavailable):
        reader.read(manifest, 0, 100)
    assert offsets(reader, manifest, 0, 100) == [0]


def test_every_flipped_byte_is_found_by_a_reader() -> None:
    """No byte of an object can change without every reader of it being told."""
    store, manifest = stored((0, [2, 2]))
    good = store.objects["segments/0"]
    for position in range(len(good)):
        broken = bytearray(good)
        broken[position] ^= 4
        store.objects["segments/0"] = bytes(broken)
        with pytest.raises(Damaged):
            TierReader(store).read(manifest, 0, 10_000)
    for cut in range(0, len(good), 7):
        store.objects["segments/0"] = good[:cut]
        with pytest.raises(Damaged):
            TierReader(store).read(manifest, 0, 10_000)


def test_a_section_of_another_partition_is_refused() -> None:
    """A batch does not name its partition: the footer must be the one that is meant."""
    store, manifest = stored((0, [2, 2]))
    data, _ = make_section([make_run(0, [2, 2])], partition=1, object_name="segments/0")
    store.objects["segments/0"] = data
    with pytest.raises(Damaged, match=r"/1 0\.\.3, the manifest says"):
        TierReader(store).read(manifest, 0, 100)


def test_times_are_found() -> None:
    """The first batch not older than a time, from an offset on; and the youngest of all."""
    store, manifest = stored((0, [1] * 5), (5, [1] * 5))
    reader = TierReader(store)

    def found(time: int, start: int = 0) -> int | None:
        batch = reader.find_time(manifest, time, start)
        return batch.base_offset if batch else None

    assert [found(TIME + 1000 * n) for n in range(10)] == list(range(10))
    assert found(TIME + 4001) == 5
    assert found(TIME - 1) == 0
    assert found(TIME + 9001) is None
    assert found(TIME, start=7) == 7
    youngest = reader.find_max_time(manifest, 3)
    assert youngest is not None
    assert youngest.base_offset == 9
    assert reader.find_max_time(manifest, 10) is None


def test_the_youngest_below_the_start_does_not_count() -> None:
    """The largest timestamp is looked for from the log start on, not in what was deleted."""
    store = DictStore()
    runs = [make_run(0, [1], time=TIME + 9000), make_run(1, [1, 1], time=TIME)]
    data, entry = make_section(runs)
    store.objects[entry.object] = data
    manifest = make_manifest([entry], log_start=1)
    batch = TierReader(store).find_max_time(manifest, 1)
    assert batch is not None
    assert batch.base_offset == 2


def test_large_sections_come_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read fetches the chunk it needs, not the object; a batch larger than a chunk is one."""
    monkeypatch.setattr(chunk_cache, "CHUNK_BYTES", 200_000)
    store, manifest = stored((0, [1] * 30), size=30_000)
    reader = TierReader(store)
    assert offsets(reader, manifest, 0, 10**9) == list(range(30))
    sizes = len(store.calls)
    assert 5 <= sizes <= 8
    fresh = TierReader(store)
    store.reset()
    assert offsets(fresh, manifest, 29, 1) == [29]
    assert len(store.calls) == 2
    big, manifest = stored((0, [1, 1, 1]), size=500_000)
    assert offsets(TierReader(big), manifest, 1, 1) == [1]


def test_the_next_chunk_is_fetched_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sequential reader finds the next chunk in the cache, also that of the next object."""
    monkeypatch.setattr(chunk_cache, "CHUNK_BYTES", 100_000)
    store, manifest = stored((0, [1] * 5), (5, [1] * 5), size=30_000)
    ahead: list[Callable[[], None]] = []
    reader = TierReader(store, spawn=ahead.append)
    position = 0
    while position < 10:
        batches = reader.read(manifest, position, 30_000)
        position = batches[-1].last_offset + 1
        while ahead:
            ahead.pop()()
        store.reset()
        if position < 10:
            assert reader.read(manifest, position, 1)[0].base_offset == position
            assert store.calls == []
        ahead.clear()


def test_reading_ahead_fails_in_silence() -> None:
    """A hint that fails is no error of the reader that gave it."""
    store, manifest = stored((0, [1]), (1, [1]))
    del store.objects["segments/1"]
    ahead: list[Callable[[], None]] = []
    reader = TierReader(store, spawn=ahead.append)
    assert offsets(reader, manifest, 0, 1) == [0]
    ahead.pop()()
    with pytest.raises(StorageError):
        reader.read(manifest, 1, 1)


def test_the_cache_is_bounded_by_bytes() -> None:
    """The least recently used goes first; what is larger than the cache is not kept."""
    cache = ChunkCache(bytes_max=100)
    for name in "abc":
        cache.get((name,), lambda name=name: (name, 40))  # type: ignore[misc]
    assert (("a",) in cache, ("b",) in cache, ("c",) in cache) == (False, True, True)
    cache.get(("b",), lambda: ("?", 1))
    cache.get(("d",), lambda: ("d", 40))
    assert (("b",) in cache, ("c",) in cache) == (True, False)
    assert cache.get(("huge",), lambda: ("huge", 1000)) == "huge"
    assert cache.bytes <= 100
    cache.forget(frozenset("bd"))
    assert cache.bytes == 0


def test_one_fetch_for_many_threads() -> None:
    """All that ask while a chunk is on its way wait for it, and share its failure."""
    cache = ChunkCache()
    started, go = threading.Event(), threading.Event()
    made: list[int] = []
    results: list[object] = []

    def make() -> tuple[str, int]:
        made.append(1)
        started.set()
        assert go.wait(10)
        if len(made) == 1:
            raise StorageError("once")
        return "value", 1

    def ask() -> None:
        try:
            results.append(cache.get(("k",), make))
        except StorageError as error:
            results.append(str(error))

    first = threading.Thread(target=ask)
    first.start()
    assert started.wait(10)
    others = [threading.Thread(target=ask) for _ in range(4)]
    for thread in others:
        thread.start()
    go.set()
    for thread in [first, *others]:
        thread.join()
    assert results[0] in ("once", "value")
    assert cache.get(("k",), make) == "value"
    assert len(made) <= 2 + results.count("value")
