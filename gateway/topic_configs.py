"""Settings of topics: names, types, defaults, and which values are allowed.

Kafka's names are taken as they are. Those that have no effect here (`segment.*`,
`flush.*`, `index.*`, ...) are validated, stored and reported all the same, because
tools set them and compare; `effect` says which those are. `ister.dispatch.mode` is
fixed when the topic is made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import NamedTuple

from ister.dispatch.lag import interval_problem
from ister.gateway.errors import RequestError
from ister.gateway.protocol.error_codes import ErrorCode
from ister.gateway.settings import TOPIC_DEFAULTS, BrokerSettings

_INT32_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1
_WEEK_MS = 604_800_000


class ConfigType(IntEnum):
    """The numbers of DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


Check = Callable[[str], str | None]  # what is wrong with a value; None: nothing


class TopicConfig(NamedTuple):
    name: str
    type: ConfigType
    default: str
    check: Check
    effect: bool = False
    fixed: bool = False  # only at creation
    # The broker's setting that gives the default, as DescribeConfigs names it; Kafka names none
    # where that setting has no default of its own (`log.retention.ms`).
    synonym: str | None = None


def _whole(low: int, high: int) -> Check:
    def check(text: str) -> str | None:
        try:
            value = int(text)
        except ValueError:
            return "a whole number is wanted"
        return None if low <= value <= high else f"between {low} and {high} is wanted"

    return check


def _fraction(text: str) -> str | None:
    try:
        value = float(text)
    except ValueError:
        return "a number is wanted"
    return None if 0 <= value <= 1 else "between 0 and 1 is wanted"


def _one_of(*allowed: str) -> Check:
    def check(text: str) -> str | None:
        return None if text in allowed else f"one of {', '.join(allowed)} is wanted"

    return check


def _cleanup(text: str) -> str | None:
    # Nothing at all is allowed (KIP-1148): such a topic keeps everything.
    policies = [item.strip() for item in text.split(",") if item.strip()]
    if set(policies) <= {"delete", "compact"}:
        return None
    return "delete, compact or both are wanted"


def _compression(text: str) -> str | None:
    if text == "producer":
        return None
    return "only producer is supported: batches are kept as they were sent"


def _durability(text: str) -> str | None:
    if text == "cloud":
        return "cloud is not supported yet"
    return _one_of("fsync", "os")(text)


def _heartbeat(text: str) -> str | None:
    try:
        return interval_problem(int(text))
    except ValueError:
        return "a whole number is wanted"


def _anything(_: str) -> str | None:
    return None


def _int(name: str, default: int, low: int = 0, effect: bool = False) -> TopicConfig:
    return TopicConfig(name, ConfigType.INT, str(default), _whole(low, _INT32_MAX), effect)


def _long(name: str, default: int, low: int = 0, effect: bool = False) -> TopicConfig:
    return TopicConfig(name, ConfigType.LONG, str(default), _whole(low, _INT64_MAX), effect)


def _bool(name: str, default: bool) -> TopicConfig:
    text = "true" if default else "false"
    return TopicConfig(name, ConfigType.BOOLEAN, text, _one_of("true", "false"))


