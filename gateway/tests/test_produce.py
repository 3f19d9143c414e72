"""The Produce codec against kio, and against bytes that lie."""

from __future__ import annotations

import contextlib
import struct
import uuid
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.static.primitive import i32Timedelta

from ister.gateway.protocol import produce
from ister.gateway.protocol.errors import ProtocolError
from ister.gateway.tests import kio_entities as kio
from ister.gateway.tests.message_values import through_kafka_python_named

VERSIONS = range(produce.VERSION_MIN, produce.VERSION_MAX + 1)
TOPIC_ID = uuid.UUID(int=0x0123456789ABCDEF0123456789ABCDEF)
each_version = pytest.mark.parametrize("version", VERSIONS)
partitions = st.lists(
    st.tuples(st.integers(0, 2**31 - 1), st.none() | st.binary(max_size=300)), max_size=3
)
requests = st.tuples(
    st.none() | st.sampled_from(["", "tx", "x" * 200]),
    st.sampled_from([-1, 0, 1, 7]),
    st.integers(0, 2**31 - 1),
    st.lists(st.tuples(st.sampled_from(["a", "ö" * 100]), partitions), max_size=3),
)


def encode(version: int, request: Any) -> bytes:
    def entity(name: str, /, **values: Any) -> Any:
        return kio.build("produce", "request", version, name, **values)

    transactional_id, acks, timeout_ms, topics = request
    data = []
    for name, rows in topics:
        parts = tuple(
            entity("PartitionProduceData", index=index, records=records) for index, records in rows
        )
        topic = entity("TopicProduceData", name=name, topic_id=TOPIC_ID, partition_data=parts)
        data.append(topic)
    return kio.write(
        entity(
            "ProduceRequest",
            transactional_id=transactional_id,
            acks=acks,
            timeout=i32Timedelta.parse(timedelta(milliseconds=timeout_ms)),
            topic_data=tuple(data),
        )
    )


ONE = (None, -1, 30_000, [("orders", [(0, b"r" * 200)])])


@each_version
@settings(max_examples=40, deadline=None, database=None)
@given(request=requests)
def test_reads_what_kio_writes(version: int, request: Any) -> None:
    """Every field of every version, and the records as views of the frame."""
    body = bytearray(encode(version, request))
    read = produce.read_request(memoryview(body), version)
    transactional_id, acks, timeout_ms, topics = request
    assert read[:3] == (transactional_id, acks, timeout_ms)
    names = [TOPIC_ID.bytes if version >= 13 else name for name, _ in topics]
    assert [topic for topic, _ in read.topics] == names
    for (_, mine), (_, theirs) in zip(read.topics, topics, strict=True):
        assert [(index, records) for index, records in mine] == theirs
        assert all(records is None or records.obj is body for _, records in mine)


@each_version
@settings(max_examples=10, deadline=None, database=None)
@given(request=requests)
def test_cut_short_or_too_long_is_refused(version: int, request: Any) -> None:
    """Silent truncation of records would be data loss: every prefix is refused."""
    body = encode(version, request)
    for size in range(len(body)):
        with pytest.raises(ProtocolError):
            produce.read_request(memoryview(body)[:size], version)
    with pytest.raises(ProtocolError):
        produce.read_request(memoryview(body + b"\0"), version)


@each_version
@settings(max_examples=60, deadline=None, database=None)
@given(data=st.data())
def test_arbitrary_and_damaged_bytes(version: int, data: Any) -> None:
    """A request or ProtocolError, nothing else."""
    raw = bytearray(encode(version, ONE))
    if data.draw(st.booleans()):
        raw = bytearray(data.draw(st.binary(max_size=60)))
    for _ in range(data.draw(st.integers(0, 4)) if raw else 0):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ProtocolError):
        produce.read_request(memoryview(raw), version)


def test_the_usual_request_is_read_as_any_other() -> None:
    """The short way takes nothing that the long way refuses, and reads the same."""
    whole = encode(9, ONE)
    assert produce._read_usual(memoryview(whole)) is not None
    for position in range(len(whole)):
        for value in (0, 1, 2, 3, 0x7F, 0x80, 0x81, 0xFF):
            damaged = bytearray(whole)
            damaged[position] = value
            body = memoryview(damaged)
            found = None
            with contextlib.suppress(ValueError):  # a name that is no text
                found = produce._read_usual(body)
            assert found is None or found == produce._read_flexible(body, 9, 2)


