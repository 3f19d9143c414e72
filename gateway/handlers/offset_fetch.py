"""OffsetFetch, versions 1-10: the cursors of groups.

Where there is no cursor the offset is -1 and there is no error, whether the group, the
topic or the partition exists or not: the client then begins where it is configured to.
That is why a cursor that cannot be known now is an error of the whole group.

Versions: 2 null is all topics, and an error for all (before: in every partition), 5 the
leader epoch (KIP-320), 7 require_stable (KIP-447; nothing is ever unstable without
transactions), 8 several groups (KIP-709), 9 member and its epoch (KIP-848; they concern
other kinds of groups), 10 topics by id (KIP-848), where an unknown one is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import NamedTuple

from ister.dispatch.cursors import Place
from ister.gateway.coordinator.errors import CoordinatorUnavailable
from ister.gateway.errors import code_of
from ister.gateway.handlers.api import Api, Call
from ister.gateway.protocol.api import ApiKey
from ister.gateway.protocol.error_codes import ErrorCode
from ister.gateway.protocol.messages import offset_fetch as messages
from ister.gateway.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ister.metadata.catalog import Topic
from ister.metadata.cursors import Cursor

_GROUP_ERROR_FROM = 2
_GROUPS_FROM = 8
_IDS_FROM = 10
_NO_CURSOR = Cursor(offset=-1)


class _Asked(NamedTuple):
    asked: OffsetFetchRequestTopics
    topic: Topic | None


def handle(call: Call, request: OffsetFetchRequest) -> None:
    if call.version >= _GROUPS_FROM:
        groups = tuple(_group(call, each) for each in request.groups)
        call.reply(OffsetFetchResponse(groups=groups))
    else:
        call.reply(_as_single(_group(call, _single(request))))


def _group(call: Call, request: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
    try:
        topics = _topics(call, request)
    except CoordinatorUnavailable as error:
        return _failed(call, request, code_of(error))
    return OffsetFetchResponseGroup(group_id=request.group_id, topics=topics)


def _topics(call: Call, request: OffsetFetchRequestGroup) -> tuple[OffsetFetchResponseTopics, ...]:
    offsets = call.context.offsets
    if request.topics is None:
        return _all(call, offsets.fetch(request.group_id, None))
    by_id = call.version >= _IDS_FROM
    asked = [
        _Asked(each, call.context.topic(each.topic_id if by_id else each.name))
        for each in request.topics
    ]
    cursors = offsets.fetch(request.group_id, _places(asked))
    return tuple(_topic(call, each, cursors) for each in asked)


def _places(asked: Iterable[_Asked]) -> list[Place]:
    return [
        Place(topic.id, index)
        for each, topic in asked
        if topic is not None
        for index in each.partition_indexes
        if 0 <= index < topic.partitions
    ]


def _topic(call: Call, asked: _Asked, cursors: Mapping[Place, Cursor]) -> OffsetFetchResponseTopics:
    request, topic = asked
    error = ErrorCode.NONE
    if topic is None and call.version >= _IDS_FROM:
        error = ErrorCode.UNKNOWN_TOPIC_ID
    return OffsetFetchResponseTopics(
        topic_id=request.topic_id,
        name=request.name,
        partitions=tuple(
            _partition(
                index,
                cursors.get(Place(topic.id, index)) if topic is not None else None,
                error,
            )
            for index in request.partition_indexes
        ),
    )


def _all(call: Call, cursors: Mapping[Place, Cursor]) -> tuple[OffsetFetchResponseTopics, ...]:
    known = call.context.catalog.topics_by_id
    return tuple(
        OffsetFetchResponseTopics(
            topic_id=topic_id,
            name=known[topic_id].name,
            partitions=tuple(_partition(place.partition, cursors[place]) for place in places),
        )
        for topic_id, places in groupby(sorted(cursors), lambda place: place.topic_id)
    )


def _partition(
    index: int, cursor: Cursor | None, error: ErrorCode = ErrorCode.NONE
) -> OffsetFetchResponsePartitions:
    cursor = cursor or _NO_CURSOR
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=cursor.offset,
        committed_leader_epoch=cursor.leader_epoch,
        metadata=cursor.metadata,
        error_code=int(error),
    )


def _failed(
    call: Call, request: OffsetFetchRequestGroup, error: ErrorCode
) -> OffsetFetchResponseGroup:
    topics: tuple[OffsetFetchResponseTopics, ...] = ()
    if call.version < _GROUP_ERROR_FROM:
        topics = tuple(
            OffsetFetchResponseTopics(
                name=each.name,
                partitions=tuple(
                    _partition(index, None, error) for index in each.partition_indexes
                ),
            )
            for each in request.topics or ()
        )
    return OffsetFetchResponseGroup(group_id=request.group_id, topics=topics, error_code=int(error))


# -- one group, below version 8: the same in other classes -------------------------------


def _single(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    topics = request.topics
    return OffsetFetchRequestGroup(
        group_id=request.group_id,
        topics=None
        if topics is None
        else tuple(
            OffsetFetchRequestTopics(name=each.name, partition_indexes=each.partition_indexes)
            for each in topics
        ),
    )


def _as_single(group: OffsetFetchResponseGroup) -> OffsetFetchResponse:
    return OffsetFetchResponse(
        error_code=group.error_code,
        topics=tuple(
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=tuple(
                    OffsetFetchResponsePartition(
                        partition_index=each.partition_index,
                        committed_offset=each.committed_offset,
                        committed_leader_epoch=each.committed_leader_epoch,
                        metadata=each.metadata,
                        error_code=each.error_code,
                    )
                    for each in topic.partitions
                ),
            )
            for topic in group.topics
        ),
    )


API = Api(
    key=ApiKey.OFFSET_FETCH,
    versions=(1, 10),
    handle=handle,
    read=messages.REQUEST.read,
    write=messages.RESPONSE.write,
)
