"""Settings of a broker: their names, where they came from, and what is wrong with them.

Three sources, later wins: one TOML file, the environment (`ISTER_` + upper case, dots
as underscores), `--set NAME=VALUE`. Kafka's names for Kafka's things, `ister.` for ours.
Everything that is wrong is told at once, each with its origin.

These are values. What the log, the groups and the connections act on is made from
them here (`log_settings` and its neighbours), so that those know no Kafka names.
Settings of topics are in `topic_configs.py`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from ister.dispatch.lag import INTERVAL_MAX_MS, interval_problem
from ister.gateway.connection import ConnectionLimits
from ister.gateway.coordinator.settings import CoordinatorSettings
from ister.gateway.http import listen as http_listen
from ister.gateway.listeners import Address, BadListener, Listener, parse_listeners
from ister.wal.settings import LogSettings, MiB

ENVIRONMENT_PREFIX = "ISTER_"
_INT32_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1
_CLOSE_MIN = 0.8  # of 1: names less alike than this are not offered for one that is unknown
_TRUE, _FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off")


class BadSettings(Exception):
    """Everything that is wrong, one line each (exit 2)."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = list(problems)
        super().__init__("\n".join(self.problems))


class Given(NamedTuple):
    """A value as it was given, and where."""

    text: str
    origin: str


def _number(name: str, default: int, low: int = 0, high: int = _INT64_MAX) -> Any:
    return field(default=default, metadata={"name": name, "low": low, "high": high})


def _flag(name: str, default: bool) -> Any:
    return field(default=default, metadata={"name": name})


def _text(name: str, default: str, allowed: tuple[str, ...] = ()) -> Any:
    return field(default=default, metadata={"name": name, "allowed": allowed})


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """Fields carry their public names."""

    # Who this broker is to clients.
    node_id: int = _number("node.id", 1, 0, _INT32_MAX)
    # Where it listens and under which addresses clients reach it: [NAME=]HOST:PORT, or Kafka's
    # NAME://HOST:PORT, with commas between several.
    listeners: str = _text("listeners", "127.0.0.1:9092")
    advertised_listeners: str = _text("advertised.listeners", "")

    # HTTP: probes, metrics and the console; HOST:PORT, or off.
    http: str = _text("ister.http", "127.0.0.1:9644")
    # Names under which it may be asked, beyond localhost, this machine's and plain addresses.
    http_hosts: str = _text("ister.http.hosts", "")
    # Who has it may change things in the console beyond loopback. Empty: nobody there may.
    http_token: str = _text("ister.http.token", "")
    # The console changes nothing, whoever asks.
    http_read_only: bool = _flag("ister.http.read.only", False)

    # Topics.
    num_partitions: int = _number("num.partitions", 1, 1, 10_000)
    auto_create_topics_enable: bool = _flag("auto.create.topics.enable", True)
    delete_topic_enable: bool = _flag("delete.topic.enable", True)
    # Defaults of topic settings.
    message_max_bytes: int = _number("message.max.bytes", 1_048_588, 0, _INT32_MAX)
    log_retention_ms: int = _number("log.retention.ms", 604_800_000, -1)
    log_retention_bytes: int = _number("log.retention.bytes", -1, -1)
    log_message_timestamp_type: str = _text(
        "log.message.timestamp.type", "CreateTime", ("CreateTime", "LogAppendTime")
    )
    durability: str = _text("ister.durability", "fsync", ("fsync", "os"))
    ring_bytes: int = _number("ister.ring.bytes", 16 * MiB, 1024)
    # A parked reader gets a record within this time when every wake-up is lost; 0: off.
    heartbeat_interval_ms: int = _number("ister.heartbeat.interval.ms", 500, 0, INTERVAL_MAX_MS)

    # Groups.
    group_initial_rebalance_delay_ms: int = _number(
        "group.initial.rebalance.delay.ms", 0, 0, _INT32_MAX
    )
    group_min_session_timeout_ms: int = _number(
        "group.min.session.timeout.ms", 6_000, 1, _INT32_MAX
    )
    group_max_session_timeout_ms: int = _number(
        "group.max.session.timeout.ms", 1_800_000, 1, _INT32_MAX
    )
    group_max_size: int = _number("group.max.size", 10_000, 1, _INT32_MAX)
    # Cursors of a group that has been empty for so long are forgotten; 0: as long as their topic.
    offsets_retention_minutes: int = _number("offsets.retention.minutes", 0, 0, _INT32_MAX)
    offset_metadata_max_bytes: int = _number("offset.metadata.max.bytes", 4_096, 0, _INT32_MAX)

    # The log.
    producer_id_expiration_ms: int = _number("producer.id.expiration.ms", 86_400_000, 1)
    handoff_bytes: int = _number("ister.handoff.bytes", 64 * MiB, 1024)
    handoff_ms: int = _number("ister.handoff.ms", 60_000, 1)
    cache_bytes: int = _number("ister.cache.bytes", 64 * MiB, 0)
    disk_limit_bytes: int = _number("ister.disk.limit.bytes", 0, 0)
    bucket_delete_grace_ms: int = _number("ister.bucket.delete.grace.ms", 86_400_000, 0)
    retention_grace_ms: int = _number("ister.retention.grace.ms", 3_600_000, 0)

    # Evidence of what was sent and committed, in an internal topic.
    receipts_enable: bool = _flag("ister.receipts.enable", True)

    # Limits of the wire. One request:
    socket_request_max_bytes: int = _number(
        "socket.request.max.bytes", 104_857_600, 1024, _INT32_MAX
    )
    # Items of all its arrays together: topics, partitions, members, tags.
    request_items_max: int = _number("ister.request.items.max", 100_000, 100, 10_000_000)
    # The most that one Fetch gets, whatever it asks for.
    fetch_max_bytes: int = _number("fetch.max.bytes", 57_671_680, 1024, _INT32_MAX)
    # One connection: requests without an answer, and their bytes; above it nothing is read.
    connection_requests_max: int = _number("ister.connection.requests.max", 1_000, 1, _INT32_MAX)
    connection_request_bytes_max: int = _number("ister.connection.request.bytes.max", 64 * MiB, 1)
    # Answers that the client has not taken; above it nothing of it is read or begun.
    send_buffer_bytes: int = _number("ister.send.buffer.bytes", 4 * MiB, 1024, _INT32_MAX)
    # A client that takes nothing of what it asked for is dropped after this time.
    send_timeout_ms: int = _number("ister.send.timeout.ms", 60_000, 1)
    connections_max_idle_ms: int = _number("connections.max.idle.ms", 600_000, 1)
    # All connections together: how many, their requests in memory, and answers not taken. Above
    # the last a Fetch gets one batch at a time, and who takes nothing is dropped sooner.
    max_connections: int = _number("max.connections", 10_000, 1, _INT32_MAX)
    max_connections_per_ip: int = _number("max.connections.per.ip", 10_000, 1, _INT32_MAX)
    queued_max_request_bytes: int = _number("queued.max.request.bytes", 256 * MiB, MiB)
    send_memory_bytes: int = _number("ister.send.memory.bytes", 256 * MiB, MiB)
    # Fetch sessions kept (KIP-227); above it the least recently used goes.
    fetch_session_slots: int = _number(
        "max.incremental.fetch.session.cache.slots", 1_000, 0, _INT32_MAX
    )
    # Partitions in all fetch sessions together, about 500 bytes each; above it a client gets
    # full answers.
    fetch_session_partitions_max: int = _number(
        "ister.fetch.session.partitions.max", 200_000, 0, _INT32_MAX
    )
    # Fetches that wait for data; above it one is answered at once, empty.
    parked_fetches_max: int = _number("ister.parked.fetches.max", 20_000, 0, _INT32_MAX)

    def parsed_listeners(self) -> list[Listener]:
        return parse_listeners(self.listeners, self.advertised_listeners)

    def parsed_http(self) -> Address | None:
        return http_listen.parse(self.http)


