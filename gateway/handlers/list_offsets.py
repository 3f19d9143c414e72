"""ListOffsets, versions 1-11: offsets of times, and the special ones.

-1 latest (the high watermark; there are no transactions, so read_committed sees the same),
-2 earliest, from version 7 on -3 the record with the largest timestamp (KIP-734), 8: -4
earliest on the local disk (KIP-405), 9: -5 last in the bucket (KIP-1005), 11: -6 earliest
not yet in the bucket (KIP-1023). Other negative numbers, and these below their version, are
UNSUPPORTED_VERSION. A time gives the first record at or after it, looked up record by
record off the loop; none is offset -1. A non-reliable topic has no past: every time
that lies in it is its head.
"""

from __future__ import annotations

from collections import Counter
from functools import partial

from ister.gateway.errors import code_of
from ister.gateway.handlers.api import Api, Call
from ister.gateway.handlers.epochs import epoch_at, epoch_error
from ister.gateway.handlers.gather import Gather
from ister.gateway.protocol.api import ApiKey
from ister.gateway.protocol.error_codes import ErrorCode
from ister.gateway.protocol.messages import list_offsets as messages
from ister.gateway.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ister.metadata.catalog import Topic
from ister.wal.errors import LogError
from ister.wal.partition import Partition
from ister.wal.times import Found

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
EARLIEST_LOCAL, LAST_TIERED, EARLIEST_PENDING = -4, -5, -6
_SINCE = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LAST_TIERED: 9,
    EARLIEST_PENDING: 11,
}
_Results = list[ListOffsetsPartitionResponse]


def handle(call: Call, request: ListOffsetsRequest) -> None:
    answer: list[tuple[str, _Results]] = []
    counts = Counter(
        (topic.name, each.partition_index) for topic in request.topics for each in topic.partitions
    )

    def finish() -> None:
        topics = tuple(
            ListOffsetsTopicResponse(name=name, partitions=tuple(results))
            for name, results in answer
        )
        call.reply(ListOffsetsResponse(topics=topics))

    gather = Gather(finish)
    for asked in request.topics:
        topic = call.context.topic(asked.name)
        results: _Results = []
        answer.append((asked.name, results))
        for each in asked.partitions:
            # What is asked twice is answered once, with an error.
            times = counts.pop((asked.name, each.partition_index), 0)
            if times:
                _look_up(call, topic, each, results, gather, times > 1)
    gather.begun()


def _look_up(
    call: Call,
    topic: Topic | None,
    asked: ListOffsetsPartition,
    results: _Results,
    gather: Gather,
    twice: bool,
) -> None:
    partition = call.context.partition(topic, asked.partition_index) if topic else None
    error = _refusal(call, partition, asked, twice)
    if error is not ErrorCode.NONE or partition is None:
        results.append(
            ListOffsetsPartitionResponse(
                partition_index=asked.partition_index, error_code=int(error)
            )
        )
        return
    timestamp = asked.timestamp
    if timestamp < 0 and timestamp != MAX_TIMESTAMP:
        results.append(_at(partition, _special(partition, timestamp)))
        return
    if not partition.settings.reliable:
        results.append(_at(partition, partition.high_watermark))
        return
    place = len(results)
    results.append(ListOffsetsPartitionResponse(partition_index=asked.partition_index))
    done = gather.expect(partial(_found, partition, results, place))
    if timestamp == MAX_TIMESTAMP:
        call.context.times.max_timestamp(partition, done)
    else:
        call.context.times.offset_for_time(partition, timestamp, done)


def _refusal(
    call: Call, partition: Partition | None, asked: ListOffsetsPartition, twice: bool
) -> ErrorCode:
    if twice:
        return ErrorCode.INVALID_REQUEST
    if asked.timestamp < 0 and call.version < _SINCE.get(asked.timestamp, 1 << 15):
        return ErrorCode.UNSUPPORTED_VERSION
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return epoch_error(partition, asked.current_leader_epoch)


def _special(partition: Partition, which: int) -> int:
    if which == LATEST:
        return partition.high_watermark
    if which == EARLIEST:
        return partition.log_start
    if which == LAST_TIERED:
        return partition.last_tiered
    if which == EARLIEST_PENDING:
        return partition.earliest_pending
    return partition.earliest_local


def _at(partition: Partition, offset: int, timestamp: int = -1) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=partition.index,
        timestamp=timestamp,
        offset=offset,
        leader_epoch=epoch_at(partition, offset) if offset >= 0 else -1,
    )


def _found(
    partition: Partition,
    results: _Results,
    place: int,
    found: Found | None,
    error: LogError | None,
) -> None:
    if error is not None:
        results[place] = ListOffsetsPartitionResponse(
            partition_index=partition.index, error_code=int(code_of(error))
        )
    elif found is not None:
        results[place] = _at(partition, found.offset, found.timestamp_ms)


API = Api(
    key=ApiKey.LIST_OFFSETS,
    versions=(1, 11),
    handle=handle,
    read=messages.REQUEST.read,
    write=messages.RESPONSE.write,
)
