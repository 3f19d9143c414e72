"""The store of metadata, as everybody sees it: ordered keys, versions, transactions.

A key is text, a value is bytes. Every transaction that is applied gets the next
*revision* of the store; the version of a key is the revision that last wrote
it, so it rises with every write and is never reused, not even after the key was
deleted and written again. A transaction says which versions it expects; if one
does not hold it is a `Conflict` and changes nothing.

The protocol is kept to what an embedded database (`sqlite.py`), a dictionary
(`memory.py`) and a clustered store such as etcd can all do: hence no update in
place, no secondary index, and no key that one transaction touches twice.

Engines may be used from several threads; a commit blocks until it is durable,
so whoever must not wait goes through `service.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from ister.metadata.errors import (
    Conflict,
    NewerFormat,
    StoreDamaged,
    StoreFailed,
    StoreOverloaded,
    StoreUnavailable,
)

__all__ = [
    "ABSENT",
    "PRESENT",
    "Conflict",
    "Entry",
    "NewerFormat",
    "Store",
    "StoreDamaged",
    "StoreFailed",
    "StoreOverloaded",
    "StoreUnavailable",
    "Transaction",
    "unmet",
]

ABSENT = 0  # expect: there is no such key
PRESENT = -1  # expect: the key is there, at whatever version


class Entry(NamedTuple):
    value: bytes
    version: int  # rises with every write of the key, never reused


@dataclass(frozen=True, slots=True)
class Transaction:
    """All or nothing: if every expectation holds, the deletions and puts happen together."""

    expect: Mapping[str, int] = field(default_factory=dict)  # key: version, ABSENT or PRESENT
    put: Mapping[str, bytes] = field(default_factory=dict)
    delete: Sequence[str] = ()  # a key that is not there is no error
    delete_prefix: Sequence[str] = ()

    def __post_init__(self) -> None:
        # Checked here, not in the engine: there a bad key would fail the whole group it is in.
        for keys in (self.expect, self.put, self.delete, self.delete_prefix):
            for key in keys:
                if not key:
                    raise ValueError("a key or prefix must not be empty")
                if not key.isascii():
                    key.encode()  # lone surrogates are refused
        if not self.put:
            return
        for key in self.delete:
            if key in self.put:
                raise ValueError(f"{key!r} is both put and deleted")
        for prefix in self.delete_prefix:
            for key in self.put:
                if key.startswith(prefix):
                    raise ValueError(f"{key!r} is put, but everything below {prefix!r} is deleted")


class Store(Protocol):
    def get(self, key: str) -> Entry | None: ...

    def scan(self, prefix: str) -> Generator[tuple[str, Entry], None, None]:
        """What begins with `prefix`, in key order, as it is when the first item is asked for.

        Run it to its end or close it: an engine may hold resources until then.
        """

    def commit(self, transaction: Transaction) -> int:
        """The revision; durable when it returns. Conflict: nothing changed."""

    def commit_many(self, transactions: Sequence[Transaction]) -> list[int | Conflict]:
        """One after the other, each seeing those before it; one sync for all.

        A conflict concerns its own transaction alone; any other error concerns all.
        """

    def close(self) -> None: ...


def unmet(expect: Mapping[str, int], version_of: Callable[[str], int]) -> Conflict | None:
    """The first expectation that does not hold (`version_of` gives 0 for a key not there)."""
    for key, expected in expect.items():
        found = version_of(key)
        if found != expected and not (expected == PRESENT and found != ABSENT):
            return Conflict(key, expected, found)
    return None
