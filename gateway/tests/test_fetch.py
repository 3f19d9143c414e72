"""The Fetch codec against kio, and against bytes that lie."""

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

from ister.gateway.protocol import fetch
from ister.gateway.protocol.errors import ProtocolError
from ister.gateway.tests import kio_entities as kio
from ister.gateway.tests.message_values import through_kafka_python_named

VERSIONS = range(fetch.VERSION_MIN, fetch.VERSION_MAX + 1)
TOPIC_ID = uuid.UUID(int=0x0123456789ABCDEF0123456789ABCDEF)
each_version = pytest.mark.parametrize("version", VERSIONS)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
parts = st.builds(fetch.FetchPartition, int32, int32, int64, int32, int64, int32)
names = st.sampled_from(["a", "ö" * 100])
requests = st.builds(
    fetch.FetchRequest,
    int32,
    st.integers(0, 2**31 - 1),
    int32,
    int32,
    st.sampled_from([0, 1]),
    int32,
    int32,
    st.lists(st.tuples(names, st.lists(parts, max_size=3)), max_size=3),
    st.lists(st.tuples(names, st.lists(int32, max_size=3).map(tuple)), max_size=2),
    st.sampled_from(["", "rack", "r" * 200]),
)


def encode(version: int, request: fetch.FetchRequest, extra: dict[str, Any]) -> bytes:
    def entity(name: str, /, **values: Any) -> Any:
        return kio.build("fetch", "request", version, name, **values)

    topics = tuple(
        entity(
            "FetchTopic",
            topic=topic,
            topic_id=TOPIC_ID,
            partitions=tuple(
                entity(
                    "FetchPartition",
                    **{**row._asdict(), "partition_max_bytes": row.max_bytes},
                    **extra,
                )
                for row in rows
            ),
        )
        for topic, rows in request.topics
    )
    values = {
        "replica_id": request.replica_id,
        "max_wait": i32Timedelta.parse(timedelta(milliseconds=request.max_wait_ms)),
        "min_bytes": request.min_bytes,
        "max_bytes": request.max_bytes,
        "isolation_level": request.isolation_level,
        "session_id": request.session_id,
        "session_epoch": request.session_epoch,
        "topics": topics,
        "rack_id": request.rack_id,
    }
    if version >= 7:
        values["forgotten_topics_data"] = tuple(
            entity("ForgottenTopic", topic=topic, topic_id=TOPIC_ID, partitions=indexes)
            for topic, indexes in request.forgotten
        )
    if version >= 12:
        values["cluster_id"] = "cluster"
    if version >= 15:
        values["replica_state"] = entity("ReplicaState", replica_id=request.replica_id)
    return kio.write(entity("FetchRequest", **values))


def expected(version: int, request: fetch.FetchRequest) -> fetch.FetchRequest:
    """What remains of a request in an older version."""

    def row(part: fetch.FetchPartition) -> fetch.FetchPartition:
        if version < 12:
            part = part._replace(last_fetched_epoch=-1)
        if version < 9:
            part = part._replace(current_leader_epoch=-1)
        return part._replace(log_start_offset=-1) if version < 5 else part

    def topic(name: Any) -> Any:
        return TOPIC_ID.bytes if version >= 13 else name

    request = request._replace(
        topics=[(topic(name), [row(part) for part in rows]) for name, rows in request.topics],
        forgotten=[(topic(name), rows) for name, rows in request.forgotten],
    )
    if version < 11:
        request = request._replace(rack_id="")
    return (
        request if version >= 7 else request._replace(session_id=0, session_epoch=-1, forgotten=[])
    )


@each_version
@settings(max_examples=25, deadline=None, database=None)
@given(request=requests, tagged=st.booleans())
def test_reads_what_kio_writes(version: int, request: fetch.FetchRequest, tagged: bool) -> None:
    """Every field of every version; tags of followers are skipped."""
    extra = {"high_watermark": 5, "replica_directory_id": TOPIC_ID} if tagged else {}
    body = encode(version, request, extra)
    assert fetch.read_request(memoryview(body), version) == expected(version, request)


@each_version
@settings(max_examples=3, deadline=None, database=None)
@given(request=requests)
def test_cut_short_or_too_long_is_refused(version: int, request: fetch.FetchRequest) -> None:
    """A body is exactly its request."""
    body = encode(version, request, {})
    for size in range(len(body)):
        with pytest.raises(ProtocolError):
            fetch.read_request(memoryview(body)[:size], version)
    with pytest.raises(ProtocolError):
        fetch.read_request(memoryview(body + b"\0"), version)


