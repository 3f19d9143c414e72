"""One version of a register in a directory: a file named by its number.

    0  4  magic "ISRG"
    4  1  1 = a value, 2 = removed (no value)
    5  8  version, as in the file's name
   13  4  CRC32C of bytes 0-12 and of the value
   17  -  the value

All numbers big endian. A file is linked to its name after its sync, so a file
that does not hold was damaged later: `Damaged`, with the place.
"""

from __future__ import annotations

import struct

from crc32c import crc32c

from ister.wal.errors import Damaged

MAGIC = b"ISRG"
VALUE = 1
REMOVED = 2
DIGITS = 20

_HEAD = struct.Struct(">4sBQ")
_CHECKSUM = struct.Struct(">I")
HEADER_SIZE = _HEAD.size + _CHECKSUM.size


def file_name(version: int) -> str:
    return f"{version:0{DIGITS}d}"


def version_of(name: str) -> int | None:
    """The version that a file of that name holds; None if it is a file of somebody else."""
    return int(name) if len(name) == DIGITS and name.isascii() and name.isdigit() else None


def encode(value: bytes | None, version: int) -> bytes:
    """None: the register is removed."""
    head = _HEAD.pack(MAGIC, REMOVED if value is None else VALUE, version)
    content = value or b""
    return head + _CHECKSUM.pack(crc32c(content, crc32c(head))) + content


def decode(data: bytes, version: int, path: str) -> bytes | None:
    """The value, or None if this version says "removed". Damaged if the file does not hold."""
    if len(data) < HEADER_SIZE:
        raise Damaged(path, len(data), "a version of a register is cut short")
    magic, kind, stored_version = _HEAD.unpack_from(data)
    (checksum,) = _CHECKSUM.unpack_from(data, _HEAD.size)
    value = data[HEADER_SIZE:]
    if magic != MAGIC or crc32c(value, crc32c(data[: _HEAD.size])) != checksum:
        raise Damaged(path, 0, "a version of a register does not have its checksum")
    if stored_version != version or kind not in (VALUE, REMOVED):
        raise Damaged(path, 0, f"the file holds version {stored_version}, kind {kind}")
    return value if kind == VALUE else None
