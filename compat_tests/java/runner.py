"""Java's own client under the runners' commands: `python -m compat_tests.java.runner LOCK`.

One process per version of kafka-clients: a JVM inside Python (JPype), because a Java without
a compiler can run classes but not make any. LOCK names the archives (`tools/locks`).
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import Any

import jpype

from compat_tests import runner
from compat_tests.runner import Answer, Failure, Offsets
from compat_tests.tools import jars, java

ASSIGNORS = {
    "range": "RangeAssignor",
    "roundrobin": "RoundRobinAssignor",
    "sticky": "StickyAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
}
READ_OPTIONS = {
    "max_bytes": "fetch.max.bytes",
    "partition_max_bytes": "max.partition.fetch.bytes",
    "min_bytes": "fetch.min.bytes",
    "max_wait_ms": "fetch.max.wait.ms",
}
QUICK = {"reconnect.backoff.ms": "20", "reconnect.backoff.max.ms": "500", "retry.backoff.ms": "50"}
BYTES = "org.apache.kafka.common.serialization.ByteArray"
CALL_MS = 30_000


class Java(runner.Runner):
    def as_failure(self, error: Exception) -> Failure:
        if isinstance(error, jpype.JException):
            cause: Any = error
            while isinstance(cause, _class("java.util.concurrent.ExecutionException")):
                cause = cause.getCause()
            if isinstance(cause, _clients("consumer.OffsetOutOfRangeException")):
                return Failure(1, str(cause.toString()))  # the consumer's own, without a number
            code = _class("org.apache.kafka.common.protocol.Errors").forException(cause).code()
            return Failure(int(code), str(cause.toString()))
        return super().as_failure(error)

    # -- records -----------------------------------------------------------------------

    def do_produce(
        self,
        *,
        bootstrap: str,
        topic: str,
        records: list[Answer],
        acks: int = -1,
        codec: str = "none",
        idempotent: bool = False,
        max_request_bytes: int = 1_048_576,
        batch_bytes: int = 16_384,
        **_: Any,
    ) -> Answer:
        producer = _clients("producer.KafkaProducer")(
            _properties(
                bootstrap,
                {
                    "acks": acks,
                    "compression.type": codec,
                    "enable.idempotence": str(idempotent).lower(),
                    "max.request.size": max_request_bytes,
                    "batch.size": batch_bytes,
                    "linger.ms": 5,
                    "request.timeout.ms": 30_000,
                    "delivery.timeout.ms": 60_000,
                    "key.serializer": f"{BYTES}Serializer",
                    "value.serializer": f"{BYTES}Serializer",
                },
            )
        )
        try:
            sent = [producer.send(_to_send(topic, each)) for each in records]
            producer.flush()
            placed = [each.get() for each in sent]
        finally:
            producer.close()
        return {"placed": [[int(each.partition()), int(each.offset())] for each in placed]}

    def do_read(
        self,
        *,
        bootstrap: str,
        topic: str,
        partition: int,
        offset: int | str,
        count: int,
        wait_s: float = 30,
        options: dict[str, int] | None = None,
        **_: Any,
    ) -> Answer:
        given = {READ_OPTIONS[name]: value for name, value in (options or {}).items()}
        consumer = _consumer(bootstrap, {"auto.offset.reset": "none", **given})
        try:
            where = _place(topic, partition)
            consumer.assign(_list(where))
            if offset == "earliest":
                consumer.seekToBeginning(_list(where))
            elif offset == "latest":
                consumer.seekToEnd(_list(where))
            else:
                consumer.seek(where, jpype.JLong(offset))
            found = runner.until(lambda: _poll(consumer, 0.5), count, wait_s)
        finally:
            consumer.close()
        return {"records": found}

    def do_offset(self, *, bootstrap: str, topic: str, partition: int, at: Any, **_: Any) -> Answer:
        specs = _clients("admin.OffsetSpec")
        named = {"earliest": "earliest", "latest": "latest", "max_timestamp": "maxTimestamp"}
        spec = getattr(specs, named[at])() if isinstance(at, str) else specs.forTimestamp(at)
        where = _place(topic, partition)
        found = _admin(bootstrap).listOffsets(_map({where: spec})).partitionResult(where).get()
        return {"offset": int(found.offset())}

    # -- topics ------------------------------------------------------------------------

    def do_create_topic(
        self,
        *,
        bootstrap: str,
        topic: str,
        partitions: int,
        replicas: int = 1,
        configs: dict[str, str] | None = None,
        **_: Any,
    ) -> Answer:
        new = _clients("admin.NewTopic")(topic, jpype.JInt(partitions), jpype.JShort(replicas))
        _admin(bootstrap).createTopics(_list(new.configs(_map(configs or {})))).all().get()
        return {}

    def do_delete_topic(self, *, bootstrap: str, topic: str, **_: Any) -> Answer:
        _admin(bootstrap).deleteTopics(_list(topic)).all().get()
        return {}

    def do_add_partitions(self, *, bootstrap: str, topic: str, total: int, **_: Any) -> Answer:
        new = _clients("admin.NewPartitions").increaseTo(total)
        _admin(bootstrap).createPartitions(_map({topic: new})).all().get()
        return {}

    def do_topics(self, *, bootstrap: str, **_: Any) -> Answer:
        return {"names": [str(each) for each in _admin(bootstrap).listTopics().names().get()]}

    def do_describe_topic(self, *, bootstrap: str, topic: str, **_: Any) -> Answer:
        found = _admin(bootstrap).describeTopics(_list(topic)).topicNameValues().get(topic).get()
        return {"partitions": len(found.partitions())}

    def do_topic_configs(self, *, bootstrap: str, topic: str, **_: Any) -> Answer:
        resource = _topic_resource(topic)
        found = _admin(bootstrap).describeConfigs(_list(resource)).all().get().get(resource)
        return {"values": {str(each.name()): str(each.value()) for each in found.entries()}}

    def do_set_topic_config(
        self, *, bootstrap: str, topic: str, values: dict[str, str], **_: Any
    ) -> Answer:
        change, kinds = _clients("admin.AlterConfigOp"), _clients("admin.AlterConfigOp$OpType")
        entry = _clients("admin.ConfigEntry")
        changes = [change(entry(name, value), kinds.SET) for name, value in values.items()]
        wanted = _map({_topic_resource(topic): _list(*changes)})
        _admin(bootstrap).incrementalAlterConfigs(wanted).all().get()
        return {}

    def do_delete_records(
        self, *, bootstrap: str, topic: str, partition: int, before: int, **_: Any
    ) -> Answer:
        where = _place(topic, partition)
        wanted = _map({where: _clients("admin.RecordsToDelete").beforeOffset(before)})
        found = _admin(bootstrap).deleteRecords(wanted).lowWatermarks().get(where).get()
        return {"low": int(found.lowWatermark())}

    # -- command-line tools ------------------------------------------------------------

    def do_tool(self, *, program: str, arguments: list[str], given: str = "", **_: Any) -> Answer:
        """Run a tool's main in this JVM: a new one would take longer than what it does."""
        system = _class("java.lang.System")
        printed = _class("java.io.ByteArrayOutputStream")()
        exits: list[int] = []
        hooks: list[Any] = []
        _catch_exits(exits, hooks)
        old_out = system.out
        system.setIn(_class("java.io.ByteArrayInputStream")(_java_bytes(given.encode())))
        system.setOut(_class("java.io.PrintStream")(printed, True))
        try:
            _class(program).main(jpype.JArray(jpype.JString)(arguments))
            for hook in hooks:
                hook.run()
        finally:
            system.out.flush()
            system.setOut(old_out)
        return {"code": exits[0] if exits else 0, "said": str(printed.toString("UTF-8"))}

    # -- groups ------------------------------------------------------------------------

    def do_groups(self, *, bootstrap: str, **_: Any) -> Answer:
        found = _admin(bootstrap).listConsumerGroups().all().get()
        return {"names": [str(each.groupId()) for each in found]}

    def do_describe_group(self, *, bootstrap: str, group: str, **_: Any) -> Answer:
        asked = _admin(bootstrap).describeConsumerGroups(_list(group)).describedGroups()
        found = asked.get(group).get()
        state = found.groupState() if hasattr(found, "groupState") else found.state()
        return {"state": str(state.toString()), "members": len(found.members())}

    def do_delete_group(self, *, bootstrap: str, group: str, **_: Any) -> Answer:
        _admin(bootstrap).deleteConsumerGroups(_list(group)).all().get()
        return {}

    def do_committed(
        self, *, bootstrap: str, group: str, topic: str, partition: int, **_: Any
    ) -> Answer:
        asked = _admin(bootstrap).listConsumerGroupOffsets(group)
        found = asked.partitionsToOffsetAndMetadata().get().get(_place(topic, partition))
        if found is None:
            return {"offset": -1, "metadata": ""}
        return {"offset": int(found.offset()), "metadata": str(found.metadata())}

    def do_set_committed(
        self, *, bootstrap: str, group: str, topic: str, partition: int, offset: int, **_: Any
    ) -> Answer:
        wanted = _map({_place(topic, partition): _committed(offset, "")})
        _admin(bootstrap).alterConsumerGroupOffsets(group, wanted).all().get()
        return {}

    def consumer(
        self,
        *,
        bootstrap: str,
        group: str,
        topics: list[str],
        assignor: str = "range",
        instance: str | None = None,
        session_ms: int = 10_000,
        **_: Any,
    ) -> Consumer:
        settings: dict[str, Any] = {
            "group.id": group,
            "partition.assignment.strategy": (
                f"org.apache.kafka.clients.consumer.{ASSIGNORS[assignor]}"
            ),
            "session.timeout.ms": session_ms,
            "heartbeat.interval.ms": 500,
            "auto.offset.reset": "earliest",
        }
        if instance is not None:
            settings["group.instance.id"] = instance
        made = _consumer(bootstrap, settings)
        made.subscribe(_list(*topics))
        return Consumer(made)


