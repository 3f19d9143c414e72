"""Platforms on top of a broker: Kafka Connect with files, Kafka Streams with state.

Each is started as a process, does its work, and with ISTER_LONG=1 is stopped, started again
and goes on where it was. A short run does this on Ister; a long one on Kafka too.
"""

from __future__ import annotations

import json
import os
import subprocess
import urllib.request
from contextlib import contextmanager

import pytest

from compat_tests.brokers import free_ports
from compat_tests.clients import KINDS, Client, Record, Runner
from compat_tests.tools import jars, java
from compat_tests.waiting import wait_for

LOCK = "kafka-platforms-4.3.1"
START_S = 180.0  # two Javas on a busy machine
LONG = os.environ.get("ISTER_LONG") == "1"

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(params=["ister", "kafka"] if LONG else ["ister"])
def broker(request):
    jars.jars(LOCK)  # fetched here, where it does not count as the case's time
    return request.getfixturevalue(f"{request.param}_broker")


@pytest.fixture
def client(broker, tmp_path):
    runner = Runner(KINDS[0], tmp_path / "client.log")
    yield Client(runner, broker.bootstrap)
    runner.close()


@contextmanager
def running(folder, program, *arguments):
    """A program of the platforms' archives; it is told to end when the block ends."""
    command = [java(), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    command += ["-cp", jars.class_path(LOCK), program, *arguments]
    with (folder / "platform.log").open("ab") as log:
        process = subprocess.Popen(  # noqa: S603 - programs of the resolved archives
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def write(path, **values):
    lines = [f"{name.replace('_', '.')}={value}\n" for name, value in values.items()]
    path.write_text("".join(lines))
    return str(path)


def test_connect(broker, names, tmp_path):
    """A file is followed into a topic, and the topic into a file; its own topics are compacted."""
    topic, source, sink = names("topic"), tmp_path / "source.txt", tmp_path / "sink.txt"
    (port,) = free_ports(1)
    stores = {f"{kind}.storage.topic": names(kind) for kind in ("config", "offset", "status")}
    settings = write(
        tmp_path / "worker.properties",
        bootstrap_servers=broker.bootstrap,
        group_id=names("group"),
        listeners=f"http://127.0.0.1:{port}",
        key_converter="org.apache.kafka.connect.storage.StringConverter",
        value_converter="org.apache.kafka.connect.storage.StringConverter",
        offset_flush_interval_ms=500,
        plugin_discovery="service_load",
        **stores,
        **{f"{kind}.storage.replication.factor": 1 for kind in ("config", "offset", "status")},
        **{f"{kind}.storage.partitions": 2 for kind in ("offset", "status")},
    )
    source.write_text("one\ntwo\n")
    kind = "org.apache.kafka.connect.file.FileStream{}Connector".format
    connectors = {
        names("source"): {"connector.class": kind("Source"), "topic": topic, "file": str(source)},
        names("sink"): {"connector.class": kind("Sink"), "topics": topic, "file": str(sink)},
    }

    def lines():
        return sink.read_text().split() if sink.exists() else []

    with running(tmp_path, "org.apache.kafka.connect.cli.ConnectDistributed", settings):
        wait_for(lambda: _put(port, connectors), "Connect takes the connectors", START_S)
        wait_for(lambda: lines() == ["one", "two"], "what was there is copied", START_S)
        with source.open("a") as more:
            more.write("three\n")
        wait_for(lambda: lines() == ["one", "two", "three"], "what comes is copied")
    if LONG:
        with source.open("a") as more:
            more.write("four\n")
        with running(tmp_path, "org.apache.kafka.connect.cli.ConnectDistributed", settings):
            wait_for(lambda: lines()[-1:] == ["four"], "it goes on where it was", START_S)
        assert lines() == ["one", "two", "three", "four"]


def _put(port, connectors):
    """Whether Connect has taken them; it says no until it is ready."""
    try:
        for name, config in connectors.items():
            request = urllib.request.Request(
                f"http://127.0.0.1:{port}/connectors/{name}/config",
                data=json.dumps(config).encode(),
                headers={"Content-Type": "application/json"},
                method="PUT",
            )
            with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
                assert answer.status in (200, 201)
    except OSError:
        return False
    return True


def test_streams(broker, client, names, tmp_path):
    """Kafka's own example counts words: a repartitioned topic, a state store, its changelog."""
    given, counted = "streams-plaintext-input", "streams-wordcount-output"
    for topic in (given, counted):
        client.create_topic(topic)
    settings = write(
        tmp_path / "streams.properties",
        bootstrap_servers=broker.bootstrap,
        application_id=names("words"),
        state_dir=tmp_path / "state",
        commit_interval_ms=200,
        statestore_cache_max_bytes=0,
    )
    program = "org.apache.kafka.streams.examples.wordcount.WordCountDemo"
    with running(tmp_path, program, settings):
        client.produce(given, [Record(value=b"to be or not to be")])
        wait_for(lambda: _counts(client, counted)["be"] == 2, "words are counted", START_S)
        found = _counts(client, counted)
        assert found == {"to": 2, "be": 2, "or": 1, "not": 1}
    if LONG:
        client.produce(given, [Record(value=b"be")])
        with running(tmp_path, program, settings):
            wait_for(lambda: _counts(client, counted)["be"] == 3, "it goes on counting", START_S)


def _counts(client, topic):
    """The newest count of each word."""
    end = client.offset(topic, "latest")
    found = {"be": 0}
    for each in client.read(topic, end) if end else []:
        found[(each.key or b"").decode()] = int.from_bytes(each.value or b"")
    return found