_ALL = (
    TopicConfig("cleanup.policy", ConfigType.LIST, "delete", _cleanup, True),
    TopicConfig("compression.type", ConfigType.STRING, "producer", _compression, True),
    _int("compression.gzip.level", -1, -1),
    _int("compression.lz4.level", 9, 1),
    _int("compression.zstd.level", 3, -131_072),
    _long("delete.retention.ms", 86_400_000),
    _long("file.delete.delay.ms", 60_000),
    _long("flush.messages", _INT64_MAX, 1),
    _long("flush.ms", _INT64_MAX),
    TopicConfig("follower.replication.throttled.replicas", ConfigType.LIST, "", _anything),
    _int("index.interval.bytes", 4_096),
    TopicConfig("leader.replication.throttled.replicas", ConfigType.LIST, "", _anything),
    _long("local.retention.bytes", -2, -2),
    _long("local.retention.ms", -2, -2),
    _long("max.compaction.lag.ms", _INT64_MAX, 1),
    _int("max.message.bytes", 1_048_588, 0, True),
    _long("message.timestamp.after.max.ms", 3_600_000, 0, True),
    _long("message.timestamp.before.max.ms", _INT64_MAX, 0, True),
    TopicConfig(
        "message.timestamp.type",
        ConfigType.STRING,
        "CreateTime",
        _one_of("CreateTime", "LogAppendTime"),
        True,
    ),
    TopicConfig("min.cleanable.dirty.ratio", ConfigType.DOUBLE, "0.5", _fraction),
    _long("min.compaction.lag.ms", 0),
    _int("min.insync.replicas", 1, 1),
    _bool("preallocate", False),
    _bool("remote.log.copy.disable", False),
    _bool("remote.log.delete.on.disable", False),
    _bool("remote.storage.enable", False),
    _long("retention.bytes", -1, -1, True),
    _long("retention.ms", _WEEK_MS, -1, True),
    _int("segment.bytes", 1_073_741_824, 14),
    _int("segment.index.bytes", 10_485_760, 4),
    _long("segment.jitter.ms", 0),
    _long("segment.ms", _WEEK_MS, 1),
    _bool("unclean.leader.election.enable", False),
    TopicConfig(
        "ister.dispatch.mode",
        ConfigType.STRING,
        "reliable",
        _one_of("reliable", "non-reliable"),
        True,
        True,
    ),
    TopicConfig("ister.durability", ConfigType.STRING, "fsync", _durability, True),
    TopicConfig("ister.heartbeat.interval.ms", ConfigType.INT, "500", _heartbeat, True),
    _long("ister.ring.bytes", 16 * 1024 * 1024, 1024, True),
)
_SYNONYMS = {
    "cleanup.policy": "log.cleanup.policy",
    "compression.gzip.level": "compression.gzip.level",
    "compression.lz4.level": "compression.lz4.level",
    "compression.type": "compression.type",
    "compression.zstd.level": "compression.zstd.level",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "index.interval.bytes": "log.index.interval.bytes",
    "local.retention.bytes": "log.local.retention.bytes",
    "local.retention.ms": "log.local.retention.ms",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "min.insync.replicas": "min.insync.replicas",
    "preallocate": "log.preallocate",
    "retention.bytes": "log.retention.bytes",
    "segment.bytes": "log.segment.bytes",
    "segment.index.bytes": "log.index.size.max.bytes",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
    "ister.dispatch.mode": "ister.dispatch.mode",
    "ister.durability": "ister.durability",
    "ister.heartbeat.interval.ms": "ister.heartbeat.interval.ms",
    "ister.ring.bytes": "ister.ring.bytes",
}
TOPIC_CONFIGS = {
    config.name: config._replace(synonym=_SYNONYMS.get(config.name)) for config in _ALL
}


def validate(configs: Mapping[str, str | None]) -> dict[str, str]:
    """The settings of a topic as they are stored; RequestError says which one is wrong."""
    checked: dict[str, str] = {}
    for name, value in configs.items():
        known = TOPIC_CONFIGS.get(name)
        if known is None:
            raise RequestError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}")
        if value is None:
            raise RequestError(
                ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {name}"
            )
        problem = known.check(value)
        if problem is not None:
            raise RequestError(
                ErrorCode.INVALID_CONFIG,
                f"Invalid value {value} for configuration {name}: {problem}",
            )
        checked[name] = value
    return checked


def default_of(config: TopicConfig, settings: BrokerSettings) -> str:
    """What a topic has that does not set it."""
    attribute = TOPIC_DEFAULTS.get(config.name)
    return config.default if attribute is None else str(getattr(settings, attribute))


def is_broker_default(config: TopicConfig, settings: BrokerSettings) -> bool:
    """Whether a setting of the broker changed the default."""
    return default_of(config, settings) != config.default
