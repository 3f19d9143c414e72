"""Hypothesis strategies for any generated message in any version, and the oracles.

Values come from the same schemas as the code; what judges the bytes is kio's own
reader and writer, and kafka-python's.
"""

from __future__ import annotations

import importlib
import io
import pkgutil
import warnings
from functools import cache
from types import ModuleType
from typing import Any

from hypothesis import strategies as st
from kio.serial import entity_reader, entity_writer

from ister.gateway.protocol.codec import Codec
from ister.gateway.protocol.error_codes import ErrorCode
from ister.gateway.protocol.schema import APIS, Field, Side, load

BITS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}
TEXT = st.one_of(st.sampled_from(["", "orders", "ö" * 70, "x" * 127]), st.text(max_size=8))
CASES = [
    (api, side, version)
    for api, low, high in APIS
    for side in ("request", "response")
    for version in range(low, high + 1)
]


def case_name(case: tuple[str, str, int]) -> str:
    return f"{case[0]}-{case[1]}-{case[2]}"


def module_of(api: str) -> ModuleType:
    return importlib.import_module(f"ister.gateway.protocol.messages.{api}")


def codec_of(api: str, side: str) -> Codec[Any]:
    codec: Codec[Any] = getattr(module_of(api), side.upper())
    return codec


@cache
def schema_of(api: str, side: str) -> Side:
    low, high = next((low, high) for name, low, high in APIS if name == api)
    return load(api, side, low, high)


@cache
def messages(api: str, side: str, version: int) -> st.SearchStrategy[Any]:
    """Any message of one version; fields of other versions have their defaults."""
    schema = schema_of(api, side)
    return _struct(module_of(api), schema, schema.structs[-1].name, version)


def _struct(module: ModuleType, schema: Side, name: str, version: int) -> st.SearchStrategy[Any]:
    struct = next(s for s in schema.structs if s.name == name)
    cls = getattr(module, name, None)
    if cls is None:  # the request and the response have different structs of this name
        side = "Request" if schema.structs[-1].name.endswith("Request") else "Response"
        cls = getattr(module, side + name)
    fields = {}
    for field in struct.fields:
        if version in field.versions:
            fields[field.name] = _value(module, schema, field, version)
    return st.builds(cls, **fields)


def _value(module: ModuleType, schema: Side, field: Field, version: int) -> st.SearchStrategy[Any]:
    one = _struct(module, schema, field.struct, version) if field.struct else _primitive(field)
    if field.array:
        one = st.lists(one, max_size=3).map(tuple)
    return st.none() | one if version in field.nullable else one


def _primitive(field: Field) -> st.SearchStrategy[Any]:
    if field.name.endswith("error_code"):
        return st.sampled_from(ErrorCode).map(int)
    if field.name == "retention_time_ms":  # kio has a duration there
        return st.integers(-1, 2**45)
    if field.kind in BITS:
        bound = 1 << BITS[field.kind]
        return st.sampled_from([0, -1, 1, bound - 1, -bound]) | st.integers(-bound, bound - 1)
    if field.kind == "bool":
        return st.booleans()
    if field.kind == "uuid":
        return st.binary(min_size=16, max_size=16)
    return TEXT if field.kind == "string" else st.binary(max_size=40)


def through_kio(api: str, side: str, version: int, data: bytes) -> bytes:
    """What kio writes after reading `data`."""
    module = importlib.import_module(f"kio.schema.{api}.v{version}.{side}")
    name = schema_of(api, side).structs[-1].name
    entity = getattr(module, name)
    value, size = entity_reader(entity)(data, 0)
    assert size == len(data)
    out = io.BytesIO()
    entity_writer(entity)(out, value)
    return out.getvalue()


@cache
def _kafka_python() -> dict[str, Any]:
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # its way of loading its schemas
        for package in ("admin", "consumer", "metadata", "producer"):
            folder = importlib.import_module(f"kafka.protocol.{package}")
            for info in pkgutil.iter_modules(folder.__path__):
                module = importlib.import_module(f"kafka.protocol.{package}.{info.name}")
                found.update(vars(module))
    return found


def through_kafka_python(api: str, side: str, version: int, data: bytes) -> bytes | None:
    """The same with kafka-python; None where it does not have the message or the version."""
    if (api, side) == ("api_versions", "response") and data[:2] != b"\0\0":
        return None  # it reads any such answer with an error as version 0
    return through_kafka_python_named(schema_of(api, side).structs[-1].name, version, data)


def through_kafka_python_named(name: str, version: int, data: bytes) -> bytes | None:
    cls = _kafka_python().get(name)
    if cls is None or version > cls.max_version:
        return None
    message = cls.decode(data, version=version)
    message._header = None  # it is missing after decoding, and encoding asks for it
    return bytes(message.encode())
