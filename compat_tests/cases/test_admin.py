"""Administration: topics, partitions, configs; what is wrong gets the number that Kafka gives."""

from __future__ import annotations

import pytest

from compat_tests.cases.needs import needs
from compat_tests.clients import ClientError
from compat_tests.waiting import wait_for

UNKNOWN_TOPIC_OR_PARTITION = 3
INVALID_TOPIC_EXCEPTION = 17
TOPIC_ALREADY_EXISTS = 36
INVALID_PARTITIONS = 37
INVALID_REPLICATION_FACTOR = 38
INVALID_CONFIG = 40


def test_life_of_a_topic(client, names):
    topic = names("topic")
    client.create_topic(topic, partitions=3)
    assert client.describe_topic(topic) == 3
    assert topic in client.topics()
    client.delete_topic(topic)
    wait_for(lambda: topic not in client.topics(), "the topic is gone")
    client.create_topic(topic, partitions=2)
    assert client.describe_topic(topic) == 2


@needs("add_partitions")
def test_more_partitions(client, names):
    topic = names("topic")
    client.create_topic(topic)
    client.add_partitions(topic, 4)
    wait_for(lambda: client.describe_topic(topic) == 4, "four partitions")
    for total in (3, 4):
        assert _code(client.add_partitions, topic, total) == INVALID_PARTITIONS
    assert client.describe_topic(topic) == 4
    assert _code(client.add_partitions, names("absent"), 4) == UNKNOWN_TOPIC_OR_PARTITION


@needs("topic_configs")
def test_configs(client, names):
    topic = names("topic")
    client.create_topic(topic, retention_ms="60000", cleanup_policy="compact")
    found = client.topic_configs(topic)
    assert (found["retention.ms"], found["cleanup.policy"]) == ("60000", "compact")
    assert found["max.message.bytes"] == "1048588"
    if client.can("set_topic_config"):
        client.set_topic_config(topic, "retention.ms", "70000")
        wait_for(lambda: client.topic_configs(topic)["retention.ms"] == "70000", "the new value")


@needs("set_topic_config")
@pytest.mark.parametrize(
    ("name", "value"), [("retention.ms", "soon"), ("cleanup.policy", "burn"), ("no.such", "1")]
)
def test_bad_config(client, names, name, value):
    topic = names("topic")
    client.create_topic(topic)
    assert _code(client.set_topic_config, topic, name, value) == INVALID_CONFIG
    if client.can("topic_configs"):
        assert client.topic_configs(topic)["cleanup.policy"] == "delete"


def test_bad_topics(client, names):
    topic = names("topic")
    client.create_topic(topic)
    assert _code(client.create_topic, topic) == TOPIC_ALREADY_EXISTS
    assert _code(client.create_topic, "no/slash") == INVALID_TOPIC_EXCEPTION
    assert _code(client.create_topic, "x" * 250) == INVALID_TOPIC_EXCEPTION
    assert _code(client.create_topic, names("none"), 1, 3) == INVALID_REPLICATION_FACTOR
    assert _code(client.delete_topic, names("absent")) == UNKNOWN_TOPIC_OR_PARTITION


@needs("zero_partitions")
def test_no_partitions(client, names):
    assert _code(client.create_topic, names("none"), 0) == INVALID_PARTITIONS


def test_bad_config_at_creation(client, names):
    topic = names("topic")
    with pytest.raises(ClientError) as refused:
        client.create_topic(topic, retention_ms="soon")
    assert refused.value.code == INVALID_CONFIG
    assert topic not in client.topics()


def _code(call, *arguments):
    with pytest.raises(ClientError) as refused:
        call(*arguments)
    return refused.value.code
