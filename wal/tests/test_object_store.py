"""What every bucket promises: one suite over all backends, the cloud one on a real emulator."""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ister.wal.fs import OsFileSystem
from ister.wal.memory_fs import MemoryFileSystem
from ister.wal.tests.gcs_server import BUCKET, gcs_address, new_client, new_prefix
from ister.wal.tier.directory import DirectoryStore
from ister.wal.tier.gcs import GcsStore
from ister.wal.tier.memory import MemoryStore
from ister.wal.tier.names import NAME_BYTES_MAX, WORD_BYTES_MAX, BadName
from ister.wal.tier.object_store import AlreadyThere, Conflict, Missing, ObjectStore

__all__ = ["gcs_address"]

BACKENDS = ["memory", "directory", "directory-in-memory", "gcs"]
THREADS = 8
SMALL_CHUNK_BYTES = 256 * 1024  # so that a test's megabytes are many chunks


def make_store(kind: str, request: pytest.FixtureRequest) -> ObjectStore:
    if kind == "memory":
        return MemoryStore()
    if kind == "directory":
        path: Path = request.getfixturevalue("tmp_path")
        return DirectoryStore(OsFileSystem(), str(path / "bucket"))
    if kind == "directory-in-memory":
        return DirectoryStore(MemoryFileSystem(), "/data/bucket")
    client = new_client(request.getfixturevalue("gcs_address"))
    return GcsStore(BUCKET, new_prefix(), client, chunk_bytes=SMALL_CHUNK_BYTES)


@pytest.fixture(params=BACKENDS)
def store(request: pytest.FixtureRequest) -> Iterator[ObjectStore]:
    made = make_store(request.param, request)
    yield made
    made.close()


