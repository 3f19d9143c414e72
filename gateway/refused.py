"""What comes behind a batch that had no room is refused too, or a producer's order is lost.

A client may have several batches of a partition under way. If the first is refused because
the disk is full and there is room again for the second, the second would stand before the
first; for an idempotent producer that nobody knows yet it would even be final. So the
connection remembers the first refused batch of each partition. An idempotent producer goes on
with exactly that batch (or with a new epoch, when it has given up on it); any other goes on
when nothing that it sent is unanswered, which is when it may know of the refusal.

Pure, one object per connection; `handlers/produce.py` asks.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from ister.wal.batch import HEADER_SIZE
from ister.wal.fs import Buffer
from ister.wal.partition import Partition

_PRODUCER = Struct(">qhi")
_PRODUCER_AT = 43
_NOBODY = -1
_SEQUENCES = 1 << 31


class _First(NamedTuple):
    """The batch that has to come first."""

    producer_id: int
    epoch: int
    sequence: int


class Refused:
    """`first` is nearly always empty, and looked at before anything is asked."""

    __slots__ = ("first",)

    def __init__(self) -> None:
        self.first: dict[Partition, _First] = {}

    def note(self, partition: Partition, data: Buffer) -> None:
        """There was no room for this batch."""
        if partition not in self.first:
            self.first[partition] = _producer(data)

    def is_behind(self, partition: Partition, data: Buffer) -> bool:
        """Whether this batch has to wait for one that was refused."""
        first = self.first.get(partition)
        if first is None:
            return False
        now = _producer(data)
        if first.producer_id == _NOBODY:
            return now.producer_id == _NOBODY
        if now[:2] == first[:2] and now.sequence != first.sequence:
            # Sequences wrap. What lies before is a retry of what was accepted: the log knows it.
            return (now.sequence - first.sequence) % _SEQUENCES < _SEQUENCES // 2
        if now.producer_id == first.producer_id:
            del self.first[partition]
        return False

    def all_answered(self) -> None:
        """Nothing of this connection is unanswered: who does not count may begin anew."""
        for partition in [p for p, f in self.first.items() if f.producer_id == _NOBODY]:
            del self.first[partition]


def _producer(data: Buffer) -> _First:
    if len(data) < HEADER_SIZE:
        return _First(_NOBODY, _NOBODY, _NOBODY)
    return _First(*_PRODUCER.unpack_from(data, _PRODUCER_AT))
