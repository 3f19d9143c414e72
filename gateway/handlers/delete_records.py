"""DeleteRecords, versions 0-2: raise the log start; answered when that is durable.

Offset -1 is the high watermark. Beyond it, or any other negative number, is
OFFSET_OUT_OF_RANGE; below the log start nothing happens and the present one is told. A
topic that is only compacted keeps its records (POLICY_VIOLATION). A non-reliable topic
has nothing before its head, so there is nothing to do and its head is told. Version 2 is
the flexible layout of version 1. The time-out is not looked at: the journal answers or fails.
"""

from __future__ import annotations

from functools import partial

from ister.gateway.errors import RequestError, code_of
from ister.gateway.handlers.api import Api, Call
from ister.gateway.handlers.gather import Gather
from ister.gateway.protocol.api import ApiKey
from ister.gateway.protocol.error_codes import ErrorCode
from ister.gateway.protocol.messages import delete_records as messages
from ister.gateway.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from ister.gateway.topic_admin import check_not_internal
from ister.metadata.catalog import Topic
from ister.wal.errors import LogError, OffsetOutOfRange
from ister.wal.partition import Partition

HIGH_WATERMARK = -1
_NO_OFFSET = -1
_Results = dict[int, DeleteRecordsPartitionResult]


def handle(call: Call, request: DeleteRecordsRequest) -> None:
    answer: list[tuple[str, _Results]] = []

    def finish() -> None:
        topics = tuple(
            DeleteRecordsTopicResult(name=name, partitions=tuple(results.values()))
            for name, results in answer
        )
        call.reply(DeleteRecordsResponse(topics=topics))

    gather = Gather(finish)
    for asked in request.topics:
        topic = call.context.topic(asked.name)
        results: _Results = {}
        answer.append((asked.name, results))
        for each in asked.partitions:
            results[each.partition_index] = _result(each.partition_index, _NO_OFFSET, None)
            try:
                _delete(call, topic, each, results, gather)
            except (LogError, RequestError) as error:
                results[each.partition_index] = _result(each.partition_index, _NO_OFFSET, error)
    gather.begun()


def _delete(
    call: Call,
    topic: Topic | None,
    asked: DeleteRecordsPartition,
    results: _Results,
    gather: Gather,
) -> None:
    partition = call.context.partition(topic, asked.partition_index) if topic else None
    if topic is None or partition is None:
        raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "There is no such partition.")
    check_not_internal(topic.name)
    policy = topic.configs.get("cleanup.policy", "delete")
    if "compact" in policy and "delete" not in policy:
        raise RequestError(ErrorCode.POLICY_VIOLATION, "The topic is compacted, not deleted from.")
    offset = asked.offset
    if offset == HIGH_WATERMARK:
        offset = partition.high_watermark
    elif not 0 <= offset <= partition.high_watermark:
        raise OffsetOutOfRange(offset, partition.log_start, partition.high_watermark)
    done = gather.expect(partial(_moved, partition, results))
    try:
        call.context.log.move_log_start(partition, offset, done)
    except LogError as error:
        done(error)


def _moved(partition: Partition, results: _Results, error: LogError | None) -> None:
    low_watermark = _NO_OFFSET if error is not None else partition.log_start
    results[partition.index] = _result(partition.index, low_watermark, error)


def _result(
    index: int, low_watermark: int, error: BaseException | None
) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=index, low_watermark=low_watermark, error_code=int(code_of(error))
    )


API = Api(
    key=ApiKey.DELETE_RECORDS,
    versions=(0, 2),
    handle=handle,
    read=messages.REQUEST.read,
    write=messages.RESPONSE.write,
)
