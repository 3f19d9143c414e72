"""The ring of a non-reliable topic: what is kept, what is missed, and offsets never given twice."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ister.wal.batch import check, crc_holds, read_header
from ister.wal.errors import BatchTooLarge, OffsetOutOfRange, StorageError
from ister.wal.fs import Buffer
from ister.wal.ring import BATCH_OVERHEAD_BYTES, OFFSET_BLOCK, Ring
from ister.wal.tests.batches import make_batch

LIMIT = 1 << 20


def append(ring: Ring, data: Buffer, append_time_ms: int | None = None) -> int:
    return ring.append(check(data, LIMIT), data, append_time_ms)


def ring_of(batches: int, data: bytes, *, start: int = 0) -> Ring:
    """Room for so many batches of this size."""
    size = (len(data) + BATCH_OVERHEAD_BYTES) * batches
    return Ring(start, start + OFFSET_BLOCK, leader_epoch=3, bytes_max=size)


TWO = make_batch([b"a", b"b"])


def test_a_batch_is_stamped_and_read_back() -> None:
    """Base offset, leader epoch, and the append time where the topic wants it."""
    ring = ring_of(5, TWO, start=100)
    assert append(ring, TWO) == 100
    assert append(ring, bytearray(TWO), 77) == 102
    read = ring.read(100, LIMIT)
    headers = [read_header(buffer) for buffer in read.buffers]
    assert [(h.base_offset, h.leader_epoch) for h in headers] == [(100, 3), (102, 3)]
    assert headers[1].max_timestamp == 77
    assert all(map(crc_holds, read.buffers))
    assert read[1:] == (2 * len(TWO), 100, 104, 0)


def test_what_is_kept_pins_no_frame() -> None:
    """The buffer that brought the batch may be used again."""
    ring = ring_of(5, TWO)
    frame = bytearray(TWO)
    append(ring, memoryview(frame))
    frame[:] = bytes(len(frame))
    assert crc_holds(ring.read(0, LIMIT).buffers[0])


def test_an_offset_inside_a_batch_gives_the_whole_batch() -> None:
    """And the first batch comes even when it is larger than max_bytes."""
    ring = ring_of(5, TWO)
    append(ring, TWO)
    append(ring, TWO)
    assert ring.read(3, 1)[1:] == (len(TWO), 2, 4, 0)
    assert ring.read(1, 2 * len(TWO))[1:] == (2 * len(TWO), 0, 4, 0)
    assert ring.read(1, 2 * len(TWO) - 1)[1:] == (len(TWO), 0, 2, 0)


def test_below_what_is_kept_the_oldest_comes_and_the_missed_are_counted() -> None:
    """Dropped records are those between the offset asked for and the oldest kept."""
    ring = ring_of(2, TWO)
    for _ in range(5):
        append(ring, TWO)
    assert (ring.oldest, ring.head, ring.batch_count) == (6, 10, 2)
    read = ring.read(1, LIMIT)
    assert (read.first_offset, read.next_offset, read.dropped) == (6, 10, 5)
    assert ring.read(6, LIMIT).dropped == 0
    assert ring.dropped_records == 5


def test_the_head_is_empty_and_beyond_it_is_out_of_range() -> None:
    """A reader at the head parks."""
    ring = ring_of(2, TWO)
    append(ring, TWO)
    assert ring.read(2, LIMIT) == ([], 0, 2, 2, 0)
    for offset in (3, -1):
        with pytest.raises(OffsetOutOfRange) as caught:
            ring.read(offset, LIMIT)
        assert (caught.value.log_start, caught.value.log_end) == (0, 2)


def test_a_reader_from_before_a_restart_waits_and_goes_on_behind_the_skip() -> None:
    """Only records of this run are counted as dropped: the skip held none that are known."""
    ring = ring_of(1, TWO, start=500)
    assert ring.read(7, LIMIT) == ([], 0, 7, 7, 0)
    append(ring, TWO)
    assert ring.read(7, LIMIT)[2:] == (500, 502, 0)
    append(ring, TWO)
    assert ring.read(7, LIMIT)[2:] == (502, 504, 2)


def test_a_batch_larger_than_the_ring_is_refused_and_drops_nothing() -> None:
    """It would push out everything and still not fit."""
    ring = ring_of(1, TWO)
    append(ring, TWO)
    with pytest.raises(BatchTooLarge) as caught:
        append(ring, make_batch([b"a", b"bc"]))
    assert caught.value.limit == len(TWO)
    assert (ring.batch_count, ring.head) == (1, 2)


def test_no_offset_is_given_that_is_not_reserved() -> None:
    """Refused with a retriable error; the ring asks for a block that is large enough."""
    ring = Ring(0, 3, leader_epoch=0, bytes_max=LIMIT)
    append(ring, TWO)
    with pytest.raises(StorageError):
        append(ring, TWO)
    assert ring.head == 2
    assert ring.needs_block()
    assert ring.block_end() == 2 + OFFSET_BLOCK
    ring.extend(ring.block_end())
    assert not ring.needs_block()
    ring.extend(3)  # a late answer
    assert append(ring, TWO) == 2


def test_a_batch_larger_than_a_block_gets_a_larger_one() -> None:
    """The count is what a header claims: it may be anything."""
    ring = Ring(0, OFFSET_BLOCK, leader_epoch=0, bytes_max=LIMIT)
    assert not ring.needs_block()
    huge = check(TWO, LIMIT)._replace(count=3 * OFFSET_BLOCK)
    with pytest.raises(StorageError):
        ring.append(huge, TWO)
    assert ring.needs_block()
    ring.extend(ring.block_end())
    assert not ring.needs_block()
    assert ring.append(huge, TWO) == 0
    assert ring.needs_block()


class RingMachine(RuleBasedStateMachine):
    """Against a plain list of all batches ever appended, through restarts."""

    def __init__(self) -> None:
        super().__init__()
        self.reserved_to = 10
        self.ring = Ring(0, 10, leader_epoch=0, bytes_max=1000)
        self.run: list[tuple[int, int, int]] = []  # base offset, count, bytes; this run
        self.given_to = 0  # no offset below is ever given again

    @rule(sizes=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 120)), max_size=30))
    def append(self, sizes: list[tuple[int, int]]) -> None:
        for count, size in sizes:
            data = make_batch([bytes(size)] * count)
            try:
                base = append(self.ring, data)
            except StorageError:
                assert self.ring.head + count > self.reserved_to
                assert self.ring.needs_block()
                continue
            except BatchTooLarge:
                assert len(data) + BATCH_OVERHEAD_BYTES > 1000
                continue
            assert base >= self.given_to
            self.given_to = base + count
            assert self.given_to <= self.reserved_to
            self.run.append((base, count, len(data)))

    @rule(more=st.integers(0, 40))
    def reserve(self, more: int) -> None:
        self.reserved_to += more
        self.ring.extend(self.reserved_to)

    @rule()
    def restart(self) -> None:
        epoch = self.ring.leader_epoch + 1
        self.ring = Ring(self.reserved_to, self.reserved_to + 10, epoch, bytes_max=1000)
        self.reserved_to += 10
        self.run = []

    def kept(self) -> list[tuple[int, int, int]]:
        """The newest batches that fit."""
        room = 1000
        kept: list[tuple[int, int, int]] = []
        for batch in reversed(self.run):
            room -= batch[2] + BATCH_OVERHEAD_BYTES
            if room < 0:
                break
            kept.insert(0, batch)
        return kept

    @rule(back=st.integers(0, 60), max_bytes=st.integers(0, 1000))
    def read(self, back: int, max_bytes: int) -> None:
        offset = max(0, self.ring.head - back)
        read = self.ring.read(offset, max_bytes)
        wanted = [batch for batch in self.kept() if batch[0] + batch[1] > offset]
        seen = [read_header(buffer) for buffer in read.buffers]
        assert [(h.base_offset, h.count, h.size) for h in seen] == wanted[: len(seen)]
        assert bool(seen) == bool(wanted)
        if not seen:
            assert read == ([], 0, offset, offset, 0)
            return
        assert (read.first_offset, read.next_offset) == (seen[0].base_offset, seen[-1].next_offset)
        assert read.size == sum(h.size for h in seen)
        assert len(seen) == 1 or read.size <= max_bytes
        if len(seen) < len(wanted):
            assert read.size + wanted[len(seen)][2] > max_bytes
        given = [n for base, count, _ in self.run for n in range(base, base + count)]
        assert read.dropped == sum(offset <= n < read.first_offset for n in given)

    @invariant()
    def holds(self) -> None:
        self.ring.check()
        assert self.ring.batch_count == len(self.kept())


RingMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestRingModel = RingMachine.TestCase