def test_lying_counts_and_lengths() -> None:
    """2^32 topics, 2^31 partitions or bytes take no memory: they are refused."""
    head = b"\0" + struct.pack(">hi", -1, 1000)
    most = b"\xff\xff\xff\xff\x0f"
    topic = b"\x02\x02a"
    for body in (
        head + most,
        head + topic + most,
        head + topic + b"\x02" + bytes(4) + most,
        head + b"\x02" + most,
        head + b"\x02\x00",
        most,
        head + topic + b"\x02" + bytes(4) + b"\x01" + most,
    ):
        with pytest.raises(ProtocolError):
            produce.read_request(memoryview(body), 9)
    plain = struct.pack(">hhi", -1, -1, 1000)
    for tail in (
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", -1),
        struct.pack(">ih1si", 1, 1, b"a", 2**31 - 1),
        struct.pack(">ih1siii", 1, 1, b"a", 1, 0, 2**31 - 1),
        struct.pack(">ih1siii", 1, 1, b"a", 1, 0, -2),
    ):
        with pytest.raises(ProtocolError):
            produce.read_request(memoryview(plain + tail), 7)


def test_number_of_partitions_is_limited() -> None:
    """Many small claims are added up over the request."""
    one = b"\x02a" + b"\xa1\x8d\x06" + (bytes(4) + b"\0\0") * 100_000 + b"\0"
    body = b"\0" + struct.pack(">hi", -1, 1000) + b"\x02" + one + b"\0"
    with pytest.raises(ProtocolError, match="items"):
        produce.read_request(memoryview(body), 9, 100_000)
    assert produce.read_request(memoryview(body), 9, 100_001)


def test_unknown_tags_are_skipped() -> None:
    """In every struct of a flexible version."""
    tags = b"\x02\x05\x03abc\x90\x03\x00"
    body = b"\0" + struct.pack(">hi", 1, 1000) + b"\x02\x02a\x02" + bytes(4) + b"\x03xy" + tags * 3
    ((topic, ((index, records),)),) = produce.read_request(memoryview(body), 9).topics
    assert (topic, index, bytes(records or b"")) == ("a", 0, b"xy")


results = st.builds(
    produce.PartitionResult,
    st.integers(0, 9),
    st.sampled_from([0, 2, 45, 87]),
    st.integers(-1, 2**62),
    st.sampled_from([-1, 1_700_000_000_000]),
    st.integers(-1, 2**62),
    st.lists(st.tuples(st.integers(0, 9), st.none() | st.text(max_size=5)), max_size=2),
    st.none() | st.text(max_size=5),
)


@each_version
@settings(max_examples=40, deadline=None, database=None)
@given(content=st.lists(st.lists(results, max_size=3), max_size=3), throttle=st.integers(0, 9))
def test_oracles_read_what_we_write(version: int, content: Any, throttle: int) -> None:
    """Same fields, and the same bytes when kio and kafka-python write them again."""
    topic: Any = TOPIC_ID.bytes if version >= 13 else "orders"
    body = produce.write_response(version, [(topic, rows) for rows in content], throttle)
    entity = kio.read("produce", "response", version, "ProduceResponse", body)
    assert entity.throttle_time == timedelta(milliseconds=throttle)
    for theirs, mine in zip(entity.responses, content, strict=True):
        for got, sent in zip(theirs.partition_responses, mine, strict=True):
            assert (got.index, got.error_code, got.base_offset) == sent[:3]
            if version >= 5:
                assert got.log_start_offset == sent.log_start_offset
            if version >= 8:
                assert got.error_message == sent.error_message
                assert len(got.record_errors) == len(sent.record_errors)
    assert through_kafka_python_named("ProduceResponse", version, body) == body


@each_version
def test_fast_path_writes_the_same(version: int) -> None:
    """One partition without a message: the short way gives the same bytes."""
    topic: Any = TOPIC_ID.bytes if version >= 13 else "ö" * 80
    result = produce.PartitionResult(3, 6, 77, -1, 5)
    assert produce.write_one(version, topic, *result[:5]) == produce.write_response(
        version, [(topic, [result])]
    )
