"""Requests that scenarios share: topics that are ready, records, members of groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from compat_tests.differential.steps import Saved, Step, TopicId, Until
from ister.wal.tests.batches import make_batch

T0 = 1_700_000_000_000
SESSION_MS = 60_000
REBALANCING = Until("error_code", 27)


def ready_topic(name: str, partitions: int = 1, **configs: str) -> list[Step]:
    """Made, and every partition answers."""
    return [
        Step("create_topics", 7, creation(name, partitions, configs)),
        wait_for_topic(name, partitions),
    ]


def creation(
    name: str, partitions: int = 1, configs: dict[str, str] | None = None, replicas: int = 1
) -> dict[str, Any]:
    settings = {key.replace("_", "."): value for key, value in (configs or {}).items()}
    topic = {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": replicas,
        "configs": [{"name": key, "value": value} for key, value in settings.items()],
    }
    return {"topics": [topic], "timeout_ms": 30_000, "validate_only": False}


def wait_for_topic(name: str, partitions: int) -> Step:
    asked = offsets_asked(name, dict.fromkeys(range(partitions), -2))
    return Step("list_offsets", 5, asked, until=Until("topics.partitions.error_code", 0))


def offsets_asked(name: str, times: dict[int, int]) -> dict[str, Any]:
    partitions = [
        {"partition_index": index, "current_leader_epoch": -1, "timestamp": time}
        for index, time in times.items()
    ]
    return {"replica_id": -1, "topics": [{"name": name, "partitions": partitions}]}


def batch(*values: bytes | None, **options: Any) -> bytes:
    return make_batch(list(values), base_timestamp=T0, **options)


def produced(
    name: str, records: bytes | None, partition: int = 0, acks: int = -1
) -> dict[str, Any]:
    data = [{"index": partition, "records": records}]
    topic = {"name": name, "topic_id": TopicId(name), "partition_data": data}
    return {"transactional_id": None, "acks": acks, "timeout_ms": 30_000, "topic_data": [topic]}


def produce(name: str, *values: bytes | None, partition: int = 0) -> Step:
    return Step("produce", 9, produced(name, batch(*values), partition))


def fetched(
    name: str,
    offset: int = 0,
    partition: int = 0,
    *,
    max_bytes: int = 1 << 20,
    session: tuple[int, int] = (0, -1),
    **options: Any,
) -> dict[str, Any]:
    """Not waiting: what is there."""
    part = {
        "partition": partition,
        "current_leader_epoch": -1,
        "fetch_offset": offset,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": max_bytes,
    }
    topic = {"topic": name, "topic_id": TopicId(name), "partitions": [part]}
    values: dict[str, Any] = {
        "replica_id": -1,
        "max_wait_ms": 0,
        "min_bytes": 1,
        "max_bytes": 50 << 20,
        "isolation_level": 0,
        "session_id": session[0],
        "session_epoch": session[1],
        "topics": [topic],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    return {**values, **options}


def joined(
    group: str,
    member: str | Saved = "",
    *,
    metadata: bytes = b"m",
    instance: str | None = None,
    protocols: Sequence[str] = ("range",),
    protocol_type: str = "consumer",
    session_ms: int = SESSION_MS,
) -> dict[str, Any]:
    return {
        "group_id": group,
        "session_timeout_ms": session_ms,
        "rebalance_timeout_ms": SESSION_MS,
        "member_id": member,
        "group_instance_id": instance,
        "protocol_type": protocol_type,
        "protocols": [{"name": each, "metadata": metadata} for each in protocols],
        "reason": None,
    }


def synced(
    group: str,
    member: str | Saved,
    generation: int = 1,
    *,
    instance: str | None = None,
    assignments: Sequence[tuple[str | Saved, bytes]] = (),
    protocol_type: str = "consumer",
    protocol: str = "range",
) -> dict[str, Any]:
    return {
        "group_id": group,
        "generation_id": generation,
        "member_id": member,
        "group_instance_id": instance,
        "protocol_type": protocol_type,
        "protocol_name": protocol,
        "assignments": [{"member_id": who, "assignment": what} for who, what in assignments],
    }


def stable_group(group: str, name: str = "m1", instance: str | None = None) -> list[Step]:
    """One member, in generation 1, with an assignment."""
    save = {name: "member_id"}
    steps = []
    if instance is None:
        steps.append(Step("join_group", 5, joined(group), save=save))
    member: str | Saved = Saved(name) if instance is None else ""
    steps += [
        Step("join_group", 5, joined(group, member, instance=instance), save=save),
        Step(
            "sync_group",
            3,
            synced(group, Saved(name), instance=instance, assignments=[(Saved(name), b"a")]),
        ),
    ]
    return steps


def committed(
    group: str,
    topic: str,
    offsets: dict[int, int],
    *,
    member: str | Saved = "",
    generation: int = -1,
    metadata: str | None = "words",
    instance: str | None = None,
) -> dict[str, Any]:
    partitions = [
        {
            "partition_index": index,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": metadata,
        }
        for index, offset in offsets.items()
    ]
    return {
        "group_id": group,
        "generation_id_or_member_epoch": generation,
        "member_id": member,
        "group_instance_id": instance,
        "retention_time_ms": -1,
        "topics": [{"name": topic, "topic_id": TopicId(topic), "partitions": partitions}],
    }


def cursors_asked(group: str, topics: dict[str, list[int]] | None) -> dict[str, Any]:
    """In the form of all versions: one group, or a list of one."""
    named = (
        None
        if topics is None
        else [
            {"name": name, "topic_id": TopicId(name), "partition_indexes": indexes}
            for name, indexes in topics.items()
        ]
    )
    group_asked = {"group_id": group, "member_id": None, "member_epoch": -1, "topics": named}
    return {
        "group_id": group,
        "topics": named,
        "groups": [group_asked],
        "require_stable": False,
    }
