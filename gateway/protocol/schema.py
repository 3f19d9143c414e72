"""What the generator knows of a message, gathered from kio over all versions.

kio has one class per struct and version; here they are joined: one `Struct`
with the union of its fields, each field with the versions that have it and those
in which it may be null. For development only: needs kio, and nothing imports it
at run time but `generate.py` and tests.
"""

from __future__ import annotations

import dataclasses
import importlib
import types
import typing
import uuid
from dataclasses import dataclass, field
from typing import Any

from kio.schema.errors import ErrorCode

# Module name in kio, lowest and highest version that the gateway serves.
APIS = (
    ("list_offsets", 1, 11),
    ("metadata", 0, 13),
    ("offset_commit", 2, 10),
    ("offset_fetch", 1, 10),
    ("find_coordinator", 0, 6),
    ("join_group", 0, 9),
    ("heartbeat", 0, 4),
    ("leave_group", 0, 5),
    ("sync_group", 0, 5),
    ("describe_groups", 0, 6),
    ("list_groups", 0, 5),
    ("api_versions", 0, 4),
    ("create_topics", 2, 7),
    ("delete_topics", 1, 6),
    ("delete_records", 0, 2),
    ("init_producer_id", 0, 5),
    ("offset_for_leader_epoch", 2, 4),
    ("describe_configs", 1, 4),
    ("alter_configs", 0, 2),
    ("incremental_alter_configs", 0, 1),
    ("create_partitions", 0, 3),
    ("delete_groups", 0, 3),
    ("offset_delete", 0, 0),
    ("describe_cluster", 0, 2),
    ("describe_topic_partitions", 0, 0),
    ("describe_log_dirs", 1, 5),
    ("list_partition_reassignments", 0, 0),
    ("elect_leaders", 0, 2),
)

_KINDS = {"error_code": "int16", "timedelta_i32": "int32", "timedelta_i64": "int64"}
_ZERO = {"string": "", "bytes": b"", "uuid": bytes(16), "bool": False}
NEVER_FLEXIBLE = 32767
REQUIRED = object()


@dataclass
class Field:
    """A field of a struct, over all versions."""

    name: str
    kind: str  # int8, int16, int32, int64, bool, string, bytes, uuid, or "struct"
    array: bool
    struct: str = ""
    tag: int | None = None
    default: Any = REQUIRED
    versions: set[int] = field(default_factory=set)
    nullable: set[int] = field(default_factory=set)

    def zero(self) -> Any:
        """What the field is when its version does not have it."""
        if self.default is not REQUIRED:
            return self.default
        return () if self.array else _ZERO.get(self.kind, 0)


@dataclass
class Struct:
    """A struct: its fields in wire order."""

    name: str
    fields: list[Field] = field(default_factory=list)
    versions: set[int] = field(default_factory=set)

    def get(self, name: str) -> Field | None:
        return next((f for f in self.fields if f.name == name), None)


@dataclass
class Side:
    """A request or a response; the last struct is the message itself."""

    structs: list[Struct]
    version_min: int
    version_max: int
    flexible_from: int
    api_key: int


def load(api: str, side: str, version_min: int, version_max: int) -> Side:
    """Join what kio has, with what it does not have yet added by hand."""
    structs: dict[str, Struct] = {}
    flexible_from, api_key = NEVER_FLEXIBLE, -1
    for version in range(version_min, version_max + 1):
        if (api, version) in _BEHIND_KIO:
            continue
        module = importlib.import_module(f"kio.schema.{api}.v{version}.{side}")
        for cls in vars(module).values():
            if not (isinstance(cls, type) and cls.__module__ == module.__name__):
                continue
            entity: Any = cls
            api_key = int(entity.__api_key__)
            if entity.__flexible__:
                flexible_from = min(flexible_from, version)
            _join(structs.setdefault(cls.__name__, Struct(cls.__name__)), cls, version)
    loaded = Side(_ordered(structs, side), version_min, version_max, flexible_from, api_key)
    for (name, version), patch in _BEHIND_KIO.items():
        if name == api:
            patch(loaded, side, version)
    return loaded


def _join(struct: Struct, cls: type, version: int) -> None:
    """One version of a struct into the union."""
    struct.versions.add(version)
    hints = typing.get_type_hints(cls)
    behind = 0
    for source in dataclasses.fields(cls):
        seen = _field(source, hints[source.name])
        known = struct.get(seen.name)
        if known is None:
            struct.fields.insert(behind, seen)
            known = seen
        same = (known.kind, known.array, known.struct, known.tag, known.default)
        assert same == (seen.kind, seen.array, seen.struct, seen.tag, seen.default), seen
        position = struct.fields.index(known) + 1
        assert position > behind or known.tag is not None, f"order of {cls}"
        behind = position
        known.versions.add(version)
        if type(None) in typing.get_args(hints[source.name]) and known.kind != "uuid":
            known.nullable.add(version)


def _field(source: dataclasses.Field[Any], hint: Any) -> Field:
    kafka_type = source.metadata.get("kafka_type")
    array, item = False, hint
    if isinstance(item, types.UnionType) or typing.get_origin(item) is typing.Union:
        (item,) = [a for a in typing.get_args(item) if a is not type(None)]
    if typing.get_origin(item) is tuple:
        array, item = True, typing.get_args(item)[0]
    name = source.name
    if kafka_type in ("timedelta_i32", "timedelta_i64"):
        name += "_ms"  # kio turns them into durations; the wire has milliseconds
    found = Field(name, _KINDS.get(kafka_type or "", kafka_type or "struct"), array)
    found.struct = "" if kafka_type else item.__name__
    found.tag = source.metadata.get("tag")
    if source.default is not dataclasses.MISSING:
        found.default = _plain(source.default)
    return found


def _plain(value: Any) -> Any:
    """kio's typed default as a plain value."""
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, ErrorCode):
        return int(value)
    if hasattr(value, "total_seconds"):
        return int(value.total_seconds() * 1000)
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    assert value is None or value == () or type(value) in (bool, str, bytes), value
    return value


def _ordered(structs: dict[str, Struct], side: str) -> list[Struct]:
    """Inner structs before those that use them."""
    done: list[Struct] = []

    def visit(struct: Struct) -> None:
        for inner in struct.fields:
            if inner.struct:
                visit(structs[inner.struct])
        if struct not in done:
            done.append(struct)

    for struct in structs.values():
        if not struct.name.endswith(side.capitalize()):
            visit(struct)
    for struct in structs.values():
        visit(struct)
    return done


def _delete_groups_3(loaded: Side, side: str, version: int) -> None:
    """Kafka 4.4: each result has an error message (kio 0.6.5 ends at version 2)."""
    for struct in loaded.structs:
        struct.versions.add(version)
        for known in struct.fields:
            known.versions.add(version)
    if side == "response":
        result = next(s for s in loaded.structs if s.name == "DeletableGroupResult")
        message = Field("error_message", "string", array=False, default=None)
        message.versions = message.nullable = {version}
        result.fields.append(message)


_BEHIND_KIO = {("delete_groups", 3): _delete_groups_3}
