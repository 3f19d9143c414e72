"""Messages of the wire as dictionaries: any API, any version, from the schemas in kio.

`message("metadata", 9, "request")` has `encode(values)` and `decode(data)`. Names are kio's,
with `_ms` behind what kio takes for a duration. Values that a version does not have are left
out when writing, so that one dictionary serves all versions; a name that no version has is
an error. When reading, all bytes have to be used, and tags that the schema does not know are
kept under `_tags`, so that a comparison sees them.
"""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
import types
import typing
import uuid
from functools import cache
from struct import Struct as Packing
from typing import Any, NamedTuple

_FIXED = {
    "int8": Packing(">b"),
    "int16": Packing(">h"),
    "int32": Packing(">i"),
    "int64": Packing(">q"),
    "uint16": Packing(">H"),
    "float64": Packing(">d"),
    "bool": Packing(">?"),
}
_SAME = {
    "error_code": "int16",
    "timedelta_i32": "int32",
    "timedelta_i64": "int64",
    "datetime_i64": "int64",
    "records": "bytes",
}
_ZERO = {"string": "", "bytes": b"", "uuid": uuid.UUID(int=0), "bool": False}


class Field(NamedTuple):
    name: str
    kind: str  # a key of _FIXED, "string", "bytes", "uuid" or "struct"
    array: bool
    nullable: bool
    tag: int | None
    struct: Layout | None
    default: Any


class Layout:
    """One struct in one version."""

    def __init__(self, cls: Any) -> None:
        self.flexible: bool = cls.__flexible__
        hints = typing.get_type_hints(cls)
        every = [_field(source, hints[source.name]) for source in dataclasses.fields(cls)]
        self.fields = [each for each in every if each.tag is None]
        self.tagged = {each.tag: each for each in every if each.tag is not None}

    def encode(self, values: dict[str, Any]) -> bytes:
        out = bytearray()
        for field in self.fields:
            value = values.get(field.name, field.default)
            _write(out, field, value, self.flexible)
        if self.flexible:
            given = {
                tag: field
                for tag, field in self.tagged.items()
                if values.get(field.name, field.default) != field.default
            }
            _write_uvarint(out, len(given))
            for tag, field in sorted(given.items()):
                content = bytearray()
                _write(content, field, values[field.name], True)
                _write_uvarint(out, tag)
                _write_uvarint(out, len(content))
                out += content
        return bytes(out)

    def decode(self, data: bytes) -> dict[str, Any]:
        values, position = self.read(data, 0)
        if position != len(data):
            raise ValueError(f"{len(data) - position} bytes behind the message")
        return values

    def read(self, data: bytes, position: int) -> tuple[dict[str, Any], int]:
        values: dict[str, Any] = {}
        for field in self.fields:
            values[field.name], position = _read(data, position, field, self.flexible)
        if self.flexible:
            for field in self.tagged.values():
                values[field.name] = field.default
            position = self._read_tags(data, position, values)
        return values, position

    def _read_tags(self, data: bytes, position: int, values: dict[str, Any]) -> int:
        count, position = _read_uvarint(data, position)
        for _ in range(count):
            tag, position = _read_uvarint(data, position)
            size, position = _read_uvarint(data, position)
            content = data[position : position + size]
            position += size
            known = self.tagged.get(tag)
            if known is None:
                values.setdefault("_tags", {})[tag] = content
            else:
                values[known.name], used = _read(content, 0, known, True)
                if used != size:
                    raise ValueError(f"tag {tag} has {size} bytes, of which {used} are used")
        return position


@cache
def message(api: str, version: int, side: str) -> Layout:
    module = importlib.import_module(f"kio.schema.{api}.v{version}.{side}")
    name = "".join(word.capitalize() for word in api.split("_")) + side.capitalize()
    return Layout(getattr(module, name))


@cache
def versions_of(api: str) -> list[int]:
    """The versions whose layout is known."""
    package = importlib.import_module(f"kio.schema.{api}")
    names = [each.name for each in pkgutil.iter_modules(package.__path__)]
    return sorted(int(name[1:]) for name in names if name[1:].isdigit())


def check_names(api: str, values: dict[str, Any]) -> None:
    """ValueError for a name that no version of the request has."""
    strangers = _names_in(values) - _known_names(api)
    if strangers:
        raise ValueError(f"{api} has no {', '.join(sorted(strangers))}")


@cache
def _known_names(api: str) -> set[str]:
    return {
        name for version in versions_of(api) for name in _names_of(message(api, version, "request"))
    }


