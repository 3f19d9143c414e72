"""The store of one node: a single SQLite database.

Write-ahead journal and synchronous=FULL: a commit is one sync of the `-wal`
file, and survives a power cut once it returned. `commit_many` is one SQLite
transaction; since a transaction's expectations are all checked before its first
write, a conflict needs no savepoint.

Tables: `kv(key, value, version, checksum)`, keys as UTF-8 bytes so that SQLite's
order is Python's, and `revision`, one row. SQLite has no checksums of its own,
so each row has one over key, version and value, compared at every read. What
kind of file this is and its format stand in the database header
(application_id, user_version), readable whatever a later format looks like.

Three kinds of connections: one that writes (under a lock), one for `get` (so
that a reader never waits for a sync), and one per `scan`, which sees one state
of the store from its first item to its last.

The `-wal` file: SQLite copies it into the database when it passes
`WAL_PAGES_MAX`, and starts it again at its beginning unless a scan still needs
it; after that it is cut to `WAL_BYTES_KEPT`. So it is at most that large, or as
large as the largest transaction, or as what was written during a scan. SQLite
ignores errors of that copy, which is harmless: the copy is made again from the
start, and `-wal` stays.

Errors: a full or locked database leaves nothing behind and may be tried again
(StoreUnavailable). An I/O error in a commit leaves its outcome open, and is
final until a restart (StoreFailed).

Read-only (`read_only=True`) it opens beside a running broker and changes
neither the database nor its `-wal`. It does not keep a second broker away:
that is the lock of the data directory.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import zlib
from collections.abc import Generator, Iterator, Sequence
from urllib.parse import quote

from ister.metadata.errors import (
    Conflict,
    MetadataError,
    NewerFormat,
    StoreDamaged,
    StoreFailed,
    StoreUnavailable,
)
from ister.metadata.store import Entry, Transaction, unmet

FORMAT = 1
APPLICATION_ID = 0x49737472  # "Istr"
BUSY_TIMEOUT_SECONDS = 5.0
WAL_PAGES_MAX = 1000  # of 4 KiB: copied into the database beyond that
WAL_BYTES_KEPT = 8 * 1024 * 1024

_DAMAGE = {"SQLITE_CORRUPT", "SQLITE_NOTADB"}
_SHORTAGE = {"SQLITE_IOERR_NOMEM", "SQLITE_IOERR_SHMSIZE"}  # of memory or space, not of the disk
_HELP = "restore the file from a backup, or rebuild the broker with `ister archive restore`"

_SELECT = "SELECT value, version, checksum FROM kv WHERE key = ?"
_SELECT_VERSION = "SELECT version FROM kv WHERE key = ?"
# No UTF-8 text has the byte ff, so it ends everything that begins with a prefix.
_SCAN = (
    "SELECT key, value, version, checksum FROM kv"
    " WHERE key >= ?1 AND key < CAST(?1 || x'ff' AS BLOB) ORDER BY key"
)
_PUT = "INSERT OR REPLACE INTO kv (key, value, version, checksum) VALUES (?, ?, ?, ?)"
_DELETE = "DELETE FROM kv WHERE key = ?"
_DELETE_PREFIX = "DELETE FROM kv WHERE key >= ?1 AND key < CAST(?1 || x'ff' AS BLOB)"
_CREATE = (
    "CREATE TABLE kv (key BLOB PRIMARY KEY NOT NULL, value BLOB NOT NULL,"
    " version INTEGER NOT NULL, checksum INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE revision (value INTEGER NOT NULL)",
    "INSERT INTO revision (value) VALUES (0)",
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {FORMAT}",
)


class SqliteStore:
    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        read_only: bool = False,
        busy_timeout_seconds: float = BUSY_TIMEOUT_SECONDS,
    ) -> None:
        self.path = os.path.abspath(path)
        self._read_only = read_only
        self._busy_timeout_seconds = busy_timeout_seconds
        self._closed = False
        self._failure: str | None = None
        self._write_lock = threading.Lock()
        self._read_lock = threading.Lock()
        self._writer: sqlite3.Connection | None = None
        self._check_files()
        # A clean stop leaves no -wal, and looking without one must not make one.
        self._still = read_only and not os.path.exists(self.path + "-wal")
        with contextlib.ExitStack() as undo:
            if not read_only:
                self._writer = self._open_writer()
                undo.callback(self._writer.close)
            self._reader = self._connect("ro")
            undo.callback(self._reader.close)
            with self._translated():
                self._check_content(self._reader)
            undo.pop_all()

    def get(self, key: str) -> Entry | None:
        with self._read_lock:
            self._check_open()
            with self._translated():
                row = self._reader.execute(_SELECT, (key.encode(),)).fetchone()
            self._check_still()
        return None if row is None else self._entry(key.encode(), *row)

    def scan(self, prefix: str) -> Generator[tuple[str, Entry], None, None]:
        self._check_open()
        connection = self._connect("ro")
        try:
            with self._translated():
                for key, *row in connection.execute(_SCAN, (prefix.encode(),)):
                    yield key.decode(), self._entry(key, *row)
        finally:
            connection.close()
        self._check_still()

    def commit(self, transaction: Transaction) -> int:
        result = self.commit_many([transaction])[0]
        if isinstance(result, Conflict):
            raise result
        return result

    def commit_many(self, transactions: Sequence[Transaction]) -> list[int | Conflict]:
        with self._write_lock:
            self._check_open()
            if self._writer is None:
                raise StoreUnavailable(f"{self.path} is open for reading only")
            if self._failure is not None:
                raise StoreFailed(self._failure)
            with self._translated():
                try:
                    return self._commit(self._writer, transactions)
                except BaseException:
                    with contextlib.suppress(sqlite3.Error):  # the first error is the one to tell
                        if self._writer.in_transaction:
                            self._writer.execute("ROLLBACK")
                    raise

    def wal_bytes(self) -> int:
        """The size of the `-wal` file."""
        try:
            return os.stat(self.path + "-wal").st_size
        except FileNotFoundError:
            return 0

    def close(self) -> None:
        with self._write_lock, self._read_lock:
            if self._closed:
                return
            self._closed = True
            self._reader.close()
            if self._writer is not None:
                with self._translated():
                    self._writer.close()  # the last one copies the -wal and removes it

    # -- opening ---------------------------------------------------------------

    def _check_files(self) -> None:
        size = os.path.getsize(self.path) if os.path.exists(self.path) else None
        if self._read_only and size is None:
            raise StoreUnavailable(f"there is no {self.path}")
        if not size and self.wal_bytes():  # SQLite would throw the -wal away and begin anew
            state = "missing" if size is None else "empty"
            raise StoreDamaged(f"{self.path} is {state}, but its -wal file is not: {_HELP}")

    def _open_writer(self) -> sqlite3.Connection:
        directory = os.path.dirname(self.path)
        if not os.path.isdir(directory):
            raise StoreUnavailable(f"there is no directory {directory}")
        connection = self._connect("rwc")
        try:
            with self._translated():
                # Looked at before anything is set: a file that is not ours stays as it is.
                fresh = self._check_kind(connection)
                self._configure(connection)
                if fresh:
                    connection.execute("BEGIN IMMEDIATE")
                    for statement in _CREATE:
                        connection.execute(statement)
                    connection.execute("COMMIT")
                    _sync_directory(directory)
        except BaseException:
            connection.close()
            raise
        return connection

    def _configure(self, connection: sqlite3.Connection) -> None:
        mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise StoreUnavailable(f"{self.path}: this file system cannot carry SQLite's -wal file")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA fullfsync = ON")  # macOS, where fsync stops short of the platter
        connection.execute("PRAGMA checkpoint_fullfsync = ON")
        connection.execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES_MAX}")
        connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES_KEPT}")

    def _check_kind(self, connection: sqlite3.Connection) -> bool:
        """True for a database with nothing in it yet."""
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if application == version == tables == 0:
            return True
        if application != APPLICATION_ID:
            raise StoreDamaged(f"{self.path} is not a metadata store of Ister: {_HELP}")
        if version > FORMAT:
            raise NewerFormat(
                f"{self.path} has format {version}, this version reads up to {FORMAT}:"
                " start the newer version of Ister that wrote it"
            )
        return False

    def _check_content(self, connection: sqlite3.Connection) -> None:
        if self._check_kind(connection):
            raise StoreUnavailable(f"{self.path} has nothing in it yet")
        found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if found != "ok":
            raise StoreDamaged(f"{self.path}: {found}: {_HELP}")

    def _connect(self, mode: str) -> sqlite3.Connection:
        still = "&immutable=1" if self._still else ""
        with self._translated():
            connection = sqlite3.connect(
                f"file:{quote(self.path)}?mode={mode}{still}",
                uri=True,
                timeout=self._busy_timeout_seconds,
                isolation_level=None,
                check_same_thread=False,
            )
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA cell_size_check = ON")
        return connection

    # -- inside ----------------------------------------------------------------

    def _commit(
        self, writer: sqlite3.Connection, transactions: Sequence[Transaction]
    ) -> list[int | Conflict]:
        writer.execute("BEGIN IMMEDIATE")
        first = revision = writer.execute("SELECT value FROM revision").fetchone()[0]
        results: list[int | Conflict] = []
        for transaction in transactions:
            conflict = unmet(transaction.expect, lambda key: _version_of(writer, key))
            if conflict is not None:
                results.append(conflict)
                continue
            revision += 1
            _apply(writer, transaction, revision)
            results.append(revision)
        if revision == first:
            writer.execute("ROLLBACK")
        else:
            writer.execute("UPDATE revision SET value = ?", (revision,))
            writer.execute("COMMIT")
        return results

    def _entry(self, key: bytes, value: bytes, version: int, checksum: int) -> Entry:
        if checksum != _checksum(key, value, version):
            raise StoreDamaged(f"{self.path}: the value of {key.decode()!r} is damaged: {_HELP}")
        return Entry(value, version)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable(f"{self.path} is closed")

    def _check_still(self) -> None:
        """What was read as a file at rest is only good if it stayed at rest."""
        if self._still and os.path.exists(self.path + "-wal"):
            raise StoreUnavailable(f"a broker opened {self.path} meanwhile: try again")

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise self._translate(error) from error

    def _translate(self, error: sqlite3.Error) -> MetadataError:
        name = getattr(error, "sqlite_errorname", None) or type(error).__name__
        said = f"{self.path}: {error} ({name})"
        if any(name.startswith(damage) for damage in _DAMAGE):
            return StoreDamaged(f"{said}: {_HELP}")
        if name.startswith("SQLITE_IOERR") and name not in _SHORTAGE:
            self._failure = f"{said}: look at the disk, then restart"
            return StoreFailed(self._failure)
        return StoreUnavailable(said)


def _apply(writer: sqlite3.Connection, transaction: Transaction, revision: int) -> None:
    for name in transaction.delete:
        writer.execute(_DELETE, (name.encode(),))
    for prefix in transaction.delete_prefix:
        writer.execute(_DELETE_PREFIX, (prefix.encode(),))
    for name, value in transaction.put.items():
        key = name.encode()
        writer.execute(_PUT, (key, value, revision, _checksum(key, value, revision)))


def _version_of(connection: sqlite3.Connection, key: str) -> int:
    row = connection.execute(_SELECT_VERSION, (key.encode(),)).fetchone()
    return 0 if row is None else int(row[0])


def _checksum(key: bytes, value: bytes, version: int) -> int:
    return zlib.crc32(value, zlib.crc32(key, version & 0xFFFFFFFF))


def _sync_directory(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
