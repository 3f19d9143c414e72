"""Settings as DescribeConfigs and CreateTopics show them: value, source, type, synonyms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ister.gateway.settings import TOPIC_DEFAULTS, BrokerSettings
from ister.gateway.topic_configs import (
    TOPIC_CONFIGS,
    ConfigType,
    TopicConfig,
    default_of,
    is_broker_default,
)

# Kafka's numbers for where a value comes from.
DYNAMIC_TOPIC_CONFIG, STATIC_BROKER_CONFIG, DEFAULT_CONFIG = 1, 4, 5


class Synonym(NamedTuple):
    name: str
    value: str
    source: int


class ConfigEntry(NamedTuple):
    name: str
    value: str
    source: int
    type: ConfigType
    read_only: bool
    synonyms: tuple[Synonym, ...]
    documentation: str


def topic_entries(configs: Mapping[str, str], settings: BrokerSettings) -> list[ConfigEntry]:
    """All settings of a topic that sets `configs`."""
    return [_topic_entry(known, configs, settings) for known in TOPIC_CONFIGS.values()]


def _topic_entry(
    known: TopicConfig, configs: Mapping[str, str], settings: BrokerSettings
) -> ConfigEntry:
    synonyms: list[Synonym] = []
    own = configs.get(known.name)
    if own is not None:
        synonyms.append(Synonym(known.name, own, DYNAMIC_TOPIC_CONFIG))
    if is_broker_default(known, settings):
        broker_name = _broker_name(known.name)
        synonyms.append(Synonym(broker_name, default_of(known, settings), STATIC_BROKER_CONFIG))
    if known.synonym is not None:
        synonyms.append(Synonym(known.synonym, known.default, DEFAULT_CONFIG))
    first = synonyms[0] if synonyms else Synonym(known.name, known.default, DEFAULT_CONFIG)
    documentation = "Takes effect." if known.effect else "Stored and reported; without effect."
    return ConfigEntry(
        known.name,
        first.value,
        first.source,
        known.type,
        known.fixed,
        tuple(synonyms),
        documentation,
    )


def _broker_name(topic_name: str) -> str:
    """The broker's setting that gives the default; the topic's name where there is none."""
    attribute = TOPIC_DEFAULTS.get(topic_name)
    if attribute is None:
        return topic_name
    for each in BrokerSettings.__dataclass_fields__.values():
        if each.name == attribute:
            return str(each.metadata["name"])
    return topic_name
