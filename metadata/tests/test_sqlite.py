"""What SQLite adds: files, durability, damage, formats, looking on from outside."""

from __future__ import annotations

import os
import resource
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from ister.metadata.sqlite import FORMAT, WAL_BYTES_KEPT, SqliteStore
from ister.metadata.store import (
    NewerFormat,
    StoreDamaged,
    StoreFailed,
    StoreUnavailable,
    Transaction,
)

ROOT = Path(__file__).parents[2]

WRITER = """
import sys
from ister.metadata.sqlite import SqliteStore
from ister.metadata.store import Transaction
store = SqliteStore(sys.argv[1])
entry = store.get("n")
number = int(entry.value) if entry else 0
while True:
    number += 1
    store.commit(Transaction(put={"n": b"%d" % number, f"k/{number}": b"x" * 100}))
    print(number, flush=True)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metadata.db"


def files(directory: Path) -> dict[str, bytes]:
    """Everything but -shm, which is scratch shared by those who look."""
    found = sorted(directory.iterdir())
    return {file.name: file.read_bytes() for file in found if not file.name.endswith("-shm")}


def value(store: SqliteStore, key: str) -> bytes:
    entry = store.get(key)
    assert entry is not None
    return entry.value


def writer(store: SqliteStore) -> sqlite3.Connection:
    assert store._writer is not None
    return store._writer


def kill_a_writer(path: Path, after: int) -> int:
    """Start a process that commits without end, kill -9 it; what it was answered last."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        for _ in range(after):
            assert process.stdout.readline()
    finally:
        process.send_signal(signal.SIGKILL)
    rest = process.communicate()[0].split("\n")
    return max([after, *(int(line) for line in rest[:-1])])


def test_everything_is_there_after_a_restart(path):
    """Values, versions and the revision go on."""
    store = SqliteStore(path)
    first = store.commit(Transaction(put={"a": b"1"}))
    store.commit(Transaction(delete=["a"]))
    store.close()
    store = SqliteStore(path)
    assert store.get("a") is None
    assert store.commit(Transaction(put={"a": b"1"})) == first + 2
    store.close()


def test_kill_9_loses_nothing_answered(path):
    """What was answered is there, whole transactions only, through several kills."""
    answered = 0
    for _ in range(3):
        answered = max(answered, kill_a_writer(path, after=30))
        store = SqliteStore(path)
        number = int(value(store, "n"))
        assert number >= answered
        assert len(list(store.scan("k/"))) == number
        store.close()
        answered = number


def test_settings_that_durability_stands_on(path):
    """Write-ahead journal, synchronous=FULL, on the connection that writes."""
    store = SqliteStore(path)
    assert writer(store).execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert writer(store).execute("PRAGMA synchronous").fetchone() == (2,)
    store.close()


def test_the_wal_file_stays_bounded(path):
    """However much was committed, the -wal is small, and gone after a clean stop."""
    store = SqliteStore(path)
    for _ in range(300):
        store.commit(Transaction(put={"a": os.urandom(100_000)}))
    assert 0 < store.wal_bytes() <= WAL_BYTES_KEPT
    store.close()
    assert store.wal_bytes() == 0


def test_the_wal_file_shrinks_after_a_large_transaction(path):
    """It holds the largest transaction for a moment; the next commit cuts it back."""
    store = SqliteStore(path)
    store.commit(Transaction(put={"a": os.urandom(2 * WAL_BYTES_KEPT)}))
    assert store.wal_bytes() > WAL_BYTES_KEPT
    store.commit(Transaction(put={"b": b"1"}))
    assert store.wal_bytes() <= WAL_BYTES_KEPT
    store.close()


def test_the_wal_file_shrinks_after_a_long_scan(path):
    """A scan holds the -wal; once it is over the file is cut back."""
    store = SqliteStore(path)
    store.commit(Transaction(put={"a": b"", "b": b""}))
    scan = store.scan("")
    next(scan)
    for _ in range(150):
        store.commit(Transaction(put={"a": os.urandom(100_000)}))
    grown = store.wal_bytes()
    assert grown > WAL_BYTES_KEPT
    scan.close()
    for _ in range(60):
        store.commit(Transaction(put={"a": os.urandom(100_000)}))
    assert store.wal_bytes() <= WAL_BYTES_KEPT
    store.close()


# -- looking on ----------------------------------------------------------------


def test_looking_on_beside_a_running_broker(path):
    """A read-only store sees each commit, and may not commit."""
    store = SqliteStore(path)
    store.commit(Transaction(put={"a": b"1"}))
    before = files(path.parent)
    onlooker = SqliteStore(path, read_only=True)
    assert value(onlooker, "a") == b"1"
    with pytest.raises(StoreUnavailable, match="reading only"):
        onlooker.commit(Transaction(put={"a": b"2"}))
    assert files(path.parent) == before
    store.commit(Transaction(put={"a": b"3"}))
    assert value(onlooker, "a") == b"3"
    onlooker.close()
    assert store.commit(Transaction(put={"a": b"4"})) == 3
    store.close()


def test_looking_after_a_clean_stop_makes_no_file(path):
    """Read-only on a database at rest leaves the directory as it was."""
    store = SqliteStore(path)
    store.commit(Transaction(put={"a": b"1"}))
    store.close()
    before = files(path.parent)
    onlooker = SqliteStore(path, read_only=True)
    assert [key for key, _ in onlooker.scan("")] == ["a"]
    onlooker.close()
    assert files(path.parent) == before
    assert os.listdir(path.parent) == ["metadata.db"]


