"""Producer state: duplicates, order, epochs, wrap, expiry, eviction, checkpoints; and a model."""

from __future__ import annotations

import contextlib
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ister.wal.errors import Damaged, LogError, NewerFormat, OutOfOrderSequence, StaleProducerEpoch
from ister.wal.producers import (
    BATCHES_KEPT_MAX,
    FORMAT_VERSION,
    NEXT,
    SEQUENCES,
    Duplicate,
    Next,
    Producers,
)

NOW = 1_700_000_000_000


class Log:
    """Appends to producer state the way a partition does."""

    def __init__(self, producers: Producers | None = None) -> None:
        self.producers = producers or Producers()
        self.end = 0
        self.durable_end = 0

    def append(
        self,
        producer_id: int,
        epoch: int,
        sequence: int,
        count: int,
        now_ms: int = NOW,
        time_ms: int = -1,
    ) -> int | Duplicate:
        verdict = self.producers.check(producer_id, epoch, sequence, count)
        if isinstance(verdict, Duplicate):
            return verdict
        base = self.end
        self.end += count
        self.producers.record(
            producer_id,
            epoch,
            sequence,
            count,
            base,
            now_ms,
            durable_end=self.durable_end,
            append_time_ms=time_ms,
        )
        return base


def test_the_last_five_batches_are_duplicates_and_older_ones_out_of_order() -> None:
    """A duplicate has the offsets and the append time of the original."""
    log = Log()
    for index in range(7):
        assert log.append(1, 0, index * 10, 10, time_ms=NOW + index) == index * 10
    for index in range(2, 7):
        expected = Duplicate(index * 10, index * 10 + 9, NOW + index)
        assert log.append(1, 0, index * 10, 10) == expected
    for index in range(2):
        with pytest.raises(OutOfOrderSequence, match="expected 70"):
            log.append(1, 0, index * 10, 10)


@pytest.mark.parametrize(("sequence", "count"), [(0, 4), (0, 6), (1, 4), (4, 1), (6, 1), (9, 5)])
def test_what_is_neither_next_nor_the_same_is_out_of_order(sequence: int, count: int) -> None:
    """First and last sequence must both match: an overlap is no duplicate."""
    log = Log()
    log.append(1, 0, 0, 5)
    with pytest.raises(OutOfOrderSequence):
        log.append(1, 0, sequence, count)
    assert log.append(1, 0, 5, 1) == 5


def test_sequences_wrap_to_zero() -> None:
    """2^31-1 is followed by 0, also inside a batch."""
    log = Log()
    log.append(1, 0, SEQUENCES - 2, 2)
    assert log.append(1, 0, 0, 1) == 2
    log.append(2, 0, SEQUENCES - 2, 5)
    with pytest.raises(OutOfOrderSequence):
        log.append(2, 0, 0, 1)
    assert log.append(2, 0, 3, 1) == 8
    assert log.append(2, 0, SEQUENCES - 2, 5) == Duplicate(3, 7, -1)


def test_a_new_epoch_starts_at_zero_and_fences_the_old_one() -> None:
    """Batches of an older epoch are no duplicates any more: stale."""
    log = Log()
    log.append(1, 3, 0, 5)
    with pytest.raises(OutOfOrderSequence, match="expected 0"):
        log.append(1, 4, 5, 1)
    assert log.append(1, 4, 0, 5) == 5
    with pytest.raises(StaleProducerEpoch):
        log.append(1, 3, 0, 5)
    assert log.append(1, 4, 0, 5) == Duplicate(5, 9, -1)
    assert log.append(1, 9, 0, 1) == 10


def test_an_unknown_producer_may_go_on_anywhere() -> None:
    """Its state may have expired or been evicted: any sequence, any epoch."""
    log = Log()
    assert log.append(1, 7, 123, 1) == 0
    assert log.append(1, 7, 124, 1) == 1


def test_a_check_changes_nothing() -> None:
    """Only `record` remembers."""
    producers = Producers()
    for sequence in (5, 9, 5):
        assert isinstance(producers.check(1, 0, sequence, 1), Next)
    assert producers.producer_count == 0
    assert 1 not in producers


