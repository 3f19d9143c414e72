"""After a change: wait until a broker shows it everywhere.

Kafka answers a change of topics when its controller has it; its broker part follows soon.
A scenario that goes on at once would compare two moments, not two brokers. What was refused
has changed nothing, so there is nothing to wait for.
"""

from __future__ import annotations

from typing import Any

from compat_tests.differential.requests import offsets_asked
from compat_tests.differential.steps import Step, at
from compat_tests.raw.client import Connection
from compat_tests.waiting import wait_for

_UNKNOWN_TOPIC = 3
_TOPIC, _OF_THE_TOPIC = 2, 1


def settle(connection: Connection, step: Step, values: dict[str, Any], answer: Any) -> None:
    """`values` and `answer` as they went over the wire."""
    if values.get("validate_only"):
        return
    if step.api == "create_topics":
        for topic in _accepted(answer, "topics"):
            _until_ready(connection, topic["name"], 1)
    elif step.api == "create_partitions":
        counts = {each["name"]: each["count"] for each in values["topics"]}
        for topic in _accepted(answer, "results"):
            _until_ready(connection, topic["name"], counts[topic["name"]])
    elif step.api == "delete_topics":
        for topic in _accepted(answer, "responses"):
            _until_gone(connection, topic["name"])
    elif step.api in ("alter_configs", "incremental_alter_configs"):
        accepted = {each["resource_name"] for each in _accepted(answer, "responses")}
        for resource in values["resources"]:
            if resource["resource_name"] in accepted and resource["resource_type"] == _TOPIC:
                _until_configured(connection, step.api, resource)


def _accepted(answer: dict[str, Any], path: str) -> list[dict[str, Any]]:
    return [each for each in at(answer, path) if each["error_code"] == 0]


def _metadata(connection: Connection, name: str) -> dict[str, Any]:
    asked = {"topics": [{"name": name}], "allow_auto_topic_creation": False}
    (topic,) = connection.call("metadata", 9, asked)["topics"]
    return dict(topic)


def _until_ready(connection: Connection, name: str, count: int) -> None:
    def ready() -> bool:
        partitions = _metadata(connection, name)["partitions"]
        if len(partitions) < count or any(each["leader_id"] < 0 for each in partitions):
            return False
        asked = offsets_asked(name, dict.fromkeys(range(len(partitions)), -2))
        answer = connection.call("list_offsets", 5, asked)
        return {*at(answer, "topics.partitions.error_code")} == {0}

    wait_for(ready, f"{name} has {count} partitions that answer")


def _until_gone(connection: Connection, name: str) -> None:
    wait_for(lambda: _metadata(connection, name)["error_code"] == _UNKNOWN_TOPIC, f"{name} is gone")


def _until_configured(connection: Connection, api: str, resource: dict[str, Any]) -> None:
    name = resource["resource_name"]
    described = {"resource_type": _TOPIC, "resource_name": name, "configuration_keys": None}
    asked = {"resources": [described]}
    changed = {each["name"]: each for each in resource["configs"]}

    def shown() -> bool:
        answer = connection.call("describe_configs", 4, asked)
        own = {
            each["name"]: each["value"]
            for each in at(answer, "results.configs")
            if each["config_source"] == _OF_THE_TOPIC
        }
        if api == "alter_configs":
            return own == {key: each["value"] for key, each in changed.items()}
        return all(_is_shown(each, own) for each in changed.values())

    wait_for(shown, f"{name} is configured")


def _is_shown(change: dict[str, Any], own: dict[str, str]) -> bool:
    if change["config_operation"] == 0:
        return bool(own.get(change["name"]) == change["value"])
    # Appending and subtracting depend on what was there; scenarios look for that themselves.
    return bool(change["config_operation"] != 1 or change["name"] not in own)
