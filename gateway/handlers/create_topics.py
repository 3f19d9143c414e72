"""CreateTopics, versions 2-7: answered when the partitions can be written to.

Checked as Kafka checks, in its order: names twice in one request, the name, whether it is
there, settings, partitions and replicas (or an assignment by hand, which can only name
this broker). -1 partitions or replicas is the default (4 and above; taken in all).
Version 5 answers with the settings of the new topic, 7 with its id. There is one node, so
the replication factor is 1.
"""

from __future__ import annotations

from collections import Counter
from functools import partial

from ister.gateway.errors import RequestError, code_of, words_of
from ister.gateway.handlers.api import Api, Call
from ister.gateway.handlers.config_views import DYNAMIC_TOPIC_CONFIG, topic_entries
from ister.gateway.handlers.gather import Gather
from ister.gateway.protocol.api import ApiKey
from ister.gateway.protocol.error_codes import ErrorCode
from ister.gateway.protocol.messages import create_topics as messages
from ister.gateway.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ister.gateway.protocol.writer import ZERO_UUID
from ister.gateway.topic_admin import PARTITIONS_MAX
from ister.gateway.topic_configs import validate

_DEFAULT = -1


def handle(call: Call, request: CreateTopicsRequest) -> None:
    results: dict[str, CreatableTopicResult] = {}
    counts = Counter(topic.name for topic in request.topics)
    gather = Gather(
        lambda: call.reply(CreateTopicsResponse(topics=tuple(results[name] for name in counts)))
    )
    budget = PARTITIONS_MAX
    for topic in request.topics:
        if topic.name in results:
            continue
        try:
            if counts[topic.name] > 1:
                raise RequestError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            call.context.topics.check_new(topic.name)
            configs = validate(_configs(topic))
            partitions = _partitions(call, topic)
            budget -= partitions
            if budget < 0:
                raise RequestError(
                    ErrorCode.POLICY_VIOLATION,
                    "Excessively large number of partitions per request.",
                )
            results[topic.name] = _succeeded(call, topic.name, ZERO_UUID, partitions, configs)
            if not request.validate_only:
                _create(call, topic, partitions, configs, results, gather)
        except Exception as error:
            results[topic.name] = _failed(topic.name, error)
    gather.begun()


def _create(
    call: Call,
    topic: CreatableTopic,
    partitions: int,
    configs: dict[str, str],
    results: dict[str, CreatableTopicResult],
    gather: Gather,
) -> None:
    done = gather.expect(partial(_created, call, topic.name, partitions, configs, results))
    try:
        call.context.topics.create(topic.name, partitions, configs, done)
    except Exception as error:
        done(error)


def _created(
    call: Call,
    name: str,
    partitions: int,
    configs: dict[str, str],
    results: dict[str, CreatableTopicResult],
    error: BaseException | None,
) -> None:
    if error is not None:
        results[name] = _failed(name, error)
        return
    made = call.context.catalog.topics_by_name.get(name)
    topic_id = made.id if made is not None else ZERO_UUID
    results[name] = _succeeded(call, name, topic_id, partitions, configs)


def _configs(topic: CreatableTopic) -> dict[str, str | None]:
    return {config.name: config.value for config in topic.configs}


def _partitions(call: Call, topic: CreatableTopic) -> int:
    if topic.assignments:
        return _assigned(call, topic)
    partitions, replicas = topic.num_partitions, topic.replication_factor
    if partitions == _DEFAULT:
        partitions = call.context.settings.num_partitions
    if partitions <= 0:
        raise RequestError(
            ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0, or -1."
        )
    if replicas == 0 or replicas < _DEFAULT:
        raise RequestError(
            ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0, or -1."
        )
    if replicas > 1:
        raise RequestError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replicas} time(s): there is 1 broker.",
        )
    return partitions


def _assigned(call: Call, topic: CreatableTopic) -> int:
    if topic.num_partitions != _DEFAULT or topic.replication_factor != _DEFAULT:
        raise RequestError(
            ErrorCode.INVALID_REQUEST,
            "With an assignment, partitions and replication factor must be -1.",
        )
    if sorted(each.partition_index for each in topic.assignments) != [
        *range(len(topic.assignments))
    ]:
        raise RequestError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Partitions must be numbered from 0, each once."
        )
    node = call.context.settings.node_id
    if any(each.broker_ids != (node,) for each in topic.assignments):
        raise RequestError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The only broker there is has the id {node}."
        )
    return len(topic.assignments)


def _succeeded(
    call: Call, name: str, topic_id: bytes, partitions: int, configs: dict[str, str]
) -> CreatableTopicResult:
    entries = topic_entries(configs, call.context.settings)
    return CreatableTopicResult(
        name=name,
        topic_id=topic_id,
        error_message=None,
        num_partitions=partitions,
        replication_factor=1,
        configs=tuple(
            CreatableTopicConfigs(
                name=entry.name,
                value=entry.value,
                read_only=entry.read_only and entry.source != DYNAMIC_TOPIC_CONFIG,
                config_source=entry.source,
                is_sensitive=False,
            )
            for entry in entries
        ),
    )


def _failed(name: str, error: BaseException) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=name, error_code=int(code_of(error)), error_message=words_of(error), configs=()
    )


API = Api(
    key=ApiKey.CREATE_TOPICS,
    versions=(2, 7),
    handle=handle,
    read=messages.REQUEST.read,
    write=messages.RESPONSE.write,
)
