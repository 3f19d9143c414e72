"""The clients, each as a process that takes commands; what each can do; how a case calls it.

A runner (one per client, in its own language) reads one JSON command per line and answers
one JSON line; `README.md` lists the commands. `Client` is the typed front that cases use:
the same case drives every client that is able to do what the case needs.

A client that does not answer is killed and started anew at the next command, so that one
hanging case does not spoil the next.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from compat_tests.tools import go_client, jars, node, node_packages
from compat_tests.waiting import wait_for

UNKNOWN_TOPIC_OR_PARTITION = 3
ROOT = Path(__file__).parent.parent


class ClientError(Exception):
    """A client's refusal, with Kafka's number for it."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"[{code}] {text}")
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A record, sent or read."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int | None = None
    partition: int | None = 0
    offset: int = -1
    topic: str = ""
    log_append_time: bool | None = None

    def command(self) -> dict[str, Any]:
        return {
            "partition": self.partition,
            "key": _encode(self.key),
            "value": _encode(self.value),
            "headers": [[name, _encode(value)] for name, value in self.headers],
            "timestamp": self.timestamp,
        }

    @classmethod
    def answer(cls, found: dict[str, Any]) -> Record:
        return cls(
            topic=found["topic"],
            partition=found["partition"],
            offset=found["offset"],
            key=_decode(found["key"]),
            value=_decode(found["value"]),
            headers=tuple((name, _decode(value)) for name, value in found["headers"] or ()),
            timestamp=found["timestamp"],
            log_append_time=found.get("log_append_time"),
        )


@dataclass(slots=True)
class Look:
    """What a member of a group shows."""

    records: list[Record]
    assignment: list[tuple[str, int]]
    error: int | None


@dataclass(frozen=True, slots=True)
class Kind:
    """A client: how its runner is started and what it cannot do."""

    name: str
    command: Callable[[], list[str]]
    lacks: frozenset[str] = frozenset()

    def can(self, needs: Iterable[str]) -> bool:
        return self.lacks.isdisjoint(needs)


