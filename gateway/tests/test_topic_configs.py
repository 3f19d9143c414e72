"""Settings of topics: which names and values are taken, and what a topic has without them."""

from __future__ import annotations

import pytest

from ister.gateway.errors import RequestError
from ister.gateway.handlers.config_views import topic_entries
from ister.gateway.protocol.error_codes import ErrorCode
from ister.gateway.settings import BrokerSettings
from ister.gateway.topic_configs import (
    TOPIC_CONFIGS,
    ConfigType,
    default_of,
    is_broker_default,
    validate,
)
from ister.wal.topic_settings import topic_settings

KINDS = {
    ConfigType.INT: int,
    ConfigType.LONG: int,
    ConfigType.DOUBLE: float,
}


@pytest.mark.parametrize("name", sorted(TOPIC_CONFIGS))
def test_every_default_is_valid(name: str):
    """What a topic has by default could also be set."""
    known = TOPIC_CONFIGS[name]
    assert validate({name: known.default}) == {name: known.default}
    KINDS.get(known.type, str)(known.default)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("no.such.setting", "1"),
        ("retention.ms", None),
        ("retention.ms", "soon"),
        ("retention.ms", "-2"),
        ("retention.bytes", str(2**63)),
        ("max.message.bytes", "-1"),
        ("min.insync.replicas", "0"),
        ("min.cleanable.dirty.ratio", "1.5"),
        ("cleanup.policy", "burn"),
        ("cleanup.policy", "delete,burn"),
        ("compression.type", "gzip"),
        ("message.timestamp.type", "Never"),
        ("preallocate", "perhaps"),
        ("ister.durability", "cloud"),
        ("ister.dispatch.mode", "sometimes"),
        ("ister.ring.bytes", "1"),
    ],
)
def test_a_wrong_value_is_refused_by_name(name: str, value: str | None):
    """Pitfall 28: INVALID_CONFIG, and the words say which one."""
    with pytest.raises(RequestError, match=name) as refused:
        validate({"retention.ms": "1", name: value})
    assert refused.value.code is ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize(
    "policy", ["delete", "compact", "compact,delete", " delete , compact ", ""]
)
def test_policies_are_taken(policy: str):
    """Connect, Streams and registries ask for them; none at all keeps everything."""
    validate({"cleanup.policy": policy})
    settings = topic_settings({"cleanup.policy": policy})
    assert settings.compact == ("compact" in policy)
    assert settings.deletes == ("delete" in policy)


def test_the_broker_gives_defaults():
    """A setting of the broker is the default of its topics, and is told as such."""
    settings = BrokerSettings(log_retention_ms=5_000)
    known = TOPIC_CONFIGS["retention.ms"]
    assert default_of(known, settings) == "5000"
    assert is_broker_default(known, settings)
    assert not is_broker_default(TOPIC_CONFIGS["segment.ms"], settings)


def test_entries_show_where_a_value_comes_from():
    """The topic's own first, then the broker's, then the default; Kafka's names for each."""
    entries = topic_entries(
        {"max.message.bytes": "10"}, BrokerSettings(message_max_bytes=20, log_retention_ms=5_000)
    )
    found = {entry.name: entry for entry in entries}
    assert [
        (each.name, each.value, each.source) for each in found["max.message.bytes"].synonyms
    ] == [
        ("max.message.bytes", "10", 1),
        ("message.max.bytes", "20", 4),
        ("message.max.bytes", "1048588", 5),
    ]
    assert (found["retention.ms"].value, found["retention.ms"].source) == ("5000", 4)
    assert found["flush.ms"].synonyms == ()  # Kafka's broker setting has no default
    assert (found["flush.ms"].value, found["flush.ms"].source) == (str(2**63 - 1), 5)