@each_version
@settings(max_examples=25, deadline=None, database=None)
@given(data=st.data())
def test_arbitrary_and_damaged_bytes(version: int, data: Any) -> None:
    """A request or ProtocolError, nothing else."""
    if data.draw(st.booleans()):
        raw = bytearray(data.draw(st.binary(max_size=90)))
    else:
        raw = bytearray(encode(version, data.draw(requests), {}))
    for _ in range(data.draw(st.integers(0, 4)) if raw else 0):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ProtocolError):
        fetch.read_request(memoryview(raw), version)


def test_lying_counts() -> None:
    """2^32 topics, partitions or forgotten ones take no memory."""
    most = b"\xff\xff\xff\xff\x0f"
    head = struct.pack(">iiiibii", -1, 500, 1, 1 << 20, 0, 0, -1)
    for tail in (
        most,
        b"\x02\x02a" + most,
        b"\x01" + most,
        b"\x01\x02\x02a" + most,
        b"\x02" + most,
    ):
        with pytest.raises(ProtocolError):
            fetch.read_request(memoryview(head + tail), 12)
    for plain in (
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", -1),
        struct.pack(">ih1si", 1, 1, b"a", 2**31 - 1),
        struct.pack(">ii", 0, 2**31 - 1),
    ):
        with pytest.raises(ProtocolError):
            fetch.read_request(memoryview(head + plain), 11)


results = st.builds(
    fetch.FetchResult,
    st.integers(0, 9),
    st.sampled_from([0, 1, 3]),
    st.integers(-1, 2**62),
    st.integers(-1, 2**62),
    st.integers(-1, 2**62),
    st.lists(st.binary(min_size=1, max_size=200), max_size=3),
    st.just(0),
    st.none() | st.lists(st.tuples(st.integers(0, 9), st.integers(0, 99)), max_size=2),
    st.sampled_from([-1, 2]),
).map(lambda result: result._replace(size=sum(map(len, result.records))))


@each_version
@settings(max_examples=25, deadline=None, database=None)
@given(content=st.lists(st.lists(results, max_size=3), max_size=3), session=st.integers(0, 99))
def test_oracles_read_what_we_write(version: int, content: Any, session: int) -> None:
    """Same fields and bytes; the batches themselves are passed on, not copied."""
    topic: Any = TOPIC_ID.bytes if version >= 13 else "orders"
    buffers = fetch.write_response(version, session, [(topic, rows) for rows in content], 0, 4)
    batches = [b for rows in content for row in rows for b in row.records]
    passed = {id(buffer) for buffer in buffers}
    assert all(id(batch) in passed for batch in batches)
    body = b"".join(buffers)
    entity = kio.read("fetch", "response", version, "FetchResponse", body)
    for theirs, mine in zip(entity.responses, content, strict=True):
        for got, sent in zip(theirs.partitions, mine, strict=True):
            assert (got.partition_index, got.error_code, got.high_watermark) == sent[:3]
            assert got.last_stable_offset == sent.last_stable_offset
            assert bytes(got.records) == b"".join(sent.records)
            if version >= 5:
                assert got.log_start_offset == sent.log_start_offset
            if version >= 11:
                assert got.preferred_read_replica == sent.preferred_read_replica
    if version >= 7:
        assert entity.session_id == session
    assert through_kafka_python_named("FetchResponse", version, body) == body


@each_version
@pytest.mark.parametrize("size", [0, 1, 126, 127, 16_382, 16_383, 3_000_000])
def test_fast_path_writes_the_same(version: int, size: int) -> None:
    """One partition: the short way gives the same bytes, whatever the length of the records."""
    topic: Any = TOPIC_ID.bytes if version >= 13 else "orders"
    records = [bytes(size)] if size else []
    result = fetch.FetchResult(3, 0, 77, 70, 5, records, size)
    short = fetch.write_one(version, 9, topic, result)
    assert b"".join(short) == b"".join(fetch.write_response(version, 9, [(topic, [result])]))


def test_preferred_replica_is_none_by_default() -> None:
    """Pitfall 6: zero is a broker; -1 says that there is no preferred replica."""
    body = b"".join(fetch.write_response(11, 0, [("a", [fetch.FetchResult(0)])]))
    entity = kio.read("fetch", "response", 11, "FetchResponse", body)
    assert entity.responses[0].partitions[0].preferred_read_replica == -1
