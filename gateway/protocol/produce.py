"""Produce, versions 3-13, by hand: the request that carries all data in.

`read_request` hands out the records of each partition as a view of the frame: no
byte is copied here, and the batch inside is not looked at. `write_response` builds
the answer; `write_one` is the same for the usual case of one partition that went
well or failed as a whole, and several times faster.

Versions: 5 log start offset in the answer, 8 record errors and an error message,
9 flexible, 10 tags for the current leader (never written: there is one node), 13 topic
ids instead of names. Acks of other than -1, 0, 1 and null records are decoded and
left to the handler to answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct, error
from typing import Final, NamedTuple

from ister.gateway.protocol.errors import ProtocolError
from ister.gateway.protocol.hot import (
    Topic,
    check_count,
    compact_size,
    compact_text,
    compact_topic,
    plain_nullable_text,
    plain_topic,
    read_id,
    read_text,
    read_uvarint,
    skip_tags,
)
from ister.gateway.protocol.limits import ITEMS_MAX

VERSION_MIN: Final = 3
VERSION_MAX: Final = 13

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_TWO_INT32: Final = Struct(">ii")
_ACKS_TIMEOUT_COUNT_BYTE: Final = Struct(">hiB")
_ACKS_TIMEOUT_COUNT: Final = Struct(">hii")
_INDEX_SIZE: Final = Struct(">iB")
_PARTITION_3: Final = Struct(">ihqq")
_PARTITION_5: Final = Struct(">ihqqq")
_THROTTLE_TAGS: Final = Struct(">ib")
# Everything behind the topic of an answer with one partition, flexible: number of partitions,
# the partition, no record errors, no message, three empty tag buffers around the throttle time.
_ONE_FLEXIBLE: Final = Struct(">bihqqqBBBBib")
# Of a request that is as most are: no transactional id, acks, time-out, number of topics, size
# of the name; behind the name number of partitions, partition, size of the batch in two bytes;
# behind the batch the tags of partition, topic and request.
_USUAL_HEAD: Final = Struct(">BhiBB")
_USUAL_HEAD_SIZE: Final = _USUAL_HEAD.size
_USUAL_PARTITION: Final = Struct(">BiBB")
_NO_TAGS: Final = memoryview(b"\0\0\0")
_new = tuple.__new__


class ProduceRequest(NamedTuple):
    """The records of a partition are a view of the frame; None is null on the wire."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[tuple[Topic, list[tuple[int, memoryview | None]]]]


class PartitionResult(NamedTuple):
    """What became of one partition's batch."""

    partition: int
    error_code: int = 0
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[tuple[int, str | None]] = ()
    error_message: str | None = None


# -- request -----------------------------------------------------------------------


def read_request(body: memoryview, version: int, items_max: int = ITEMS_MAX) -> ProduceRequest:
    """The request that fills `body` exactly, or `ProtocolError`."""
    try:
        if version < 9:
            return _read_plain(body, items_max)
        if version < 13 and items_max >= 2 and (usual := _read_usual(body)) is not None:
            return usual
        return _read_flexible(body, version, items_max)
    except (error, IndexError, ValueError) as problem:
        raise ProtocolError(f"Produce version {version}: {problem}") from None


def _read_usual(body: memoryview) -> ProduceRequest | None:
    """One batch of up to 16 KB for one topic by name, no transaction, no tags; None: it is not so.

    Most requests of most producers. What is wrong with one is found out by `_read_flexible`.
    """
    transactional, acks, timeout_ms, topics, name_size = _USUAL_HEAD.unpack_from(body)
    name_end = _USUAL_HEAD_SIZE + name_size - 1
    if transactional or topics != 2 or not 0 < name_size < 0x80 or len(body) < name_end + 7:
        return None
    partitions, index, low, high = _USUAL_PARTITION.unpack_from(body, name_end)
    stop = name_end + 6 + (low & 0x7F | high << 7)
    if partitions != 2 or low < 0x80 or not 0 < high < 0x80 or body[stop:] != _NO_TAGS:
        return None
    topic = str(body[_USUAL_HEAD_SIZE:name_end], "utf-8")
    return _new(
        ProduceRequest,
        (None, acks, timeout_ms, [(topic, [(index, body[name_end + 7 : stop])])]),
    )


