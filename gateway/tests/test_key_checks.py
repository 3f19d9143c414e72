"""Keys of compacted topics: order, limits, and what cannot be read."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from ister.gateway.key_checks import INLINE_RECORDS_MAX, KeyChecks
from ister.wal.driver import InlineDriver
from ister.wal.errors import CorruptBatch, InvalidBatch, LogError
from ister.wal.partition import Partition
from ister.wal.settings import TopicSettings
from ister.wal.tests.batches import make_batch, seal

MANY = INLINE_RECORDS_MAX + 1


class Case:
    def __init__(self) -> None:
        self.driver = InlineDriver()
        self.checks = KeyChecks(self.driver)
        self.partition = Partition(b"t" * 16, 0, TopicSettings(compact=True))
        self.told: list[tuple[Any, LogError | None]] = []

    def check(self, name: Any, data: bytes) -> None:
        self.checks.check(self.partition, data, partial(self.tell, name))

    def tell(self, name: Any, error: LogError | None) -> None:
        self.told.append((name, error))


def keyed(count: int, codec: int = 0) -> bytes:
    return make_batch([b"v"] * count, keys=[b"k"] * count, codec=codec)


def unkeyed(count: int, codec: int = 0) -> bytes:
    return make_batch([b"v"] * count, keys=[b"k"] * (count - 1) + [None], codec=codec)


def test_small_and_plain_is_told_at_once() -> None:
    """No turn of the loop for the usual case."""
    case = Case()
    case.check(1, keyed(2))
    case.check(2, unkeyed(2))
    assert [(name, type(error)) for name, error in case.told] == [
        (1, type(None)),
        (2, InvalidBatch),
    ]


@pytest.mark.parametrize("codec", range(1, 5))
def test_compressed_is_looked_at_elsewhere(codec: int) -> None:
    """All four codecs; one record without a key among many is found."""
    case = Case()
    case.check(1, keyed(MANY, codec))
    case.check(2, unkeyed(MANY, codec))
    assert case.told == []
    case.driver.run_until_idle()
    assert [(name, type(error)) for name, error in case.told] == [
        (1, type(None)),
        (2, InvalidBatch),
    ]
    assert not case.checks._queues


def test_order_is_kept_whatever_a_check_takes() -> None:
    """Pitfall 15: a quick one behind a slow one waits for it; another partition does not."""
    case = Case()
    case.check(1, keyed(MANY, 1))
    case.check(2, keyed(1))
    other = Partition(b"t" * 16, 1, TopicSettings(compact=True))
    case.checks.check(other, keyed(1), partial(case.tell, "other"))
    case.check(3, b"rubbish")
    assert case.told == [("other", None)]
    case.driver.run_until_idle()
    assert [name for name, _ in case.told] == ["other", 1, 2, 3]
    assert isinstance(case.told[-1][1], CorruptBatch)


@pytest.mark.slow
def test_a_bomb_is_refused_for_good() -> None:
    """More than the limit comes out: INVALID_RECORD, which no client repeats."""
    case = Case()
    zeros = seal(bytes(80 << 20), 1, attributes=1)
    assert len(zeros) < 100_000
    case.check(1, zeros)
    case.driver.run_until_idle()
    ((_, error),) = case.told
    assert isinstance(error, InvalidBatch)
    assert "limit" in str(error)


def test_records_that_are_no_records() -> None:
    """A right checksum over nonsense."""
    case = Case()
    case.check(1, seal(b"\xff" * 100, 3))
    ((_, error),) = case.told
    assert isinstance(error, InvalidBatch)
