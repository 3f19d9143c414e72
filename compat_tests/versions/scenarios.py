"""What is asked of each API, in the version that is given: right input and wrong.

A function per API, called with the version and a source of fresh names. Steps before the one
in question prepare; they are compared like everything else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from compat_tests.differential.requests import (
    T0,
    batch,
    committed,
    creation,
    cursors_asked,
    fetched,
    joined,
    offsets_asked,
    produce,
    produced,
    ready_topic,
    stable_group,
    synced,
    wait_for_topic,
)
from compat_tests.differential.steps import Records, Saved, Step, TopicId, Until
from compat_tests.names import Names

Scenario = Callable[[int, Names], list[Step]]
TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
BAD_NAMES = ("", ".", "..", "a b", "a/b", "ö", "x" * 250)


def api_versions(version: int, _: Names) -> list[Step]:
    told = {"client_software_name": "raw", "client_software_version": "1.0"}
    steps = [Step("api_versions", version, told)]
    if version >= 3:
        steps += [
            Step("api_versions", version, {**told, "client_software_name": "no name!"}),
            Step("api_versions", version, {**told, "client_software_version": ""}),
        ]
    return steps


def metadata(version: int, names: Names) -> list[Step]:
    topic = names("topic")
    asked = {
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": True,
        "include_cluster_authorized_operations": True,
    }
    named = [{"name": topic, "topic_id": TopicId("")}]
    steps = [Step("metadata", version, {**asked, "topics": [{"name": topic}]})]
    if version < 4:  # a client of these cannot forbid it: the topic is made
        steps.append(wait_for_topic(topic, 1))
        steps.append(Step("metadata", version, {"topics": [{"name": topic}]}))
        other = names("topic")
        steps += ready_topic(other, 3)
        steps.append(Step("metadata", version, {"topics": [{"name": other}]}))
    else:
        steps += ready_topic(topic, 3)
        steps.append(Step("metadata", version, {**asked, "topics": [{"name": topic}]}))
        other = names("topic")
        made = {"topics": [{"name": other}], "allow_auto_topic_creation": True}
        steps += [Step("metadata", version, made), wait_for_topic(other, 1)]
    if version >= 12:
        steps.append(Step("metadata", version, {**asked, "topics": named}))
        by_id = [{"name": None, "topic_id": TopicId(topic)}]
        steps.append(Step("metadata", version, {**asked, "topics": by_id}))
    everything: list[Any] | None = [] if version == 0 else None
    steps.append(Step("metadata", version, {**asked, "topics": everything}, own=topic))
    if version > 0:
        steps.append(Step("metadata", version, {**asked, "topics": []}))
    return [
        *steps,
        *(
            Step("metadata", version, {**asked, "topics": [{"name": bad}]})
            for bad in BAD_NAMES
            if version >= 4
        ),
    ]


def create_topics(version: int, names: Names) -> list[Step]:
    topic, second, third = names("topic"), names("topic"), names("topic")
    by_hand = {
        "name": third,
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": [
            {"partition_index": 0, "broker_ids": [1]},
            {"partition_index": 1, "broker_ids": [1]},
        ],
        "configs": [],
    }
    made = creation(topic, 2, {"retention.ms": "1000", "max.message.bytes": "2000"})
    steps = [
        Step("create_topics", version, {**made, "validate_only": True}),
        Step("create_topics", version, made),
        wait_for_topic(topic, 2),
        Step("create_topics", version, made),
        Step("create_topics", version, {**made, "validate_only": True}),
        Step("create_topics", version, {**creation(second), "topics": [by_hand]}),
        Step("create_topics", version, {"topics": [], "timeout_ms": 1000}),
    ]
    twice = creation(second)
    twice["topics"] = [twice["topics"][0], twice["topics"][0]]
    steps.append(Step("create_topics", version, twice))
    if version >= 4:
        steps.append(Step("create_topics", version, creation(second, -1, replicas=-1)))
    steps += [Step("create_topics", version, creation(bad)) for bad in BAD_NAMES]
    for name, configs in (
        (names("topic"), {"compression.type": "gzip"}),
        ("__ister_reserved", {}),
    ):
        only = {**creation(name, 1, configs), "validate_only": True}
        steps.append(Step("create_topics", version, only))
    return [*steps, *(Step("create_topics", version, wrong) for wrong in _wrong_creations(names))]


def _wrong_creations(names: Names) -> list[dict[str, Any]]:
    wrong = [creation(names("topic"), count) for count in (0, -2)]
    wrong += [creation(names("topic"), 1, replicas=count) for count in (0, 2, -2)]
    for name, value in (
        ("no.such.setting", "1"),
        ("retention.ms", "soon"),
        ("retention.ms", "-2"),
        ("max.message.bytes", "-1"),
        ("cleanup.policy", "burn"),
        ("cleanup.policy", ""),
        ("message.timestamp.type", "Never"),
        ("min.insync.replicas", "0"),
        ("segment.bytes", "1"),
        ("min.cleanable.dirty.ratio", "2"),
        ("compression.type", "gizp"),
        ("preallocate", "perhaps"),
    ):
        wrong.append(creation(names("topic"), 1, {name: value}))
    empty = creation(names("topic"))
    empty["topics"][0]["configs"] = [{"name": "retention.ms", "value": None}]
    wrong.append(empty)
    for assignment in (
        [{"partition_index": 0, "broker_ids": [7]}],
        [{"partition_index": 1, "broker_ids": [1]}],
        [{"partition_index": 0, "broker_ids": [1, 1]}],
        [{"partition_index": 0, "broker_ids": []}],
    ):
        by_hand = creation(names("topic"), -1, replicas=-1)
        by_hand["topics"][0]["assignments"] = assignment
        wrong.append(by_hand)
    both = creation(names("topic"), 1)
    both["topics"][0]["assignments"] = [{"partition_index": 0, "broker_ids": [1]}]
    return [*wrong, both]


def delete_topics(version: int, names: Names) -> list[Step]:
    def deletion(*topics: dict[str, Any]) -> dict[str, Any]:
        return {
            "topic_names": [each["name"] for each in topics],
            "topics": list(topics),
            "timeout_ms": 30_000,
        }

    def named(name: str) -> dict[str, Any]:
        return {"name": name, "topic_id": None}

    topic, other = names("topic"), names("topic")
    steps = [
        *ready_topic(topic),
        *ready_topic(other),
        Step("delete_topics", version, deletion(named(topic))),
        Step(
            "metadata",
            9,
            {"topics": [{"name": topic}], "allow_auto_topic_creation": False},
            until=Until("topics.error_code", 3),
        ),
        Step("delete_topics", version, deletion(named(topic))),
        Step("delete_topics", version, deletion(named(other), named(other))),
        Step("delete_topics", version, deletion()),
        Step("delete_topics", version, deletion(named(""))),
        Step("delete_topics", version, deletion(named("a b"))),
    ]
    if version >= 6:
        by_id = {"name": None, "topic_id": TopicId(other)}
        steps += [
            Step("delete_topics", version, deletion({"name": other, "topic_id": TopicId(other)})),
            Step("delete_topics", version, deletion({"name": None, "topic_id": None})),
            Step("delete_topics", version, deletion(by_id, by_id)),
            Step("delete_topics", version, deletion(by_id)),
            Step(
                "metadata",
                9,
                {"topics": [{"name": other}], "allow_auto_topic_creation": False},
                until=Until("topics.error_code", 3),
            ),
            Step("delete_topics", version, deletion(by_id)),
        ]
    return steps


def create_partitions(version: int, names: Names) -> list[Step]:
    topic = names("topic")

    def grown(count: int, assignments: Any = None, only: bool = False) -> Step:
        asked = {"name": topic, "count": count, "assignments": assignments}
        values = {"topics": [asked], "timeout_ms": 30_000, "validate_only": only}
        return Step("create_partitions", version, values)

    unknown = {"name": names("none"), "count": 3, "assignments": None}
    one = {"name": topic, "count": 9, "assignments": None}
    return [
        *ready_topic(topic, 2),
        grown(3, only=True),
        grown(3),
        wait_for_topic(topic, 3),
        grown(3),
        grown(2),
        grown(0),
        grown(-1),
        grown(4, [{"broker_ids": [1]}]),
        wait_for_topic(topic, 4),
        grown(6, [{"broker_ids": [1]}]),
        grown(5, [{"broker_ids": [7]}]),
        grown(5, [{"broker_ids": [1, 1]}]),
        grown(5, [{"broker_ids": []}]),
        grown(5, []),
        Step("create_partitions", version, {"topics": [unknown], "timeout_ms": 1000}),
        Step("create_partitions", version, {"topics": [one, one], "timeout_ms": 1000}),
        Step("create_partitions", version, {"topics": [], "timeout_ms": 1000}),
    ]


def delete_records(version: int, names: Names) -> list[Step]:
    topic, compacted = names("topic"), names("topic")

    def deletion(name: str, offset: int, partition: int = 0) -> Step:
        asked = [{"partition_index": partition, "offset": offset}]
        values = {"topics": [{"name": name, "partitions": asked}], "timeout_ms": 30_000}
        return Step("delete_records", version, values)

    return [
        *ready_topic(topic, 2),
        *ready_topic(compacted, 1, cleanup_policy="compact"),
        produce(topic, b"0", b"1", b"2"),
        deletion(topic, 2),
        Step("list_offsets", 5, offsets_asked(topic, {0: -2})),
        Step("fetch", 11, fetched(topic, 1)),
        deletion(topic, 1),
        deletion(topic, 4),
        deletion(topic, -2),
        deletion(topic, -1),
        deletion(topic, -1, partition=1),
        deletion(topic, 0, partition=9),
        deletion(names("none"), 0),
        deletion(compacted, 0),
        Step("list_offsets", 5, offsets_asked(topic, {0: -2, 1: -2})),
    ]


def describe_configs(version: int, names: Names) -> list[Step]:
    topic = names("topic")

    def described(kind: int, name: str, keys: list[str] | None) -> Step:
        asked = [{"resource_type": kind, "resource_name": name, "configuration_keys": keys}]
        values = {"resources": asked, "include_synonyms": True, "include_documentation": True}
        return Step("describe_configs", version, values)

    without = described(TOPIC, topic, ["retention.ms"])
    plain = {**without.values, "include_synonyms": False, "include_documentation": False}
    twice = {**plain, "resources": plain["resources"] * 2}
    return [
        *ready_topic(topic, 1, retention_ms="1000", cleanup_policy="compact"),
        described(TOPIC, topic, None),
        described(TOPIC, topic, ["retention.ms", "no.such.setting", "segment.bytes"]),
        described(TOPIC, topic, []),
        Step("describe_configs", version, plain),
        Step("describe_configs", version, twice),
        described(TOPIC, names("none"), None),
        described(TOPIC, "", None),
        described(TOPIC, "a b", None),
        described(BROKER, "1", ["message.max.bytes", "num.partitions", "log.retention.ms"]),
        described(BROKER, "1", ["auto.create.topics.enable", "delete.topic.enable"]),
        described(BROKER, "", ["num.partitions"]),
        described(BROKER, "9", None),
        described(BROKER, "one", None),
        described(0, "x", None),
        described(77, "x", None),
    ]


def _altered(topic: str, version: int, api: str) -> Callable[..., Step]:
    def altered(*configs: Any, name: str = topic, kind: int = TOPIC, only: bool = False) -> Step:
        fields = (
            ("name", "value") if api == "alter_configs" else ("name", "config_operation", "value")
        )
        settings = [dict(zip(fields, each, strict=True)) for each in configs]
        resource = {"resource_type": kind, "resource_name": name, "configs": settings}
        return Step(api, version, {"resources": [resource], "validate_only": only})

    return altered


def alter_configs(version: int, names: Names) -> list[Step]:
    topic = names("topic")
    altered = _altered(topic, version, "alter_configs")
    seen = Step(
        "describe_configs",
        4,
        {"resources": [{"resource_type": TOPIC, "resource_name": topic}]},
    )
    seen.values["resources"][0]["configuration_keys"] = ["retention.ms", "segment.ms"]
    return [
        *ready_topic(topic, 1, retention_ms="1000"),
        altered(("segment.ms", "5000"), only=True),
        seen,
        altered(("segment.ms", "5000")),
        _soon(seen, "segment.ms", "5000"),
        altered(("no.such.setting", "1")),
        altered(("retention.ms", "soon")),
        altered(("retention.ms", None)),
        altered(("retention.ms", "1"), ("retention.ms", "2")),
        altered(("retention.ms", "1"), name=names("none")),
        altered(("retention.ms", "1"), name=""),
        altered(("retention.ms", "1"), name="a b"),
        altered(("retention.ms", "1"), kind=0),
        altered(("retention.ms", "1"), kind=77),
        altered(("log.retention.bytes", "1"), kind=BROKER, name="1", only=True),
        altered(("message.max.bytes", "1"), kind=BROKER, name="9"),
        altered(("message.max.bytes", "1"), kind=BROKER, name="one"),
        altered(),
        _soon(seen, "segment.ms", "604800000"),
    ]


def _soon(seen: Step, name: str, value: str) -> Step:
    """The same question about one setting until the change is there: Kafka answers before."""
    resources = [{**each, "configuration_keys": [name]} for each in seen.values["resources"]]
    return Step(
        seen.api,
        seen.version,
        {**seen.values, "resources": resources},
        until=Until("results.configs.value", value),
    )


def incremental_alter_configs(version: int, names: Names) -> list[Step]:
    topic = names("topic")
    altered = _altered(topic, version, "incremental_alter_configs")
    seen = Step(
        "describe_configs",
        4,
        {
            "resources": [
                {
                    "resource_type": TOPIC,
                    "resource_name": topic,
                    "configuration_keys": ["retention.ms", "cleanup.policy"],
                }
            ],
            "include_synonyms": True,
        },
    )
    twice = altered(("retention.ms", SET, "9"))
    twice.values["resources"] *= 2
    return [
        *ready_topic(topic, 1),
        altered(("retention.ms", SET, "5000"), only=True),
        altered(("retention.ms", SET, "5000")),
        _soon(seen, "retention.ms", "5000"),
        altered(("cleanup.policy", APPEND, "compact")),
        _soon(seen, "cleanup.policy", "delete,compact"),
        altered(("cleanup.policy", APPEND, "compact")),
        altered(("cleanup.policy", SUBTRACT, "delete")),
        _soon(seen, "cleanup.policy", "compact"),
        altered(("cleanup.policy", SUBTRACT, "compact")),
        altered(("retention.ms", APPEND, "1")),
        altered(("retention.ms", SUBTRACT, "1")),
        altered(("retention.ms", 9, "1")),
        altered(("retention.ms", -1, "1")),
        altered(("retention.ms", SET, None)),
        altered(("retention.ms", SET, "soon")),
        altered(("no.such.setting", SET, "1")),
        altered(("no.such.setting", DELETE, None)),
        altered(("no.such.setting", APPEND, "1")),
        altered(("retention.ms", SET, "1"), ("retention.ms", DELETE, None)),
        twice,
        altered(("retention.ms", DELETE, None)),
        _soon(seen, "retention.ms", "604800000"),
        seen,
        altered(("retention.ms", SET, "1"), name=names("none")),
        altered(("retention.ms", SET, "1"), name=""),
        altered(("retention.ms", SET, "1"), name="a b"),
        altered(("retention.ms", SET, "1"), kind=0),
        altered(("retention.ms", SET, "1"), kind=77),
        altered(("log.retention.bytes", SET, "1"), kind=BROKER, name="1", only=True),
        altered(("message.max.bytes", SET, "1"), kind=BROKER, name="9"),
        altered(("message.max.bytes", SET, "1"), kind=BROKER, name="one"),
    ]


def describe_cluster(version: int, _: Names) -> list[Step]:
    asked = {"include_cluster_authorized_operations": True, "endpoint_type": 1}
    steps = [
        Step("describe_cluster", version, asked),
        Step(
            "describe_cluster", version, {**asked, "include_cluster_authorized_operations": False}
        ),
    ]
    if version >= 1:
        steps.append(Step("describe_cluster", version, {**asked, "endpoint_type": 2}))
        steps.append(Step("describe_cluster", version, {**asked, "endpoint_type": 7}))
    if version >= 2:
        steps.append(Step("describe_cluster", version, {**asked, "include_fenced_brokers": True}))
    return steps


def describe_topic_partitions(version: int, names: Names) -> list[Step]:
    first, second = sorted((names("topic"), names("topic")))

    def described(*topics: str, limit: int = 2000, cursor: Any = None) -> Step:
        values = {
            "topics": [{"name": name} for name in topics],
            "response_partition_limit": limit,
            "cursor": cursor,
        }
        return Step("describe_topic_partitions", version, values)

    def cursor(topic: str, partition: int) -> dict[str, Any]:
        return {"topic_name": topic, "partition_index": partition}

    return [
        *ready_topic(first, 3),
        *ready_topic(second, 2),
        described(first, second),
        described(second, first, limit=2),
        described(first, second, limit=2, cursor=cursor(first, 2)),
        described(first, second, limit=3),
        described(first, second, cursor=cursor(second, 0)),
        described(first, limit=0),
        described(first, limit=-1),
        described(first, cursor=cursor(first, -1)),
        described(first, cursor=cursor(second, 0)),
        described(first, first),
        described(names("zone")),
        described("a b"),
        described(""),
    ]


def describe_log_dirs(version: int, names: Names) -> list[Step]:
    topic = names("topic")

    def described(topics: Any) -> Step:
        return Step("describe_log_dirs", version, {"topics": topics})

    return [
        *ready_topic(topic, 2),
        produce(topic, b"0", b"1"),
        described([{"topic": topic, "partitions": [0, 1]}]),
        described([{"topic": topic, "partitions": [0, 9]}]),
        described([{"topic": names("none"), "partitions": [0]}]),
        described([{"topic": topic, "partitions": []}]),
        described([]),
    ]


def elect_leaders(version: int, names: Names) -> list[Step]:
    topic = names("topic")

    def elected(topics: Any, kind: int = 0) -> Step:
        values = {"election_type": kind, "topic_partitions": topics, "timeout_ms": 30_000}
        return Step("elect_leaders", version, values)

    steps = [
        *ready_topic(topic, 2),
        elected([{"topic": topic, "partitions": [0, 1]}]),
        elected([{"topic": topic, "partitions": [0, 9]}]),
        elected([{"topic": names("none"), "partitions": [0]}]),
        elected([]),
    ]
    if version >= 1:
        steps.append(elected([{"topic": topic, "partitions": [0]}], 1))
    return steps


def list_partition_reassignments(version: int, names: Names) -> list[Step]:
    topic = names("topic")
    asked = [{"name": topic, "partition_indexes": [0, 1]}]
    unknown = [{"name": names("none"), "partition_indexes": [0]}]
    return [
        *ready_topic(topic, 2),
        *(
            Step("list_partition_reassignments", version, {"timeout_ms": 1000, "topics": topics})
            for topics in (asked, unknown, [], None)
        ),
    ]


def produce_(version: int, names: Names) -> list[Step]:
    topic, stamped, compacted, small = (names("topic") for _ in range(4))

    def sent(name: str, records: Any, **options: Any) -> Step:
        return Step("produce", version, produced(name, records, **options))

    good = batch(b"0", None, b"2", headers=[[(b"h", b"v")], [], [(b"n", None)]])
    damaged = bytearray(batch(b"x"))
    damaged[-1] ^= 1
    steps = [
        *ready_topic(topic, 2),
        *ready_topic(stamped, 1, message_timestamp_type="LogAppendTime"),
        *ready_topic(compacted, 1, cleanup_policy="compact"),
        *ready_topic(small, 1, max_message_bytes="200"),
        sent(topic, good),
        sent(topic, batch(b"1"), acks=1),
        sent(topic, batch(b"2"), partition=1),
        sent(stamped, batch(b"1")),
        sent(compacted, batch(b"1", keys=[b"k"])),
        sent(compacted, batch(b"1")),
        sent(small, batch(b"x" * 500)),
        sent(topic, bytes(damaged)),
        sent(topic, batch(b"1"), partition=9),
        sent(topic, batch(b"1"), acks=2),
        sent(topic, b""),
        sent(topic, b"short"),
        sent(topic, batch(b"1") + batch(b"2")),
        sent(topic, batch(b"1", attributes=0x20)),
        sent(topic, batch(b"1", attributes=0x10)),
        sent(topic, make_old(batch(b"1"))),
        *(
            sent(topic, batch(b"1" * 50, codec=codec))
            for codec in (1, 2, 3, 4)
            if codec < 4 or version >= 7
        ),
        Step("produce", version, produced(topic, batch(b"n"), acks=0), receive=False),
        Step(
            "list_offsets",
            5,
            offsets_asked(topic, {0: -1}),
            until=Until("topics.partitions.offset", 9 if version >= 7 else 8),
        ),
        Step("fetch", 11, fetched(topic, 0)),
        Step("fetch", 11, fetched(stamped, 0)),
    ]
    first = Records((b"once",), Saved("p"), 0, 0)
    ahead = Records((b"ahead",), Saved("p"), 0, 5)
    newer = Records((b"newer",), Saved("p"), 1, 0)
    stale = Records((b"stale",), Saved("p"), 0, 1)
    steps += [
        Step("init_producer_id", 1, {"transactional_id": None}, save={"p": "producer_id"}),
        *(sent(topic, records) for records in (first, first, ahead, newer, stale)),
        sent(names("none"), batch(b"1")),
        Step(
            "produce",
            version,
            {**produced(stamped, batch(b"1")), "transactional_id": NOT_SERVED},
        ),
    ]
    return steps


def make_old(records: bytes) -> bytes:
    """The same with the magic of a message set: no batch of today."""
    return records[:16] + b"\1" + records[17:]


def fetch(version: int, names: Names) -> list[Step]:
    topic = names("topic")

    def asked(offset: int = 0, partition: int = 0, **options: Any) -> Step:
        return Step("fetch", version, fetched(topic, offset, partition, **options))

    epochs = fetched(topic)
    epochs["topics"][0]["partitions"][0]["current_leader_epoch"] = 7
    steps = [
        *ready_topic(topic, 2),
        produce(topic, b"0", b"1", b"2"),
        produce(topic, b"3"),
        asked(),
        asked(1),
        asked(4),
        asked(3, max_bytes=1),
        asked(0, max_bytes=1),
        asked(isolation_level=1),
        asked(5),
        asked(-1),
        asked(0, 1),
        asked(0, 9),
        asked(0, min_bytes=1 << 20, max_wait_ms=1),
        Step("fetch", version, fetched(names("none"))),
    ]
    if version >= 7:
        session = Saved("session")
        values = fetched(topic, 0, session=(0, 0))
        steps += [
            Step("fetch", version, values, save={"session": "session_id"}, on="session"),
            Step("fetch", version, _in_session(topic, session, 1), on="session"),
            produce(topic, b"4"),
            Step("fetch", version, _in_session(topic, session, 2), on="session"),
            Step("fetch", version, _in_session(topic, session, 7), on="session"),
            Step("fetch", version, _in_session(topic, 123456, 1), on="other"),
            Step("fetch", version, _in_session(topic, session, -1), on="session"),
        ]
    if version >= 9:
        steps.append(Step("fetch", version, epochs))
    return steps


def _in_session(topic: str, session: Any, epoch: int) -> dict[str, Any]:
    return {**fetched(topic, 4), "session_id": session, "session_epoch": epoch, "topics": []}


def list_offsets(version: int, names: Names) -> list[Step]:
    topic = names("topic")

    def asked(time: int, partition: int = 0, isolation: int = 0) -> Step:
        values = offsets_asked(topic, {partition: time})
        return Step("list_offsets", version, {**values, "isolation_level": isolation})

    times = [T0, T0 + 20, T0 + 10]
    records = produced(topic, batch(b"0", b"1", b"2", timestamps=times))
    epochs = offsets_asked(topic, {0: -1})
    epochs["topics"][0]["partitions"][0]["current_leader_epoch"] = 7
    twice = offsets_asked(topic, {0: -1})
    twice["topics"][0]["partitions"] *= 2
    steps = [
        *ready_topic(topic, 2),
        Step("produce", 9, records),
        *(asked(time) for time in (-1, -2, 0, T0, T0 + 1, T0 + 15, T0 + 20, T0 + 21)),
        asked(-1, isolation=1),
        *(asked(time, 1) for time in (-1, -2, T0)),
        asked(-1, 9),
        asked(-7),
        Step("list_offsets", version, offsets_asked(names("none"), {0: -1})),
        Step("list_offsets", version, twice),
    ]
    if version >= 4:
        steps.append(Step("list_offsets", version, epochs))
    for time, since in ((-3, 7), (-4, 8), (-5, 9), (-6, 11)):
        if version >= since:
            steps += [asked(time), asked(time, 1)]
        else:
            steps.append(asked(time))
    return steps


def offset_for_leader_epoch(version: int, names: Names) -> list[Step]:
    topic = names("topic")

    def asked(epoch: int, current: int = -1, partition: int = 0, name: str = topic) -> Step:
        part = {"partition": partition, "current_leader_epoch": current, "leader_epoch": epoch}
        values = {"replica_id": -1, "topics": [{"topic": name, "partitions": [part]}]}
        return Step("offset_for_leader_epoch", version, values)

    return [
        *ready_topic(topic),
        produce(topic, b"0", b"1"),
        asked(0),
        asked(0, 0),
        asked(1),
        asked(-1),
        asked(0, 7),
        asked(0, partition=9),
        asked(0, name=names("none")),
    ]


def init_producer_id(version: int, _: Names) -> list[Step]:
    asked = {
        "transactional_id": None,
        "transaction_timeout_ms": 60_000,
        "producer_id": -1,
        "producer_epoch": -1,
    }
    steps = [
        Step("init_producer_id", version, asked, save={"p1": "producer_id"}),
        Step("init_producer_id", version, {**asked, "transactional_id": ""}),
    ]
    if version >= 3:
        again = {**asked, "producer_id": Saved("p1"), "producer_epoch": 0}
        steps.append(Step("init_producer_id", version, again))
    served = Until("error_code", _KAFKA_OR_ISTER)
    refused = {**asked, "transactional_id": NOT_SERVED}
    coordinator = {"key": NOT_SERVED, "key_type": 1}
    return [
        *steps,
        Step("find_coordinator", 3, coordinator, until=served),
        Step("init_producer_id", version, refused, until=served),
    ]


# Kafka makes the topic of its transactions first; Ister's refusal is final and comes at once.
_KAFKA_OR_ISTER = "0|53"
NOT_SERVED = "transactions-not-served"


def find_coordinator(version: int, names: Names) -> list[Step]:
    group = names("group")

    def asked(kind: int, *keys: str) -> Step:
        values = {"key": keys[0], "coordinator_keys": list(keys), "key_type": kind}
        return Step("find_coordinator", version, values)

    steps = [asked(0, group), asked(0, "")]
    if version >= 1:
        steps += [asked(7, group), asked(-1, group), asked(2, "no share key")]
        path = "error_code" if version < 4 else "coordinators.error_code"
        found = Until(path, _KAFKA_OR_ISTER)
        steps.append(Step("find_coordinator", version, asked(1, NOT_SERVED).values, until=found))
    if version >= 4:
        steps += [asked(0, group, names("group")), asked(0, group, group)]
    return steps


def join_group(version: int, names: Names) -> list[Step]:
    group, save = names("group"), {"m1": "member_id"}

    def join(member: Any = "", **options: Any) -> dict[str, Any]:
        return joined(group, member, **options)

    steps = [Step("join_group", version, join(), save=save)]
    if version >= 4:
        steps.append(Step("join_group", version, join(Saved("m1")), save=save))
    steps += [
        Step("sync_group", 0, synced(group, Saved("m1"), assignments=[(Saved("m1"), b"a")])),
        Step("join_group", version, join(Saved("m1"), metadata=b"new", protocols=("a", "b"))),
        Step("join_group", version, join("stranger")),
        Step("join_group", version, join(Saved("m1"), protocol_type="connect")),
        Step("join_group", version, join(Saved("m1"), protocols=())),
        Step("join_group", version, join("", protocols=())),
        Step("join_group", version, join("", protocol_type="")),
        Step("join_group", version, join(Saved("m1"), session_ms=1)),
        Step("join_group", version, join(Saved("m1"), session_ms=2**31 - 1)),
        Step("join_group", version, joined("", "")),
        Step("join_group", version, joined(names("group"), "stranger")),
    ]
    if version >= 5:
        static = names("group")
        values = joined(static, "", instance="i1")
        member = {"s1": "member_id"}
        steps += [
            Step("join_group", version, values, save=member, on="i1"),
            Step(
                "sync_group",
                3,
                synced(static, Saved("s1"), instance="i1", assignments=[(Saved("s1"), b"a")]),
            ),
            Step("join_group", version, joined(static, "other", instance="i1")),
            Step("join_group", version, values, save={"s2": "member_id"}),
            Step("heartbeat", 3, _beat(static, Saved("s1"), instance="i1")),
            Step("describe_groups", 5, {"groups": [static]}),
        ]
    return steps


def _beat(
    group: str, member: Any, generation: int = 1, instance: str | None = None
) -> dict[str, Any]:
    return {
        "group_id": group,
        "generation_id": generation,
        "member_id": member,
        "group_instance_id": instance,
    }


def sync_group(version: int, names: Names) -> list[Step]:
    group = names("group")
    steps = stable_group(group)

    def sync(member: Any, generation: int = 1, **options: Any) -> Step:
        return Step("sync_group", version, synced(group, member, generation, **options))

    steps += [
        sync(Saved("m1")),
        sync(Saved("m1"), assignments=[(Saved("m1"), b"another")]),
        sync(Saved("m1"), 2),
        sync(Saved("m1"), -1),
        sync("stranger"),
        sync(""),
        Step("sync_group", version, synced(names("group"), "m")),
        Step("sync_group", version, synced("", "m")),
    ]
    if version >= 3:
        steps.append(sync(Saved("m1"), instance="i9"))
    if version >= 5:
        nothing = synced(group, Saved("m1"))
        steps += [
            sync(Saved("m1"), protocol="sticky"),
            sync(Saved("m1"), protocol_type="connect"),
            Step("sync_group", version, {**nothing, "protocol_name": None}),
            Step("sync_group", version, {**nothing, "protocol_type": None}),
        ]
    return steps


def heartbeat(version: int, names: Names) -> list[Step]:
    group = names("group")
    steps = [
        *stable_group(group),
        Step("heartbeat", version, _beat(group, Saved("m1"))),
        Step("heartbeat", version, _beat(group, Saved("m1"), 2)),
        Step("heartbeat", version, _beat(group, Saved("m1"), -1)),
        Step("heartbeat", version, _beat(group, "stranger")),
        Step("heartbeat", version, _beat(group, "")),
        Step("heartbeat", version, _beat(names("group"), "m")),
        Step("heartbeat", version, _beat("", "m")),
    ]
    if version >= 3:
        steps.append(Step("heartbeat", version, _beat(group, Saved("m1"), instance="i9")))
    return steps


def leave_group(version: int, names: Names) -> list[Step]:
    group, static = names("group"), names("group")

    def leave(name: str, *members: dict[str, Any]) -> Step:
        values = {"group_id": name, "member_id": members[0]["member_id"], "members": list(members)}
        return Step("leave_group", version, values)

    def member(member_id: Any, instance: str | None = None) -> dict[str, Any]:
        return {"member_id": member_id, "group_instance_id": instance, "reason": "done"}

    steps = [
        *stable_group(group),
        leave(group, member("stranger")),
        leave(group, member(Saved("m1"))),
        leave(group, member(Saved("m1"))),
        leave(names("group"), member("m")),
        leave("", member("m")),
        Step("describe_groups", 4, {"groups": [group]}),
    ]
    if version >= 3:
        steps += [
            *stable_group(static, "s1", instance="i1"),
            leave(static, member("", "i9"), member("x", "i1")),
            leave(static, member("", "i1"), member("stranger")),
        ]
    return steps


def describe_groups(version: int, names: Names) -> list[Step]:
    group, simple, topic = names("group"), names("group"), names("topic")

    def described(*groups: str, allowed: bool = True) -> Step:
        values = {"groups": list(groups), "include_authorized_operations": allowed}
        return Step("describe_groups", version, values)

    leaving = {"group_id": group, "members": [{"member_id": Saved("m1")}]}
    return [
        *ready_topic(topic),
        *stable_group(group),
        Step("offset_commit", 5, committed(simple, topic, {0: 3})),
        described(group),
        described(group, simple, names("group"), allowed=False),
        described(""),
        described(),
        Step("leave_group", 3, leaving),
        described(group),
    ]


def list_groups(version: int, names: Names) -> list[Step]:
    group, simple, topic = names("group"), names("group"), names("topic")
    own = group.rpartition("-")[2]

    def listed(**filters: list[str]) -> Step:
        values = {"states_filter": [], "types_filter": [], **filters}
        return Step("list_groups", version, values, own=own)

    steps = [
        *ready_topic(topic),
        *stable_group(group),
        Step("offset_commit", 5, committed(simple, topic, {0: 3})),
        listed(),
    ]
    if version >= 4:
        steps += [listed(states_filter=[each]) for each in ("Stable", "empty", "Dead", "nonsense")]
    if version >= 5:
        steps += [listed(types_filter=[each]) for each in ("classic", "Consumer", "nonsense")]
    return steps


def delete_groups(version: int, names: Names) -> list[Step]:
    group, simple, topic = names("group"), names("group"), names("topic")

    def deletion(*groups: str) -> Step:
        return Step("delete_groups", version, {"groups_names": list(groups)})

    return [
        *ready_topic(topic),
        *stable_group(group),
        Step("offset_commit", 5, committed(simple, topic, {0: 3})),
        deletion(group),
        deletion(simple),
        deletion(simple),
        deletion(""),
        deletion(names("group"), group),
        Step("offset_fetch", 5, cursors_asked(simple, {topic: [0]})),
    ]


def offset_commit(version: int, names: Names) -> list[Step]:
    group, simple, topic, none = names("group"), names("group"), names("topic"), names("none")

    def commit(name: str, topic: str, offsets: dict[int, int], **options: Any) -> Step:
        return Step("offset_commit", version, committed(name, topic, offsets, **options))

    steps = [
        *ready_topic(topic, 2),
        *stable_group(group),
        commit(simple, topic, {0: 3, 1: 0}),
        commit(simple, topic, {0: 1}, metadata=None),
        commit(simple, topic, {0: 2}, metadata=""),
        commit(simple, topic, {0: 2}, metadata="x" * 5000),
        commit(simple, topic, {0: -1}),
        commit(simple, topic, {9: 1}),
        commit(simple, none, {0: 1}),
        commit(simple, topic, {0: 1}, generation=1),
        commit(simple, topic, {0: 1}, member="m"),
        commit(names("group"), topic, {0: 1}, generation=1),
        commit("", topic, {0: 1}),
        commit(group, topic, {0: 1}),
        commit(group, topic, {0: 1}, member=Saved("m1"), generation=1),
        commit(group, topic, {0: 1}, member=Saved("m1"), generation=2),
        commit(group, topic, {0: 1}, member=Saved("m1"), generation=0),
        commit(group, topic, {0: 1}, member="stranger", generation=1),
        Step("offset_fetch", 5, cursors_asked(simple, {topic: [0, 1]})),
        Step("offset_fetch", 5, cursors_asked(group, {topic: [0, 1]})),
    ]
    if version >= 7:
        steps.append(commit(group, topic, {0: 1}, member=Saved("m1"), generation=1, instance="i9"))
    return steps


def offset_fetch(version: int, names: Names) -> list[Step]:
    group, topic, none = names("group"), names("topic"), names("none")

    def asked(name: str, topics: dict[str, list[int]] | None) -> Step:
        return Step("offset_fetch", version, cursors_asked(name, topics))

    steps = [
        *ready_topic(topic, 3),
        Step("offset_commit", 6, committed(group, topic, {0: 3, 1: 7}, metadata="m")),
        asked(group, {topic: [0, 1, 2]}),
        asked(group, {topic: [9]}),
        asked(group, {none: [0]}),
        asked(names("group"), {topic: [0]}),
        asked("", {topic: [0]}),
        asked(group, {}),
    ]
    if version >= 2:
        steps += [asked(group, None), asked(names("group"), None)]
    if version >= 8:
        several = cursors_asked(group, {topic: [0]})
        several["groups"] += cursors_asked(names("group"), {topic: [1]})["groups"]
        steps.append(Step("offset_fetch", version, several))
    return steps


def offset_delete(version: int, names: Names) -> list[Step]:
    group, simple, topic = names("group"), names("group"), names("topic")

    def deletion(name: str, topics: dict[str, list[int]]) -> Step:
        asked = [
            {"name": each, "partitions": [{"partition_index": index} for index in indexes]}
            for each, indexes in topics.items()
        ]
        return Step("offset_delete", version, {"group_id": name, "topics": asked})

    return [
        *ready_topic(topic, 2),
        *stable_group(group),
        Step("offset_commit", 5, committed(simple, topic, {0: 3, 1: 4})),
        deletion(simple, {topic: [0]}),
        deletion(simple, {topic: [0, 9]}),
        deletion(simple, {names("none"): [0]}),
        deletion(names("group"), {topic: [0]}),
        deletion("", {topic: [0]}),
        deletion(group, {topic: [0]}),
        Step("offset_fetch", 5, cursors_asked(simple, {topic: [0, 1]})),
    ]


SCENARIOS: dict[str, Scenario] = {
    each.__name__.rstrip("_"): each
    for each in (
        alter_configs,
        api_versions,
        create_partitions,
        create_topics,
        delete_groups,
        delete_records,
        delete_topics,
        describe_cluster,
        describe_configs,
        describe_groups,
        describe_log_dirs,
        describe_topic_partitions,
        elect_leaders,
        fetch,
        find_coordinator,
        heartbeat,
        incremental_alter_configs,
        init_producer_id,
        join_group,
        leave_group,
        list_groups,
        list_offsets,
        list_partition_reassignments,
        metadata,
        offset_commit,
        offset_delete,
        offset_fetch,
        offset_for_leader_epoch,
        produce_,
        sync_group,
    )
}
