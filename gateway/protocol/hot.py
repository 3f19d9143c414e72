"""What the two hand-tuned codecs share: varints and tagged fields by position.

The generated codec reads through an object; Produce and Fetch cannot afford the
calls and keep the position in a local variable. These are the parts that are
rare enough to stay functions. All of them may raise `IndexError` at the end of the
bytes; the codecs turn it into `ProtocolError`.
"""

from __future__ import annotations

from typing import TypeAlias

from ister.gateway.protocol.errors import ProtocolError
from ister.gateway.protocol.limits import ITEMS_MAX, STRING_BYTES_MAX

Buffer: TypeAlias = bytes | bytearray | memoryview
# Topics have a name, and from some version on an id of 16 bytes instead.
Topic: TypeAlias = str | bytes


def read_uvarint(data: Buffer, position: int) -> tuple[int, int]:
    """Value and next position of a varint of at most 32 bits."""
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 28:
            raise ProtocolError("varint of more than five bytes")
    if value > 0xFFFF_FFFF:
        raise ProtocolError("varint of more than 32 bits")
    return value, position


def skip_tags(data: Buffer, position: int) -> int:
    """The position behind the tagged fields, none of which is of interest."""
    count, position = read_uvarint(data, position)
    check_count(count, len(data) - position, 2)
    for _ in range(count):
        _, position = read_uvarint(data, position)
        size, position = read_uvarint(data, position)
        if size > len(data) - position:
            raise ProtocolError(f"tagged field of {size} bytes, {len(data) - position} left")
        position += size
    return position


def check_count(count: int, left: int, item_bytes_min: int, items_max: int = ITEMS_MAX) -> None:
    """An array may claim what the bytes that are left can hold, and what one request may have."""
    if count < 0 or count * item_bytes_min > left:
        raise ProtocolError(f"{count} items claimed, {left} bytes left")
    if count > items_max:
        raise ProtocolError(f"{count} items, at most {max(0, items_max)} more allowed")


def read_text(data: Buffer, position: int, size: int) -> str:
    """A string of `size` bytes at `position`, all of it there."""
    stop = position + size
    if not 0 <= size <= STRING_BYTES_MAX or stop > len(data):
        raise ProtocolError(f"string of {size} bytes claimed, {len(data) - position} left")
    return str(data[position:stop], "utf-8")


def read_id(data: Buffer, position: int) -> bytes:
    """A topic id at `position`."""
    stop = position + 16
    if stop > len(data):
        raise ProtocolError(f"topic id claimed, {len(data) - position} bytes left")
    return bytes(data[position:stop])


def compact_topic(topic: Topic) -> bytes:
    """A topic in a flexible version: name with its length, or id as it is."""
    if isinstance(topic, bytes):
        if len(topic) != 16:
            raise ValueError(f"an id has 16 bytes, not {len(topic)}")
        return topic
    return compact_text(topic)


def compact_text(text: str) -> bytes:
    data = text.encode()
    size = len(data) + 1
    return (bytes((size,)) if size < 0x80 else compact_size(size)) + data


def compact_size(value: int) -> bytes:
    """A varint. The first two forms cover all but the largest values."""
    if value < 0x80:
        return bytes((value,))
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def plain_topic(topic: Topic) -> bytes:
    """A topic in a plain version: only names, with a 16-bit length."""
    if isinstance(topic, bytes):
        raise ValueError("this version knows topics by name only")
    data = topic.encode()
    return len(data).to_bytes(2, "big") + data


def plain_nullable_text(text: str | None) -> bytes:
    return b"\xff\xff" if text is None else plain_topic(text)
