"""Brokers that cases run against: Ister as a process, and the oracle, Apache Kafka.

Both are of one node on loopback with free ports, and set alike: one partition unless said
otherwise, topics made on demand, groups that begin at once. Kafka runs in a container where
Docker does, else as a local process of the archives that `tools` resolves. What a broker
says goes to a file beside its data, which the test run names when a case fails.
"""

from __future__ import annotations

import base64
import os
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

from compat_tests.tools import java, kafka_class_path
from compat_tests.waiting import wait_for

START_S = 120.0  # a Java that starts on a busy machine
STOP_S = 30.0
_STARTS_MAX = 3  # a port that was free may be taken when it is wanted
_NODE = 1
SESSION_MIN_MS = "1000"  # Kafka's 6000 would be the time that every case with a dead member takes

# What differs from Kafka's own defaults, because a test wants it or there is only one node.
_KAFKA_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": str(_NODE),
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": SESSION_MIN_MS,
    # Cases write records with times of long ago: retention must not look at them meanwhile.
    "log.initial.task.delay.ms": "86400000",
    "log.retention.check.interval.ms": "86400000",
    "num.network.threads": "2",
    "num.io.threads": "4",
    "log.cleaner.dedupe.buffer.size": "20000000",
}
_LOGGING = """\
appender.console.type=Console
appender.console.name=console
appender.console.target=SYSTEM_ERR
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=[%d] %p %m (%c)%n
rootLogger.level=INFO
rootLogger.appenderRef.console.ref=console
"""


@dataclass(frozen=True, slots=True)
class RunningBroker:
    """Where a broker is reached."""

    name: str  # "ister" or "kafka"
    host: str
    port: int
    log: Path  # what it says
    pid: int  # 0: in a container

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"


class Both(NamedTuple):
    ister: RunningBroker
    kafka: RunningBroker


class NotStarted(Exception):
    """A broker ended or did not answer; the message has its last lines."""


@contextmanager
def ister(folder: Path, *arguments: str) -> Iterator[RunningBroker]:
    """`ister serve` as a user starts it, with `arguments` behind its own."""
    command = [sys.executable, "-m", "ister.gateway", "serve", "--http", "off"]
    command += ["--listen", "127.0.0.1:0", "--data", str(folder / "data")]
    command += ["--set", f"group.min.session.timeout.ms={SESSION_MIN_MS}", *arguments]
    log_path = folder / "ister.log"
    with log_path.open("ab") as log:
        process = subprocess.Popen(  # noqa: S603 - the broker under test
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log
        )
    with _stopped_at_the_end(process), process.stdout or sys.stdin.buffer as said:
        host, port = _ready(said, log_path)
        yield RunningBroker("ister", host, port, log_path, process.pid)


@contextmanager
def kafka(folder: Path, **settings: str) -> Iterator[RunningBroker]:
    """The oracle, in a container or as a process; `settings` with underscores for dots."""
    given = {name.replace("_", "."): value for name, value in settings.items()}
    if _docker_runs():
        from compat_tests.container import kafka_container

        with kafka_container(folder, {**_KAFKA_SETTINGS, **given}) as running:
            if running is not None:
                yield running
                return
    with kafka_process(folder, given) as running:
        yield running


