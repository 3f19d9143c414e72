"""All of metadata as one piece of bytes, for the bucket, and back into an empty store.

    magic 8 bytes | format u32 | crc32c of the body u32 | body (JSON)

The body names the cluster and the time, and holds every key and value of one
state of the store. Importing is one transaction: after a crash the store is
either empty or complete.

A snapshot is older than what was lost, and two counters must not go back with
it: producer ids (a new producer would be taken for an old one) and the offsets
of non-reliable topics (readers would skip new records as known). Both go on
behind a margin that is wider than anything handed out since. Keys get new
versions: they count within one store only.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Iterable
from typing import NamedTuple

import crc32c
import msgspec

from ister.metadata import records
from ister.metadata.errors import NewerFormat, StoreDamaged, StoreNotEmpty
from ister.metadata.store import ABSENT, Store, Transaction

MAGIC = b"ISTRMETA"
FORMAT = 1
# 2^32 ids are 27 hours at 43,000 new producers a second; int64 has room for 2^31 restores.
PRODUCER_ID_MARGIN = 1 << 32
# 2^40 offsets are 12 days at a million records a second.
OFFSET_MARGIN = 1 << 40

_HEAD = struct.Struct(">8sII")

Adjust = Callable[[str, bytes], bytes | None]


class Snapshot(NamedTuple):
    cluster_id: str
    taken_ms: int  # 0 = not told
    entries: dict[str, bytes]


class _Body(msgspec.Struct, frozen=True):
    cluster_id: str
    taken_ms: int
    entries: list[tuple[str, bytes]]


def export_snapshot(store: Store, *, taken_ms: int = 0) -> bytes:
    """Everything in the store, at one moment."""
    entries = [(key, entry.value) for key, entry in store.scan("")]
    body = msgspec.json.encode(_Body(_cluster_id(entries), taken_ms, entries))
    return _HEAD.pack(MAGIC, FORMAT, crc32c.crc32c(body)) + body


def read_snapshot(data: bytes) -> Snapshot:
    """StoreDamaged or NewerFormat if it cannot be trusted."""
    if len(data) < _HEAD.size or not data.startswith(MAGIC):
        raise StoreDamaged("this is not a snapshot of metadata: take an older snapshot")
    _, version, checksum = _HEAD.unpack_from(data)
    body = memoryview(data)[_HEAD.size :]
    if version > FORMAT:
        raise NewerFormat(
            f"the snapshot of metadata has format {version}, this version reads up to {FORMAT}:"
            " use the newer version of Ister that wrote it"
        )
    if version < 1 or crc32c.crc32c(body) != checksum:
        raise StoreDamaged("the snapshot of metadata is damaged: take an older snapshot")
    try:
        content = msgspec.json.decode(body, type=_Body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise StoreDamaged(f"the snapshot of metadata cannot be read: {error}") from error
    return Snapshot(content.cluster_id, content.taken_ms, dict(content.entries))


def import_snapshot(
    store: Store,
    data: bytes,
    *,
    adjust: Adjust | None = None,
    producer_id_margin: int = PRODUCER_ID_MARGIN,
    offset_margin: int = OFFSET_MARGIN,
) -> Snapshot:
    """Fill an empty store (else StoreNotEmpty) in one transaction, and say what came.

    `adjust(key, value)` sees every entry and returns the value to store, or None to leave it out.
    """
    snapshot = read_snapshot(data)
    with contextlib.closing(store.scan("")) as scan:
        for key, _ in scan:
            raise StoreNotEmpty(f"the metadata store is not empty: it has {key!r}")
    put = dict(snapshot.entries)
    _raise_producer_ids(put, producer_id_margin)
    _raise_offsets(put, offset_margin)
    if adjust is not None:
        adjusted = ((key, adjust(key, value)) for key, value in put.items())
        put = {key: value for key, value in adjusted if value is not None}
    store.commit(Transaction(expect={records.CLUSTER: ABSENT}, put=put))
    return Snapshot(snapshot.cluster_id, snapshot.taken_ms, put)


def _cluster_id(entries: Iterable[tuple[str, bytes]]) -> str:
    for key, value in entries:
        if key == records.CLUSTER:
            return records.decode(records.ClusterRecord, key, value).cluster_id
    return ""


def _raise_producer_ids(put: dict[str, bytes], margin: int) -> None:
    put[records.PRODUCER_IDS] = _raised(put, records.PRODUCER_IDS, margin)


def _raise_offsets(put: dict[str, bytes], margin: int) -> None:
    """Blocks there are, and the floor of partitions that have none yet or come later."""
    for key in put:
        if key.startswith(records.OFFSETS):
            put[key] = _raised(put, key, margin)
        elif key.startswith(records.TOPICS):
            topic = records.decode(records.TopicRecord, key, put[key])
            if topic.configs.get(records.DISPATCH_MODE) == records.NON_RELIABLE:
                floor = topic.offset_floor + margin
                put[key] = records.encode(msgspec.structs.replace(topic, offset_floor=floor))


def _raised(put: dict[str, bytes], key: str, margin: int) -> bytes:
    value = put.get(key)
    before = 0 if value is None else records.decode(records.NumberRecord, key, value).value
    return records.encode(records.NumberRecord(value=before + margin))
