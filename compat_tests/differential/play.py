"""One broker's part in a scenario: its connections, its own ids, its answers made comparable."""

from __future__ import annotations

import uuid
from typing import Any

from compat_tests.brokers import RunningBroker
from compat_tests.differential.batches import read_batches
from compat_tests.differential.masks import NEUTRAL, SIZE, TIME, WORDS, mask_of, ordered
from compat_tests.differential.settle import settle
from compat_tests.differential.steps import Records, Saved, Step, TopicId, Until, at
from compat_tests.raw.client import CLOSED, Connection
from compat_tests.waiting import wait_for

_NOBODY = uuid.UUID("12345678-1234-4234-8234-123456789abc")
_LISTS = {"metadata": "topics", "list_groups": "groups", "describe_topic_partitions": "topics"}
_OWN_NAME = ("name", "group_id", "topic")


class Player:
    """Use as a context: it closes its connections."""

    def __init__(self, broker: RunningBroker) -> None:
        self.broker = broker
        self._connections: dict[str, Connection] = {}
        self._saved: dict[str, Any] = {}
        self._topic_ids: dict[str, uuid.UUID] = {}
        self._named: dict[Any, str] = {}
        self._symbols: dict[tuple[str, Any], str] = {}

    def __enter__(self) -> Player:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._connections.values():
            each.close()

    def play(self, step: Step) -> dict[str, Any] | None:
        """The answer, masked and in a fixed order; None for a step that takes none."""
        answer: dict[str, Any] | None = None

        def once() -> bool:
            nonlocal answer
            answer = self._exchange(step)
            if step.until is None:
                return True
            found = {str(each) for each in at(answer, step.until.path)}
            return bool(found) and found <= {*str(step.until.value).split("|")}

        wait_for(once, f"{step!r} on {self.broker.name}: {step.until}")
        if answer is None:
            return None
        for name, path in step.save.items():
            found = at(answer, path)
            if found:
                self._saved[name] = found[0]
        if not step.values.get("validate_only"):
            self._learn_ids(answer)
        if step.own:
            answer = _own(step, answer)
        masked: dict[str, Any] = self._masked(step.api, "", answer)
        return masked

    def resolve(self, value: Any) -> Any:
        """A request with this broker's values in it."""
        if isinstance(value, Saved):
            other = f"nobody-{value.name}" if value.otherwise is None else value.otherwise
            return self._saved.get(value.name, other)
        if isinstance(value, TopicId):
            return self._topic_ids.get(value.topic) or self._nobodys_id(value.topic)
        if isinstance(value, Records):
            return value.build(self.resolve(value.producer))
        if isinstance(value, dict):
            return {name: self.resolve(each) for name, each in value.items()}
        if isinstance(value, list):
            return [self.resolve(each) for each in value]
        return value

    # -- inside --------------------------------------------------------------------------

    def _nobodys_id(self, topic: str) -> uuid.UUID:
        made = uuid.uuid5(_NOBODY, topic)
        self._named[made] = f"<no id of {topic}>"
        return made

    def _exchange(self, step: Step) -> dict[str, Any] | None:
        connection = self._connections.get(step.on)
        if connection is None:
            connection = Connection(self.broker.host, self.broker.port)
            self._connections[step.on] = connection
        values = self.resolve(step.values)
        if step.send:
            connection.send(step.api, step.version, values)
        if not step.receive:
            return None
        answer = connection.receive(step.api, step.version)
        if answer is not CLOSED:
            settle(connection, step, values, answer)
        if answer is not CLOSED and step.api == "fetch":
            _gather_topics(answer)
            for partition in at(answer, "responses.partitions"):
                partition["records"] = read_batches(partition["records"])
        return answer

    def _learn_ids(self, answer: dict[str, Any]) -> None:
        for topic in at(answer, "topics"):
            if not isinstance(topic, dict) or topic.get("error_code"):
                continue
            if topic.get("name") and topic.get("topic_id"):
                self._topic_ids[topic["name"]] = topic["topic_id"]
                self._named[topic["topic_id"]] = f"<id of {topic['name']}>"

    def _masked(self, api: str, path: str, value: Any) -> Any:
        if isinstance(value, dict):
            return {
                name: self._masked(api, f"{path}.{name}" if path else str(name), each)
                for name, each in value.items()
            }
        if isinstance(value, list):
            if not value or not isinstance(value[0], dict):
                return [self._masked(api, path, each) for each in value]
            value = ordered(api, path, value, masked=False)
            found = [self._masked(api, path, each) for each in value]
            return ordered(api, path, found, masked=True)
        mask = mask_of(api, path)
        if mask is None or value in NEUTRAL:
            return value
        if mask.kind in (WORDS, TIME, SIZE):
            return f"<{mask.kind}>"
        return self._symbol(mask.kind, value)

    def _symbol(self, kind: str, value: Any) -> str:
        if value in self._named:
            return self._named[value]
        for name, saved in self._saved.items():
            if saved == value:
                return f"<{name}>"
        known = self._symbols.get((kind, value))
        if known is None:
            number = sum(each == kind for each, _ in self._symbols) + 1
            known = self._symbols[kind, value] = f"<{kind} {number}>"
        return known


def _gather_topics(answer: dict[str, Any]) -> None:
    """Kafka tells a topic twice if some of its partitions went wrong; clients take both."""
    gathered: dict[Any, dict[str, Any]] = {}
    for topic in answer["responses"]:
        known = gathered.setdefault(topic.get("topic_id") or topic.get("topic"), topic)
        if known is not topic:
            known["partitions"] += topic["partitions"]
    answer["responses"] = list(gathered.values())


def _own(step: Step, answer: dict[str, Any]) -> dict[str, Any]:
    name = _LISTS.get(step.api)
    if name is None or answer is CLOSED:
        return answer
    items = [each for each in answer[name] if any(step.own in str(each.get(k)) for k in _OWN_NAME)]
    return {**answer, name: items}


def wait_until_usable(broker: RunningBroker) -> None:
    """Kafka finds its first coordinator and its first producer ids when they are asked for."""
    asked = {"groups": [{"group_id": "first", "topics": None}], "require_stable": False}
    producer = {"transactional_id": None, "transaction_timeout_ms": 60_000}
    with Player(broker) as player:
        found = Until("error_code", 0)
        player.play(Step("find_coordinator", 3, {"key": "first", "key_type": 0}, until=found))
        loaded = Until("groups.error_code", 0)
        player.play(Step("offset_fetch", 8, asked, until=loaded))
        player.play(Step("init_producer_id", 1, producer, until=found))  # takes the id 0
