"""Cursors: how far a group has come in a partition, as stored.

The key is (topic id, partition, group), so a topic that is deleted and made
again never meets the cursors of its former life. The path with the name in it,
`/topics/default/{topic}/{partition}/subscriptions/{group}/cursor`, is only how a
cursor is shown. The group stands last in the key: it may hold any character.

Plans are transactions. A commit expects the topic's record to be there; the
deletion of a topic removes record and cursors in one transaction; so whichever
of the two comes first, nothing is left behind. Which member may commit is not
decided here: the caller adds what it expects of the group to `expect`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from ister.metadata.errors import StoreDamaged
from ister.metadata.records import CURSORS, Record, decode, encode, topic_id_of, topic_key
from ister.metadata.store import PRESENT, Store, Transaction

NAMESPACE = "default"
PARTITION_MAX = 2**31 - 1


class Cursor(Record, frozen=True, kw_only=True):
    offset: int  # the next record to read
    leader_epoch: int = -1  # of the last record read; -1 = not told
    metadata: str = ""  # the client's own words
    time_ms: int = 0  # of the commit
    generation: int = -1  # of the group; -1 = outside of a generation (an admin, a lone consumer)
    adjusted_from: int | None = None  # the offset before retention or a restore moved the cursor


class CursorKey(NamedTuple):
    topic_id: bytes
    partition: int
    group: str


class StoredCursor(NamedTuple):
    key: CursorKey
    cursor: Cursor
    version: int


def cursor_key(topic_id: bytes, partition: int, group: str) -> str:
    if not 0 <= partition <= PARTITION_MAX:
        raise ValueError(f"there is no partition {partition}")
    return f"{cursors_prefix(topic_id)}{partition:010d}/{group}"


def cursors_prefix(topic_id: bytes) -> str:
    """Of all cursors of a topic."""
    if len(topic_id) != 16:
        raise ValueError("a topic id has 16 bytes")
    return f"{CURSORS}{topic_id.hex()}/"


def split_cursor_key(key: str) -> CursorKey:
    parts = key.split("/", 3)
    if len(parts) != 4 or parts[0] + "/" != CURSORS or not parts[2].isdecimal():
        raise StoreDamaged(f"the key {key!r} is not that of a cursor")
    return CursorKey(topic_id_of(key, parts[1]), int(parts[2]), parts[3])


def display_path(topic_name: str, partition: int, group: str) -> str:
    return f"/topics/{NAMESPACE}/{topic_name}/{partition}/subscriptions/{group}/cursor"


def encode_cursor(cursor: Cursor) -> bytes:
    return encode(cursor)


def decode_cursor(key: str, value: bytes) -> Cursor:
    return decode(Cursor, key, value)


def commit_cursors(
    topic_id: bytes,
    group: str,
    cursors: Mapping[int, Cursor],
    expect: Mapping[str, int] | None = None,
) -> Transaction:
    """Set the cursors of a group in one topic, by partition; Conflict if the topic is gone."""
    return Transaction(
        expect={topic_key(topic_id): PRESENT, **(expect or {})},
        put={
            cursor_key(topic_id, partition, group): encode(cursor)
            for partition, cursor in cursors.items()
        },
    )


def delete_cursors(
    keys: Iterable[CursorKey], expect: Mapping[str, int] | None = None
) -> Transaction:
    """Forget cursors, of whatever topics; one that is not there is no error."""
    return Transaction(expect=expect or {}, delete=[cursor_key(*key) for key in keys])


def load_cursor(store: Store, topic_id: bytes, partition: int, group: str) -> StoredCursor | None:
    key = cursor_key(topic_id, partition, group)
    entry = store.get(key)
    if entry is None:
        return None
    where = CursorKey(topic_id, partition, group)
    return StoredCursor(where, decode_cursor(key, entry.value), entry.version)


def load_cursors(store: Store, topic_id: bytes | None = None) -> Iterator[StoredCursor]:
    """All cursors (of one topic), by topic id, partition and group."""
    prefix = CURSORS if topic_id is None else cursors_prefix(topic_id)
    for key, entry in store.scan(prefix):
        yield StoredCursor(split_cursor_key(key), decode_cursor(key, entry.value), entry.version)
