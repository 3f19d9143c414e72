"""DescribeConfigs, versions 1-4: all settings of topics and of this broker.

Each with value, source, type (version 3), and on request where else a value could come
from (synonyms) and what it means (3, KIP-569). Tools that read, modify and write back rely
on all of them being there, defaults too. The settings of the broker are read-only; among
them are some that have one possible value here, because tools look for them. A broker
resource without a name asks for what was set for all brokers while they ran: nothing.
Loggers and other resources are INVALID_REQUEST. Version 4 is flexible.
"""

from __future__ import annotations

from dataclasses import Field
from typing import Any

from ister.gateway.errors import RequestError, code_of, words_of
from ister.gateway.handlers.api import Api, Call
from ister.gateway.handlers.config_edits import BROKER, TOPIC, check_broker, find_topic
from ister.gateway.handlers.config_views import (
    DEFAULT_CONFIG,
    STATIC_BROKER_CONFIG,
    ConfigEntry,
    Synonym,
    topic_entries,
)
from ister.gateway.protocol.api import ApiKey
from ister.gateway.protocol.error_codes import ErrorCode
from ister.gateway.protocol.messages import describe_configs as messages
from ister.gateway.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from ister.gateway.settings import BY_NAME, SECRETS, BrokerSettings
from ister.gateway.topic_configs import ConfigType

_INT32_MAX = 2**31 - 1
_FIXED_WHILE_RUNNING = "Set when the broker starts."
# What Kafka lets one set and we do not, and tools ask for (Debezium: the replication factor).
_ALWAYS = (
    ("compression.type", "producer", ConfigType.STRING),
    ("default.replication.factor", "1", ConfigType.INT),
    ("log.cleanup.policy", "delete", ConfigType.LIST),
    ("min.insync.replicas", "1", ConfigType.INT),
)


def handle(call: Call, request: DescribeConfigsRequest) -> None:
    results = tuple(_resource(call, request, resource) for resource in request.resources)
    call.reply(DescribeConfigsResponse(results=results))


def _resource(
    call: Call, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    error: RequestError | None = None
    entries: list[ConfigEntry] = []
    try:
        entries = _entries(call, resource)
    except RequestError as refused:
        error = refused
    wanted = resource.configuration_keys
    return DescribeConfigsResult(
        error_code=int(code_of(error)),
        error_message=_words(error),
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=tuple(
            _shown(each, request) for each in entries if not wanted or each.name in wanted
        ),
    )


def _words(error: RequestError | None) -> str:
    """Kafka has no words for a topic that is not there, and an empty text, not null, for none."""
    if error is not None and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return ""
    return words_of(error) or ""


def _entries(call: Call, resource: DescribeConfigsResource) -> list[ConfigEntry]:
    settings = call.context.settings
    if resource.resource_type == TOPIC:
        return topic_entries(find_topic(call, resource.resource_name).configs, settings)
    if resource.resource_type == BROKER:
        check_broker(call, resource.resource_name)
        return broker_entries(settings) if resource.resource_name else []
    raise RequestError(
        ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {resource.resource_type}"
    )


def broker_entries(settings: BrokerSettings) -> list[ConfigEntry]:
    """All settings of a broker, by name."""
    entries = [_broker_entry(name, each, settings) for name, each in BY_NAME.items()]
    entries += [_entry(name, value, value, kind) for name, value, kind in _ALWAYS]
    # Kafka's older name of node.id, which tools still read.
    node, usual = str(settings.node_id), str(BY_NAME["node.id"].default)
    entries.append(_entry("broker.id", node, usual, ConfigType.INT))
    return sorted(entries, key=lambda entry: entry.name)


def _broker_entry(name: str, field: Field[Any], settings: BrokerSettings) -> ConfigEntry:
    default = field.default
    if isinstance(default, bool):
        kind = ConfigType.BOOLEAN
    elif isinstance(default, int):
        kind = ConfigType.INT if field.metadata["high"] <= _INT32_MAX else ConfigType.LONG
    else:
        kind = ConfigType.STRING
    return _entry(name, _text(getattr(settings, field.name)), _text(default), kind)


def _entry(name: str, value: str, default: str, kind: ConfigType) -> ConfigEntry:
    synonyms = [Synonym(name, default, DEFAULT_CONFIG)]
    if value != default:
        synonyms.insert(0, Synonym(name, value, STATIC_BROKER_CONFIG))
    return ConfigEntry(
        name, value, synonyms[0].source, kind, True, tuple(synonyms), _FIXED_WHILE_RUNNING
    )


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _shown(entry: ConfigEntry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    """A secret has no value for anybody, as Kafka's passwords have none."""
    secret = entry.name in SECRETS
    synonyms: tuple[DescribeConfigsSynonym, ...] = ()
    if request.include_synonyms:
        synonyms = tuple(
            DescribeConfigsSynonym(
                name=each.name, value=None if secret else each.value, source=each.source
            )
            for each in entry.synonyms
        )
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=None if secret else entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=secret,
        synonyms=synonyms,
        config_type=int(ConfigType.PASSWORD if secret else entry.type),
        documentation=entry.documentation if request.include_documentation else None,
    )


API = Api(
    key=ApiKey.DESCRIBE_CONFIGS,
    versions=(1, 4),
    handle=handle,
    read=messages.REQUEST.read,
    write=messages.RESPONSE.write,
)
