"""The smallest bucket there is, with a tally and a way to fail at any call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ister.wal.tier.object_store import (
    AlreadyThere,
    Conflict,
    Missing,
    ObjectInfo,
    StoreUnavailable,
)


class Crash(BaseException):
    """The process died here: no `except Exception` may catch it."""


class DictStore:
    """Objects and registers in two dicts.

    `fail_at` is the number of the call (counted from 0) that goes wrong, `fault` how:
    "before" (StoreUnavailable, nothing happened), "lost" (it happened, the reply is
    lost), "crash-before", "crash-after".
    """

    url = "dict://"

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.values: dict[str, tuple[bytes, int]] = {}
        self.calls: list[tuple[str, str]] = []
        self.fail_at = -1
        self.fault = "before"
        self._version = 0
        self.created_ms = 0  # of all objects

    def reset(self, fail_at: int = -1, fault: str = "before") -> None:
        self.calls = []
        self.fail_at = fail_at
        self.fault = fault

    def calm(self) -> DictStore:
        """The same bucket without faults and tally, for who checks what is there."""
        other = DictStore()
        other.objects, other.values = self.objects, self.values
        return other

    def _before(self, operation: str, name: str) -> bool:
        number = len(self.calls)
        self.calls.append((operation, name))
        if number != self.fail_at:
            return False
        if self.fault == "before":
            raise StoreUnavailable(f"{operation} {name} did not reach the bucket")
        if self.fault == "crash-before":
            raise Crash(f"before {operation} {name}")
        return True

    def _after(self, fails: bool) -> None:
        if fails and self.fault == "lost":
            raise StoreUnavailable("the reply was lost")
        if fails:
            raise Crash("after the call")

    def put(self, name: str, chunks: Iterable[bytes | memoryview]) -> None:
        fails = self._before("put", name)
        data = b"".join(bytes(chunk) for chunk in chunks)
        if name in self.objects:
            raise AlreadyThere(name)
        self.objects[name] = data
        self._after(fails)

    def get(self, name: str, start: int = 0, size: int | None = None) -> bytes:
        fails = self._before("get", name)
        if name not in self.objects:
            raise Missing(name)
        self._after(fails)
        data = self.objects[name]
        return data[start:] if size is None else data[start : start + size]

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        self._after(self._before("list", prefix))
        for name in sorted(self.objects):
            if name.startswith(prefix):
                yield ObjectInfo(name, len(self.objects[name]), self.created_ms)

    def delete(self, name: str) -> None:
        fails = self._before("delete", name)
        self.objects.pop(name, None)
        self._after(fails)

    def read(self, name: str) -> tuple[bytes, int]:
        fails = self._before("read", name)
        if name not in self.values:
            raise Missing(name)
        self._after(fails)
        return self.values[name]

    def swap(self, name: str, value: bytes, expected: int) -> int:
        fails = self._before("swap", name)
        if self.values.get(name, (b"", 0))[1] != expected:
            raise Conflict(name)
        self._version += 1
        self.values[name] = (bytes(value), self._version)
        self._after(fails)
        return self._version

    def registers(self, prefix: str) -> Iterator[str]:
        self._after(self._before("registers", prefix))
        yield from sorted(name for name in self.values if name.startswith(prefix))

    def remove(self, name: str) -> None:
        fails = self._before("remove", name)
        self.values.pop(name, None)
        self._after(fails)

    def close(self) -> None: ...
