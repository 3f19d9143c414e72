"""Produce, Fetch and ListOffsets, as a client: one topic at a time.

The versions before the flexible encoding: every broker has them, they name topics, and
they know all codecs (zstd from Produce 7 and Fetch 10 on).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ister.gateway.kafka_client.connection import Connection
from ister.gateway.kafka_client.errors import ClientError, Refused
from ister.gateway.protocol.api import ApiKey
from ister.gateway.protocol.errors import ProtocolError
from ister.gateway.protocol.messages import list_offsets
from ister.gateway.protocol.reader import PlainReader
from ister.gateway.protocol.writer import PlainWriter
from ister.wal.batch import CONTROL, HEADER_SIZE, BatchHeader, read_header
from ister.wal.errors import LogError
from ister.wal.records import Record, records

EARLIEST, LATEST = -2, -1
_PRODUCE_VERSIONS = (3, 7)
_FETCH_VERSIONS = (4, 11)
_ACKS_ALL = -1
_PRODUCE_TIMEOUT_MS = 30_000
_ABORTED_BYTES = 16
_SESSIONS_FROM, _LOG_START_FROM, _EPOCH_FROM, _RACK_FROM = 7, 5, 9, 11
_NO_SESSION = (0, -1)


def produce(connection: Connection, topic: str, partition: int, batch: bytes) -> int:
    """The offset that the first record got; durable when this returns. Refused if not taken."""
    version = connection.highest(ApiKey.PRODUCE, *_PRODUCE_VERSIONS)
    out = PlainWriter()
    out.nullable_string(None)
    out.int16(_ACKS_ALL)
    out.int32(_PRODUCE_TIMEOUT_MS)
    out.items(1)
    out.string(topic)
    out.items(1)
    out.int32(partition)
    out.blob(batch)
    answer = PlainReader(connection.call(ApiKey.PRODUCE, version, out.out))
    answer.items()
    answer.string()
    answer.items()
    answer.int32()
    code, offset = answer.int16(), answer.int64()
    if code:
        raise Refused(f"partition {partition} of {topic} did not take the records", code)
    return offset


class Fetched(NamedTuple):
    records: list[Record]
    next_offset: int
    high_watermark: int


def fetch(
    connection: Connection,
    topic: str,
    offsets: Mapping[int, int],
    *,
    max_wait_ms: int,
    max_bytes: int = 4 * 1024 * 1024,
) -> dict[int, Fetched]:
    """What there is from these offsets on, by partition; waits a while if there is nothing."""
    version = connection.highest(ApiKey.FETCH, *_FETCH_VERSIONS)
    request = _fetch_request(version, topic, offsets, max_wait_ms, max_bytes)
    body = connection.call(ApiKey.FETCH, version, request)
    try:
        return _read_fetched(version, topic, body, offsets)
    except (ProtocolError, IndexError, ValueError, LogError) as error:
        raise ClientError(f"{connection.address} sent what cannot be read: {error}") from error


def _fetch_request(
    version: int, topic: str, offsets: Mapping[int, int], max_wait_ms: int, max_bytes: int
) -> bytearray:
    out = PlainWriter()
    out.int32(-1)
    out.int32(max_wait_ms)
    out.int32(1)
    out.int32(max_bytes)
    out.int8(0)
    if version >= _SESSIONS_FROM:
        for number in _NO_SESSION:
            out.int32(number)
    out.items(1)
    out.string(topic)
    out.items(len(offsets))
    for partition, offset in offsets.items():
        out.int32(partition)
        if version >= _EPOCH_FROM:
            out.int32(-1)
        out.int64(offset)
        if version >= _LOG_START_FROM:
            out.int64(-1)
        out.int32(max_bytes)
    if version >= _SESSIONS_FROM:
        out.items(0)
    if version >= _RACK_FROM:
        out.string("")
    return out.out


def _read_fetched(
    version: int, topic: str, body: memoryview, offsets: Mapping[int, int]
) -> dict[int, Fetched]:
    answer = PlainReader(body)
    answer.int32()
    if version >= _SESSIONS_FROM:
        code = answer.int16()
        answer.int32()
        if code:
            raise Refused(f"fetching from {topic}", code)
    found: dict[int, Fetched] = {}
    for _ in range(answer.items()):
        answer.string()
        for _ in range(answer.items()):
            partition = answer.int32()
            code = answer.int16()
            high_watermark = answer.int64()
            answer.int64()
            if version >= _LOG_START_FROM:
                answer.int64()
            answer.take(_ABORTED_BYTES * max(0, answer.items()))
            if version >= _RACK_FROM:
                answer.int32()
            data = answer.nullable_blob() or b""
            if code:
                raise Refused(f"partition {partition} of {topic}", code)
            found[partition] = _unpack(data, offsets[partition], high_watermark)
    return found


def _unpack(data: bytes, wanted: int, high_watermark: int) -> Fetched:
    """The last batch may be cut off, the first may begin below what was asked for."""
    found: list[Record] = []
    following = wanted
    for position, size, header in _whole_batches(data):
        if not header.attributes & CONTROL:
            batch = data[position : position + size]
            found += [each for each in records(batch) if each.offset >= wanted]
        following = max(following, header.next_offset)
    return Fetched(found, following, high_watermark)


def _whole_batches(data: bytes) -> Iterator[tuple[int, int, BatchHeader]]:
    """(position, size, header); what is cut off at the end is left for the next fetch."""
    position = 0
    while position + HEADER_SIZE <= len(data):
        header = read_header(data, position)
        if position + header.size > len(data):
            break
        yield position, header.size, header
        position += header.size


def list_offsets_of(
    connection: Connection, topic: str, partitions: Sequence[int], timestamp: int
) -> dict[int, int]:
    """Offsets at a time, or EARLIEST or LATEST; -1: there is nothing as late as that."""
    request = list_offsets.ListOffsetsRequest(
        replica_id=-1,
        topics=(
            list_offsets.ListOffsetsTopic(
                name=topic,
                partitions=tuple(
                    list_offsets.ListOffsetsPartition(partition_index=each, timestamp=timestamp)
                    for each in partitions
                ),
            ),
        ),
    )
    answer = connection.ask(ApiKey.LIST_OFFSETS, list_offsets, request)
    found = {}
    for each in answer.topics[0].partitions:
        if each.error_code:
            raise Refused(f"partition {each.partition_index} of {topic}", each.error_code)
        found[each.partition_index] = each.offset
    return found
