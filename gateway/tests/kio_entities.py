"""kio's classes as an oracle for the two codecs written by hand."""

from __future__ import annotations

import dataclasses
import importlib
import io
from typing import Any

from kio.serial import entity_reader, entity_writer


def build(api: str, side: str, version: int, cls_name: str, /, **values: Any) -> Any:
    """An entity of one version; values that the version does not have are dropped."""
    cls = getattr(importlib.import_module(f"kio.schema.{api}.v{version}.{side}"), cls_name)
    known = {field.name for field in dataclasses.fields(cls)}
    return cls(**{key: value for key, value in values.items() if key in known})


def write(entity: Any) -> bytes:
    out = io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


def read(api: str, side: str, version: int, name: str, data: bytes) -> Any:
    """The entity, which must fill `data`, and which kio must write again as it was."""
    cls = getattr(importlib.import_module(f"kio.schema.{api}.v{version}.{side}"), name)
    entity, size = entity_reader(cls)(data, 0)
    assert size == len(data)
    assert write(entity) == data
    return entity
