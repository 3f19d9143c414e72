"""A bucket in memory: for tests, and for brokers that need no archive.

Two dicts and a lock. Versions come from one counter for the whole store, so that
a register that was removed and written again never shows an old version. Nothing
survives the process; `shared_store(name)` gives one store to all who ask for the
same name, so that a broker and a tool in one process can meet in it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator

from ister.wal.clock import Clock, SystemClock
from ister.wal.tier.names import check_name, check_prefix
from ister.wal.tier.object_store import AlreadyThere, Conflict, Missing, ObjectInfo

_shared: dict[str, MemoryStore] = {}
_shared_lock = threading.Lock()


class MemoryStore:
    """An `ObjectStore` in dicts."""

    def __init__(self, clock: Clock | None = None, url: str = "memory://") -> None:
        self.url = url
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._objects: dict[str, tuple[bytes, int]] = {}
        self._registers: dict[str, tuple[bytes, int]] = {}
        self._last_version = 0

    def put(self, name: str, chunks: Iterable[bytes | memoryview]) -> None:
        check_name(name)
        data = b"".join(chunks)  # outside the lock: the chunks may come from a slow place
        with self._lock:
            if name in self._objects:
                raise AlreadyThere(name)
            self._objects[name] = (data, self._clock.wall_ms())

    def get(self, name: str, start: int = 0, size: int | None = None) -> bytes:
        check_name(name)
        with self._lock:
            found = self._objects.get(name)
        if found is None:
            raise Missing(name)
        return found[0][start : None if size is None else start + size]

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        check_prefix(prefix)
        with self._lock:
            infos = [
                ObjectInfo(name, len(data), created_ms)
                for name, (data, created_ms) in self._objects.items()
                if name.startswith(prefix)
            ]
        return iter(sorted(infos))

    def delete(self, name: str) -> None:
        check_name(name)
        with self._lock:
            self._objects.pop(name, None)

    def read(self, name: str) -> tuple[bytes, int]:
        check_name(name)
        with self._lock:
            found = self._registers.get(name)
        if found is None:
            raise Missing(name)
        return found

    def swap(self, name: str, value: bytes, expected: int) -> int:
        check_name(name)
        with self._lock:
            current = self._registers.get(name, (b"", 0))[1]
            if current != expected:
                raise Conflict(f"{name} is at version {current}, not {expected}")
            self._last_version += 1
            self._registers[name] = (bytes(value), self._last_version)
            return self._last_version

    def registers(self, prefix: str) -> Iterator[str]:
        check_prefix(prefix)
        with self._lock:
            names = [name for name in self._registers if name.startswith(prefix)]
        return iter(sorted(names))

    def remove(self, name: str) -> None:
        check_name(name)
        with self._lock:
            self._registers.pop(name, None)

    def close(self) -> None:
        """Nothing is held; the content stays for others who have this store."""


def shared_store(name: str) -> MemoryStore:
    """The store of that name in this process, made when first asked for."""
    with _shared_lock:
        store = _shared.get(name)
        if store is None:
            store = _shared[name] = MemoryStore(url=f"memory://{name}")
        return store
