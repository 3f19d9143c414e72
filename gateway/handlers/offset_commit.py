"""OffsetCommit, versions 2-10: set cursors; answered when they are durable.

A topic or partition that does not exist is refused by itself; the rest is the
coordinator's to judge, and what it says holds for each of them. Commits may go backward.

Versions: 2-4 bring a retention time, which is ignored (cursors stay as long as their
topic), 6 the leader epoch of the last record read (KIP-320), 7 static members (KIP-345),
9 tells a group that does not exist from a generation that is over (KIP-848), 10 names
topics by id (KIP-848), and one that is gone is then UNKNOWN_TOPIC_ID.
"""

from __future__ import annotations

from functools import partial

from ister.dispatch.cursors import Place
from ister.gateway.coordinator.offsets import CommitRequest, OffsetsResult, OffsetToCommit
from ister.gateway.errors import code_of
from ister.gateway.handlers.api import Api, Call
from ister.gateway.protocol.api import ApiKey
from ister.gateway.protocol.error_codes import ErrorCode
from ister.gateway.protocol.messages import offset_commit as messages
from ister.gateway.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ister.metadata.catalog import Topic
from ister.metadata.errors import UnknownTopic

_GROUP_NOT_FOUND_FROM = 9
_IDS_FROM = 10


def handle(call: Call, request: OffsetCommitRequest) -> None:
    # Looked up once: whatever happens until the answer, it speaks of the topic that was meant.
    topics = [_topic(call, each) for each in request.topics]
    offsets = [
        OffsetToCommit(
            Place(topic.id, each.partition_index),
            each.committed_offset,
            each.committed_leader_epoch,
            each.committed_metadata or "",
        )
        for asked, topic in zip(request.topics, topics, strict=True)
        if topic is not None
        for each in asked.partitions
        if 0 <= each.partition_index < topic.partitions
    ]
    answer = partial(_answer, call, request, topics)
    if not offsets:
        answer(OffsetsResult(None, {}))
        return
    commit = CommitRequest(
        group=request.group_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation=request.generation_id_or_member_epoch,
        offsets=offsets,
        group_not_found_known=call.version >= _GROUP_NOT_FOUND_FROM,
    )
    call.context.offsets.commit(commit, answer)


def _topic(call: Call, asked: OffsetCommitRequestTopic) -> Topic | None:
    return call.context.topic(asked.topic_id if call.version >= _IDS_FROM else asked.name)


def _answer(
    call: Call, request: OffsetCommitRequest, topics: list[Topic | None], result: OffsetsResult
) -> None:
    call.reply(
        OffsetCommitResponse(
            topics=tuple(
                OffsetCommitResponseTopic(
                    topic_id=asked.topic_id,
                    name=asked.name,
                    partitions=tuple(
                        OffsetCommitResponsePartition(
                            partition_index=each.partition_index,
                            error_code=int(_code(call, topic, each.partition_index, result)),
                        )
                        for each in asked.partitions
                    ),
                )
                for asked, topic in zip(request.topics, topics, strict=True)
            )
        )
    )


def _code(call: Call, topic: Topic | None, index: int, result: OffsetsResult) -> ErrorCode:
    if topic is None:
        return _topic_is_gone(call)
    if not 0 <= index < topic.partitions:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    error = result.error or result.failures.get(Place(topic.id, index))
    return _topic_is_gone(call) if isinstance(error, UnknownTopic) else code_of(error)


def _topic_is_gone(call: Call) -> ErrorCode:
    if call.version >= _IDS_FROM:
        return ErrorCode.UNKNOWN_TOPIC_ID
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


API = Api(
    key=ApiKey.OFFSET_COMMIT,
    versions=(2, 10),
    handle=handle,
    read=messages.REQUEST.read,
    write=messages.RESPONSE.write,
)