def test_looking_after_kill_9_changes_nothing(path):
    """Read-only sees what is only in the -wal, and leaves it there."""
    answered = kill_a_writer(path, after=10)
    before = files(path.parent)
    onlooker = SqliteStore(path, read_only=True)
    assert int(value(onlooker, "n")) >= answered
    onlooker.close()
    assert files(path.parent) == before


def test_a_broker_that_starts_under_a_look_at_rest_is_noticed(path):
    """What was read as a file at rest is refused once it is in use."""
    SqliteStore(path).close()
    onlooker = SqliteStore(path, read_only=True)
    store = SqliteStore(path)
    store.commit(Transaction(put={"a": b"1"}))
    with pytest.raises(StoreUnavailable, match="try again"):
        onlooker.get("a")
    onlooker.close()
    store.close()


def test_looking_where_nothing_is(path):
    """Read-only never creates."""
    with pytest.raises(StoreUnavailable, match="there is no"):
        SqliteStore(path, read_only=True)
    assert not path.exists()


# -- what cannot be opened -----------------------------------------------------


def test_a_newer_format_is_refused_and_left_alone(path):
    """The message names both formats; not a byte is changed."""
    SqliteStore(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {FORMAT + 1}")
    connection.close()
    before = files(path.parent)
    for read_only in (False, True):
        with pytest.raises(NewerFormat, match=f"format {FORMAT + 1}.*newer version"):
            SqliteStore(path, read_only=read_only)
    assert files(path.parent) == before


def test_a_file_that_is_no_database_is_refused_and_left_alone(path):
    """The message says what to do."""
    path.write_bytes(b"something else entirely" * 500)
    before = files(path.parent)
    with pytest.raises(StoreDamaged, match="restore"):
        SqliteStore(path)
    assert files(path.parent) == before


def test_a_database_of_somebody_else_is_refused(path):
    """Tables that are not ours are never written to."""
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE theirs (a)")
    connection.close()
    with pytest.raises(StoreDamaged, match="not a metadata store"):
        SqliteStore(path)


@pytest.mark.parametrize("state", ["missing", "empty"])
def test_a_lost_database_beside_its_wal_is_damage(path, state):
    """SQLite alone would drop the -wal and begin anew without a word."""
    kill_a_writer(path, after=3)
    if state == "missing":
        path.unlink()
    else:
        path.write_bytes(b"")
    with pytest.raises(StoreDamaged, match=state):
        SqliteStore(path)
    assert (path.parent / "metadata.db-wal").stat().st_size > 0


def test_an_interrupted_creation_is_finished(path):
    """An empty file is a database that was never written to."""
    path.write_bytes(b"")
    store = SqliteStore(path)
    assert store.commit(Transaction(put={"a": b"1"})) == 1
    store.close()


def test_a_missing_directory_is_named(tmp_path):
    """Making the data directory is not the store's business."""
    with pytest.raises(StoreUnavailable, match="no directory"):
        SqliteStore(tmp_path / "none" / "metadata.db")


def test_a_flipped_byte_never_gives_a_wrong_value(path):
    """At every position of the database: the right content, or an error; never something else."""
    store = SqliteStore(path)
    store.commit(Transaction(put={"a": b"value one", "b": b"value two"}))
    right = list(store.scan(""))
    store.close()
    good = path.read_bytes()
    assert len(good) <= 16384
    used = [position for position, byte in enumerate(good) if byte]
    reported = 0
    for position in used:
        path.write_bytes(good[:position] + bytes([good[position] ^ 0x10]) + good[position + 1 :])
        try:
            onlooker = SqliteStore(path, read_only=True)
        except (StoreDamaged, NewerFormat, StoreUnavailable):
            reported += 1
            continue
        try:
            found = list(onlooker.scan(""))
        except (StoreDamaged, StoreUnavailable):
            reported += 1
        else:
            assert found == right, position
        finally:
            onlooker.close()
    assert reported > len(used) // 2


# -- trouble while running -----------------------------------------------------


def test_a_locked_database_is_unavailable_and_goes_on(path):
    """Somebody holds the write lock: StoreUnavailable, nothing applied, and then it works."""
    store = SqliteStore(path, busy_timeout_seconds=0.01)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="locked"):
        store.commit(Transaction(put={"a": b"1"}))
    other.execute("ROLLBACK")
    other.close()
    assert store.commit(Transaction(put={"b": b"1"})) == 1
    assert store.get("a") is None
    store.close()


def test_a_full_database_is_unavailable_and_goes_on(path):
    """No room: the whole group is refused, nothing is torn, and then it works."""
    store = SqliteStore(path)
    pages = writer(store).execute("PRAGMA page_count").fetchone()[0]
    writer(store).execute(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(StoreUnavailable, match="full") as caught:
        store.commit_many([Transaction(put={"a": b"1"}), Transaction(put={"b": b"1" * 100_000})])
    assert not isinstance(caught.value, StoreFailed)
    assert list(store.scan("")) == []
    writer(store).execute("PRAGMA max_page_count = 1000000")
    assert store.commit(Transaction(put={"a": b"1"})) == 1
    store.close()


def test_an_io_error_is_final(path):
    """A write that the system refuses: this commit and all later ones fail, reads go on."""
    store = SqliteStore(path)
    store.commit(Transaction(put={"a": b"1"}))
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (store.wal_bytes(), limits[1]))
    try:
        with pytest.raises(StoreFailed, match="restart"):
            store.commit(Transaction(put={"b": b"1" * 50_000}))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    with pytest.raises(StoreFailed):
        store.commit(Transaction(put={"c": b"1"}))
    assert value(store, "a") == b"1"
    store.close()
    store = SqliteStore(path)
    assert [key for key, _ in store.scan("")] == ["a"]
    store.close()
