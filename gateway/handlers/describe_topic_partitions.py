"""DescribeTopicPartitions, version 0: topics in the order of their names, page by page.

KIP-966. No names is all topics. A page has at most `response_partition_limit` partitions
(2000 is the most, as in Kafka); where it ends stands in the next cursor: a topic and its
first partition that is missing, and the next page begins there. A topic that is not there
is an error in its place; it takes nothing of the limit. A cursor whose topic is not among
the names, or whose partition is negative, is INVALID_REQUEST for every topic asked for.
There is one broker, so no replica was ever lost.
"""

from __future__ import annotations

from ister.gateway.errors import RequestError
from ister.gateway.handlers.api import Api, Call
from ister.gateway.handlers.authorized import NOT_ASKED, TOPIC_OPERATIONS
from ister.gateway.protocol.api import ApiKey
from ister.gateway.protocol.error_codes import ErrorCode
from ister.gateway.protocol.messages import describe_topic_partitions as messages
from ister.gateway.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from ister.gateway.protocol.writer import ZERO_UUID
from ister.gateway.topic_admin import check_name, is_internal
from ister.metadata.catalog import Topic
from ister.wal.partition import Partition

PAGE_PARTITIONS_MAX = 2000  # Kafka's max.request.partition.size.limit
_Described = DescribeTopicPartitionsResponseTopic


def handle(call: Call, request: DescribeTopicPartitionsRequest) -> None:
    names = {each.name for each in request.topics}
    cursor = request.cursor
    if cursor is not None and (
        cursor.partition_index < 0 or (names and cursor.topic_name not in names)
    ):
        topics = tuple(_failed(name, ErrorCode.INVALID_REQUEST) for name in sorted(names))
        call.reply(DescribeTopicPartitionsResponse(topics=topics))
        return
    first = cursor.topic_name if cursor is not None else ""
    wanted = sorted(name for name in names or call.context.catalog.topics_by_name if name >= first)
    limit = max(1, min(PAGE_PARTITIONS_MAX, request.response_partition_limit))
    described, following = _page(call, wanted, cursor, limit)
    call.reply(DescribeTopicPartitionsResponse(topics=tuple(described), next_cursor=following))


def _page(
    call: Call, names: list[str], cursor: Cursor | None, left: int
) -> tuple[list[_Described], Cursor | None]:
    """What fits, and where the rest begins."""
    described: list[_Described] = []
    for name in names:
        if left == 0:
            return described, Cursor(topic_name=name, partition_index=0)
        topic = call.context.topic(name)
        if topic is None:
            described.append(_failed(name, _why_missing(name)))
            continue
        begin = 0
        if cursor is not None and cursor.topic_name == name:
            begin = cursor.partition_index
        partitions = call.context.log.of_topic(topic.id)
        taken = partitions[begin : begin + left]
        described.append(_describe(call, topic, taken))
        if begin + left < len(partitions):
            return described, Cursor(topic_name=name, partition_index=begin + left)
        left -= len(taken)
    return described, None


def _describe(call: Call, topic: Topic, partitions: list[Partition]) -> _Described:
    node = call.context.settings.node_id
    nodes = (node,)
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=is_internal(topic.name),
        partitions=tuple(
            DescribeTopicPartitionsResponsePartition(
                partition_index=partition.index,
                leader_id=node,
                leader_epoch=partition.leader_epoch,
                replica_nodes=nodes,
                isr_nodes=nodes,
                eligible_leader_replicas=(),
                last_known_elr=(),
            )
            for partition in partitions
        ),
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _why_missing(name: str) -> ErrorCode:
    try:
        check_name(name)
    except RequestError as error:
        return error.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _failed(name: str, code: ErrorCode) -> _Described:
    return DescribeTopicPartitionsResponseTopic(
        error_code=int(code),
        name=name,
        topic_id=ZERO_UUID,
        partitions=(),
        # A request that is wrong as a whole is answered before anybody looks at a topic.
        topic_authorized_operations=(
            TOPIC_OPERATIONS if name and code is not ErrorCode.INVALID_REQUEST else NOT_ASKED
        ),
    )


API = Api(
    key=ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    versions=(0, 0),
    handle=handle,
    read=messages.REQUEST.read,
    write=messages.RESPONSE.write,
)
