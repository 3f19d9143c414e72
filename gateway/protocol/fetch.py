"""Fetch, versions 4-18, by hand: the answer that carries all data out.

The answer is a list of buffers: what stands between the batches is built here, the
batches themselves are passed on as they are, so that nothing is copied before
the socket. `write_one` is the fast path for one topic with one partition.

Versions: 5 log start offset, 7 sessions and forgotten topics (KIP-227), 9 leader
epochs, 11 rack and preferred replica, 12 flexible with the last fetched epoch, 13 topic
ids instead of names, 15 the replica id becomes a tag, 17 and 18 add tags that only
followers send. Tags of the answer (diverging epoch, current leader, endpoints) are
never written: there is one node and it is the leader.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct, error
from typing import Final, NamedTuple

from ister.gateway.protocol.errors import ProtocolError
from ister.gateway.protocol.hot import (
    Buffer,
    Topic,
    check_count,
    compact_size,
    compact_topic,
    plain_topic,
    read_id,
    read_text,
    read_uvarint,
    skip_tags,
)
from ister.gateway.protocol.limits import ITEMS_MAX
from ister.gateway.protocol.reader import CompactReader

VERSION_MIN: Final = 4
VERSION_MAX: Final = 18
TOPIC_IDS_FROM: Final = 13

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_HEAD_4: Final = Struct(">iiiib")
_HEAD_7: Final = Struct(">iiiibii")
_HEAD_15: Final = Struct(">iiibii")
_PARTITION_4: Final = Struct(">iqi")
_PARTITION_5: Final = Struct(">iqqi")
_PARTITION_9: Final = Struct(">iiqqi")
_PARTITION_12: Final = Struct(">iiqiqi")
_ABORTED: Final = Struct(">qq")
_RESULT_4: Final = Struct(">ihqq")
_RESULT_5: Final = Struct(">ihqqq")
_REPLY_7: Final = Struct(">ihi")
# Start of an answer: throttle time, error, session, one topic follows.
_ONE_HEAD: Final = Struct(">ihib")
# One partition: index, error, three offsets, no aborted transactions, no preferred replica.
_ONE_PARTITION: Final = Struct(">bihqqqbi")
_NO_REPLICA: Final = -1


class FetchPartition(NamedTuple):
    """What is asked of one partition, in the order of the newest version."""

    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int


class FetchRequest(NamedTuple):
    """Session id 0 and epoch -1 mean no session; `forgotten` leave the session."""

    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[tuple[Topic, list[FetchPartition]]]
    forgotten: list[tuple[Topic, tuple[int, ...]]]
    rack_id: str


class FetchResult(NamedTuple):
    """The answer for one partition; `size` is the sum of the bytes in `records`."""

    partition: int
    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    records: Sequence[Buffer] = ()
    size: int = 0
    aborted: Sequence[tuple[int, int]] | None = None
    preferred_read_replica: int = _NO_REPLICA


# -- request -----------------------------------------------------------------------


def read_request(body: memoryview, version: int, items_max: int = ITEMS_MAX) -> FetchRequest:
    """The request that fills `body` exactly, or `ProtocolError`."""
    try:
        if version >= 12:
            return _read_flexible(body, version, items_max)
        return _read_plain(body, version, items_max)
    except (error, IndexError, ValueError) as problem:
        raise ProtocolError(f"Fetch version {version}: {problem}") from None


def _read_flexible(body: memoryview, version: int, items_left: int) -> FetchRequest:
    end = len(body)
    replica_id = -1
    if version >= 15:
        max_wait_ms, min_bytes, max_bytes, isolation, session_id, epoch = _HEAD_15.unpack_from(body)
        position = 21
    else:
        head = _HEAD_7.unpack_from(body)
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation, session_id, epoch = head
        position = 25
    count, position = _read_count(body, position, 3, items_left)
    items_left -= count
    topics: list[tuple[Topic, list[FetchPartition]]] = []
    unpack, build = _PARTITION_12.unpack_from, tuple.__new__  # `_make` costs twice as much
    for _ in range(count):
        topic, position = _read_topic(body, position, version)
        count, position = _read_count(body, position, 33, items_left)
        items_left -= count
        partitions = []
        for _ in range(count):
            partitions.append(build(FetchPartition, unpack(body, position)))
            position += 32
            position = position + 1 if body[position] == 0 else skip_tags(body, position)
        topics.append((topic, partitions))
        position = position + 1 if body[position] == 0 else skip_tags(body, position)
    forgotten: list[tuple[Topic, tuple[int, ...]]] = []
    if body[position] == 1:
        position += 1
    else:
        forgotten, position = _read_forgotten(body, position, version, items_left)
    rack_id = ""
    if body[position] == 1:
        position += 1
    else:
        size, position = read_uvarint(body, position)
        rack_id = read_text(body, position, size - 1)
        position += size - 1
    if body[position] == 0:
        position += 1
    else:
        reader = CompactReader(body[position:])
        replica_id = _read_tags(reader, version, replica_id)
        position += reader.position
    if position != end:
        raise ProtocolError(f"{end - position} bytes behind the end of a Fetch request")
    return FetchRequest(
        replica_id,
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation,
        session_id,
        epoch,
        topics,
        forgotten,
        rack_id,
    )


def _read_count(body: memoryview, position: int, item_bytes_min: int, most: int) -> tuple[int, int]:
    count = body[position]
    position += 1
    if count >= 0x80:
        count, position = read_uvarint(body, position - 1)
    if count == 2 and most > 0:
        return 1, position  # what is missing shows at the first read behind it
    check_count(count - 1, len(body) - position, item_bytes_min, most)
    return count - 1, position


def _read_topic(body: memoryview, position: int, version: int) -> tuple[Topic, int]:
    if version >= 13:
        return read_id(body, position), position + 16
    size, position = read_uvarint(body, position)
    return read_text(body, position, size - 1), position + size - 1


def _read_forgotten(
    body: memoryview, position: int, version: int, items_left: int
) -> tuple[list[tuple[Topic, tuple[int, ...]]], int]:
    forgotten: list[tuple[Topic, tuple[int, ...]]] = []
    count, position = _read_count(body, position, 3, items_left)
    items_left -= count
    for _ in range(count):
        topic, position = _read_topic(body, position, version)
        count, position = _read_count(body, position, 4, items_left)
        items_left -= count
        forgotten.append((topic, Struct(f">{count}i").unpack_from(body, position)))
        position = skip_tags(body, position + 4 * count)
    return forgotten, position


def _read_tags(reader: CompactReader, version: int, replica_id: int) -> int:
    """The replica id, if it comes as a tag; the cluster id and unknown ones are dropped."""
    state = reader.tags().get(1)
    if state is None or version < 15:
        return replica_id
    replica_id = state.int32()
    state.int64()  # the epoch of the replica
    state.skip_tags()
    state.finish()
    return replica_id


def _read_plain(body: memoryview, version: int, items_left: int) -> FetchRequest:
    session_id, epoch = 0, -1
    if version >= 7:
        head = _HEAD_7.unpack_from(body)
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation, session_id, epoch = head
        position = 25
    else:
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation = _HEAD_4.unpack_from(body)
        position = 17
    topics, position, items_left = _read_plain_topics(body, position, version, items_left)
    forgotten: list[tuple[Topic, tuple[int, ...]]] = []
    if version >= 7:
        forgotten, position = _read_plain_forgotten(body, position, items_left)
    rack_id = ""
    if version >= 11:
        size = _INT16.unpack_from(body, position)[0]
        rack_id = read_text(body, position + 2, size)
        position += 2 + size
    if position != len(body):
        raise ProtocolError(f"{len(body) - position} bytes behind the end of a Fetch request")
    return FetchRequest(
        replica_id,
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation,
        session_id,
        epoch,
        topics,
        forgotten,
        rack_id,
    )


def _read_plain_topics(
    body: memoryview, position: int, version: int, items_left: int
) -> tuple[list[tuple[Topic, list[FetchPartition]]], int, int]:
    topics: list[tuple[Topic, list[FetchPartition]]] = []
    layout = _PARTITION_9 if version >= 9 else _PARTITION_5 if version >= 5 else _PARTITION_4
    count = _plain_count(body, position, 6, items_left)
    position += 4
    items_left -= count
    for _ in range(count):
        size = _INT16.unpack_from(body, position)[0]
        topic = read_text(body, position + 2, size)
        position += 2 + size
        count = _plain_count(body, position, layout.size, items_left)
        position += 4
        items_left -= count
        partitions = []
        for _ in range(count):
            values = layout.unpack_from(body, position)
            position += layout.size
            if version >= 9:
                index, leader_epoch, offset, log_start, max_bytes = values
            elif version >= 5:
                index, offset, log_start, max_bytes = values
                leader_epoch = -1
            else:
                index, offset, max_bytes = values
                leader_epoch = log_start = -1
            partitions.append(FetchPartition(index, leader_epoch, offset, -1, log_start, max_bytes))
        topics.append((topic, partitions))
    return topics, position, items_left


def _plain_count(body: memoryview, position: int, item_bytes_min: int, most: int) -> int:
    count: int = _INT32.unpack_from(body, position)[0]
    left = len(body) - position - 4
    check_count(count, left, item_bytes_min, most)
    return count


def _read_plain_forgotten(
    body: memoryview, position: int, items_left: int
) -> tuple[list[tuple[Topic, tuple[int, ...]]], int]:
    forgotten: list[tuple[Topic, tuple[int, ...]]] = []
    count = _plain_count(body, position, 6, items_left)
    position += 4
    items_left -= count
    for _ in range(count):
        size = _INT16.unpack_from(body, position)[0]
        topic = read_text(body, position + 2, size)
        position += 2 + size
        count = _plain_count(body, position, 4, items_left)
        items_left -= count
        forgotten.append((topic, Struct(f">{count}i").unpack_from(body, position + 4)))
        position += 4 + 4 * count
    return forgotten, position


# -- response ----------------------------------------------------------------------


def write_one(version: int, session_id: int, topic: Topic, result: FetchResult) -> list[Buffer]:
    """The body for one topic with one partition without error or aborted transactions."""
    if version < 12:
        return write_response(version, session_id, [(topic, [result])])
    index, _, high_watermark, last_stable_offset, log_start_offset, records, size = result[:7]
    partition = _ONE_PARTITION.pack(
        2, index, 0, high_watermark, last_stable_offset, log_start_offset, 0, _NO_REPLICA
    )
    head = (
        _ONE_HEAD.pack(0, 0, session_id, 2)
        + compact_topic(topic)
        + partition
        + compact_size(size + 1)
    )
    return [head, *records, b"\0\0\0"]


def write_response(
    version: int,
    session_id: int,
    topics: Sequence[tuple[Topic, Sequence[FetchResult]]],
    error_code: int = 0,
    throttle_time_ms: int = 0,
) -> list[Buffer]:
    """The body of the answer as buffers in order; topics and partitions as given."""
    buffers: list[Buffer] = []
    out = bytearray()
    if version >= 7:
        out += _REPLY_7.pack(throttle_time_ms, error_code, session_id)
    else:
        out += _INT32.pack(throttle_time_ms)
    flexible = version >= 12
    out += compact_size(len(topics) + 1) if flexible else _INT32.pack(len(topics))
    for topic, results in topics:
        if flexible:
            out += compact_topic(topic) + compact_size(len(results) + 1)
        else:
            out += plain_topic(topic) + _INT32.pack(len(results))
        for result in results:
            _write_partition(out, result, version)
            if result.size:
                buffers.append(out)
                buffers.extend(result.records)
                out = bytearray()
            if flexible:
                out.append(0)
        if flexible:
            out.append(0)
    if flexible:
        out.append(0)
    if out:
        buffers.append(out)
    return buffers


def _write_partition(out: bytearray, result: FetchResult, version: int) -> None:
    """Everything of a partition up to its records, whose length comes last."""
    out += _RESULT_5.pack(*result[:5]) if version >= 5 else _RESULT_4.pack(*result[:4])
    aborted = result.aborted
    count = -1 if aborted is None else len(aborted)
    out += compact_size(count + 1) if version >= 12 else _INT32.pack(count)
    for transaction in aborted or ():
        out += _ABORTED.pack(*transaction)
        if version >= 12:
            out.append(0)
    if version >= 11:
        out += _INT32.pack(result.preferred_read_replica)
    out += compact_size(result.size + 1) if version >= 12 else _INT32.pack(result.size)
