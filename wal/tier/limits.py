"""A bound on the requests per second that reach a bucket.

A token bucket: one token a call, refilled at a steady rate, at most one second's
worth (at least one) saved up. A call that finds none takes its place in line and
sleeps until its token is due; nothing is refused or dropped, and callers leave in
the order in which they came. A streamed put and a long listing may be several
requests of the service but count once: the bound is on the log's own calls.
Closing is free.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator

from ister.wal.clock import Clock
from ister.wal.tier.object_store import ObjectInfo, ObjectStore


class TokenBucket:
    """`take()` says how long to wait before one more request."""

    def __init__(self, per_second: float, clock: Clock) -> None:
        if per_second <= 0:
            raise ValueError(f"requests per second must be above 0, not {per_second}")
        self._per_second = per_second
        self._clock = clock
        self._saved_max = max(1.0, per_second)
        self._tokens = self._saved_max  # below zero: promised to those who wait
        self._filled_at = clock.monotonic()
        self._lock = threading.Lock()

    def take(self) -> float:
        with self._lock:
            now = self._clock.monotonic()
            earned = (now - self._filled_at) * self._per_second
            self._filled_at = now
            self._tokens = min(self._saved_max, self._tokens + earned) - 1
            return max(0.0, -self._tokens / self._per_second)


class RateLimited:
    """An `ObjectStore` that delays calls to another one."""

    def __init__(
        self,
        inner: ObjectStore,
        requests_per_second: float,
        clock: Clock,
        sleep: Callable[[float], None],
    ) -> None:
        self.url = inner.url
        self._inner = inner
        self._tokens = TokenBucket(requests_per_second, clock)
        self._sleep = sleep

    def put(self, name: str, chunks: Iterable[bytes | memoryview]) -> None:
        self._wait()
        self._inner.put(name, chunks)

    def get(self, name: str, start: int = 0, size: int | None = None) -> bytes:
        self._wait()
        return self._inner.get(name, start, size)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        self._wait()
        return self._inner.list(prefix)

    def delete(self, name: str) -> None:
        self._wait()
        self._inner.delete(name)

    def read(self, name: str) -> tuple[bytes, int]:
        self._wait()
        return self._inner.read(name)

    def swap(self, name: str, value: bytes, expected: int) -> int:
        self._wait()
        return self._inner.swap(name, value, expected)

    def registers(self, prefix: str) -> Iterator[str]:
        self._wait()
        return self._inner.registers(prefix)

    def remove(self, name: str) -> None:
        self._wait()
        self._inner.remove(name)

    def close(self) -> None:
        self._inner.close()

    def _wait(self) -> None:
        seconds = self._tokens.take()
        if seconds > 0:
            self._sleep(seconds)
