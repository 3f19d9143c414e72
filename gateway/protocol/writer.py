"""Primitive values into one message body.

The counterpart of `reader.py`: `PlainWriter` for the old encodings and
`CompactWriter` for the flexible ones, with one interface. A value that the wire
cannot carry (a string too long, null where null has no encoding) is our own
mistake and raises `ValueError` or `struct.error`, never a wrong byte.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct, pack
from typing import Final, TypeAlias, TypeVar

from ister.gateway.protocol.limits import STRING_BYTES_MAX

_INT8: Final = Struct(">b")
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_UINT32: Final = Struct(">I")
_INT64: Final = Struct(">q")
_FLOAT64: Final = Struct(">d")

ZERO_UUID: Final = bytes(16)

T = TypeVar("T")
WriteItem: TypeAlias = "Callable[[PlainWriter, T, int], None]"


def not_null(value: T | None) -> T:
    """The value, where this version of the message has no encoding for null."""
    if value is None:
        raise ValueError("null in a field that cannot be null in this version")
    return value


def uvarint_bytes(value: int) -> bytes:
    """An unsigned varint of at most 32 bits."""
    if not 0 <= value <= 0xFFFF_FFFF:
        raise ValueError(f"{value} does not fit a varint of 32 bits")
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class PlainWriter:
    """Versions before the flexible ones."""

    __slots__ = ("out",)

    def __init__(self) -> None:
        self.out = bytearray()

    # -- fixed sizes -----------------------------------------------------------

    def int8(self, value: int) -> None:
        self.out += _INT8.pack(value)

    def int16(self, value: int) -> None:
        self.out += _INT16.pack(value)

    def int32(self, value: int) -> None:
        self.out += _INT32.pack(value)

    def uint32(self, value: int) -> None:
        self.out += _UINT32.pack(value)

    def int64(self, value: int) -> None:
        self.out += _INT64.pack(value)

    def float64(self, value: float) -> None:
        self.out += _FLOAT64.pack(value)

    def boolean(self, value: bool) -> None:
        self.out.append(1 if value else 0)

    def uuid(self, value: bytes) -> None:
        if len(value) != 16:
            raise ValueError(f"an id has 16 bytes, not {len(value)}")
        self.out += value

    def uvarint(self, value: int) -> None:
        if 0 <= value < 0x80:
            self.out.append(value)
        else:
            self.out += uvarint_bytes(value)

    def varint(self, value: int) -> None:
        self.uvarint((value << 1 ^ value >> 31) & 0xFFFF_FFFF)

    # -- lengths: what differs between plain and compact --------------------------

    def string_size(self, count: int) -> None:
        """Bytes of the string that follows, -1 for null."""
        self.int16(count)

    def bytes_size(self, count: int) -> None:
        self.int32(count)

    def items(self, count: int) -> None:
        """Number of items of the array that follows, -1 for null."""
        self.int32(count)

    def no_tags(self) -> None:
        """Plain versions have none."""

    def tags(self, fields: Sequence[tuple[int, bytes | bytearray]]) -> None:
        """Tags of flexible versions: a plain one drops them."""

    # -- strings, bytes, arrays --------------------------------------------------

    def string(self, value: str) -> None:
        data = value.encode()
        size = len(data)
        if size > STRING_BYTES_MAX:
            raise ValueError(f"string of {size} bytes, at most {STRING_BYTES_MAX} allowed")
        self.string_size(size)
        self.out += data

    def nullable_string(self, value: str | None) -> None:
        if value is None:
            self.string_size(-1)
        else:
            self.string(value)

    def blob(self, value: bytes | bytearray | memoryview) -> None:
        self.bytes_size(len(value))
        self.out += value

    def nullable_blob(self, value: bytes | bytearray | memoryview | None) -> None:
        if value is None:
            self.bytes_size(-1)
        else:
            self.blob(value)

    def int32s(self, values: Sequence[int]) -> None:
        count = len(values)
        self.items(count)
        if count == 1:
            self.out += _INT32.pack(values[0])
        else:
            self.out += pack(f">{count}i", *values)

    def nullable_int32s(self, values: Sequence[int] | None) -> None:
        if values is None:
            self.items(-1)
        else:
            self.int32s(values)

    def int8s(self, values: Sequence[int]) -> None:
        self.items(len(values))
        self.out += pack(f">{len(values)}b", *values)

    def strings(self, values: Sequence[str]) -> None:
        self.items(len(values))
        for value in values:
            self.string(value)

    def nullable_strings(self, values: Sequence[str] | None) -> None:
        if values is None:
            self.items(-1)
        else:
            self.strings(values)

    def uuids(self, values: Sequence[bytes]) -> None:
        self.items(len(values))
        for value in values:
            self.uuid(value)

    def array(self, items: Sequence[T], write: WriteItem[T], version: int) -> None:
        """Structs, each written by `write`."""
        self.items(len(items))
        for item in items:
            write(self, item, version)

    def nullable_array(self, items: Sequence[T] | None, write: WriteItem[T], version: int) -> None:
        if items is None:
            self.items(-1)
        else:
            self.array(items, write, version)

    def nullable_struct(self, value: T | None, write: WriteItem[T], version: int) -> None:
        """A mark before a struct that may be null (KIP-893)."""
        if value is None:
            self.int8(-1)
        else:
            self.int8(1)
            write(self, value, version)


class CompactWriter(PlainWriter):
    """Flexible versions: lengths are varints plus one, structs end in tagged fields."""

    __slots__ = ()

    def string_size(self, count: int) -> None:
        # One byte is by far the most common length: spare it a second call.
        if count < 0x7F:
            self.out.append(count + 1)
        else:
            self.out += uvarint_bytes(count + 1)

    bytes_size = items = string_size

    def no_tags(self) -> None:
        self.out.append(0)

    def tags(self, fields: Sequence[tuple[int, bytes | bytearray]]) -> None:
        """The tagged fields that differ from their defaults, in the order of their tags."""
        self.uvarint(len(fields))
        for tag, data in fields:
            self.uvarint(tag)
            self.uvarint(len(data))
            self.out += data
