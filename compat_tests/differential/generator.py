"""Sequences of requests from a seed: topics, settings, records, offsets, groups, and mistakes.

A sequence is a list of *moves*, each a few steps that belong together, so that a sequence can
be shortened by leaving moves out. Names carry a stem of the run: the same seed with another
stem is the same sequence on topics and groups that nobody has used. What a move does depends
on the seed alone, never on an answer.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from compat_tests.differential import requests as ask
from compat_tests.differential.requests import T0, batch
from compat_tests.differential.steps import Records, Saved, Step, TopicId
from ister.gateway.protocol.api import ApiKey
from ister.gateway.router import APIS

Move = list[Step]
MOVES = 30
PARTITIONS = 2
_BAD_NAMES = ("", ".", "a b", "x" * 250)
_CONFIGS = (
    ("retention.ms", ("1000", "-1", "soon", "-2", "")),
    ("segment.bytes", ("1048576", "1", "big")),
    ("cleanup.policy", ("delete", "burn")),
    ("min.insync.replicas", ("1", "0")),
    ("no.such.setting", ("1",)),
)


class Generator:
    def __init__(self, seed: int, stem: str) -> None:
        self._random = random.Random(seed)
        self._stem = stem
        self._members: dict[str, str] = {}  # group -> the member that is in it
        self._members_made = 0
        self._sessions = 0
        self._sequences: dict[int, int] = {}  # partition -> next of the idempotent producer

    def moves(self, count: int = MOVES) -> list[Move]:
        """The first ones make what the others work on."""
        made = [self._new_topic("a"), self._new_topic("b"), self._new_producer()]
        return made + [self._random.choice(_MOVES)(self) for _ in range(count)]

    # -- choices -------------------------------------------------------------------------

    def _name(self, kind: str) -> str:
        return f"{kind}-{self._stem}"

    def _version(self, api: str, at_least: int = 0) -> int:
        low, high = APIS[ApiKey[api.upper()]].versions
        highest = {"delete_groups": 2}.get(api, high)  # version 3 is of a Kafka to come
        return self._random.randint(max(low, at_least), highest)

    def _step(self, api: str, values: dict[str, Any], at_least: int = 0, **options: Any) -> Step:
        return Step(api, self._version(api, at_least), values, **options)

    def _topic(self) -> str:
        return self._name(self._random.choice(("a", "a", "a", "b", "b", "none")))

    def _partition(self) -> int:
        return self._random.choice((0, 0, 0, 1, 1, 7, -1))

    def _offset(self) -> int:
        return self._random.choice((0, 0, 1, 2, 3, 5, 8, 13, -1, -2, 10_000))

    def _group(self) -> str:
        return self._random.choice((self._name("g"), self._name("h"), self._name("none"), ""))

    def _new_topic(self, kind: str) -> Move:
        return [Step("create_topics", 7, ask.creation(self._name(kind), PARTITIONS))]

    def _new_producer(self) -> Move:
        values = {"transactional_id": None, "transaction_timeout_ms": 60_000}
        return [self._step("init_producer_id", values, save={"producer": "producer_id"})]

    # -- topics --------------------------------------------------------------------------

    def create(self) -> Move:
        name = self._random.choice((self._name("c"), self._name("a"), *_BAD_NAMES))
        configs = {}
        if self._random.random() < 0.5:
            setting, values = self._random.choice(_CONFIGS)
            configs[setting] = self._random.choice(values)
        partitions = self._random.choice((1, 2, 0, -2, -1))
        replicas = self._random.choice((1, 1, 1, 0, 2, -1))
        asked = ask.creation(name, partitions, configs, replicas)
        asked["validate_only"] = self._random.random() < 0.2
        # Below 4 the defaults cannot be asked for, and below 7 an id is told nowhere.
        return [self._step("create_topics", asked, at_least=4)]

    def delete(self) -> Move:
        name = self._random.choice((self._name("c"), self._name("none"), "a b"))
        asked = {"topic_names": [name], "topics": [{"name": name}], "timeout_ms": 30_000}
        return [self._step("delete_topics", asked)]

    def grow(self) -> Move:
        name = self._random.choice((self._name("c"), self._name("none")))
        topic = {"name": name, "count": self._random.choice((1, 2, 3, 4, 0)), "assignments": None}
        return [self._step("create_partitions", {"topics": [topic], "timeout_ms": 30_000})]

    def configure(self) -> Move:
        setting, values = self._random.choice(_CONFIGS)
        operation = self._random.choice((0, 0, 1))
        value = self._random.choice((*values, None)) if operation == 0 else None
        change = {"name": setting, "config_operation": operation, "value": value}
        name = self._random.choice((self._name("c"), self._name("none"), ""))
        resource = {"resource_type": 2, "resource_name": name, "configs": [change]}
        asked = {"resources": [resource], "validate_only": self._random.random() < 0.2}
        return [self._step("incremental_alter_configs", asked)]

    def describe_settings(self) -> Move:
        names = self._random.sample([name for name, _ in _CONFIGS], 2)
        name = self._random.choice((self._name("c"), self._topic(), "a b"))
        resource = {"resource_type": 2, "resource_name": name, "configuration_keys": names}
        asked = {"resources": [resource], "include_synonyms": True}
        return [self._step("describe_configs", asked)]

    def metadata(self) -> Move:
        topics = [{"name": self._topic()}, {"name": self._name("c")}]
        if self._random.random() < 0.2:
            topics.append({"name": self._random.choice(_BAD_NAMES)})
        asked = {"topics": topics, "allow_auto_topic_creation": False}
        return [self._step("metadata", asked, at_least=4)]

    def describe_partitions(self) -> Move:
        topics = [{"name": each} for each in {self._topic(), self._name("c")}]
        asked = {"topics": topics, "response_partition_limit": self._random.choice((2000, 1, 3))}
        return [self._step("describe_topic_partitions", asked)]

    # -- records -------------------------------------------------------------------------

    def produce(self) -> Move:
        count = self._random.choice((1, 1, 2, 3))
        values = [self._random.randbytes(self._random.choice((0, 3, 40))) for _ in range(count)]
        codec = self._random.choice((0, 0, 0, 1, 2, 3, 4))
        times = sorted(T0 + self._random.randrange(100) for _ in values)
        records = batch(*values, codec=codec, timestamps=times)
        if self._random.random() < 0.1:
            records = records[:-1] + bytes([records[-1] ^ 1])
        acks = self._random.choice((-1, -1, 1, 2))
        asked = ask.produced(self._topic(), records, self._partition(), acks)
        return [self._step("produce", asked, at_least=7)]

    def produce_in_sequence(self) -> Move:
        partition = self._random.choice((0, 1))
        following = self._sequences.get(partition, 0)
        sequence = max(0, following + self._random.choice((0, 0, 0, -1, 1)))
        epoch = self._random.choice((0, 0, 0, 0, 1)) if following == 0 else 0
        if sequence == following:
            self._sequences[partition] = following + 1
        records = Records((b"idempotent",), Saved("producer"), epoch, sequence)
        asked = ask.produced(self._name("b"), b"", partition)
        asked["topic_data"][0]["partition_data"][0]["records"] = records
        return [self._step("produce", asked, at_least=7)]

    def fetch(self) -> Move:
        size = self._random.choice((1 << 20, 1 << 20, 1, 200))
        isolation = self._random.choice((0, 0, 1))
        asked = ask.fetched(
            self._topic(),
            self._offset(),
            self._partition(),
            max_bytes=size,
            isolation_level=isolation,
        )
        return [self._step("fetch", asked)]

    def look_up(self) -> Move:
        time = self._random.choice((-1, -2, -3, -4, -9, T0, T0 + 50, T0 + 100, 0))
        asked = ask.offsets_asked(self._topic(), {self._partition(): time})
        asked["isolation_level"] = self._random.choice((0, 1))
        return [self._step("list_offsets", asked)]

    def look_up_epoch(self) -> Move:
        part = {
            "partition": self._partition(),
            "current_leader_epoch": self._random.choice((-1, 0, 3)),
            "leader_epoch": self._random.choice((0, 1, -1)),
        }
        asked = {"replica_id": -1, "topics": [{"topic": self._topic(), "partitions": [part]}]}
        return [self._step("offset_for_leader_epoch", asked)]

    def delete_records(self) -> Move:
        part = {"partition_index": self._partition(), "offset": self._offset()}
        asked = {"topics": [{"name": self._topic(), "partitions": [part]}], "timeout_ms": 30_000}
        return [self._step("delete_records", asked)]

    # -- several at once -----------------------------------------------------------------

    def _several(self) -> list[tuple[str, int]]:
        """Places, each once; the topics may be known or not."""
        places = {(self._topic(), self._partition()) for _ in range(self._random.choice((2, 3)))}
        return sorted(places)

    def produce_several(self) -> Move:
        topics: dict[str, dict[str, Any]] = {}
        for name, partition in self._several():
            one = ask.produced(name, batch(b"several"), partition)["topic_data"][0]
            known = topics.setdefault(name, {**one, "partition_data": []})
            known["partition_data"] += one["partition_data"]
        asked = {**ask.produced("", b""), "topic_data": list(topics.values())}
        return [self._step("produce", asked, at_least=7)]

    def fetch_several(self) -> Move:
        topics: dict[str, dict[str, Any]] = {}
        for name, partition in self._several():
            one = ask.fetched(name, self._random.choice((0, 1, 2)), partition)["topics"][0]
            known = topics.setdefault(name, {**one, "partitions": []})
            known["partitions"] += one["partitions"]
        asked = {**ask.fetched(""), "topics": list(topics.values())}
        return [self._step("fetch", asked)]

    def look_up_several(self) -> Move:
        topics: dict[str, dict[str, Any]] = {}
        for name, partition in self._several():
            one = ask.offsets_asked(name, {partition: self._random.choice((-1, -2, T0))})
            known = topics.setdefault(name, {"name": name, "partitions": []})
            known["partitions"] += one["topics"][0]["partitions"]
        return [self._step("list_offsets", {"replica_id": -1, "topics": list(topics.values())})]

    def fetch_session(self) -> Move:
        """A session of its own: made, gone on with, asked in the wrong order, ended."""
        self._sessions += 1
        name = f"session-{self._sessions}"
        version = self._version("fetch", 7)
        topic = self._name(self._random.choice(("a", "b")))
        full = ask.fetched(topic, self._random.choice((0, 1)), session=(0, 0))
        more = ask.fetched(topic, 0, 1)["topics"]
        steps = [Step("fetch", version, full, on=name, save={name: "session_id"})]
        epochs = [1, 2, self._random.choice((3, 7)), -1]
        for epoch in epochs:
            asked = {**full, "session_id": Saved(name, 0), "session_epoch": epoch}
            asked["topics"] = more if self._random.random() < 0.5 else []
            if self._random.random() < 0.3:
                gone = {"topic": topic, "topic_id": TopicId(topic), "partitions": [0]}
                asked["forgotten_topics_data"] = [gone]
            steps.append(Step("fetch", version, asked, on=name))
        return steps

    # -- groups --------------------------------------------------------------------------

    def join(self) -> Move:
        """A member in a group that has none; the first half of its moves."""
        group = self._random.choice((self._name("g"), self._name("h")))
        if group in self._members:
            return self.heartbeat()
        self._members_made += 1
        member = self._members[group] = f"m{self._members_made}"
        save = {member: "member_id", f"{member}-generation": "generation_id"}
        version = self._version("join_group", 4)
        sync = ask.synced(group, Saved(member), assignments=[(Saved(member), member.encode())])
        sync["generation_id"] = Saved(f"{member}-generation", 0)
        metadata = member.encode()
        return [
            Step("join_group", version, ask.joined(group, metadata=metadata), save=save),
            Step(
                "join_group",
                version,
                ask.joined(group, Saved(member), metadata=metadata),
                save=save,
            ),
            self._step("sync_group", sync),
        ]

    def _who(self) -> tuple[str, Any, Any]:
        """A group, a member and a generation that may or may not fit together."""
        group = self._group()
        member = self._members.get(group, "m1")
        who = self._random.choice((Saved(member), Saved(member), Saved(member), "stranger", ""))
        told = Saved(f"{member}-generation", 0)
        generation = self._random.choice((told, told, told, 99))
        return group, who, generation

    def heartbeat(self) -> Move:
        group, who, generation = self._who()
        asked = {"group_id": group, "member_id": who, "generation_id": generation}
        return [self._step("heartbeat", asked)]

    def sync(self) -> Move:
        group, who, generation = self._who()
        asked = {**ask.synced(group, who), "generation_id": generation}
        return [self._step("sync_group", asked)]

    def commit(self) -> Move:
        group, who, generation = self._who()
        if self._random.random() < 0.3:
            who, generation = "", -1
        offsets = {self._partition(): self._random.choice((0, 1, 7))}
        # The group without a name is one for all sequences, so nothing is left in it.
        words = self._random.choice(("", "words"))
        name = group or self._name("h")
        asked = ask.committed(name, self._topic(), offsets, member=who, metadata=words)
        asked["generation_id_or_member_epoch"] = generation
        return [self._step("offset_commit", asked)]

    def fetch_cursors(self) -> Move:
        group = self._group()
        topics = {self._topic(): [self._partition()]}
        everything = self._random.random() < 0.3
        version = self._version("offset_fetch", 2)
        asked = ask.cursors_asked(group, None if everything else topics)
        return [Step("offset_fetch", version, asked)]

    def delete_cursors(self) -> Move:
        parts = [{"partition_index": self._partition()}]
        asked = {
            "group_id": self._group(),
            "topics": [{"name": self._topic(), "partitions": parts}],
        }
        return [self._step("offset_delete", asked)]

    def leave(self) -> Move:
        group, who, _ = self._who()
        if isinstance(who, Saved) and self._members.get(group) == who.name:
            del self._members[group]
        asked = {"group_id": group, "member_id": who, "members": [{"member_id": who}]}
        return [self._step("leave_group", asked)]

    def describe_group(self) -> Move:
        asked = {"groups": [self._group()], "include_authorized_operations": True}
        return [self._step("describe_groups", asked)]

    def list_groups(self) -> Move:
        return [self._step("list_groups", {}, own=self._stem)]

    def delete_group(self) -> Move:
        return [self._step("delete_groups", {"groups_names": [self._group()]})]

    def static_member(self) -> Move:
        """A group of its own whose member has a name that outlives its process (KIP-345)."""
        group = f"{self._name('static')}-{self._random.getrandbits(32):08x}"
        first, second = f"{group}-1", f"{group}-2"
        version = self._version("join_group", 5)
        joined = ask.joined(group, instance="i")
        synced = ask.synced(group, Saved(first), instance="i", assignments=[(Saved(first), b"a")])
        beat = {"group_id": group, "generation_id": 1, "group_instance_id": "i"}
        leaving = [{"member_id": "", "group_instance_id": self._random.choice(("i", "j"))}]
        return [
            Step("join_group", version, joined, save={first: "member_id"}),
            Step("sync_group", self._version("sync_group", 3), synced),
            Step("join_group", version, joined, save={second: "member_id"}),
            Step("heartbeat", 4, {**beat, "member_id": Saved(first)}),
            Step("heartbeat", 4, {**beat, "member_id": Saved(second)}),
            Step("describe_groups", 5, {"groups": [group]}),
            self._step("leave_group", {"group_id": group, "members": leaving}, at_least=3),
            Step("describe_groups", 5, {"groups": [group]}),
        ]

    def two_members(self) -> Move:
        """A group of its own in which a second member makes the first one come again."""
        group = f"{self._name('two')}-{self._random.getrandbits(32):08x}"
        first, second = f"{group}-1", f"{group}-2"
        both = [(Saved(first), b"one"), (Saved(second), b"two")]
        joins = self._version("join_group", 4)
        syncs = self._version("sync_group")
        follower = ask.synced(group, Saved(second), 2)
        return [
            Step("join_group", joins, ask.joined(group, metadata=b"1"), save={first: "member_id"}),
            Step("join_group", joins, ask.joined(group, Saved(first), metadata=b"1")),
            Step("sync_group", syncs, ask.synced(group, Saved(first), assignments=both[:1])),
            Step(
                "join_group",
                joins,
                ask.joined(group, metadata=b"2"),
                on=second,
                save={second: "member_id"},
            ),
            Step(
                "join_group",
                joins,
                ask.joined(group, Saved(second), metadata=b"2"),
                on=second,
                receive=False,
            ),
            Step(
                "heartbeat",
                4,
                {"group_id": group, "member_id": Saved(first), "generation_id": 1},
                until=ask.REBALANCING,
            ),
            Step("join_group", joins, ask.joined(group, Saved(first), metadata=b"1")),
            Step("join_group", joins, {}, on=second, send=False),
            Step("sync_group", syncs, follower, on=second, receive=False),
            Step("sync_group", syncs, ask.synced(group, Saved(first), 2, assignments=both)),
            Step("sync_group", syncs, {}, on=second, send=False),
            Step("describe_groups", 5, {"groups": [group]}),
        ]


_MOVES: list[Callable[[Generator], Move]] = [
    Generator.create,
    Generator.delete,
    Generator.grow,
    Generator.configure,
    Generator.describe_settings,
    Generator.metadata,
    Generator.describe_partitions,
    Generator.produce,
    Generator.produce,
    Generator.produce,
    Generator.produce_in_sequence,
    Generator.produce_in_sequence,
    Generator.fetch,
    Generator.fetch,
    Generator.look_up,
    Generator.look_up_epoch,
    Generator.delete_records,
    Generator.join,
    Generator.join,
    Generator.heartbeat,
    Generator.sync,
    Generator.commit,
    Generator.commit,
    Generator.fetch_cursors,
    Generator.fetch_cursors,
    Generator.delete_cursors,
    Generator.leave,
    Generator.describe_group,
    Generator.list_groups,
    Generator.delete_group,
    Generator.two_members,
    Generator.static_member,
    Generator.produce_several,
    Generator.fetch_several,
    Generator.look_up_several,
    Generator.fetch_session,
]
