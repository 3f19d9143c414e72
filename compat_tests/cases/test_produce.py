"""Producing: acknowledgements, codecs, what a record can carry, order, refusals."""

from __future__ import annotations

import pytest

from compat_tests.cases.needs import needs
from compat_tests.clients import ClientError, Record

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
MESSAGE_TOO_LARGE = 10


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_acks(client, names, acks):
    """Whatever is acknowledged, or nothing: the records are there, in order."""
    topic = names("topic")
    client.create_topic(topic)
    sent = [Record(value=b"%d" % number) for number in range(20)]
    placed = client.produce(topic, sent, acks=acks)
    if acks != 0:
        assert placed == [[0, number] for number in range(20)]
    found = client.read(topic, 20)
    assert [each.value for each in found] == [each.value for each in sent]
    assert [each.offset for each in found] == list(range(20))


def test_codecs(client, names):
    """Every codec that the client has comes back as it was, all in one partition."""
    topic = names("topic")
    client.create_topic(topic)
    codecs = [codec for codec in CODECS if client.can(codec)]
    for codec in codecs:
        sent = [Record(value=codec.encode() * 50, key=b"%d" % number) for number in range(5)]
        client.produce(topic, sent, codec=codec)
    found = client.read(topic, 5 * len(codecs))
    assert [each.value for each in found] == [
        codec.encode() * 50 for codec in codecs for _ in "12345"
    ]
    assert [each.offset for each in found] == list(range(5 * len(codecs)))


@needs("nulls")
def test_nulls_and_headers(client, names):
    """A null is not an empty string, neither as key, value nor header; headers keep their order."""
    topic = names("topic")
    client.create_topic(topic)
    headers: tuple[tuple[str, bytes | None], ...] = (("b", b"1"), ("a", b""), ("b", b"\xff\x00"))
    if client.can("null_header"):
        headers = (*headers, ("none", None))
    sent = [
        Record(key=None, value=b"plain"),
        Record(key=b"gone", value=None),
        Record(key=b"\x00k", value=b"", headers=headers),
    ]
    client.produce(topic, sent)
    found = client.read(topic, 3)
    assert [(each.key, each.value) for each in found[:2]] == [(None, b"plain"), (b"gone", None)]
    assert found[2].value == b""
    if client.can("header_order"):
        assert found[2].headers == headers
    else:
        assert sorted(found[2].headers) == sorted(headers)


def test_big_record(client, names):
    """Nearly a mebibyte, the default limit."""
    topic = names("topic")
    client.create_topic(topic)
    value = bytes(range(256)) * 3_900
    client.produce(topic, [Record(value=value)], max_request_bytes=1_048_576)
    (found,) = client.read(topic, 1)
    assert found.value == value


def test_too_big_record(client, names):
    """More than the topic takes is refused with Kafka's number, and nothing is appended."""
    topic = names("topic")
    client.create_topic(topic, max_message_bytes="2000")
    with pytest.raises(ClientError) as refused:
        client.produce(topic, [Record(value=b"x" * 5_000)])
    assert refused.value.code == MESSAGE_TOO_LARGE
    assert client.offset(topic, "latest") == 0


@needs("timestamp")
def test_timestamps_of_the_producer(client, names):
    topic = names("topic")
    client.create_topic(topic)
    sent = [Record(value=b"v", timestamp=1_700_000_000_000 + step) for step in (5, 3, 9)]
    client.produce(topic, sent)
    found = client.read(topic, 3)
    assert [each.timestamp for each in found] == [each.timestamp for each in sent]
    assert all(not each.log_append_time for each in found)


@needs("timestamp", "log_append_time")
def test_timestamps_of_the_broker(client, names):
    """With LogAppendTime the broker's own time stands in all records, whatever was sent."""
    topic = names("topic")
    client.create_topic(topic, message_timestamp_type="LogAppendTime")
    sent = [Record(value=b"v", timestamp=1_000_000 + step) for step in range(3)]
    client.produce(topic, sent)
    found = client.read(topic, 3)
    assert all(each.timestamp > 1_700_000_000_000 for each in found)
    if client.can("timestamp_type"):
        assert all(each.log_append_time for each in found)


def test_order(client, names):
    """Many batches, one partition: offsets without a gap, in the order of sending."""
    topic = names("topic")
    client.create_topic(topic)
    sent = [Record(value=b"%d" % number + b"." * 500) for number in range(1_000)]
    placed = client.produce(topic, sent)
    assert [offset for _, offset in placed] == list(range(1_000))
    found = client.read(topic, 1_000)
    assert [each.value for each in found] == [each.value for each in sent]


@needs("auto_create")
def test_topic_made_on_demand(client, names):
    topic = names("topic")
    client.produce(topic, [Record(value=b"first")])
    assert client.describe_topic(topic) == 1
    assert [each.value for each in client.read(topic, 1)] == [b"first"]


@needs("idempotent")
def test_idempotent(client, names):
    topic = names("topic")
    client.create_topic(topic, partitions=2)
    sent = [Record(value=b"%d" % number, partition=number % 2) for number in range(200)]
    client.produce(topic, sent, idempotent=True)
    for partition in (0, 1):
        found = client.read(topic, 100, partition=partition)
        assert [each.value for each in found] == [b"%d" % n for n in range(partition, 200, 2)]
