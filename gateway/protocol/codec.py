"""One message type and its versions: bytes to value and back.

The generated modules in `messages/` give each struct a class, a read function
and a write function, and tie those of a request or response together in a
`Codec`. `Codec.read` is the edge where every fault of the bytes becomes a
`ProtocolError` and where bytes left over are refused; `Codec.write` gives the
body alone, the head is put before it by the connection.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

from ister.gateway.protocol.errors import ProtocolError
from ister.gateway.protocol.limits import ITEMS_MAX
from ister.gateway.protocol.reader import CompactReader, PlainReader
from ister.gateway.protocol.writer import CompactWriter, PlainWriter


class Message:
    """Base of every struct on the wire: a value, never changed after it was built.

    Plain slotted classes with attributes declared final: a hundred and forty frozen
    dataclasses take a tenth of a second to define, more than a whole broker may take to start.
    """

    __slots__: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    def __hash__(self) -> int:
        return hash(tuple(getattr(self, name) for name in self.__slots__))

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{type(self).__name__}({fields})"

    def replace(self, **changes: Any) -> Any:
        """The same message with some fields different."""
        return type(self)(**{name: getattr(self, name) for name in self.__slots__} | changes)


M = TypeVar("M", bound=Message)


class Codec(Generic[M]):
    """Reads and writes one request or response type in a range of versions."""

    __slots__ = ("_read", "_write", "flexible_from", "message", "version_max", "version_min")

    def __init__(
        self,
        message: type[M],
        version_min: int,
        version_max: int,
        flexible_from: int,
        read: Callable[[PlainReader, int], M],
        write: Callable[[PlainWriter, M, int], None],
    ) -> None:
        self.message: Final = message
        self.version_min: Final = version_min
        self.version_max: Final = version_max
        self.flexible_from: Final = flexible_from
        self._read = read
        self._write = write

    def read(
        self,
        data: bytes | bytearray | memoryview,
        version: int,
        items_max: int = ITEMS_MAX,
        *,
        exact: bool = True,
    ) -> M:
        """The message that fills `data`, or only begins it if not `exact`; or `ProtocolError`."""
        self._check(version)
        kind = CompactReader if version >= self.flexible_from else PlainReader
        reader = kind(data, items_max)
        try:
            message = self._read(reader, version)
            if exact:
                reader.finish()
        except (ProtocolError, struct.error, IndexError, ValueError) as error:
            name = self.message.__name__
            raise ProtocolError(f"{name} version {version}: {error}") from None
        return message

    def write(self, message: M, version: int) -> bytearray:
        """The body of the message, without any header."""
        self._check(version)
        writer = CompactWriter() if version >= self.flexible_from else PlainWriter()
        self._write(writer, message, version)
        return writer.out

    def _check(self, version: int) -> None:
        if not self.version_min <= version <= self.version_max:
            raise ProtocolError(f"{self.message.__name__} has no version {version}")