@dataclass(slots=True)
class Runner:
    """The process of a client; started by the first command."""

    kind: Kind
    log_path: Path
    _process: subprocess.Popen[str] | None = field(default=None, init=False)

    def prepare(self) -> None:
        """Have everything made that it needs: minutes, once per machine."""
        self.kind.command()

    def do(self, name: str, **arguments: Any) -> dict[str, Any]:
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps({"do": name, **arguments}) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BaseException:  # the case's time is over: what comes later is no answer to it
            self.kill()
            raise
        if not line:
            self.kill()
            raise AssertionError(f"{self.kind.name} ended; its log: {self.log_path}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise ClientError(answer["error"]["code"], answer["error"]["text"])
        found: dict[str, Any] = answer["ok"]
        return found

    def kill(self) -> None:
        """As a machine dies: no farewell to the broker."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            _finish(process)

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
            _finish(process)

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            with self.log_path.open("ab") as log:
                self._process = _start(self.kind.command(), log)
        return self._process


@dataclass(frozen=True, slots=True)
class Client:
    """One client, aimed at one broker. Names of commands and arguments as in `README.md`."""

    runner: Runner
    bootstrap: str
    # Kafka answers CreateTopics before its own metadata has the topic.
    waits_for_topics: bool = False

    @property
    def name(self) -> str:
        return self.runner.kind.name

    def can(self, *needs: str) -> bool:
        return self.runner.kind.can(needs)

    def do(self, name: str, **arguments: Any) -> dict[str, Any]:
        return self.runner.do(name, bootstrap=self.bootstrap, **arguments)

    # -- records -----------------------------------------------------------------------

    def produce(self, topic: str, records: Iterable[Record], **options: Any) -> list[list[int]]:
        """Partition and offset of each record, in the order of the records."""
        commands = [each.command() for each in records]
        placed: list[list[int]] = self.do("produce", topic=topic, records=commands, **options)[
            "placed"
        ]
        return placed

    def read(
        self,
        topic: str,
        count: int,
        *,
        partition: int = 0,
        offset: int | str = "earliest",
        wait_s: float = 30,
        **options: int,
    ) -> list[Record]:
        """At least `count` records from `offset` on, fewer when the time is over."""
        found = self.do(
            "read",
            topic=topic,
            partition=partition,
            offset=offset,
            count=count,
            wait_s=wait_s,
            options=options,
        )
        return [Record.answer(each) for each in found["records"]]

    def offset(self, topic: str, at: int | str, partition: int = 0) -> int:
        return int(self.do("offset", topic=topic, partition=partition, at=at)["offset"])

    # -- topics ------------------------------------------------------------------------

    def create_topic(
        self, topic: str, partitions: int = 1, replicas: int = 1, **configs: str
    ) -> None:
        named = {name.replace("_", "."): value for name, value in configs.items()}
        self.do(
            "create_topic", topic=topic, partitions=partitions, replicas=replicas, configs=named
        )
        if self.waits_for_topics:
            wait_for(lambda: self._is_known(topic), f"{topic} is known")

    def _is_known(self, topic: str) -> bool:
        try:
            self.describe_topic(topic)
        except ClientError as error:
            if error.code != UNKNOWN_TOPIC_OR_PARTITION:
                raise
            return False
        return True

    def delete_topic(self, topic: str) -> None:
        self.do("delete_topic", topic=topic)

    def add_partitions(self, topic: str, total: int) -> None:
        self.do("add_partitions", topic=topic, total=total)

    def topics(self) -> list[str]:
        return list(self.do("topics")["names"])

    def describe_topic(self, topic: str) -> int:
        """The number of partitions."""
        return int(self.do("describe_topic", topic=topic)["partitions"])

    def topic_configs(self, topic: str) -> dict[str, str]:
        return dict(self.do("topic_configs", topic=topic)["values"])

    def set_topic_config(self, topic: str, name: str, value: str) -> None:
        self.do("set_topic_config", topic=topic, values={name: value})

    def delete_records(self, topic: str, before: int, partition: int = 0) -> int:
        """The new first offset."""
        found = self.do("delete_records", topic=topic, partition=partition, before=before)
        return int(found["low"])

    # -- groups ------------------------------------------------------------------------

    def groups(self) -> list[str]:
        return list(self.do("groups")["names"])

    def describe_group(self, group: str) -> tuple[str, int]:
        """State and number of members."""
        found = self.do("describe_group", group=group)
        return found["state"], found["members"]

    def delete_group(self, group: str) -> None:
        self.do("delete_group", group=group)

    def committed(self, group: str, topic: str, partition: int = 0) -> tuple[int, str]:
        """Offset (-1: none) and metadata."""
        found = self.do("committed", group=group, topic=topic, partition=partition)
        return found["offset"], found["metadata"] or ""

    def set_committed(self, group: str, topic: str, offset: int, partition: int = 0) -> None:
        self.do("set_committed", group=group, topic=topic, partition=partition, offset=offset)

    def join(self, member: str, group: str, topics: list[str], **options: Any) -> None:
        self.do("join", member=member, group=group, topics=topics, **options)

    def look(self, member: str) -> Look:
        found = self.do("look", member=member)
        return Look(
            records=[Record.answer(each) for each in found["records"] or ()],
            assignment=[(topic, partition) for topic, partition in found["assignment"] or ()],
            error=found["error"]["code"] if found.get("error") else None,
        )

    def commit(self, member: str, *offsets: tuple[str, int, int, str]) -> None:
        """Topic, partition, offset, metadata each; nothing: all that was read."""
        self.do("commit", member=member, offsets=offsets or None)

    def leave(self, member: str) -> None:
        self.do("leave", member=member)


def _start(command: list[str], log: IO[bytes]) -> subprocess.Popen[str]:
    return subprocess.Popen(  # noqa: S603 - runners of this package only
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, cwd=ROOT
    )


def _finish(process: subprocess.Popen[str]) -> None:
    process.wait()
    for stream in (process.stdin, process.stdout):
        assert stream is not None
        stream.close()


def _encode(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _decode(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _python(module: str) -> Callable[[], list[str]]:
    return lambda: [sys.executable, "-m", module]


def _java(lock: str) -> Callable[[], list[str]]:
    def command() -> list[str]:
        jars.jars(lock)  # here, where waiting for them does not count as the case's time
        return [sys.executable, "-m", "compat_tests.java.runner", lock]

    return command


def _go(program: str) -> Callable[[], list[str]]:
    return lambda: [str(go_client(program))]


def _node(program: str) -> Callable[[], list[str]]:
    script = Path(__file__).parent / "node" / program
    return lambda: [node(), str(script), str(node_packages())]


KINDS = [
    Kind("kafka-python", _python("compat_tests.kafka_python.runner"), frozenset({"null_header"})),
    Kind(
        "aiokafka",
        _python("compat_tests.aiokafka.runner"),
        # "static": it commits without its instance id, so it is never told that it is fenced
        frozenset({"cooperative-sticky", "max_timestamp", "delete_group", "static"}),
    ),
    Kind(
        "confluent-kafka",
        _python("compat_tests.confluent.runner"),
        frozenset({"sticky"}),  # librdkafka has range, roundrobin and cooperative-sticky
    ),
    Kind("java-3.4", _java("kafka-clients-3.4.1")),
    Kind("java-3.9", _java("kafka-clients-3.9.1")),
    Kind("java-4.3", _java("kafka-4.3.1")),
    Kind("franz-go", _go("franz")),
    Kind(
        "sarama",
        _go("sarama"),
        frozenset({"cooperative-sticky", "max_timestamp", "timestamp_type"}),
    ),
    Kind(
        "kafka-go",
        _go("kafkago"),
        # "nulls": it reads an empty value as none; "log_append_time": it reads what was sent
        frozenset(
            {
                "auto_create",
                "cooperative-sticky",
                "delete_records",
                "idempotent",
                "log_append_time",
                "max_timestamp",
                "metadata",
                "nulls",
                "static",
                "sticky",
                "timestamp_type",
            }
        ),
    ),
    Kind(
        "kafkajs",
        _node("kafkajs.mjs"),
        # "header_order": it keeps headers by name; "range" and others: it has roundrobin alone;
        # "set_committed": it reads from a group for five seconds to do so
        frozenset(
            {
                "cooperative-sticky",
                "header_order",
                "lz4",
                "max_timestamp",
                "no_offset_after",
                "no_reset",
                "null_header",
                "range",
                "reset_of_active",
                "set_committed",
                "static",
                "sticky",
                "timestamp_type",
            }
        ),
    ),
    Kind(
        "platformatic",
        _node("platformatic.mjs"),
        # "log_append_time": it reads what was sent; "no_reset": it tries again for ever;
        # "static": a fenced member is told nothing
        frozenset(
            {
                "cooperative-sticky",
                "log_append_time",
                "metadata",
                "no_reset",
                "null_header",
                "range",
                "static",
                "sticky",
            }
        ),
    ),
]