# Shown as being set, never with their value.
SECRETS = frozenset({"ister.http.token"})
BY_NAME = {each.metadata["name"]: each for each in fields(BrokerSettings)}


# -- reading ---------------------------------------------------------------------------


def gather(
    config_path: str | None, environment: Mapping[str, str], assignments: Iterable[str]
) -> dict[str, Given]:
    """What was given, by name; later sources replace earlier ones."""
    problems: list[str] = []
    given: dict[str, Given] = {}
    if config_path is not None:
        given.update(_from_file(config_path, problems))
    variables = {variable: name for name in BY_NAME for variable in _variables(name)}
    for variable, text in environment.items():
        name = variables.get(variable)
        if name is not None:
            given[name] = Given(text, f"environment variable {variable}")
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals:
            problems.append(f"--set {assignment}: NAME=VALUE is wanted")
        else:
            given[name.strip()] = Given(text.strip(), "--set")
    if problems:
        raise BadSettings(problems)
    return given


def build(given: Mapping[str, Given]) -> BrokerSettings:
    """The settings, or everything that is wrong with them."""
    problems: list[str] = []
    values: dict[str, Any] = {}
    for name, (text, origin) in given.items():
        known = BY_NAME.get(name)
        if known is None:
            problems.append(f"{name} ({origin}): there is no such setting{_meant(name)}")
            continue
        try:
            values[known.name] = _parse(text, known.default, known.metadata)
        except ValueError as error:
            problems.append(f"{name}={text} ({origin}): {error}")
    settings = BrokerSettings(**values)
    problems += _together(settings)
    if problems:
        raise BadSettings(problems)
    return settings