def test_idle_producers_expire() -> None:
    """At the expiration to the millisecond; use renews it."""
    log = Log(Producers(expiration_ms=100))
    log.append(1, 0, 0, 1, NOW)
    log.append(2, 0, 0, 1, NOW)
    log.append(1, 0, 1, 1, NOW + 50)
    assert log.producers.expire(NOW + 99) == 0
    with pytest.raises(OutOfOrderSequence):
        log.append(2, 0, 7, 1, NOW + 99)
    assert log.producers.expire(NOW + 100) == 1
    assert log.append(2, 0, 7, 1, NOW + 100) == 3
    assert log.producers.expire(NOW + 150) == 1
    assert (1 in log.producers, 2 in log.producers) == (False, True)


def test_time_alone_makes_no_duplicate_new() -> None:
    """Until somebody who trusts the clock says so: it may have jumped."""
    log = Log(Producers(expiration_ms=100))
    log.append(1, 0, 0, 1, NOW)
    assert isinstance(log.append(1, 0, 0, 1, NOW + 10**9), Duplicate)
    with pytest.raises(OutOfOrderSequence):
        log.append(1, 0, 50, 1, NOW + 10**9)
    assert log.append(1, 0, 1, 1, NOW + 10**9) == 1


def test_what_was_known_before_expiry_is_no_duplicate_after_it() -> None:
    """An expired producer that comes back starts clean."""
    log = Log(Producers(expiration_ms=100))
    log.append(1, 0, 0, 1, NOW)
    log.producers.expire(NOW + 200)
    assert log.append(1, 0, 50, 1, NOW + 200) == 1
    with pytest.raises(OutOfOrderSequence):
        log.append(1, 0, 0, 1, NOW + 201)


def test_the_longest_idle_producer_is_evicted() -> None:
    """The number of producers is bounded."""
    log = Log(Producers(producers_max=3))
    for producer_id in (1, 2, 3):
        log.append(producer_id, 0, 0, 1)
    log.append(1, 0, 1, 1)
    log.append(4, 0, 0, 1)
    assert [i for i in range(1, 5) if i in log.producers] == [1, 3, 4]
    smaller = Producers.decode(log.producers.encode(log.end), producers_max=1)
    assert [i for i in range(1, 5) if i in smaller] == [4]


def test_recording_a_known_offset_changes_nothing() -> None:
    """Replay over a checkpoint that holds some of the batches already."""
    log = Log()
    for index in range(4):
        log.append(1, 0, index, 1)
    before = log.producers.encode(100)
    for index in range(4):
        log.producers.record(1, 0, index, 1, index, NOW + 5, durable_end=index)
    assert log.producers.encode(100) == before


def test_a_checkpoint_holds_only_what_is_durable() -> None:
    """Batches under way push no durable one out, and their epoch does not fence the old one."""
    log = Log()
    for index in range(6):
        log.append(1, 0, index, 1)
    log.durable_end = 6
    for index in range(6, 12):
        log.append(1, 0, index, 1)
    log.append(1, 1, 0, 1)
    log.append(2, 0, 0, 1)
    restored = Log(Producers.decode(log.producers.encode(6)))
    assert 2 not in restored.producers
    for index in range(1, 6):
        assert restored.append(1, 0, index, 1) == Duplicate(index, index, -1)
    restored.end = 6
    assert restored.append(1, 0, 6, 1) == 6
    assert log.producers.encode(0) == b""


def test_memory_of_one_producer_is_bounded() -> None:
    """However many batches are under way, at most BATCHES_KEPT_MAX are kept."""
    log = Log()
    for index in range(500):
        log.append(1, 0, index, 1)
    assert len(log.producers._states[1]) == 8 + 26 * BATCHES_KEPT_MAX
    log.durable_end = 500
    for index in range(500, 510):
        log.append(1, 0, index, 1)
    log.durable_end = 510
    log.append(1, 0, 510, 1)
    assert len(log.producers._states[1]) == 8 + 26 * 6


@given(data=st.binary(max_size=120), good=st.booleans())
@settings(max_examples=200)
def test_arbitrary_bytes_are_damage(data: bytes, good: bool) -> None:
    """decode raises Damaged or NewerFormat, nothing else."""
    if good:
        data = bytes([FORMAT_VERSION]) + data
    with contextlib.suppress(Damaged, NewerFormat):
        Producers.decode(data)


