"""Stored forms: keys and records of the catalog, and how any record is encoded.

A record is a JSON object with its format number in it, so that the database can
be read with nothing but the sqlite3 shell. Fields that are not known are skipped
(an older version meets what a newer one added); a higher `format` says that
skipping would be wrong, and is refused.

Keys hold the topic id, never the name. The one exception, `catalog/names/`, is
what makes a name unique: two creations of one name expect the same key absent.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from ister.metadata.errors import NewerFormat, StoreDamaged

FORMAT = 1

CATALOG = "catalog/"  # everything that `Catalog.load` reads, in one scan
CLUSTER = "catalog/cluster"
PRODUCER_IDS = "catalog/producer_ids"
WALL_TIME = "catalog/wall_time"
NAMES = "catalog/names/"
OFFSETS = "catalog/offsets/"
TOMBSTONES = "catalog/tombstones/"
TOPICS = "catalog/topics/"
CURSORS = "cursors/"

DISPATCH_MODE = "ister.dispatch.mode"
NON_RELIABLE = "non-reliable"


class Record(msgspec.Struct, frozen=True, kw_only=True):
    format: int = FORMAT


class ClusterRecord(Record, frozen=True, kw_only=True):
    """Its format is also the format of the keys as a whole."""

    cluster_id: str


class TopicRecord(Record, frozen=True, kw_only=True):
    name: str
    partitions: int
    configs: dict[str, str]
    created_ms: int
    offset_floor: int = 0  # where partitions begin that never reserved an offset block


class NameRecord(Record, frozen=True, kw_only=True):
    topic_id: str  # hex


class TombstoneRecord(Record, frozen=True, kw_only=True):
    name: str
    partitions: int
    deleted_ms: int


class NumberRecord(Record, frozen=True, kw_only=True):
    """A single number: the next producer id, the end of an offset block, a time."""

    value: int


class _FormatOnly(msgspec.Struct):
    format: int = 0


R = TypeVar("R", bound=Record)

_encoder = msgspec.json.Encoder()


def encode(record: Record) -> bytes:
    return _encoder.encode(record)


def decode(kind: type[R], key: str, value: bytes) -> R:
    """NewerFormat or StoreDamaged, naming the key, if it cannot be read."""
    try:
        record = msgspec.json.decode(value, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        _refuse_newer(key, value)
        raise StoreDamaged(
            f"the record {key!r} cannot be read ({error}): restore the metadata store from a"
            " backup, or rebuild the broker with `ister archive restore`"
        ) from error
    if record.format > FORMAT:
        _refuse_newer(key, value)
    return record


def _refuse_newer(key: str, value: bytes) -> None:
    try:
        found = msgspec.json.decode(value, type=_FormatOnly).format
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return
    if found > FORMAT:
        raise NewerFormat(
            f"the record {key!r} has format {found}, this version reads up to {FORMAT}:"
            " start the newer version of Ister that wrote it"
        )


def topic_key(topic_id: bytes) -> str:
    return TOPICS + topic_id.hex()


def name_key(name: str) -> str:
    return NAMES + name


def tombstone_key(topic_id: bytes) -> str:
    return TOMBSTONES + topic_id.hex()


def offsets_prefix(topic_id: bytes) -> str:
    return f"{OFFSETS}{topic_id.hex()}/"


def offsets_key(topic_id: bytes, partition: int) -> str:
    return f"{OFFSETS}{topic_id.hex()}/{partition:010d}"


def split_offsets_key(key: str) -> tuple[bytes, int]:
    topic_hex, _, partition = key.removeprefix(OFFSETS).partition("/")
    return topic_id_of(key, topic_hex), int(partition)


def topic_id_of(key: str, topic_hex: str) -> bytes:
    try:
        topic_id = bytes.fromhex(topic_hex)
    except ValueError:
        topic_id = b""
    if len(topic_id) != 16:
        raise StoreDamaged(f"the key {key!r} does not hold a topic id")
    return topic_id
