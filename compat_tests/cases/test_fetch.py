"""Fetching: places inside a batch, small limits, waiting for what comes, many partitions."""

from __future__ import annotations

import pytest

from compat_tests.cases.needs import needs
from compat_tests.clients import ClientError, Record
from compat_tests.waiting import wait_for

OFFSET_OUT_OF_RANGE = 1


def test_from_inside_a_batch(client, names):
    """The broker answers with the whole batch, the client begins where it wanted to."""
    topic = names("topic")
    client.create_topic(topic)
    client.produce(topic, [Record(value=b"%d" % number) for number in range(10)])
    found = client.read(topic, 4, offset=6)
    assert [each.offset for each in found] == [6, 7, 8, 9]


@pytest.mark.parametrize("limit", ["max_bytes", "partition_max_bytes"])
def test_record_larger_than_the_limit(client, names, limit):
    """A first batch above the limit is answered all the same, or nobody would get past it."""
    if not client.can(limit):
        limit = "max_bytes"
    topic = names("topic")
    client.create_topic(topic)
    sent = [Record(value=bytes([number]) * 20_000) for number in range(6)]
    for record in sent:
        client.produce(topic, [record])
    found = client.read(topic, 6, **{limit: 1_000})
    assert [each.value for each in found] == [each.value for each in sent]


def test_min_bytes_never_reached(client, names):
    """After `max_wait_ms` the broker answers with what there is."""
    topic = names("topic")
    client.create_topic(topic)
    client.produce(topic, [Record(value=b"little")])
    found = client.read(topic, 1, min_bytes=1_000_000, max_wait_ms=300)
    assert [each.value for each in found] == [b"little"]


def test_nothing_at_the_end(client, names):
    topic = names("topic")
    client.create_topic(topic)
    client.produce(topic, [Record(value=b"old")])
    assert client.read(topic, 1, offset="latest", wait_s=0.5) == []


@needs("no_reset")
@pytest.mark.parametrize("offset", [50, "gone"])
def test_out_of_range(client, names, offset):
    """Behind the end, and before a beginning that moved on."""
    topic = names("topic")
    client.create_topic(topic)
    client.produce(topic, [Record(value=b"v") for _ in range(3)])
    if offset == "gone":
        if not client.can("delete_records"):
            return
        client.delete_records(topic, before=2)
        offset = 1
    with pytest.raises(ClientError) as refused:
        client.read(topic, 1, offset=offset, wait_s=10)
    assert refused.value.code == OFFSET_OUT_OF_RANGE


def test_waiting_reader(client, names, joined):
    """A reader at the end of many partitions gets what comes, each in its order."""
    topic, group = names("topic"), names("group")
    client.create_topic(topic, partitions=30)
    joined("m", group, [topic])
    wait_for(lambda: len(client.look("m").assignment) == 30, "all partitions assigned")
    for turn in range(3):
        sent = [Record(value=b"%d" % turn, partition=number) for number in range(30)]
        client.produce(topic, sent, idempotent=client.can("idempotent"))
    seen: dict[tuple[int | None, int], bytes | None] = {}

    def all_read():
        seen.update(
            {(each.partition, each.offset): each.value for each in client.look("m").records}
        )
        return len(seen) == 90

    wait_for(all_read, "all records read")
    assert seen == {(p, turn): b"%d" % turn for p in range(30) for turn in range(3)}
