"""Metadata, versions 0-13: brokers and topics.

Version 0: an empty list is all topics; from 1 on null is all and empty is none. A
topic that is not there is made if the client allows it (below 4 it cannot forbid it)
and the broker does; the answer waits until it can be written to. From 10 on topics
have ids, from 12 on they may be asked for by id (never made by id). There is one
broker: it leads everything, and is told by the address of the listener that was used.

Bytes behind the request are ignored, as Kafka ignores them: librdkafka (seen in 2.16) asks
for all topics with a count of four bytes where one byte belongs, so three are left over.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from ister.gateway.errors import RequestError, code_of
from ister.gateway.handlers.api import Api, Call
from ister.gateway.handlers.authorized import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from ister.gateway.handlers.gather import Gather
from ister.gateway.protocol.api import ApiKey
from ister.gateway.protocol.error_codes import ErrorCode
from ister.gateway.protocol.messages import metadata as messages
from ister.gateway.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ister.gateway.protocol.writer import ZERO_UUID
from ister.gateway.topic_admin import check_name, is_internal
from ister.metadata.catalog import Topic

_NULL_NAMES_FROM = 12  # versions 10 and 11 have topic ids, but no answer without a name


def handle(call: Call, request: MetadataRequest) -> None:
    catalog = call.context.catalog
    asked = request.topics
    if asked is None or (call.version == 0 and not asked):
        _answer(call, request, [_describe(call, each, request) for each in _all(call)])
        return
    errors: dict[str, BaseException] = {}
    missing = dict.fromkeys(
        each.name
        for each in asked
        if each.name is not None
        and each.topic_id == ZERO_UUID
        and each.name not in catalog.topics_by_name
    )
    if not (request.allow_auto_topic_creation and call.context.settings.auto_create_topics_enable):
        missing = {}
    gather = Gather(lambda: _answer_asked(call, request, asked, errors))
    for name in missing:
        _create(call, name, gather, errors)
    gather.begun()


def _all(call: Call) -> Iterable[Topic]:
    return call.context.catalog.topics_by_name.values()


def _create(call: Call, name: str, gather: Gather, errors: dict[str, BaseException]) -> None:
    done = gather.expect(partial(_created, name, errors))
    try:
        call.context.topics.ensure(name, call.context.settings.num_partitions, done)
    except Exception as error:  # a bad name, a full store: said in the topic's answer
        done(error)


def _created(name: str, errors: dict[str, BaseException], error: BaseException | None) -> None:
    if error is not None and code_of(error) is not ErrorCode.TOPIC_ALREADY_EXISTS:
        errors[name] = error


def _answer_asked(
    call: Call,
    request: MetadataRequest,
    asked: tuple[MetadataRequestTopic, ...],
    errors: dict[str, BaseException],
) -> None:
    _answer(call, request, [_asked_topic(call, each, request, errors) for each in asked])


def _asked_topic(
    call: Call,
    asked: MetadataRequestTopic,
    request: MetadataRequest,
    errors: dict[str, BaseException],
) -> MetadataResponseTopic:
    catalog = call.context.catalog
    if asked.topic_id != ZERO_UUID:
        topic = catalog.topics_by_id.get(asked.topic_id)
        if topic is None:
            return MetadataResponseTopic(
                error_code=int(ErrorCode.UNKNOWN_TOPIC_ID),
                name=None if call.version >= _NULL_NAMES_FROM else asked.name or "",
                topic_id=asked.topic_id,
                partitions=(),
            )
        return _describe(call, topic, request)
    if asked.name is None:
        refused = asked
        if call.version < _NULL_NAMES_FROM:
            refused = MetadataRequestTopic(topic_id=asked.topic_id, name="")
        return _refused(refused, request, ErrorCode.INVALID_TOPIC_EXCEPTION)
    topic = catalog.topics_by_name.get(asked.name)
    if topic is not None:
        return _describe(call, topic, request)
    try:
        check_name(asked.name)
    except RequestError as error:
        return _refused(asked, request, error.code)
    failed = errors.get(asked.name)
    code = code_of(failed) if failed is not None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return _refused(asked, request, code)


def _refused(
    asked: MetadataRequestTopic, request: MetadataRequest, code: ErrorCode
) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=int(code),
        name=asked.name,
        topic_id=asked.topic_id,
        partitions=(),
        topic_authorized_operations=_operations(request),
    )


def _describe(call: Call, topic: Topic, request: MetadataRequest) -> MetadataResponseTopic:
    node = call.context.settings.node_id
    nodes = (node,)
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=is_internal(topic.name),
        partitions=tuple(
            MetadataResponsePartition(
                partition_index=partition.index,
                leader_id=node,
                leader_epoch=partition.leader_epoch,
                replica_nodes=nodes,
                isr_nodes=nodes,
            )
            for partition in call.context.log.of_topic(topic.id)
        ),
        topic_authorized_operations=_operations(request),
    )


def _operations(request: MetadataRequest) -> int:
    return TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED


def _answer(call: Call, request: MetadataRequest, topics: list[MetadataResponseTopic]) -> None:
    endpoint = call.client.listener.endpoint
    node = call.context.settings.node_id
    call.reply(
        MetadataResponse(
            brokers=(MetadataResponseBroker(node_id=node, host=endpoint.host, port=endpoint.port),),
            cluster_id=call.context.catalog.cluster_id,
            controller_id=node,
            topics=tuple(topics),
            cluster_authorized_operations=(
                CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
            ),
        )
    )


API = Api(
    key=ApiKey.METADATA,
    versions=(0, 13),
    handle=handle,
    read=partial(messages.REQUEST.read, exact=False),
    write=messages.RESPONSE.write,
)
