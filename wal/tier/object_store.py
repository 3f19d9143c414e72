"""The bucket, as the log sees it: a small protocol with a few strong promises.

Two kinds of things live in a bucket:
- *objects*: written once, never changed. `put` of a name that is taken raises
  `AlreadyThere` (also after a lost reply of one's own; the caller compares
  checksums). When `put` returns, the object survives power loss.
- *registers*: small values replaced by compare-and-set. A version is an opaque
  int; 0 means "not there". Versions of a name rise and are never reused, not even
  after `remove`. What `read` gave survives power loss too.
Deletes have no precondition: only what nothing references is deleted.
All calls block and may be made from any thread, several at a time. Whatever
fails for a passing reason raises `StoreUnavailable`; whether a write happened is
then not known: the caller tries again, or reads and compares. What the chunks of a
`put` raise goes to the caller as it is, and nothing of that put can be seen.
A register whose stored bytes do not hold may raise `Damaged`. Names follow
`names.py` (`BadName`). Objects and registers do not share names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

from ister.wal.errors import StorageError


class StoreUnavailable(StorageError):
    """The bucket did not answer, or not with sense: the same call may succeed later."""


class AlreadyThere(Exception):
    """An object of that name exists (412)."""


class Conflict(Exception):
    """The register has moved on from the expected version (412)."""


class Missing(Exception):
    """No object or register of that name (404)."""


class ObjectInfo(NamedTuple):
    name: str
    size: int
    created_ms: int  # by the bucket's own clock; 0 where it is not known (a directory)


class ObjectStore(Protocol):
    url: str

    def put(self, name: str, chunks: Iterable[bytes | memoryview]) -> None:
        """Create an object from a stream of chunks (constant memory). AlreadyThere if taken."""

    def get(self, name: str, start: int = 0, size: int | None = None) -> bytes:
        """Bytes [start, start+size), fewer at the end of the object. Missing if there is none."""

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """All objects (not registers) whose name starts so, in order of name."""

    def delete(self, name: str) -> None:
        """Gone when it returns; fine if it was not there."""

    def read(self, name: str) -> tuple[bytes, int]:
        """A register's value and version. Missing if it was never written."""

    def swap(self, name: str, value: bytes, expected: int) -> int:
        """Write if the version is still `expected` (0: absent); the new version, or Conflict."""

    def registers(self, prefix: str) -> Iterator[str]:
        """Names of all registers that start so, in order."""

    def remove(self, name: str) -> None:
        """Forget a register; fine if it was not there."""

    def close(self) -> None: ...
