"""A bucket that misbehaves on purpose: a wrapper for tests, with named knobs.

- `delay(seconds, ...)`: matching calls take that long, through the `sleep` passed in.
- `fail(...)`: matching calls raise before anything happens.
- `lose_reply(...)`: matching calls happen, then raise `StoreUnavailable`.
- `tear(...)`: a put gets `after_bytes` of its stream through, then breaks; the store
  underneath must leave nothing that can be seen.
- `down()` / `up()`: nothing answers, everything answers again.
- `crash`: called with ("before" | "after", operation, name) around each call; what it
  raises goes through, so that a test can die between any two calls.
- `calls`: how often each operation was asked for, faults included.

A knob is bound to operations and names by shell patterns, works a number of `times`
(None: for ever), and each time with a `probability`, drawn from the `rng` passed in:
the same seed gives the same faults. Knobs are tried in the order in which they were
set; each returns a `Fault` that counts its `hits` and can be `cleared`. Listings are
taken whole, so that a fault strikes the call and not some later step of it.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TypeVar

from ister.wal.tier.object_store import ObjectInfo, ObjectStore, StoreUnavailable

T = TypeVar("T")

DELAY, FAIL, LOSE_REPLY, TEAR = "delay", "fail", "lose_reply", "tear"
BEFORE, AFTER = "before", "after"


@dataclass(slots=True, eq=False)
class Fault:
    """One knob that was turned."""

    kind: str
    operation: str
    name: str
    times: int | None
    probability: float
    error: Callable[[str], Exception]
    amount: float = 0  # seconds of a delay, bytes before a tear
    hits: int = 0

    def clear(self) -> None:
        """It strikes no more."""
        self.times = self.hits

    def strikes(self, operation: str, name: str, rng: random.Random) -> bool:
        if self.times is not None and self.hits >= self.times:
            return False
        if not (fnmatchcase(operation, self.operation) and fnmatchcase(name, self.name)):
            return False
        if self.probability < 1 and rng.random() >= self.probability:
            return False
        self.hits += 1
        return True


class FaultyStore:
    """An `ObjectStore` around another one, with the knobs of this module."""

    def __init__(
        self,
        inner: ObjectStore,
        rng: random.Random,
        sleep: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        self.url = inner.url
        self.inner = inner
        self.calls: Counter[str] = Counter()
        self.crash: Callable[[str, str, str], None] | None = None
        self._rng = rng
        self._sleep = sleep
        self._faults: list[Fault] = []
        self._is_down = False
        self._lock = threading.Lock()

    # -- knobs -----------------------------------------------------------------

    def delay(
        self,
        seconds: float,
        operation: str = "*",
        name: str = "*",
        times: int | None = None,
        probability: float = 1.0,
    ) -> Fault:
        return self._add(DELAY, operation, name, times, probability, StoreUnavailable, seconds)

    def fail(
        self,
        operation: str = "*",
        name: str = "*",
        times: int | None = None,
        probability: float = 1.0,
        error: Callable[[str], Exception] = StoreUnavailable,
    ) -> Fault:
        return self._add(FAIL, operation, name, times, probability, error)

    def lose_reply(
        self,
        operation: str = "*",
        name: str = "*",
        times: int | None = None,
        probability: float = 1.0,
    ) -> Fault:
        return self._add(LOSE_REPLY, operation, name, times, probability, StoreUnavailable)

    def tear(
        self,
        name: str = "*",
        after_bytes: int = 0,
        times: int | None = None,
        probability: float = 1.0,
    ) -> Fault:
        return self._add(TEAR, "put", name, times, probability, StoreUnavailable, after_bytes)

    def down(self) -> None:
        self._is_down = True

    def up(self) -> None:
        self._is_down = False

    def clear(self) -> None:
        """All knobs back; `down` and `crash` too."""
        with self._lock:
            self._faults.clear()
        self._is_down = False
        self.crash = None

    def _add(
        self,
        kind: str,
        operation: str,
        name: str,
        times: int | None,
        probability: float,
        error: Callable[[str], Exception],
        amount: float = 0,
    ) -> Fault:
        fault = Fault(kind, operation, name, times, probability, error, amount)
        with self._lock:
            self._faults.append(fault)
        return fault

    # -- the store -------------------------------------------------------------

    def put(self, name: str, chunks: Iterable[bytes | memoryview]) -> None:
        tear = self._find(TEAR, "put", name)
        stream = chunks if tear is None else _torn(chunks, int(tear.amount), name)
        self._call("put", name, lambda: self.inner.put(name, stream))

    def get(self, name: str, start: int = 0, size: int | None = None) -> bytes:
        return self._call("get", name, lambda: self.inner.get(name, start, size))

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        return iter(self._call("list", prefix, lambda: tuple(self.inner.list(prefix))))

    def delete(self, name: str) -> None:
        self._call("delete", name, lambda: self.inner.delete(name))

    def read(self, name: str) -> tuple[bytes, int]:
        return self._call("read", name, lambda: self.inner.read(name))

    def swap(self, name: str, value: bytes, expected: int) -> int:
        return self._call("swap", name, lambda: self.inner.swap(name, value, expected))

    def registers(self, prefix: str) -> Iterator[str]:
        return iter(self._call("registers", prefix, lambda: tuple(self.inner.registers(prefix))))

    def remove(self, name: str) -> None:
        self._call("remove", name, lambda: self.inner.remove(name))

    def close(self) -> None:
        self.inner.close()

    def _call(self, operation: str, name: str, work: Callable[[], T]) -> T:
        with self._lock:
            self.calls[operation] += 1
        self._crash_point(BEFORE, operation, name)
        if (delay := self._find(DELAY, operation, name)) is not None:
            self._sleep(delay.amount)
        if self._is_down:
            raise StoreUnavailable(f"{operation} {name}: the bucket is down")
        if (failure := self._find(FAIL, operation, name)) is not None:
            raise failure.error(f"{operation} {name}: made to fail")
        result = work()
        self._crash_point(AFTER, operation, name)
        if self._find(LOSE_REPLY, operation, name) is not None:
            raise StoreUnavailable(f"{operation} {name}: done, but the reply is lost")
        return result

    def _find(self, kind: str, operation: str, name: str) -> Fault | None:
        with self._lock:
            for fault in self._faults:
                if fault.kind == kind and fault.strikes(operation, name, self._rng):
                    return fault
        return None

    def _crash_point(self, when: str, operation: str, name: str) -> None:
        if self.crash is not None:
            self.crash(when, operation, name)


def _torn(
    chunks: Iterable[bytes | memoryview], size: int, name: str
) -> Iterator[bytes | memoryview]:
    """The first `size` bytes, then an error, even if that is where the stream ends."""
    left = size
    for chunk in chunks:
        if len(chunk) >= left:
            yield chunk[:left]
            break
        yield chunk
        left -= len(chunk)
    raise StoreUnavailable(f"put {name}: torn after {size} bytes")