class Consumer:
    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer

    def poll(self, seconds: float) -> list[Answer]:
        return _poll(self._consumer, seconds)

    def assignment(self) -> list[tuple[str, int]]:
        found = self._consumer.assignment()
        return [(str(each.topic()), int(each.partition())) for each in found]

    def commit(self, offsets: Offsets | None) -> None:
        if offsets is None:
            self._consumer.commitSync()
            return
        wanted = {
            _place(topic, partition): _committed(offset, metadata)
            for topic, partition, offset, metadata in offsets
        }
        self._consumer.commitSync(_map(wanted))

    def close(self) -> None:
        self._consumer.close()


def _catch_exits(exits: list[int], hooks: list[Any]) -> None:
    """Kafka's tools leave through a class of theirs, which can be told what leaving means."""
    leaving = "org.apache.kafka.common.utils.Exit"

    def leave(status: int, _message: Any) -> None:
        exits.append(int(status))

    def keep(_name: Any, hook: Any) -> None:
        hooks.append(hook)

    _class(leaving).setExitProcedure(jpype.JProxy(f"{leaving}$Procedure", dict={"execute": leave}))
    _class(leaving).setShutdownHookAdder(
        jpype.JProxy(f"{leaving}$ShutdownHookAdder", dict={"addShutdownHook": keep})
    )


