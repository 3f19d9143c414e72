"""The bound on requests per second."""

from __future__ import annotations

import pytest

from ister.wal.clock import ManualClock
from ister.wal.tier.limits import RateLimited, TokenBucket
from ister.wal.tier.memory import MemoryStore


def test_burst_then_the_steady_rate() -> None:
    """One second's worth at once, then one every 1/rate seconds."""
    clock = ManualClock()
    store = RateLimited(MemoryStore(clock), 10, clock, clock.advance)
    start = clock.monotonic()
    for number in range(10):
        store.put(f"{number}", [b"x"])
    assert clock.monotonic() == start
    for _ in range(50):
        store.get("0")
    assert clock.monotonic() - start == pytest.approx(5.0)


def test_every_operation_counts() -> None:
    """No call goes past the bound."""
    clock = ManualClock()
    store = RateLimited(MemoryStore(clock), 1, clock, clock.advance)
    start = clock.monotonic()
    store.put("a", [b"x"])
    store.get("a")
    list(store.list(""))
    store.delete("a")
    version = store.swap("r", b"x", 0)
    assert store.read("r") == (b"x", version)
    assert list(store.registers("")) == ["r"]
    store.remove("r")
    store.close()
    assert clock.monotonic() - start == pytest.approx(7.0)


def test_waiting_calls_keep_their_places() -> None:
    """Calls that come at one time are promised one token after another."""
    tokens = TokenBucket(2, ManualClock())
    assert [tokens.take() for _ in range(6)] == [0, 0, 0.5, 1.0, 1.5, 2.0]


def test_idle_time_saves_at_most_one_second() -> None:
    """An hour of silence does not allow an hour's worth of requests."""
    clock = ManualClock()
    tokens = TokenBucket(2, clock)
    clock.advance(3600)
    assert [tokens.take() for _ in range(3)] == [0, 0, 0.5]


def test_slow_rates_allow_a_first_call() -> None:
    """Less than one a second still lets the first one through at once."""
    tokens = TokenBucket(0.1, ManualClock())
    assert [tokens.take() for _ in range(2)] == [0, 10.0]


@pytest.mark.parametrize("rate", [0, -1])
def test_rate_must_be_above_zero(rate: float) -> None:
    """Zero would wait for ever."""
    with pytest.raises(ValueError, match="above 0"):
        TokenBucket(rate, ManualClock())
