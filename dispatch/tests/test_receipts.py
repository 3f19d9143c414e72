"""Receipts: sent and committed apart, gathered, bounded, never about themselves."""

from __future__ import annotations

import random

import pytest

from ister.dispatch.attribution import AMBIGUOUS, Attributed, Certainty
from ister.dispatch.cursors import Place
from ister.dispatch.receipts import (
    FLUSH_EVERY_S,
    PENDING_MAX,
    CommittedReceipt,
    Receipt,
    ReceiptRecord,
    Receipts,
    SentReceipt,
    decode,
)
from ister.dispatch.sent import SentRange
from ister.metadata.catalog import Catalog
from ister.metadata.cursors import Cursor
from ister.metadata.memory import MemoryStore
from ister.wal.clock import ManualClock


class Bench:
    def __init__(self) -> None:
        store, rng = MemoryStore(), random.Random(1)
        self.catalog = Catalog.open(store, rng)
        self.topic_id = self.catalog.commit(store, self.catalog.create("t", 1, {}, 1, rng)).id
        self.own_id = self.catalog.commit(store, self.catalog.create("own", 1, {}, 1, rng)).id
        self.clock = ManualClock()
        self.written: list[ReceiptRecord] = []
        self.receipts = Receipts(self.catalog, self.clock, self._write, {self.own_id})

    def _write(self, records: list[ReceiptRecord]) -> None:
        self.written += records

    def sent(self, first: int, last: int, attributed: Attributed = AMBIGUOUS) -> None:
        told = SentRange("t", self.topic_id, 0, first, last, 2, "app", "::1", 5, 9, attributed)
        self.receipts.sent(told)

    def commit(self, offset: int, before: int | None, member: str = "m") -> None:
        place = Place(self.topic_id, 0)
        self.receipts.committed("g", member, 3, {place: (before, Cursor(offset=offset))})

    def found(self) -> list[Receipt]:
        self.receipts.flush()
        found, self.written = [decode(each.value) for each in self.written], []
        return found


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_sent_says_to_whom_only_where_it_is_certain(bench: Bench) -> None:
    bench.sent(0, 9)
    bench.sent(10, 19, Attributed(Certainty.GROUP, "g", "m"))
    unsure, sure = bench.found()
    assert isinstance(unsure, SentReceipt)
    assert (unsure.attribution, unsure.group) == ("ambiguous", "")
    assert isinstance(sure, SentReceipt)
    assert (sure.attribution, sure.group, sure.member) == ("group", "g", "m")
    assert (sure.first, sure.last, sure.client_id, sure.peer) == (10, 19, "app", "::1")


def test_commits_are_gathered_between_two_flushes(bench: Bench) -> None:
    """One receipt, with the cursor before the first and the offset of the last."""
    bench.commit(5, None)
    bench.clock.advance(0.5)
    bench.commit(9, 5)
    bench.commit(9, 9, "other")
    first, second = bench.found()
    assert isinstance(first, CommittedReceipt)
    assert (first.before, first.offset, first.commits, first.generation) == (None, 9, 2, 3)
    assert first.until_ms - first.since_ms == 500
    assert isinstance(second, CommittedReceipt)
    assert second.member == "other"


def test_written_by_time(bench: Bench) -> None:
    bench.sent(0, 9)
    bench.receipts.tick()
    assert not bench.written
    bench.clock.advance(FLUSH_EVERY_S)
    bench.receipts.tick()
    assert [each.key for each in bench.written] == [b"t/0"]
    assert bench.written[0].time_ms == 9


def test_no_receipts_of_receipts(bench: Bench) -> None:
    told = SentRange("own", bench.own_id, 0, 0, 9, 1, "app", "::1", 5, 9, AMBIGUOUS)
    bench.receipts.sent(told)
    place = Place(bench.own_id, 0)
    bench.receipts.committed("g", "m", 1, {place: (None, Cursor(offset=1))})
    assert bench.found() == []


def test_what_waits_is_bounded(bench: Bench) -> None:
    for number in range(PENDING_MAX + 5):
        bench.sent(number, number)
    bench.commit(1, None)
    assert bench.receipts.dropped == 6
    assert len(bench.found()) == PENDING_MAX