def test_every_cut_is_damage_and_a_newer_format_is_named() -> None:
    """The encoding has one right length."""
    log = Log()
    for producer_id in (1, 2):
        log.append(producer_id, 0, 0, 1)
    encoded = log.producers.encode(10)
    for size in range(1, len(encoded)):
        with pytest.raises(Damaged):
            Producers.decode(encoded[:size])
    with pytest.raises(Damaged):
        Producers.decode(encoded + b"\0")
    with pytest.raises(NewerFormat):
        Producers.decode(bytes([FORMAT_VERSION + 1]) + encoded[1:])
    assert Producers.decode(b"").producer_count == 0


class Known(NamedTuple):
    """A batch in the model."""

    producer_id: int
    epoch: int
    sequence: int
    size: int
    offset: int


class ProducerMachine(RuleBasedStateMachine):
    """Against a plain list of batches, through commits, checkpoints and crashes."""

    def __init__(self) -> None:
        super().__init__()
        self.log = Log()
        self.batches: list[Known] = []
        self.saved = b""

    def expected(self, producer_id: int, epoch: int, sequence: int, count: int) -> object:
        mine = [batch for batch in self.batches if batch.producer_id == producer_id]
        if not mine:
            return NEXT
        last = mine[-1]
        if epoch < last.epoch:
            return StaleProducerEpoch
        if epoch > last.epoch:
            return NEXT if sequence == 0 else OutOfOrderSequence
        for batch in mine[-5:]:
            if batch[1:4] == (epoch, sequence, count):
                return Duplicate(batch.offset, batch.offset + count - 1, -1)
        is_next = sequence == (last.sequence + last.size) % SEQUENCES
        return NEXT if is_next else OutOfOrderSequence

    def offer(self, producer_id: int, epoch: int, sequence: int, count: int) -> None:
        expected = self.expected(producer_id, epoch, sequence, count)
        try:
            answer: object = self.log.append(producer_id, epoch, sequence, count)
        except LogError as error:
            answer = type(error)
        if isinstance(answer, int):
            self.batches.append(Known(producer_id, epoch, sequence, count, answer))
            answer = NEXT
        assert answer == expected
        assert type(answer) is type(expected)

    @rule(
        producer_id=st.integers(1, 2),
        epoch=st.integers(0, 2),
        sequence=st.sampled_from([0, 1, 2, 3, SEQUENCES - 2, SEQUENCES - 1]),
        count=st.integers(1, 3),
    )
    def append_anything(self, producer_id: int, epoch: int, sequence: int, count: int) -> None:
        self.offer(producer_id, epoch, sequence, count)

    @rule(producer_id=st.integers(1, 2), counts=st.lists(st.integers(1, 3), max_size=4))
    def append_next(self, producer_id: int, counts: list[int]) -> None:
        for count in counts:
            mine = [batch for batch in self.batches if batch.producer_id == producer_id]
            last = mine[-1] if mine else Known(producer_id, 0, 0, 0, 0)
            sequence = (last.sequence + last.size) % SEQUENCES
            self.offer(producer_id, last.epoch, sequence, count)

    @rule(back=st.integers(1, 8))
    def append_again(self, back: int) -> None:
        if back <= len(self.batches):
            self.offer(*self.batches[-back][:4])

    @rule()
    def commit(self) -> None:
        self.log.durable_end = self.log.end

    @rule()
    def checkpoint(self) -> None:
        self.saved = self.log.producers.encode(self.log.durable_end)

    @rule()
    def crash(self) -> None:
        """What is not durable is gone; the checkpoint is decoded and the journal replayed."""
        durable_end = self.log.durable_end
        self.batches = [batch for batch in self.batches if batch.offset < durable_end]
        self.log = Log(Producers.decode(self.saved))
        self.log.end = self.log.durable_end = durable_end
        for batch in self.batches:
            self.log.producers.record(*batch, NOW, durable_end=batch.offset)

    @invariant()
    def known_producers_agree(self) -> None:
        assert self.log.producers.producer_count == len(
            {batch.producer_id for batch in self.batches}
        )


ProducerMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestProducerModel = ProducerMachine.TestCase