def _names_of(layout: Layout) -> set[str]:
    found: set[str] = set()
    for field in (*layout.fields, *layout.tagged.values()):
        found.add(field.name)
        if field.struct is not None:
            found |= _names_of(field.struct)
    return found


def _names_in(value: Any) -> set[str]:
    if isinstance(value, dict):
        return set(value).union(*(_names_in(each) for each in value.values()))
    if isinstance(value, list):
        return set().union(*(_names_in(each) for each in value))
    return set()


def _field(source: dataclasses.Field[Any], hint: Any) -> Field:
    item, nullable, array = hint, False, False
    if isinstance(item, types.UnionType) or typing.get_origin(item) is typing.Union:
        nullable = True
        (item,) = [each for each in typing.get_args(item) if each is not type(None)]
    if typing.get_origin(item) is tuple:
        array, item = True, typing.get_args(item)[0]
    given = source.metadata.get("kafka_type")
    kind = _SAME.get(given, given) if given else "struct"
    name = source.name + ("_ms" if (given or "").startswith(("timedelta", "datetime")) else "")
    if kind == "uuid" or (given or "").startswith(("timedelta", "datetime")):
        nullable = False  # null is a number in these
    struct = None if given else Layout(item)
    default: Any = [] if array else _ZERO.get(kind, 0)
    if source.default is not dataclasses.MISSING:
        default = _plain(source.default)
    elif struct is not None and not array:
        default = None if nullable else {}
    return Field(name, kind, array, nullable, source.metadata.get("tag"), struct, default)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {each.name: _plain(getattr(value, each.name)) for each in dataclasses.fields(value)}
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if hasattr(value, "total_seconds"):
        return int(value.total_seconds() * 1000)
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value


# -- writing -----------------------------------------------------------------------------


def _write(out: bytearray, field: Field, value: Any, flexible: bool) -> None:
    if field.array:
        _write_size(out, None if value is None else len(value), flexible, 4)
        for each in value or ():
            _write_item(out, field, each, flexible)
    else:
        _write_item(out, field, value, flexible)


def _write_item(out: bytearray, field: Field, value: Any, flexible: bool) -> None:
    packing = _FIXED.get(field.kind)
    if packing is not None:
        out += packing.pack(value)
    elif field.kind == "uuid":
        out += (value or uuid.UUID(int=0)).bytes
    elif field.kind == "string":
        text = None if value is None else value.encode()
        _write_size(out, None if text is None else len(text), flexible, 2)
        out += text or b""
    elif field.kind == "bytes":
        _write_size(out, None if value is None else len(value), flexible, 4)
        out += value or b""
    else:
        assert field.struct is not None, field
        if field.nullable and not field.array:
            out += b"\xff" if value is None else b"\x01"
            if value is None:
                return
        out += field.struct.encode(value)


def _write_size(out: bytearray, size: int | None, flexible: bool, width: int) -> None:
    if flexible:
        _write_uvarint(out, 0 if size is None else size + 1)
    else:
        out += (-1 if size is None else size).to_bytes(width, signed=True)


def _write_uvarint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


# -- reading -----------------------------------------------------------------------------


def _read(data: bytes, position: int, field: Field, flexible: bool) -> tuple[Any, int]:
    if not field.array:
        return _read_item(data, position, field, flexible)
    size, position = _read_size(data, position, flexible, 4)
    if size is None:
        return None, position
    items = []
    for _ in range(size):
        item, position = _read_item(data, position, field, flexible)
        items.append(item)
    return items, position


def _read_item(data: bytes, position: int, field: Field, flexible: bool) -> tuple[Any, int]:
    packing = _FIXED.get(field.kind)
    if packing is not None:
        return packing.unpack_from(data, position)[0], position + packing.size
    if field.kind == "uuid":
        return uuid.UUID(bytes=data[position : position + 16]), position + 16
    if field.kind in ("string", "bytes"):
        size, position = _read_size(data, position, flexible, 2 if field.kind == "string" else 4)
        if size is None:
            return None, position
        content = data[position : position + size]
        if len(content) < size:
            raise ValueError(f"{field.name}: {size} bytes are told, {len(content)} are there")
        return content.decode() if field.kind == "string" else content, position + size
    assert field.struct is not None, field
    if field.nullable and not field.array:
        position += 1
        if data[position - 1] == 0xFF:
            return None, position
    return field.struct.read(data, position)


def _read_size(data: bytes, position: int, flexible: bool, width: int) -> tuple[int | None, int]:
    if flexible:
        size, position = _read_uvarint(data, position)
        return (None if size == 0 else size - 1), position
    size = int.from_bytes(data[position : position + width], signed=True)
    return (None if size < 0 else size), position + width


def _read_uvarint(data: bytes, position: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
