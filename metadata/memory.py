"""A store in memory: for tests, and for brokers that keep nothing.

It has the meaning of the real thing and adds what a test needs to break it:
a `crash` hook, called with "before" and "after" around every commit (a whole
`commit_many` is one commit, as it is one sync), which raises to end the run
there; and `lose_next_reply`, after which one commit is applied but answered
with `StoreUnavailable`. `reopen` is what a new process would find.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence

from ister.metadata.errors import Conflict, StoreUnavailable
from ister.metadata.store import Entry, Transaction, unmet

CrashHook = Callable[[str], None]


class MemoryStore:
    def __init__(self, crash: CrashHook | None = None) -> None:
        self._crash = crash
        self._entries: dict[str, Entry] = {}
        self._revision = 0
        self._lose_reply = False
        self._closed = False
        self._lock = threading.Lock()

    def get(self, key: str) -> Entry | None:
        self._check_open()
        return self._entries.get(key)

    def scan(self, prefix: str) -> Generator[tuple[str, Entry], None, None]:
        self._check_open()
        with self._lock:
            found = [item for item in self._entries.items() if item[0].startswith(prefix)]
        yield from sorted(found)

    def commit(self, transaction: Transaction) -> int:
        result = self.commit_many([transaction])[0]
        if isinstance(result, Conflict):
            raise result
        return result

    def commit_many(self, transactions: Sequence[Transaction]) -> list[int | Conflict]:
        self._check_open()
        if self._crash is not None:
            self._crash("before")
        with self._lock:
            results = [self._apply(transaction) for transaction in transactions]
        if self._crash is not None:
            self._crash("after")
        if self._lose_reply:
            self._lose_reply = False
            raise StoreUnavailable("the reply was lost")
        return results

    def close(self) -> None:
        self._closed = True

    # -- for tests -------------------------------------------------------------

    def lose_next_reply(self) -> None:
        """The next commit is applied, and its caller gets StoreUnavailable."""
        self._lose_reply = True

    def copy(self, crash: CrashHook | None = None) -> MemoryStore:
        """Another store with what is durable in this one."""
        other = MemoryStore(crash)
        with self._lock:
            other._entries = dict(self._entries)
            other._revision = self._revision
        return other

    def reopen(self, crash: CrashHook | None = None) -> MemoryStore:
        """The store after a crash; this object is dead: no late call of the old run counts."""
        self._closed = True
        return self.copy(crash)

    # -- inside ----------------------------------------------------------------

    def _apply(self, transaction: Transaction) -> int | Conflict:
        conflict = unmet(transaction.expect, self._version_of)
        if conflict is not None:
            return conflict
        self._revision += 1
        for key in transaction.delete:
            self._entries.pop(key, None)
        for prefix in transaction.delete_prefix:
            for key in [key for key in self._entries if key.startswith(prefix)]:
                del self._entries[key]
        for key, value in transaction.put.items():
            self._entries[key] = Entry(bytes(value), self._revision)
        return self._revision

    def _version_of(self, key: str) -> int:
        entry = self._entries.get(key)
        return 0 if entry is None else entry.version

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable("the store is closed")
