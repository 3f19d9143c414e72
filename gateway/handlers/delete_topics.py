"""DeleteTopics, versions 1-6: answered when the deletion is durable.

By name, from 6 on by name or id. One metadata transaction removes the topic and its
cursors; what is left on disk and in the bucket goes later. `delete.topic.enable=false`
is TOPIC_DELETION_DISABLED (INVALID_REQUEST below 3).
"""

from __future__ import annotations

from collections import Counter
from functools import partial

from ister.gateway.errors import RequestError, code_of, words_of
from ister.gateway.handlers.api import Api, Call
from ister.gateway.handlers.gather import Gather
from ister.gateway.protocol.api import ApiKey
from ister.gateway.protocol.error_codes import ErrorCode
from ister.gateway.protocol.messages import delete_topics as messages
from ister.gateway.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ister.gateway.protocol.writer import ZERO_UUID
from ister.gateway.topic_admin import is_internal
from ister.metadata.catalog import Topic

_IDS_FROM = 6


def handle(call: Call, request: DeleteTopicsRequest) -> None:
    asked = request.topics
    if call.version < _IDS_FROM:
        asked = tuple(
            DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in request.topic_names
        )
    counts = Counter((each.name, each.topic_id) for each in asked)
    results: list[DeletableTopicResult] = []
    gather = Gather(lambda: call.reply(DeleteTopicsResponse(responses=tuple(results))))
    for each in dict.fromkeys(asked):
        try:
            if counts[each.name, each.topic_id] > 1:
                raise RequestError(ErrorCode.INVALID_REQUEST, "Duplicate topic.")
            topic = _find(call, each)
            if is_internal(topic.name):
                raise RequestError(
                    ErrorCode.INVALID_TOPIC_EXCEPTION, "This topic is the broker's own."
                )
        except RequestError as error:
            results.append(_result(each.name, each.topic_id, error))
            continue
        done = gather.expect(partial(_deleted, topic, results))
        call.context.topics.delete(topic, done)
    gather.begun()


def _find(call: Call, asked: DeleteTopicState) -> Topic:
    if not call.context.settings.delete_topic_enable:
        old = call.version < 3
        raise RequestError(
            ErrorCode.INVALID_REQUEST if old else ErrorCode.TOPIC_DELETION_DISABLED,
            "Topic deletion is disabled.",
        )
    if asked.name is not None and asked.topic_id != ZERO_UUID:
        raise RequestError(ErrorCode.INVALID_REQUEST, "Either a name or an id is wanted, not both.")
    if asked.name is not None:
        topic = call.context.topic(asked.name)
        if topic is None:
            raise RequestError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic."
            )
        return topic
    if asked.topic_id == ZERO_UUID:
        raise RequestError(ErrorCode.INVALID_REQUEST, "Neither a name nor an id was given.")
    topic = call.context.topic(asked.topic_id)
    if topic is None:
        raise RequestError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
    return topic


def _deleted(
    topic: Topic, results: list[DeletableTopicResult], error: BaseException | None
) -> None:
    results.append(_result(topic.name, topic.id, error))


def _result(name: str | None, topic_id: bytes, error: BaseException | None) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=name,
        topic_id=topic_id,
        error_code=int(code_of(error)),
        error_message=words_of(error),
    )


API = Api(
    key=ApiKey.DELETE_TOPICS,
    versions=(1, 6),
    handle=handle,
    read=messages.REQUEST.read,
    write=messages.RESPONSE.write,
)