def _meant(name: str) -> str:
    """Names of settings that look like this one, if any do."""
    import difflib  # only when something is wrong: it takes a while to load

    close = difflib.get_close_matches(name, BY_NAME, n=1, cutoff=_CLOSE_MIN)
    return f"; is {close[0]} meant?" if close else ""


def _together(settings: BrokerSettings) -> list[str]:
    problems = coordinator_settings(settings).problems()
    problem = interval_problem(settings.heartbeat_interval_ms)
    if problem is not None:
        problems.append(f"ister.heartbeat.interval.ms: {problem}")
    try:
        settings.parsed_listeners()
        settings.parsed_http()
    except BadListener as error:
        problems.append(str(error))
    return problems


def _from_file(path: str, problems: list[str]) -> dict[str, Given]:
    try:
        with open(path, "rb") as file:
            content = tomllib.load(file)
    except OSError as error:
        problems.append(f"{path}: {error.strerror}")
        return {}
    except tomllib.TOMLDecodeError as error:
        problems.append(f"{path}: {error}")
        return {}
    return {name: Given(text, path) for name, text in _flat(content, "")}


def _flat(table: Mapping[str, Any], prefix: str) -> Iterable[tuple[str, str]]:
    """`num.partitions = 4` is a table in a table to TOML."""
    for key, value in table.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            yield from _flat(value, f"{name}.")
        elif isinstance(value, bool):
            yield name, "true" if value else "false"
        elif isinstance(value, list):
            yield name, ",".join(str(item) for item in value)
        else:
            yield name, str(value)


def _variables(name: str) -> list[str]:
    """`ister.cache.bytes` is ISTER_CACHE_BYTES; ISTER_ISTER_CACHE_BYTES is understood too."""
    return [
        ENVIRONMENT_PREFIX + form.replace(".", "_").upper()
        for form in (name, name.removeprefix("ister."))
    ]


def _parse(text: str, default: Any, limits: Mapping[str, Any]) -> Any:
    if isinstance(default, bool):
        if text.lower() in _TRUE:
            return True
        if text.lower() in _FALSE:
            return False
        raise ValueError("true or false is wanted")
    if isinstance(default, int):
        try:
            value = int(text)
        except ValueError:
            raise ValueError("a whole number is wanted") from None
        if not limits["low"] <= value <= limits["high"]:
            if limits["high"] == _INT64_MAX:  # as good as no limit
                raise ValueError(f"at least {limits['low']} is wanted")
            raise ValueError(f"between {limits['low']} and {limits['high']} is wanted")
        return value
    allowed = limits["allowed"]
    if allowed and text not in allowed:
        raise ValueError(f"one of {', '.join(allowed)} is wanted")
    return text


# -- what the parts act on --------------------------------------------------------------


def log_settings(settings: BrokerSettings, *, continue_past_damage: bool = False) -> LogSettings:
    return LogSettings(
        disk_limit_bytes=settings.disk_limit_bytes,
        cache_bytes=settings.cache_bytes,
        handoff_bytes=settings.handoff_bytes,
        handoff_ms=settings.handoff_ms,
        bucket_delete_grace_ms=settings.bucket_delete_grace_ms,
        retention_grace_ms=settings.retention_grace_ms,
        producer_id_expiration_ms=settings.producer_id_expiration_ms,
        continue_past_damage=continue_past_damage,
    )


def topic_defaults(settings: BrokerSettings) -> dict[str, str]:
    """Defaults of topic settings, under the topic's names, where they are not the usual ones."""
    usual = BrokerSettings()
    found = {}
    for name, attribute in TOPIC_DEFAULTS.items():
        value = getattr(settings, attribute)
        if value != getattr(usual, attribute):
            found[name] = str(value)
    return found


# Topic settings whose default a broker setting gives.
TOPIC_DEFAULTS = {
    "max.message.bytes": "message_max_bytes",
    "retention.ms": "log_retention_ms",
    "retention.bytes": "log_retention_bytes",
    "message.timestamp.type": "log_message_timestamp_type",
    "ister.durability": "durability",
    "ister.ring.bytes": "ring_bytes",
    "ister.heartbeat.interval.ms": "heartbeat_interval_ms",
}


def coordinator_settings(settings: BrokerSettings) -> CoordinatorSettings:
    return CoordinatorSettings(
        initial_rebalance_delay_ms=settings.group_initial_rebalance_delay_ms,
        session_timeout_min_ms=settings.group_min_session_timeout_ms,
        session_timeout_max_ms=settings.group_max_session_timeout_ms,
        members_max=settings.group_max_size,
        cursor_metadata_bytes_max=settings.offset_metadata_max_bytes,
    )


def connection_limits(settings: BrokerSettings) -> ConnectionLimits:
    return ConnectionLimits(
        frame_bytes_max=settings.socket_request_max_bytes,
        owed_max=settings.connection_requests_max,
        in_flight_bytes_max=settings.connection_request_bytes_max,
    )
