"""OffsetDelete, version 0: forget cursors of a group (KIP-496); answered when durable.

Cursors of a topic that the group reads stay: GROUP_SUBSCRIBED_TO_TOPIC. A topic or
partition that does not exist is told by itself; one without a cursor is fine. An error
of the group is that of the whole answer, and topics are then left out, as Kafka does.
"""

from __future__ import annotations

from functools import partial

from ister.dispatch.cursors import Place
from ister.gateway.coordinator.offsets import OffsetsResult, TopicPlaces
from ister.gateway.errors import code_of
from ister.gateway.handlers.api import Api, Call
from ister.gateway.protocol.api import ApiKey
from ister.gateway.protocol.error_codes import ErrorCode
from ister.gateway.protocol.messages import offset_delete as messages
from ister.gateway.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ister.metadata.catalog import Topic


def handle(call: Call, request: OffsetDeleteRequest) -> None:
    topics = [call.context.topic(each.name) for each in request.topics]
    places = [
        TopicPlaces(
            topic.name,
            topic.id,
            [
                each.partition_index
                for each in asked.partitions
                if 0 <= each.partition_index < topic.partitions
            ],
        )
        for asked, topic in zip(request.topics, topics, strict=True)
        if topic is not None
    ]
    call.context.offsets.delete(request.group_id, places, partial(_answer, call, request, topics))


def _answer(
    call: Call, request: OffsetDeleteRequest, topics: list[Topic | None], result: OffsetsResult
) -> None:
    if result.error is not None:
        call.reply(OffsetDeleteResponse(error_code=int(code_of(result.error)), topics=()))
        return
    call.reply(
        OffsetDeleteResponse(
            topics=tuple(
                OffsetDeleteResponseTopic(
                    name=asked.name,
                    partitions=tuple(
                        OffsetDeleteResponsePartition(
                            partition_index=each.partition_index,
                            error_code=int(_code(topic, each.partition_index, result)),
                        )
                        for each in asked.partitions
                    ),
                )
                for asked, topic in zip(request.topics, topics, strict=True)
            )
        )
    )


def _code(topic: Topic | None, index: int, result: OffsetsResult) -> ErrorCode:
    if topic is None or not 0 <= index < topic.partitions:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return code_of(result.failures.get(Place(topic.id, index)))


API = Api(
    key=ApiKey.OFFSET_DELETE,
    versions=(0, 0),
    handle=handle,
    read=messages.REQUEST.read,
    write=messages.RESPONSE.write,
)
