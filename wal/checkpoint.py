"""What the log knows of every partition, so that opening need not read everything.

    8s   magic "ISTERCKP"
    I    format version (1)
    I    crc32c of the above and of the payload
    payload: msgpack of `Checkpoint`

Named {generation:020d}.ckpt; written aside, synced, renamed, directory synced;
two generations are kept, and the newest valid one counts. A checkpoint is
*fuzzy*: partitions are taken one after another while the log goes on. That is
right because all it holds is durable, and replaying a frame that it already
covers changes nothing (offsets below `next_offset` are passed over).
Journal files below `first_sequence` are gone; frames in files below `scan_from`
are all covered.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from struct import Struct

import msgspec
from crc32c import crc32c

from ister.wal.errors import Damaged, NewerFormat
from ister.wal.fs import FileSystem
from ister.wal.sidecar import write_aside

SUFFIX = ".ckpt"
FORMAT_VERSION = 1
GENERATIONS_KEPT = 2
_MAGIC = b"ISTERCKP"
_HEAD = Struct("<8sI")
_CRC = Struct("<I")
_PAYLOAD_START = _HEAD.size + _CRC.size


class PartitionRecord(msgspec.Struct, frozen=True, array_like=True):
    topic_id: bytes
    index: int
    next_offset: int  # durable end
    log_start: int
    tiered_end: int
    epochs: list[tuple[int, int]]
    holes: list[tuple[int, int, str]]
    producers: bytes  # `Producers.encode`; empty: none
    manifest: bytes  # `Manifest.encode`; empty: nothing handed off


class Checkpoint(msgspec.Struct, frozen=True, array_like=True):
    generation: int
    cluster_id: str
    written_ms: int
    first_sequence: int
    scan_from: int
    commit_next: int
    partitions: list[PartitionRecord]


def encode(checkpoint: Checkpoint) -> list[bytes]:
    payload = msgspec.msgpack.encode(checkpoint)
    head = _HEAD.pack(_MAGIC, FORMAT_VERSION)
    return [head, _CRC.pack(crc32c(payload, crc32c(head))), payload]


def decode(data: bytes, where: str) -> Checkpoint:
    """Damaged, or NewerFormat if it is whole but not of a version that is known here."""
    if len(data) < _PAYLOAD_START:
        raise Damaged(where, 0, "the checkpoint is too short")
    magic, version = _HEAD.unpack_from(data)
    (crc,) = _CRC.unpack_from(data, _HEAD.size)
    payload = memoryview(data)[_PAYLOAD_START:]
    if magic != _MAGIC or crc32c(payload, crc32c(data[: _HEAD.size])) != crc:
        raise Damaged(where, 0, "the checksum of the checkpoint does not hold")
    if version > FORMAT_VERSION:
        raise NewerFormat(
            f"{where} has checkpoint format {version}, this version reads up to {FORMAT_VERSION}: "
            "install the version that wrote it"
        )
    try:
        return msgspec.msgpack.decode(payload, type=Checkpoint)
    except msgspec.DecodeError as error:
        raise Damaged(where, _PAYLOAD_START, f"the checkpoint does not decode: {error}") from error


def names(fs: FileSystem, directory: str) -> Iterator[str]:
    """Checkpoint files, newest first."""
    return reversed([name for name in fs.listdir(directory) if name.endswith(SUFFIX)])


def load(fs: FileSystem, directory: str) -> tuple[Checkpoint | None, list[Damaged]]:
    """The newest valid checkpoint, and what was found wrong on the way to it."""
    damages: list[Damaged] = []
    for name in names(fs, directory):
        path = f"{directory}/{name}"
        file = fs.open(path)
        try:
            return decode(file.pread(file.size(), 0), path), damages
        except Damaged as damage:
            damages.append(damage)
        finally:
            file.close()
    return None, damages


def write(fs: FileSystem, directory: str, checkpoint: Checkpoint) -> None:
    """Durable when it returns; older generations but one go."""
    write_aside(fs, f"{directory}/{checkpoint.generation:020d}{SUFFIX}", encode(checkpoint))
    for name in list(names(fs, directory))[GENERATIONS_KEPT:]:
        with contextlib.suppress(FileNotFoundError):
            fs.unlink(f"{directory}/{name}")
