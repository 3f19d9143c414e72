"""OffsetForLeaderEpoch, versions 2-4: where a leader epoch ended (KIP-320).

A consumer whose leader changed asks with the epoch of its last record: an end below its
position means that records were cut off. The answer names the largest epoch that is not
above the one asked for, with the offset at which the next one began, or the high
watermark for the present one: what is not durable does not count. An epoch above all known
ones is (-1, -1), one below all is where the first known one begins, both as in Kafka.
Version 3 tells who asks, which does not matter here; 4 is flexible. The client's own
leader epoch is checked (FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH).
"""

from __future__ import annotations

from ister.gateway.handlers.api import Api, Call
from ister.gateway.handlers.epochs import epoch_error
from ister.gateway.protocol.api import ApiKey
from ister.gateway.protocol.error_codes import ErrorCode
from ister.gateway.protocol.messages import offset_for_leader_epoch as messages
from ister.gateway.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from ister.metadata.catalog import Topic
from ister.wal.partition import Partition

_UNDEFINED = (-1, -1)


def handle(call: Call, request: OffsetForLeaderEpochRequest) -> None:
    topics = []
    for asked in request.topics:
        topic = call.context.topic(asked.topic)
        partitions = tuple(_partition(call, topic, each) for each in asked.partitions)
        topics.append(OffsetForLeaderTopicResult(topic=asked.topic, partitions=partitions))
    call.reply(OffsetForLeaderEpochResponse(topics=tuple(topics)))


def _partition(call: Call, topic: Topic | None, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    partition = call.context.partition(topic, asked.partition) if topic else None
    if partition is None:
        return EpochEndOffset(
            error_code=int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), partition=asked.partition
        )
    error = epoch_error(partition, asked.current_leader_epoch)
    if error is not ErrorCode.NONE:
        return EpochEndOffset(error_code=int(error), partition=asked.partition)
    epoch, end = epoch_end(partition, asked.leader_epoch)
    return EpochEndOffset(partition=asked.partition, leader_epoch=epoch, end_offset=end)


def epoch_end(partition: Partition, epoch: int) -> tuple[int, int]:
    """(epoch, its end) as Kafka answers it."""
    if epoch < 0 or epoch > partition.leader_epoch:
        return _UNDEFINED
    first_epoch, first_offset = partition.epochs[0]
    if epoch < first_epoch:
        return epoch, first_offset
    return partition.epoch_end(epoch)


API = Api(
    key=ApiKey.OFFSET_FOR_LEADER_EPOCH,
    versions=(2, 4),
    handle=handle,
    read=messages.REQUEST.read,
    write=messages.RESPONSE.write,
)
