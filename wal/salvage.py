"""What a damaged frame held: nothing of it is served, but its offsets are not given again.

Used only when an operator said to go on past damage. Lengths, counts and names in a bad
frame are not trusted one by one; they are believed where they agree. The bytes up to the
next frame that holds must be exactly a header, a directory of n entries and n batches, by
the sizes in the directory or by those in the batches. One flipped bit leaves one of the
two readings whole.

Deliberately not here: what to make of it (`recovery.py`); damage that leaves neither
reading is reported, and what only it held cannot be known.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from ister.wal.batch import HEADER_SIZE, crc_holds
from ister.wal.frame import ENTRY, ENTRY_SIZE, FRAME_HEADER_SIZE, Entry

_BASE_AND_LENGTH = Struct(">qi")
_LAST_DELTA = Struct(">i")
_LAST_DELTA_AT = 23
_COUNT = Struct("<I")
_COUNT_AT = 32  # in the header of a frame
_LENGTH_STARTS = 12  # bytes of a batch before what its length counts


class Lost(NamedTuple):
    """A batch that was there. `base_offsets`: the one in the directory, the one in the batch."""

    topic_id: bytes
    partition: int
    base_offsets: tuple[int, int]
    records: int


def lost_batches(region: memoryview) -> list[Lost]:
    """The batches of the frame that fills `region`; empty if it cannot be read any more."""
    for count in _counts(region):
        body_start = FRAME_HEADER_SIZE + count * ENTRY_SIZE
        directory = region[FRAME_HEADER_SIZE:body_start]
        entries = [Entry(*fields) for fields in ENTRY.iter_unpack(directory)]
        batches = [entry for entry in entries if entry.records or entry.size]
        body = region[body_start:]
        for sizes in ([entry.size for entry in batches], list(_sizes_of(body))):
            if sum(sizes) == len(body) and len(sizes) == len(batches):
                return list(_lost(batches, sizes, body))
    return []


def _counts(region: memoryview) -> Iterator[int]:
    """How many entries there may be: as the header says, or as the sizes in the directory do."""
    room = len(region) - FRAME_HEADER_SIZE
    if room < 0:
        return
    (claimed,) = _COUNT.unpack_from(region, _COUNT_AT)
    if claimed <= room // ENTRY_SIZE:
        yield claimed
    used = 0
    for count in range(1, room // ENTRY_SIZE + 1):
        fields = ENTRY.unpack_from(region, FRAME_HEADER_SIZE + (count - 1) * ENTRY_SIZE)
        used += ENTRY_SIZE + Entry(*fields).size
        if used >= room:
            if used == room:
                yield count
            return


def _sizes_of(body: memoryview) -> Iterator[int]:
    """Sizes by the length field of each batch."""
    at = 0
    while at + HEADER_SIZE <= len(body):
        size = _BASE_AND_LENGTH.unpack_from(body, at)[1] + _LENGTH_STARTS
        if size < HEADER_SIZE or at + size > len(body):
            return
        yield size
        at += size


def _lost(batches: list[Entry], sizes: list[int], body: memoryview) -> Iterator[Lost]:
    at = 0
    for entry, size in zip(batches, sizes, strict=True):
        data = body[at : at + size]
        at += size
        if size < HEADER_SIZE:
            continue
        records = entry.records
        if crc_holds(data):  # then its own count stands under a checksum
            records = _LAST_DELTA.unpack_from(data, _LAST_DELTA_AT)[0] + 1
        bases = (entry.base_offset, _BASE_AND_LENGTH.unpack_from(data)[0])
        yield Lost(entry.topic_id, entry.partition, bases, records)
