"""Changes to topics: names, collisions, many who want the same new topic at once."""

from __future__ import annotations

import pytest

from ister.gateway.broker import Broker
from ister.gateway.errors import RequestError
from ister.gateway.protocol.error_codes import ErrorCode
from ister.gateway.tests.wire_kit import Running
from ister.gateway.topic_admin import NAME_LENGTH_MAX, check_name
from ister.metadata.errors import TopicExists


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * NAME_LENGTH_MAX, "..."])
def test_a_name_is_taken(name: str):
    """ASCII letters, digits, '.', '_' and '-', up to 249."""
    check_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ö", "a\n", "x" * 250])
def test_a_name_is_refused(name: str):
    """INVALID_TOPIC_EXCEPTION, as Kafka."""
    with pytest.raises(RequestError) as refused:
        check_name(name)
    assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_many_who_want_it_at_once_get_one(running: Running):
    """Pitfall 26: auto-creation survives races; each is told when it can be written to."""
    told: list[BaseException | None] = []

    def ask(broker: Broker) -> None:
        for _ in range(5):
            broker.context.topics.ensure("t", 2, told.append)

    running.on_loop(ask)
    running.until(lambda _: len(told) == 5)
    assert told == [None] * 5
    assert running.on_loop(lambda broker: len(broker.context.log.of_topic(_id(broker)))) == 2


def _id(broker: Broker) -> bytes:
    topic = broker.context.topic("t")
    assert topic is not None
    return topic.id


def test_a_topic_that_is_being_made_is_there(running: Running):
    """A second creation is refused, not queued behind the first."""
    told: list[BaseException | None] = []

    def ask(broker: Broker) -> None:
        broker.context.topics.create("t", 1, {}, told.append)
        with pytest.raises(TopicExists):
            broker.context.topics.create("t", 1, {}, told.append)

    running.on_loop(ask)
    running.until(lambda _: told == [None])


def test_names_that_look_alike_collide(running: Running):
    """'.' and '_' are one to metrics; deleting the other makes room."""
    told: list[BaseException | None] = []
    running.on_loop(lambda broker: broker.context.topics.create("a.b", 1, {}, told.append))
    running.until(lambda _: len(told) == 1)

    def collides(broker: Broker) -> bool:
        try:
            broker.context.topics.check_new("a_b")
        except RequestError:
            return True
        return False

    assert running.on_loop(collides)

    def delete(broker: Broker) -> None:
        topic = broker.context.topic("a.b")
        assert topic is not None
        broker.context.topics.delete(topic, told.append)

    running.on_loop(delete)
    running.until(lambda _: told == [None, None])
    assert not running.on_loop(collides)
