"""The index of a sealed journal file, kept beside it ({sequence:020d}.idx).

Little-endian:
    8s   magic "ISTERIDX"
    I    format version (1)
    Q    sequence of the journal file
    Q    where its frames end
    Q    wall clock (ms) not earlier than its last append
    I    number of partitions
  directory, sorted by topic id and partition:
    16s  topic id
    I    partition
    I    number of batches
    q    first offset
    q    offset behind the last batch
    q    bytes of its batches
    q    largest timestamp
    Q    position of its arrays here
    I    crc32c of its arrays
  I    crc32c of all of the above
  arrays of each partition: base offsets q[n], positions q[n], timestamps q[n], sizes I[n]

Every byte is under a checksum: the directory under its own, each partition's
arrays under the one in the directory, so that a reader loads one partition and
trusts it. A sidecar that is missing or wrong is rebuilt by scanning the file;
it is a copy of what the frames say, never the only one.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from ister.wal.errors import Damaged, NewerFormat
from ister.wal.fs import FileSystem
from ister.wal.tail import TailIndex

SUFFIX = ".idx"
FORMAT_VERSION = 1
_MAGIC = b"ISTERIDX"
_HEAD = Struct("<8sIQQQI")
_ENTRY = Struct("<16sIIqqqqQI")
_CRC = Struct("<I")

assert sys.byteorder == "little", "the index arrays are stored as they are in memory"

Key = tuple[bytes, int]  # topic id, partition


class SidecarEntry(NamedTuple):
    topic_id: bytes
    partition: int
    batches: int
    first_offset: int
    next_offset: int
    data_bytes: int
    max_timestamp: int
    position: int
    crc: int


class Sidecar(NamedTuple):
    sequence: int
    end: int
    last_append_ms: int
    entries: dict[Key, SidecarEntry]


def sidecar_name(sequence: int) -> str:
    return f"{sequence:020d}{SUFFIX}"


def encode(
    sequence: int, end: int, last_append_ms: int, tails: dict[Key, TailIndex]
) -> list[bytes]:
    """The buffers of a sidecar, in order."""
    keys = sorted(key for key, tail in tails.items() if len(tail))
    position = _HEAD.size + len(keys) * _ENTRY.size + _CRC.size
    head = [_HEAD.pack(_MAGIC, FORMAT_VERSION, sequence, end, last_append_ms, len(keys))]
    arrays: list[bytes] = []
    for key in keys:
        tail = tails[key]
        data = b"".join(
            (
                tail.bases.tobytes(),
                tail.positions.tobytes(),
                tail.timestamps.tobytes(),
                tail.sizes.tobytes(),
            )
        )
        head.append(
            _ENTRY.pack(
                *key,
                len(tail),
                tail.first_offset,
                tail.next_offset,
                tail.data_bytes,
                max(tail.timestamps),
                position,
                crc32c(data),
            )
        )
        arrays.append(data)
        position += len(data)
    directory = b"".join(head)
    return [directory, _CRC.pack(crc32c(directory)), *arrays]


def decode_directory(read: Callable[[int, int], bytes], where: str) -> Sidecar:
    """The checked directory. Damaged if it is not what was written."""
    head = read(_HEAD.size, 0)
    if len(head) < _HEAD.size:
        raise Damaged(where, 0, "the index is too short")
    magic, version, sequence, end, last_append_ms, count = _HEAD.unpack(head)
    if magic != _MAGIC:
        raise Damaged(where, 0, "this is no index")
    directory = head + read(count * _ENTRY.size, _HEAD.size)
    crc = read(_CRC.size, _HEAD.size + count * _ENTRY.size)
    if len(crc) < _CRC.size or crc32c(directory) != _CRC.unpack(crc)[0]:
        raise Damaged(where, 0, "the checksum of the index directory does not hold")
    if version > FORMAT_VERSION:
        raise NewerFormat(
            f"{where} has index format {version}, this version reads {FORMAT_VERSION}"
        )
    entries = {
        (fields[0], fields[1]): SidecarEntry(*fields)
        for fields in _ENTRY.iter_unpack(directory[_HEAD.size :])
    }
    return Sidecar(sequence, end, last_append_ms, entries)


def decode_tail(read: Callable[[int, int], bytes], entry: SidecarEntry, where: str) -> TailIndex:
    """The arrays of one partition, checked."""
    count = entry.batches
    data = read(count * 28, entry.position)
    if len(data) < count * 28 or crc32c(data) != entry.crc:
        raise Damaged(where, entry.position, "the checksum of a partition's index does not hold")
    tail = TailIndex()
    for name, start, stop in (("bases", 0, 8), ("positions", 8, 16), ("timestamps", 16, 24)):
        part: array[int] = getattr(tail, name)
        part.frombytes(data[start * count : stop * count])
    tail.sizes.frombytes(data[24 * count :])
    tail.next_offset = entry.next_offset
    return tail


def write_sidecar(fs: FileSystem, directory: str, sequence: int, buffers: list[bytes]) -> None:
    """Written aside, synced, renamed; replaces what is there."""
    path = f"{directory}/{sidecar_name(sequence)}"
    write_aside(fs, path, buffers)


def write_aside(fs: FileSystem, path: str, buffers: list[bytes]) -> None:
    """Put a whole file in place so that a crash leaves the old one or the new one."""
    aside = f"{path}.new"
    if fs.exists(aside):
        fs.unlink(aside)
    file = fs.open(aside, create=True)
    try:
        file.pwrite(buffers, 0)
        file.sync()
    finally:
        file.close()
    fs.rename(aside, path)
    fs.sync_dir(path.rpartition("/")[0])