# -- Java from Python --------------------------------------------------------------------


@cache
def _class(name: str) -> Any:
    return jpype.JClass(name)


def _clients(name: str) -> Any:
    return _class(f"org.apache.kafka.clients.{name}")


def _list(*items: Any) -> Any:
    made = _class("java.util.ArrayList")()
    for each in items:
        made.add(jpype.JString(each) if isinstance(each, str) else each)
    return made


def _map(items: dict[Any, Any]) -> Any:
    made = _class("java.util.HashMap")()
    for key, value in items.items():
        made.put(key, value)
    return made


def _properties(bootstrap: str, settings: dict[str, Any]) -> Any:
    made = _class("java.util.Properties")()
    for name, value in {**QUICK, "bootstrap.servers": bootstrap, **settings}.items():
        made.setProperty(name, str(value))
    return made


@cache
def _admin(bootstrap: str) -> Any:
    """Kept for the run: its threads cost more than its calls."""
    settings = {"default.api.timeout.ms": CALL_MS, "request.timeout.ms": CALL_MS}
    return _clients("admin.Admin").create(_properties(bootstrap, settings))


def _consumer(bootstrap: str, settings: dict[str, Any]) -> Any:
    common = {
        "enable.auto.commit": "false",
        "key.deserializer": f"{BYTES}Deserializer",
        "value.deserializer": f"{BYTES}Deserializer",
    }
    return _clients("consumer.KafkaConsumer")(_properties(bootstrap, {**common, **settings}))


def _place(topic: str, partition: int) -> Any:
    return _class("org.apache.kafka.common.TopicPartition")(topic, partition)


def _topic_resource(topic: str) -> Any:
    kinds = _class("org.apache.kafka.common.config.ConfigResource$Type")
    return _class("org.apache.kafka.common.config.ConfigResource")(kinds.TOPIC, topic)


def _committed(offset: int, metadata: str) -> Any:
    return _clients("consumer.OffsetAndMetadata")(jpype.JLong(offset), metadata)


def _to_send(topic: str, each: Answer) -> Any:
    header = _class("org.apache.kafka.common.header.internals.RecordHeader")
    headers = [
        header(jpype.JString(name), _java_bytes(value))
        for name, value in runner.decode_headers(each.get("headers", []))
    ]
    partition, timestamp = each.get("partition"), each.get("timestamp")
    return _clients("producer.ProducerRecord")(
        topic,
        None if partition is None else _class("java.lang.Integer")(partition),
        None if timestamp is None else _class("java.lang.Long")(timestamp),
        _java_bytes(runner.decode(each.get("key"))),
        _java_bytes(runner.decode(each.get("value"))),
        _list(*headers),
    )


def _java_bytes(data: bytes | None) -> Any:
    kind = jpype.JArray(jpype.JByte)
    return jpype.JObject(None, kind) if data is None else kind(data)


def _python_bytes(data: Any) -> bytes | None:
    return None if data is None else bytes(data)


def _poll(consumer: Any, seconds: float) -> list[Answer]:
    duration = _class("java.time.Duration").ofMillis(int(seconds * 1_000))
    return [_record(each) for each in consumer.poll(duration)]


def _record(found: Any) -> Answer:
    return runner.record(
        topic=str(found.topic()),
        partition=int(found.partition()),
        offset=int(found.offset()),
        key=_python_bytes(found.key()),
        value=_python_bytes(found.value()),
        headers=[(str(each.key()), _python_bytes(each.value())) for each in found.headers()],
        timestamp=int(found.timestamp()),
        log_append_time=str(found.timestampType()) == "LogAppendTime",
    )


def _library() -> str:
    """The JVM of the `java` that all tests use."""
    home = Path(java()).resolve().parent.parent
    return str(next(home.glob("lib/**/libjvm.*")))


if __name__ == "__main__":
    jpype.startJVM(
        _library(),
        "-Xmx256m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        classpath=[jars.class_path(sys.argv[1])],
    )
    runner.serve(Java())
