"""Looking up offsets: first, last, by time, newest time; deleting records moves the first."""

from __future__ import annotations

import pytest

from compat_tests.cases.needs import needs
from compat_tests.clients import ClientError, Record

OFFSET_OUT_OF_RANGE = 1
UNKNOWN_TOPIC_OR_PARTITION = 3
BASE = 1_700_000_000_000


def test_first_and_last(client, names):
    topic = names("topic")
    client.create_topic(topic)
    assert (client.offset(topic, "earliest"), client.offset(topic, "latest")) == (0, 0)
    client.produce(topic, [Record(value=b"v") for _ in range(7)])
    assert (client.offset(topic, "earliest"), client.offset(topic, "latest")) == (0, 7)


@needs("timestamp", "offset_by_time")
def test_by_time(client, names):
    """The first record that is not older, inside and between batches; -1 (or the end) if none."""
    topic = names("topic")
    client.create_topic(topic)
    for first in (0, 100):
        sent = [Record(value=b"v", timestamp=BASE + first + step) for step in range(0, 50, 10)]
        client.produce(topic, sent)
    wanted = {-1_000: 0, 0: 0, 11: 2, 40: 4, 41: 5, 120: 7, 140: 9}
    assert {time: client.offset(topic, BASE + time) for time in wanted} == wanted
    after = client.offset(topic, BASE + 141)
    assert after == (-1 if client.can("no_offset_after") else 10)


@needs("timestamp", "max_timestamp")
def test_newest_time(client, names):
    topic = names("topic")
    client.create_topic(topic)
    sent = [Record(value=b"v", timestamp=BASE + step) for step in (1, 9, 4)]
    for record in sent:
        client.produce(topic, [record])
    assert client.offset(topic, "max_timestamp") == 1


@needs("delete_records")
def test_delete_records(client, names):
    topic = names("topic")
    client.create_topic(topic)
    client.produce(topic, [Record(value=b"%d" % number) for number in range(10)])
    assert client.delete_records(topic, before=4) == 4
    assert client.offset(topic, "earliest") == 4
    assert [each.offset for each in client.read(topic, 6)] == [4, 5, 6, 7, 8, 9]
    with pytest.raises(ClientError) as refused:
        client.delete_records(topic, before=11)
    assert refused.value.code == OFFSET_OUT_OF_RANGE
    assert client.delete_records(topic, before=-1) == 10
    assert client.offset(topic, "earliest") == 10