def at_once(work: Callable[[int], object]) -> list[object]:
    """Run `work(0..7)` in threads that start together; what each returned or raised."""
    results: list[object] = [None] * THREADS
    barrier = threading.Barrier(THREADS)

    def run(index: int) -> None:
        barrier.wait()
        try:
            results[index] = work(index)
        except Exception as error:
            results[index] = error

    threads = [threading.Thread(target=run, args=(index,)) for index in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


# -- objects -------------------------------------------------------------------


def test_put_then_get(store: ObjectStore) -> None:
    """An object is the chunks of its stream, one behind the other."""
    store.put("segments/a", [b"one", memoryview(b"-two-"), b"", bytes(bytearray(b"three"))])
    assert store.get("segments/a") == b"one-two-three"


@pytest.mark.parametrize("chunks", [[], [b""]])
def test_empty_object(store: ObjectStore, chunks: list[bytes]) -> None:
    """An object may be empty."""
    store.put("empty", chunks)
    assert store.get("empty") == b""
    assert store.get("empty", 0, 10) == b""
    assert [(info.name, info.size) for info in store.list("")] == [("empty", 0)]


@pytest.mark.parametrize(
    "size", [SMALL_CHUNK_BYTES - 1, SMALL_CHUNK_BYTES, SMALL_CHUNK_BYTES + 1, 1_500_000]
)
def test_sizes_around_a_chunk(store: ObjectStore, size: int) -> None:
    """What is in one upload chunk, exactly one, or several comes back the same."""
    data = bytes(range(251)) * (size // 251 + 1)
    store.put("large", (data[at : min(at + 70_001, size)] for at in range(0, size, 70_001)))
    assert store.get("large") == data[:size]


def test_put_of_a_taken_name(store: ObjectStore) -> None:
    """A name is never written twice: AlreadyThere, also for the same bytes."""
    store.put("a", [b"first"])
    with pytest.raises(AlreadyThere):
        store.put("a", [b"second"])
    with pytest.raises(AlreadyThere):
        store.put("a", [b"first"])
    assert store.get("a") == b"first"


def test_streamed_put_of_a_taken_name(store: ObjectStore) -> None:
    """The same for an object of many chunks."""
    store.put("a", [b"first"])
    with pytest.raises(AlreadyThere):
        store.put("a", (b"x" * 100_000 for _ in range(10)))
    assert store.get("a") == b"first"


@pytest.mark.parametrize(
    ("start", "size", "expected"),
    [
        (0, None, b"0123456789"),
        (0, 4, b"0123"),
        (4, None, b"456789"),
        (4, 3, b"456"),
        (8, 100, b"89"),
        (9, 1, b"9"),
        (10, 1, b""),
        (10, None, b""),
        (50, 5, b""),
        (3, 0, b""),
    ],
)
def test_get_range(store: ObjectStore, start: int, size: int | None, expected: bytes) -> None:
    """A range is cut at the end of the object; behind the end it is empty."""
    store.put("a", [b"0123456789"])
    assert store.get("a", start, size) == expected


def test_get_of_nothing(store: ObjectStore) -> None:
    """No object of that name: Missing, whole or in part."""
    for start, size in [(0, None), (5, 5), (0, 0)]:
        with pytest.raises(Missing):
            store.get("segments/none", start, size)


def test_delete(store: ObjectStore) -> None:
    """Deleted is gone; deleting what is not there is fine."""
    store.put("x/a", [b"1"])
    store.put("x/b", [b"2"])
    store.delete("x/a")
    store.delete("x/a")
    store.delete("never/there")
    with pytest.raises(Missing):
        store.get("x/a")
    assert [info.name for info in store.list("")] == ["x/b"]


def test_list_in_order_of_name(store: ObjectStore) -> None:
    """The whole name decides the order, as in a flat list: `a-b` before `a/b` before `a0`."""
    names = ["a", "a/b", "a-b", "a0", "a.b", "a/b/c", "b/00000000000000000010", "b/9", "A", "a=1/x"]
    for name in names:
        store.put(name, [name.encode()])
    assert [info.name for info in store.list("")] == sorted(names)
    assert [info.size for info in store.list("")] == [len(name) for name in sorted(names)]


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [
        ("s/", ["s/1/a", "s/1/b", "s/10/a"]),
        ("s/1", ["s/1/a", "s/1/b", "s/10/a"]),
        ("s/1/", ["s/1/a", "s/1/b"]),
        ("s/1/b", ["s/1/b"]),
        ("s/1/b/", []),
        ("none", []),
    ],
)
def test_list_by_prefix(store: ObjectStore, prefix: str, expected: list[str]) -> None:
    """A prefix is a beginning of the name, not a folder."""
    for name in ["s/1/a", "s/1/b", "s/10/a", "t/1/a"]:
        store.put(name, [b"x"])
    assert [info.name for info in store.list(prefix)] == expected


def test_failing_stream_leaves_nothing(store: ObjectStore) -> None:
    """A put whose chunks fail raises their error, shows nothing, and the name is free."""

    def chunks(size: int) -> Iterator[bytes]:
        yield b"x" * size
        raise ConnectionResetError("the source failed")  # one that libraries like to try again

    for size in (10, SMALL_CHUNK_BYTES * 3):
        with pytest.raises(ConnectionResetError, match="the source failed"):
            store.put("a", chunks(size))
        with pytest.raises(Missing):
            store.get("a")
        assert list(store.list("")) == []
    store.put("a", [b"now"])
    assert store.get("a") == b"now"


def test_one_winner_of_a_create(store: ObjectStore) -> None:
    """Eight threads create one name: one wins, the others are told, and its bytes are there."""
    results = at_once(lambda index: store.put("contended", [b"from %d" % index] * 3))
    winners = [index for index, result in enumerate(results) if result is None]
    assert len(winners) == 1
    assert [type(result) for result in results if result is not None] == [AlreadyThere] * 7
    assert store.get("contended") == b"from %d" % winners[0] * 3


@pytest.mark.parametrize("backend", ["directory", "gcs"])
def test_streamed_put_takes_constant_memory(request: pytest.FixtureRequest, backend: str) -> None:
    """Memory does not grow with the object."""
    store = make_store(backend, request)
    chunk = b"x" * 65536
    store.put("warm-up", [chunk] * 8)
    tracemalloc.start()
    try:
        store.put("large", (bytes(chunk) for _ in range(512)))
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [info.size for info in store.list("large")] == [512 * 65536]
    assert peak_bytes < 16 * SMALL_CHUNK_BYTES  # of 32 MiB
    store.close()


# -- registers -----------------------------------------------------------------


def test_register_life(store: ObjectStore) -> None:
    """A register is made at version 0, and each swap gives a new version."""
    with pytest.raises(Missing):
        store.read("owner")
    first = store.swap("owner", b"one", 0)
    assert first != 0
    assert store.read("owner") == (b"one", first)
    second = store.swap("owner", b"", first)
    assert second > first
    assert store.read("owner") == (b"", second)


def test_swap_at_another_version(store: ObjectStore) -> None:
    """A swap that expects anything but the current version is a Conflict and changes nothing."""
    with pytest.raises(Conflict):
        store.swap("r", b"x", 7)
    first = store.swap("r", b"one", 0)
    second = store.swap("r", b"two", first)
    for expected in (0, first, second + 1):
        with pytest.raises(Conflict):
            store.swap("r", b"x", expected)
    assert store.read("r") == (b"two", second)


def test_many_swaps(store: ObjectStore) -> None:
    """Versions rise one after another, however many there were."""
    versions = [0]
    for number in range(12):
        versions.append(store.swap("r", b"%d" % number, versions[-1]))
    assert versions == sorted(set(versions))
    assert store.read("r") == (b"11", versions[-1])


def test_versions_are_not_reused_after_remove(store: ObjectStore) -> None:
    """Whoever still holds a version of the removed register cannot swap the new one."""
    first = store.swap("r", b"old", 0)
    store.remove("r")
    store.remove("r")
    with pytest.raises(Missing):
        store.read("r")
    with pytest.raises(Conflict):
        store.swap("r", b"stale", first)
    second = store.swap("r", b"new", 0)
    assert second > first
    with pytest.raises(Conflict):
        store.swap("r", b"stale", first)
    assert store.read("r") == (b"new", second)


def test_remove_of_nothing(store: ObjectStore) -> None:
    """Removing a register that never was is fine."""
    store.remove("manifests/none")
    with pytest.raises(Missing):
        store.read("manifests/none")


def test_registers_in_order(store: ObjectStore) -> None:
    """Names of living registers by prefix, in order."""
    for name in ["m/b", "m/a/2", "m/a", "m-1", "owner"]:
        store.swap(name, b"x", 0)
    store.remove("m/b")
    assert list(store.registers("")) == ["m-1", "m/a", "m/a/2", "owner"]
    assert list(store.registers("m/")) == ["m/a", "m/a/2"]
    assert list(store.registers("none")) == []


def test_objects_and_registers_do_not_meet(store: ObjectStore) -> None:
    """The same name may be an object and a register."""
    version = store.swap("same", b"register", 0)
    store.put("same", [b"object"])
    assert store.get("same") == b"object"
    assert [info.name for info in store.list("")] == ["same"]
    assert list(store.registers("")) == ["same"]
    store.delete("same")
    assert store.read("same") == (b"register", version)


def test_one_winner_of_a_swap(store: ObjectStore) -> None:
    """Eight threads swap from one version: one wins."""
    version = store.swap("r", b"start", 0)
    results = at_once(lambda index: store.swap("r", b"from %d" % index, version))
    winners = [index for index, result in enumerate(results) if isinstance(result, int)]
    assert len(winners) == 1
    assert sum(isinstance(result, Conflict) for result in results) == 7
    assert store.read("r") == (b"from %d" % winners[0], results[winners[0]])


def test_counting_by_swap(store: ObjectStore) -> None:
    """Eight threads add to a counter by compare-and-set: nothing is lost."""
    store.swap("counter", b"0", 0)

    def add(_index: int) -> None:
        for _ in range(5):
            while True:
                value, version = store.read("counter")
                try:
                    store.swap("counter", b"%d" % (int(value) + 1), version)
                except Conflict:
                    continue
                break

    assert at_once(add) == [None] * THREADS
    assert store.read("counter")[0] == b"40"


# -- names ---------------------------------------------------------------------

BAD_NAMES = [
    *[
        "",
        "/a",
        "a/",
        "a//b",
        "..",
        "a/../b",
        "./a",
        "a/.b",
        "a@",
        "a b",
        "a\\b",
        "a\0",
        "ä",
        "a\n",
    ],
    "x" * (WORD_BYTES_MAX + 1),
    "/".join(["x" * 100] * (NAME_BYTES_MAX // 100)),
]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_bad_names(store: ObjectStore, name: str) -> None:
    """A name that climbs, hides, is absolute, too long or strange is refused by every call."""
    calls: list[Callable[[], object]] = [
        lambda: store.put(name, [b"x"]),
        lambda: store.get(name),
        lambda: store.delete(name),
        lambda: store.read(name),
        lambda: store.swap(name, b"x", 0),
        lambda: store.remove(name),
    ]
    for call in calls:
        with pytest.raises(BadName):
            call()


@pytest.mark.parametrize("prefix", ["/", "..", "../", "a/..", "a//", "@"])
def test_bad_prefixes(store: ObjectStore, prefix: str) -> None:
    """A listing cannot climb either."""
    with pytest.raises(BadName):
        list(store.list(prefix))
    with pytest.raises(BadName):
        list(store.registers(prefix))


def test_longest_names(store: ObjectStore) -> None:
    """The longest name allowed fits into every backend."""
    name = "/".join(["w" * WORD_BYTES_MAX, "x" * WORD_BYTES_MAX, "y" * WORD_BYTES_MAX])
    store.put(name, [b"x"])
    store.swap(name, b"x", 0)
    assert [info.name for info in store.list("w")] == [name]
    assert list(store.registers("w")) == [name]
