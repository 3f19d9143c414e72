"""Metadata over TCP: who and what there is, and topics that are made by asking."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from ister.gateway.protocol.api import ApiKey
from ister.gateway.protocol.messages import metadata
from ister.gateway.tests.wire_kit import Running, Wire
from ister.wal.tests.batches import make_batch

each_version = pytest.mark.parametrize("version", range(14))


@each_version
def test_every_version_tells_the_broker_and_its_topics(running: Running, version: int) -> None:
    """G9, G10, G13: the listener that was used, ids that are not zero, all topics when asked so."""
    with running.connect() as wire:
        topic_id = wire.create("t", 3)
        asked = metadata.MetadataRequest(topics=() if version == 0 else None)
        answer = wire.request(metadata, ApiKey.METADATA, version, asked)
        (broker,) = answer.brokers
        assert (broker.node_id, broker.host, broker.port) == (1, "127.0.0.1", running.port)
        (topic,) = answer.topics
        assert (topic.error_code, topic.name, len(topic.partitions)) == (0, "t", 3)
        assert all(part.leader_id == 1 for part in topic.partitions)
        if version >= 1:
            assert answer.controller_id == 1
        if version >= 2:
            assert answer.cluster_id
        if version >= 7:
            assert all(part.leader_epoch == 0 for part in topic.partitions)
        if version >= 10:
            assert topic.topic_id == topic_id
    if version >= 1:
        with running.connect() as wire:
            nothing = metadata.MetadataRequest(topics=())
            assert wire.request(metadata, ApiKey.METADATA, version, nothing).topics == ()


@each_version
def test_topics_are_made_when_they_are_asked_for(wire: Wire, version: int) -> None:
    """Pitfall 26: finished before the answer; from 4 on only if the client allows it."""
    if version >= 4:
        (topic,) = wire.metadata("new", version=version).topics
        assert topic.error_code == 3
    (topic,) = wire.metadata("new", version=version, create=True).topics
    assert (topic.error_code, len(topic.partitions)) == (0, 1)
    assert wire.produce("new", make_batch([b"v"])).base_offset == 0
    (bad,) = wire.metadata("no/name", version=version, create=True).topics
    assert bad.error_code == 17


def test_the_broker_may_forbid_it(tmp_path: Path) -> None:
    """Pitfall 26: auto.create.topics.enable, num.partitions."""
    with (
        Running(tmp_path / "a", {"auto.create.topics.enable": "false"}) as running,
        running.connect() as wire,
    ):
        assert wire.metadata("new", create=True).topics[0].error_code == 3
    with Running(tmp_path / "b", {"num.partitions": "4"}) as running, running.connect() as wire:
        assert len(wire.metadata("new", create=True).topics[0].partitions) == 4


def test_many_ask_for_the_same_new_topic(running: Running) -> None:
    """Pitfall 26: one is made, and everybody is told of it."""
    found: list[tuple[int, bytes]] = []

    def ask() -> None:
        with running.connect() as wire:
            (topic,) = wire.metadata("new", create=True).topics
            found.append((topic.error_code, topic.topic_id))

    threads = [threading.Thread(target=ask) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 10
    assert len(set(found)) == 1
    assert found[0][0] == 0


def test_by_id(wire: Wire) -> None:
    """Version 12: known by its id, never made by one; the name of an unknown id is null."""
    topic_id = wire.create("t")

    def ask(which: bytes) -> object:
        topics = (metadata.MetadataRequestTopic(topic_id=which, name=None),)
        request = metadata.MetadataRequest(topics=topics)
        (topic,) = wire.request(metadata, ApiKey.METADATA, 12, request).topics
        return topic.error_code, topic.name

    assert ask(topic_id) == (0, "t")
    assert ask(b"?" * 16) == (100, None)
