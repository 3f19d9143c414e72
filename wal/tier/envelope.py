"""The wrapping of every register in the bucket: magic, version, checksum, JSON.

    0   8  magic (what kind of register this is)
    8   4  format version, big endian
   12   4  crc32c of bytes 0..12 and of everything behind byte 16
   16   .  UTF-8 JSON

The checksum also covers the magic and the version, so that a flipped bit is told
from a newer format: only a sound envelope with a higher version is `NewerFormat`.
What stands inside belongs to the neighbours (`manifest`, `owner`, `snapshot`).
"""

from __future__ import annotations

import struct

from crc32c import crc32c

from ister.wal.errors import Damaged, NewerFormat

_HEAD = struct.Struct(">8sI")
_CRC = struct.Struct(">I")
BODY_START = _HEAD.size + _CRC.size


def wrap(magic: bytes, version: int, body: bytes) -> bytes:
    head = _HEAD.pack(magic, version)
    return head + _CRC.pack(crc32c(body, crc32c(head))) + body


def unwrap(magic: bytes, version_max: int, data: bytes, where: str) -> tuple[int, bytes]:
    """(version, body); Damaged or NewerFormat with `where` in the words."""
    if len(data) < BODY_START:
        raise Damaged(where, len(data), "cut short")
    found, version = _HEAD.unpack_from(data)
    (crc,) = _CRC.unpack_from(data, _HEAD.size)
    body = data[BODY_START:]
    if crc32c(body, crc32c(data[: _HEAD.size])) != crc:
        raise Damaged(where, 0, "the checksum does not hold")
    if found != magic:
        raise Damaged(where, 0, f"holds {found!r}, not {magic!r}")
    if version > version_max:
        raise NewerFormat(
            f"{where} has format version {version}, this program reads up to {version_max}: "
            "use the version of ister that wrote it, or a newer one"
        )
    return version, body