@contextmanager
def kafka_process(folder: Path, settings: dict[str, str]) -> Iterator[RunningBroker]:
    for attempt in range(_STARTS_MAX):
        place = folder / f"start-{attempt}"
        place.mkdir()
        port, controller_port = free_ports(2)
        _write_settings(place, port, controller_port, settings)
        _format(place)
        log_path = place / "kafka.log"
        with log_path.open("ab") as log:
            process = subprocess.Popen(  # noqa: S603 - the oracle
                _java(place, "-Xms256m", "-Xmx768m", "-XX:+UseSerialGC", "kafka.Kafka"),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        with _stopped_at_the_end(process):
            if _answers(process, port):
                yield RunningBroker("kafka", "127.0.0.1", port, log_path, process.pid)
                return
        if b"Address already in use" not in log_path.read_bytes():
            break
    raise NotStarted(f"Apache Kafka did not start:\n{last_lines(log_path)}")


def free_ports(count: int) -> list[int]:
    """Ports that nobody has now."""
    with_ports = [socket.socket() for _ in range(count)]
    for each in with_ports:
        each.bind(("127.0.0.1", 0))
    found = [each.getsockname()[1] for each in with_ports]
    for each in with_ports:
        each.close()
    return found


def last_lines(path: Path, count: int = 20) -> str:
    return "\n".join(path.read_text(errors="replace").splitlines()[-count:])


# -- inside ------------------------------------------------------------------------------


@contextmanager
def _stopped_at_the_end(process: subprocess.Popen[bytes]) -> Iterator[None]:
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _ready(said: IO[bytes], log_path: Path) -> tuple[str, int]:
    line = said.readline().decode()
    for word in line.split():
        if word.startswith("kafka="):
            host, _, port = word.removeprefix("kafka=").rpartition(":")
            return host, int(port)
    raise NotStarted(f"ister did not start: {line}\n{last_lines(log_path)}")


def _write_settings(place: Path, port: int, controller: int, settings: dict[str, str]) -> None:
    values = {
        **_KAFKA_SETTINGS,
        "controller.quorum.voters": f"{_NODE}@127.0.0.1:{controller}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "log.dirs": str(place / "data"),
        **settings,
    }
    lines = [f"{name}={value}\n" for name, value in values.items()]
    (place / "server.properties").write_text("".join(lines))
    (place / "log4j2.properties").write_text(_LOGGING)


def _format(place: Path) -> None:
    cluster_id = base64.urlsafe_b64encode(b"\x10" + uuid.uuid4().bytes[1:]).decode().rstrip("=")
    log_path = place / "format.log"
    command = _java(place, "-Xmx128m", "-XX:TieredStopAtLevel=1", "kafka.tools.StorageTool")
    # With this feature Kafka sets min.insync.replicas for the whole cluster by itself.
    plain = ("--feature", "eligible.leader.replicas.version=0")
    command[-1:] = ["format", "-t", cluster_id, *plain, "-c", command[-1]]
    with log_path.open("wb") as log:
        done = subprocess.run(  # noqa: S603 - the oracle's own tool
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False
        )
    if done.returncode != 0:
        raise NotStarted(f"Apache Kafka's storage cannot be made:\n{last_lines(log_path)}")


def _java(place: Path, *options_and_class: str) -> list[str]:
    """A program of Kafka's that takes the settings file as its last argument."""
    *options, program = options_and_class
    logging = f"-Dlog4j2.configurationFile={place / 'log4j2.properties'}"
    settings = str(place / "server.properties")
    return [java(), *options, logging, "-cp", kafka_class_path(), program, settings]


def _answers(process: subprocess.Popen[bytes], port: int) -> bool:
    """Wait until Metadata tells of a broker; False if the process ended first."""

    def ended_or_ready() -> bool:
        return process.poll() is not None or metadata_answers("127.0.0.1", port)

    wait_for(ended_or_ready, "Apache Kafka answers", START_S)
    return process.poll() is None


# ApiVersions 0 would be answered before the broker is known; Metadata 1 for no topic is not.
_METADATA = bytes.fromhex("00000013 0003 0001 00000007 0005 7072 6f62 65 00000000")


def metadata_answers(host: str, port: int) -> bool:
    """Whether Metadata names at least one broker."""
    try:
        with socket.create_connection((host, port), 2) as client:
            client.settimeout(5)
            client.sendall(_METADATA)
            with client.makefile("rb") as stream:
                answer = stream.read(12)
    except OSError:
        return False
    return len(answer) == 12 and int.from_bytes(answer[8:]) > 0


def _docker_runs() -> bool:
    path = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock").removeprefix("unix://")
    if not path.startswith("/"):
        return True  # a remote engine; the container says whether it can be used
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(5)
        return client.connect_ex(path) == 0