def _read_flexible(body: memoryview, version: int, items_left: int) -> ProduceRequest:
    # Every large request comes through here: what is usual is written out in place
    # (one-byte lengths, no tags), what is rare calls a function.
    end = len(body)
    transactional_id = None
    position = 1
    if body[0]:
        size, position = read_uvarint(body, 0)
        transactional_id = read_text(body, position, size - 1)
        position += size - 1
    acks, timeout_ms, count = _ACKS_TIMEOUT_COUNT_BYTE.unpack_from(body, position)
    position += 7
    if count != 2:
        if count >= 0x80:
            count, position = read_uvarint(body, position - 1)
        check_count(count - 1, end - position, 3, items_left)
    items_left -= count - 1
    topics: list[tuple[Topic, list[tuple[int, memoryview | None]]]] = []
    for _ in range(count - 1):
        topic: Topic
        if version >= 13:
            topic = read_id(body, position)
            position += 16
        else:
            size = body[position]
            position += 1
            if 0 < size < 0x80 and position + size <= end:
                topic = str(body[position : position + size - 1], "utf-8")
            else:
                size, position = read_uvarint(body, position - 1)
                topic = read_text(body, position, size - 1)
            position += size - 1
        count = body[position]
        position += 1
        if count != 2:
            if count >= 0x80:
                count, position = read_uvarint(body, position - 1)
            check_count(count - 1, end - position, 6, items_left)
        items_left -= count - 1
        if items_left < 0:
            raise ProtocolError("more items than one request may have")
        partitions: list[tuple[int, memoryview | None]] = []
        for _ in range(count - 1):
            index, size = _INDEX_SIZE.unpack_from(body, position)
            position += 5
            if size >= 0x80:
                high = body[position]
                if high < 0x80:  # two bytes: batches up to 16 KB
                    size = size & 0x7F | high << 7
                    position += 1
                else:
                    size, position = read_uvarint(body, position - 1)
            if size:
                stop = position + size - 1
                if stop > end:
                    raise ProtocolError(f"records of {size - 1} bytes, {end - position} left")
                partitions.append((index, body[position:stop]))
                position = stop
            else:
                partitions.append((index, None))
            position = position + 1 if body[position] == 0 else skip_tags(body, position)
        topics.append((topic, partitions))
        position = position + 1 if body[position] == 0 else skip_tags(body, position)
    position = position + 1 if body[position] == 0 else skip_tags(body, position)
    if position != end:
        raise ProtocolError(f"{end - position} bytes behind the end of a Produce request")
    return _new(ProduceRequest, (transactional_id, acks, timeout_ms, topics))


def _read_plain(body: memoryview, items_left: int) -> ProduceRequest:
    end = len(body)
    size = _INT16.unpack_from(body)[0]
    position = 2
    transactional_id = None
    if size != -1:
        transactional_id = read_text(body, 2, size)
        position += size
    acks, timeout_ms, count = _ACKS_TIMEOUT_COUNT.unpack_from(body, position)
    position += 10
    check_count(count, end - position, 6, items_left)
    items_left -= count
    topics: list[tuple[Topic, list[tuple[int, memoryview | None]]]] = []
    for _ in range(count):
        size = _INT16.unpack_from(body, position)[0]
        position += 2
        topic = read_text(body, position, size)
        position += size
        count = _INT32.unpack_from(body, position)[0]
        position += 4
        check_count(count, end - position, 8, items_left)
        items_left -= count
        partitions: list[tuple[int, memoryview | None]] = []
        for _ in range(count):
            index, size = _TWO_INT32.unpack_from(body, position)
            position += 8
            if size == -1:
                partitions.append((index, None))
                continue
            stop = position + size
            if size < 0 or stop > end:
                raise ProtocolError(f"records of {size} bytes, {end - position} left")
            partitions.append((index, body[position:stop]))
            position = stop
        topics.append((topic, partitions))
    if position != end:
        raise ProtocolError(f"{end - position} bytes behind the end of a Produce request")
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


# -- response ----------------------------------------------------------------------


def write_one(
    version: int,
    topic: Topic,
    index: int,
    error_code: int,
    base_offset: int,
    log_append_time_ms: int,
    log_start_offset: int,
) -> bytes:
    """The whole body for one topic with one partition and nothing to explain."""
    if version >= 9:
        result = _ONE_FLEXIBLE.pack(
            2,
            index,
            error_code,
            base_offset,
            log_append_time_ms,
            log_start_offset,
            1,
            0,
            0,
            0,
            0,
            0,
        )
        name = compact_text(topic) if type(topic) is str else compact_topic(topic)
        return b"\x02" + name + result
    plain = PartitionResult(index, error_code, base_offset, log_append_time_ms, log_start_offset)
    return write_response(version, [(topic, [plain])])


def write_response(
    version: int,
    topics: Sequence[tuple[Topic, Sequence[PartitionResult]]],
    throttle_time_ms: int = 0,
) -> bytes:
    """The body of the answer, topics and partitions in the order given."""
    out = bytearray()
    if version >= 9:
        out += compact_size(len(topics) + 1)
        for topic, results in topics:
            out += compact_topic(topic)
            out += compact_size(len(results) + 1)
            for result in results:
                out += _PARTITION_5.pack(*result[:5])
                _write_errors_flexible(out, result)
            out.append(0)
        out += _THROTTLE_TAGS.pack(throttle_time_ms, 0)
        return bytes(out)
    out += _INT32.pack(len(topics))
    for topic, results in topics:
        out += plain_topic(topic)
        out += _INT32.pack(len(results))
        for result in results:
            out += (
                _PARTITION_5.pack(*result[:5]) if version >= 5 else _PARTITION_3.pack(*result[:4])
            )
            if version >= 8:
                _write_errors_plain(out, result)
    out += _INT32.pack(throttle_time_ms)
    return bytes(out)


def _write_errors_flexible(out: bytearray, result: PartitionResult) -> None:
    out += compact_size(len(result.record_errors) + 1)
    for batch_index, message in result.record_errors:
        out += _INT32.pack(batch_index)
        out += b"\0" if message is None else compact_text(message)
        out.append(0)
    out += b"\0" if result.error_message is None else compact_text(result.error_message)
    out.append(0)


def _write_errors_plain(out: bytearray, result: PartitionResult) -> None:
    out += _INT32.pack(len(result.record_errors))
    for batch_index, message in result.record_errors:
        out += _INT32.pack(batch_index)
        out += plain_nullable_text(message)
    out += plain_nullable_text(result.error_message)
