"""What a partition remembers of its idempotent producers: the last five batches of each.

A batch with a producer id is compared before it gets an offset:
- the same epoch, first sequence and count as one of the last five: a duplicate, answered
  with the offset of the original;
- the sequence right behind the last one (2^31-1 is followed by 0): the next;
- a newer epoch must start at 0; an older one is stale; anything else is out of order;
- a producer that is not known (new, expired, evicted) may go on with any sequence.

`check` decides and changes nothing; `record` notes a batch that has its offset; recovery
replays batches through the same `record`, which ignores offsets that it has seen.

What is appended is not yet durable, and a checkpoint may name only durable batches. So
every remembered batch carries its own epoch, and a producer keeps its last five durable
batches beside those still under way: `encode(below_offset)` is the state as it was there.
With more than BATCHES_KEPT_MAX under way the oldest are forgotten all the same.

A producer is one `bytes` object in a dict that is ordered by last use: nothing for the
garbage collector, 200 to 300 bytes each. Time is handed in. A partition that has seen no
producer needs no object of this class at all.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from ister.wal.errors import Damaged, NewerFormat, OutOfOrderSequence, StaleProducerEpoch
from ister.wal.fs import Buffer

BATCHES_COMPARED = 5  # Kafka's number: idempotent clients keep at most five requests in flight
BATCHES_KEPT_MAX = 64  # per producer, with those that are not durable yet
PRODUCERS_MAX = 4096  # per partition, about 1 MB; beyond it the longest idle one is forgotten
EXPIRATION_MS = 86_400_000  # Kafka's default of producer.id.expiration.ms
SEQUENCES = 2**31  # sequences count modulo this

FORMAT_VERSION = 1
_HEAD = struct.Struct(">BqI")  # version, end offset, producers
_PRODUCER = struct.Struct(">qqB")  # producer id, last use, batches
_LAST_USE = struct.Struct(">q")
_BATCH = struct.Struct(">hiiqq")  # epoch, base sequence, count, base offset, append time
_BATCH_SIZE = _BATCH.size
_unpack_batch = _BATCH.unpack_from


class Duplicate(NamedTuple):
    """This batch is there already: the answer is that of the original."""

    base_offset: int
    last_offset: int
    append_time_ms: int  # -1 unless LogAppendTime


class Next(NamedTuple):
    """Append it."""


NEXT: Final = Next()


class Producers:
    """The producers of one partition."""

    __slots__ = ("_end", "_expiration_ms", "_producers_max", "_states")

    def __init__(
        self, expiration_ms: int = EXPIRATION_MS, producers_max: int = PRODUCERS_MAX
    ) -> None:
        self._expiration_ms = expiration_ms
        self._producers_max = producers_max
        self._states: dict[int, bytes] = {}  # last use, then batches; longest idle first
        self._end = 0  # what lies below is recorded

    @property
    def producer_count(self) -> int:  # no __len__: an empty one must not count as None
        return len(self._states)

    def __contains__(self, producer_id: int) -> bool:
        return producer_id in self._states

    def check(
        self, producer_id: int, epoch: int, base_sequence: int, count: int
    ) -> Duplicate | Next:
        """Whether this batch is new; OutOfOrderSequence, StaleProducerEpoch if it may not come."""
        state = self._states.get(producer_id)
        if state is None:
            return NEXT
        last_epoch, last_base, last_count, _, _ = _unpack_batch(state, len(state) - _BATCH_SIZE)
        if epoch == last_epoch:
            expected = (last_base + last_count) % SEQUENCES
            if base_sequence == expected:
                return NEXT
            duplicate = _find(state, epoch, base_sequence, count)
            if duplicate is not None:
                return duplicate
        elif epoch < last_epoch:
            raise StaleProducerEpoch(
                f"producer {producer_id} comes with epoch {epoch}, {last_epoch} was here"
            )
        else:
            expected = 0
            if base_sequence == 0:
                return NEXT
        raise OutOfOrderSequence(
            f"producer {producer_id} epoch {epoch} comes with sequence {base_sequence}, "
            f"expected {expected}"
        )

    def record(
        self,
        producer_id: int,
        epoch: int,
        base_sequence: int,
        count: int,
        base_offset: int,
        now_ms: int,
        *,
        durable_end: int,
        append_time_ms: int = -1,
    ) -> None:
        """Note a batch that got its offset, in offset order; one that is known changes nothing.

        `durable_end` is the partition's durable head at this moment (replay: `base_offset`).
        """
        if base_offset < self._end:
            return
        self._end = base_offset + count
        state = self._states.get(producer_id)
        batches = b"" if state is None else _still_needed(state, durable_end)
        # Out and in again: the dict stays ordered by last use.
        self._states.pop(producer_id, None)
        self._states[producer_id] = b"".join(
            (
                _LAST_USE.pack(now_ms),
                batches,
                _BATCH.pack(epoch, base_sequence, count, base_offset, append_time_ms),
            )
        )
        if len(self._states) > self._producers_max:
            del self._states[next(iter(self._states))]

    def expire(self, now_ms: int) -> int:
        """Forget producers idle for longer than the expiration; how many.

        Only here does time count, so that a clock that jumped takes no duplicate for new:
        `now_ms` is the clock of retention, which says nothing while it is not to be believed."""
        expired = []
        for producer_id, state in self._states.items():
            if not self._is_expired(state, now_ms):
                break  # ordered by last use
            expired.append(producer_id)
        for producer_id in expired:
            del self._states[producer_id]
        return len(expired)

    def encode(self, below_offset: int) -> bytes:
        """The state with batches that end at or below `below_offset` alone; empty if none."""
        parts = []
        for producer_id, state in self._states.items():
            batches = b"".join(
                state[position : position + _BATCH_SIZE]
                for position in _positions(state)
                if _end_of(state, position) <= below_offset
            )[-BATCHES_COMPARED * _BATCH_SIZE :]
            if batches:
                (last_use,) = _LAST_USE.unpack_from(state)
                parts.append(_PRODUCER.pack(producer_id, last_use, len(batches) // _BATCH_SIZE))
                parts.append(batches)
        if not parts:
            return b""
        end = min(self._end, below_offset)
        return b"".join((_HEAD.pack(FORMAT_VERSION, end, len(parts) // 2), *parts))

    @classmethod
    def decode(
        cls,
        data: Buffer,
        expiration_ms: int = EXPIRATION_MS,
        producers_max: int = PRODUCERS_MAX,
    ) -> Producers:
        """What `encode` wrote; Damaged if it is not that (the checksum is the caller's)."""
        producers = cls(expiration_ms, producers_max)
        if not len(data):
            return producers
        try:
            producers._load(bytes(data))
        except struct.error as error:
            raise Damaged("producer state", len(data), "it ends too soon") from error
        return producers

    def _load(self, data: bytes) -> None:
        version = data[0]
        if version != FORMAT_VERSION:
            raise NewerFormat(
                f"producer state has format {version}, this version reads {FORMAT_VERSION}: "
                "start the newer version again"
            )
        _, self._end, count = _HEAD.unpack_from(data)
        position = _HEAD.size
        for _ in range(count):
            producer_id, last_use, batches = _PRODUCER.unpack_from(data, position)
            position += _PRODUCER.size
            end = position + batches * _BATCH_SIZE
            if not 0 < batches <= BATCHES_COMPARED or end > len(data):
                raise Damaged("producer state", position, f"{batches} batches of {producer_id}")
            self._states[producer_id] = _LAST_USE.pack(last_use) + data[position:end]
            position = end
        if position != len(data):
            raise Damaged("producer state", position, f"{len(data) - position} bytes too many")
        while len(self._states) > self._producers_max:  # the limit was larger then
            del self._states[next(iter(self._states))]

    def _is_expired(self, state: bytes, now_ms: int) -> bool:
        return bool(now_ms - _LAST_USE.unpack_from(state)[0] >= self._expiration_ms)


def _positions(state: bytes) -> Iterator[int]:
    """Where the batches of a producer stand, oldest first."""
    return iter(range(_LAST_USE.size, len(state), _BATCH_SIZE))


def _end_of(state: bytes, position: int) -> int:
    """The offset behind the batch at `position`."""
    _, _, count, base_offset, _ = _unpack_batch(state, position)
    return int(base_offset + count)


def _find(state: bytes, epoch: int, base_sequence: int, count: int) -> Duplicate | None:
    """The same batch among the last five."""
    start = max(_LAST_USE.size, len(state) - BATCHES_COMPARED * _BATCH_SIZE)
    for position in range(start, len(state), _BATCH_SIZE):
        known_epoch, known_base, known_count, offset, time_ms = _unpack_batch(state, position)
        if (known_epoch, known_base, known_count) == (epoch, base_sequence, count):
            return Duplicate(offset, offset + count - 1, time_ms)
    return None


def _still_needed(state: bytes, durable_end: int) -> bytes:
    """The batches to keep beside a new one: the last five durable ones and all behind them."""
    start = _LAST_USE.size
    kept = (len(state) - start) // _BATCH_SIZE
    while kept > BATCHES_COMPARED:
        # In offset order: if the fifth behind the oldest is durable, so are those between.
        fifth_behind = start + BATCHES_COMPARED * _BATCH_SIZE
        if _end_of(state, fifth_behind) > durable_end and kept < BATCHES_KEPT_MAX:
            break
        start += _BATCH_SIZE
        kept -= 1
    return state[start:]
