"""Primitive values out of one message body, strictly.

A reader stands on exactly the bytes of its message. `PlainReader` knows the
old encodings (16 and 32-bit lengths, no tagged fields), `CompactReader` the
flexible ones (varint lengths plus one, tagged fields); both have one interface,
so the generated code does not ask which of the two it has. Fixed-size values
that follow each other are taken with one `Struct`.

A length is compared with its limit and with what is left before anything is
taken. `struct.error`, `IndexError` and `ValueError` may leave a method at the
end of the bytes; `Codec.read` turns them into `ProtocolError`. Nothing that is
returned is a view of the bytes: the receive buffer may be used again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct, unpack_from
from typing import Any, Final, TypeAlias, TypeVar

from ister.gateway.protocol.errors import ProtocolError
from ister.gateway.protocol.limits import ITEMS_MAX, STRING_BYTES_MAX

_INT8: Final = Struct(">b")
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_UINT32: Final = Struct(">I")
_INT64: Final = Struct(">q")
_FLOAT64: Final = Struct(">d")

UUID_BYTES: Final = 16

T = TypeVar("T")
ReadItem: TypeAlias = "Callable[[PlainReader, int], T]"


class PlainReader:
    """Versions before the flexible ones."""

    __slots__ = ("data", "end", "items_left", "position")

    def __init__(self, data: bytes | bytearray | memoryview, items_max: int = ITEMS_MAX) -> None:
        self.data: Final = data
        self.end: Final = len(data)
        self.position = 0
        self.items_left = items_max

    # -- fixed sizes -----------------------------------------------------------

    def unpack(self, layout: Struct) -> tuple[Any, ...]:
        """Several values of fixed size at once."""
        values = layout.unpack_from(self.data, self.position)
        self.position += layout.size
        return values

    def int8(self) -> int:
        value: int = _INT8.unpack_from(self.data, self.position)[0]
        self.position += 1
        return value

    def int16(self) -> int:
        value: int = _INT16.unpack_from(self.data, self.position)[0]
        self.position += 2
        return value

    def int32(self) -> int:
        value: int = _INT32.unpack_from(self.data, self.position)[0]
        self.position += 4
        return value

    def uint32(self) -> int:
        value: int = _UINT32.unpack_from(self.data, self.position)[0]
        self.position += 4
        return value

    def int64(self) -> int:
        value: int = _INT64.unpack_from(self.data, self.position)[0]
        self.position += 8
        return value

    def float64(self) -> float:
        value: float = _FLOAT64.unpack_from(self.data, self.position)[0]
        self.position += 8
        return value

    def boolean(self) -> bool:
        value = self.data[self.position]
        self.position += 1
        return value != 0

    def uuid(self) -> bytes:
        return self.take(UUID_BYTES)

    def take(self, size: int) -> bytes:
        """A copy of the next `size` bytes, all of them or an error."""
        start = self.position
        stop = start + size
        if size < 0 or stop > self.end:
            raise ProtocolError(f"{size} bytes claimed, {self.end - start} left")
        self.position = stop
        return bytes(self.data[start:stop])

    def finish(self) -> None:
        """Everything must have been read."""
        if self.position != self.end:
            raise ProtocolError(f"{self.end - self.position} bytes behind the end")

    def _text(self, size: int) -> str:
        if size > STRING_BYTES_MAX:
            raise ProtocolError(f"string of {size} bytes, at most {STRING_BYTES_MAX} allowed")
        start = self.position
        stop = start + size
        if stop > self.end:
            raise ProtocolError(f"string of {size} bytes claimed, {self.end - start} left")
        self.position = stop
        return str(self.data[start:stop], "utf-8")

    # -- variable integers -----------------------------------------------------

    def uvarint(self) -> int:
        """At most 32 bits, as the protocol has them."""
        data, position = self.data, self.position
        value = data[position]
        position += 1
        if value >= 0x80:
            value &= 0x7F
            shift = 7
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
        self.position = position
        return value

    def varint(self) -> int:
        """A signed one (zigzag)."""
        value = self.uvarint()
        return (value >> 1) ^ -(value & 1)

    # -- lengths: what differs between plain and compact --------------------------

    def string_size(self) -> int:
        """Bytes of the string that follows, -1 for null."""
        return self.int16()

    def bytes_size(self) -> int:
        return self.int32()

    def items(self) -> int:
        return self.int32()

    def skip_tags(self) -> None:
        """Plain versions have none."""

    def tags(self) -> dict[int, CompactReader]:
        return {}

    # -- strings, bytes, arrays --------------------------------------------------

    def string(self) -> str:
        size = self.string_size()
        if size < 0:
            raise ProtocolError("null in a string that cannot be null")
        return self._text(size)

    def nullable_string(self) -> str | None:
        size = self.string_size()
        if size < 0:
            if size != -1:
                raise ProtocolError(f"string of {size} bytes")
            return None
        return self._text(size)

    def blob(self) -> bytes:
        return self.take(self.bytes_size())

    def nullable_blob(self) -> bytes | None:
        size = self.bytes_size()
        return None if size == -1 else self.take(size)

    def array_size(self, item_bytes_min: int = 1) -> int:
        """Items of an array that cannot be null."""
        count = self.items()
        if count < 0:
            raise ProtocolError(f"array of {count} items")
        self._claim(count, item_bytes_min)
        return count

    def nullable_array_size(self, item_bytes_min: int = 1) -> int:
        """The same, with -1 for null."""
        count = self.items()
        if count == -1:
            return -1
        if count < 0:
            raise ProtocolError(f"array of {count} items")
        self._claim(count, item_bytes_min)
        return count

    def _claim(self, count: int, item_bytes_min: int) -> None:
        if count * item_bytes_min > self.end - self.position:
            raise ProtocolError(f"{count} items claimed, {self.end - self.position} bytes left")
        self.items_left -= count
        if self.items_left < 0:
            raise ProtocolError("more array items than one message may have")

    def int32s(self) -> tuple[int, ...]:
        return self._int32s(self.array_size(4))

    def nullable_int32s(self) -> tuple[int, ...] | None:
        count = self.nullable_array_size(4)
        return None if count < 0 else self._int32s(count)

    def _int32s(self, count: int) -> tuple[int, ...]:
        if count == 1:
            return (self.int32(),)
        values = unpack_from(f">{count}i", self.data, self.position)
        self.position += 4 * count
        return values

    def int8s(self) -> tuple[int, ...]:
        count = self.array_size(1)
        values = unpack_from(f">{count}b", self.data, self.position)
        self.position += count
        return values

    def strings(self) -> tuple[str, ...]:
        return tuple([self.string() for _ in range(self.array_size())])

    def nullable_strings(self) -> tuple[str, ...] | None:
        count = self.nullable_array_size()
        return None if count < 0 else tuple([self.string() for _ in range(count)])

    def uuids(self) -> tuple[bytes, ...]:
        return tuple([self.uuid() for _ in range(self.array_size(UUID_BYTES))])

    def array(self, read: ReadItem[T], version: int, item_bytes_min: int) -> tuple[T, ...]:
        """Structs, each read by `read`."""
        return tuple([read(self, version) for _ in range(self.array_size(item_bytes_min))])

    def nullable_array(
        self, read: ReadItem[T], version: int, item_bytes_min: int
    ) -> tuple[T, ...] | None:
        count = self.nullable_array_size(item_bytes_min)
        return None if count < 0 else tuple([read(self, version) for _ in range(count)])

    def nullable_struct(self, read: ReadItem[T], version: int) -> T | None:
        return None if self._is_null_struct() else read(self, version)

    def _is_null_struct(self) -> bool:
        """The mark before a struct that may be null (KIP-893)."""
        mark = self.int8()
        if mark not in (-1, 1):
            raise ProtocolError(f"mark {mark} before a struct that may be null")
        return mark == -1


class CompactReader(PlainReader):
    """Flexible versions: lengths are varints plus one, structs end in tagged fields."""

    __slots__ = ()

    def string_size(self) -> int:
        # One byte is by far the most common length: spare it a second call.
        size = self.data[self.position]
        if size < 0x80:
            self.position += 1
            return size - 1
        return self.uvarint() - 1

    bytes_size = items = string_size

    def skip_tags(self) -> None:
        if self.data[self.position] == 0:
            self.position += 1
            return
        for _, _ in self._each_tag():
            pass

    def tags(self) -> dict[int, CompactReader]:
        """Every tagged field with a reader on its bytes; the caller picks those it knows."""
        found = {}
        for tag, start in self._each_tag():
            reader = CompactReader(self.data[start : self.position], self.items_left)
            if tag in found:
                raise ProtocolError(f"tagged field {tag} twice")
            found[tag] = reader
        return found

    def _each_tag(self) -> Iterator[tuple[int, int]]:
        """Tag and start of each field; the position stands behind it when it is handed out."""
        count = self.uvarint()
        self._claim(count, 2)
        for _ in range(count):
            tag = self.uvarint()
            size = self.uvarint()
            start = self.position
            if size > self.end - start:
                raise ProtocolError(f"tagged field of {size} bytes, {self.end - start} left")
            self.position = start + size
            yield tag, start
