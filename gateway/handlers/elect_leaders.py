"""ElectLeaders, versions 0-2: never needed, because the one broker leads everything.

A partition that was named is ELECTION_NOT_NEEDED; asked about all, topics come without
partitions, because Kafka leaves out those that have the leader they should have. Version 1
adds the kind of election (KIP-460): preferred or unclean, anything else is INVALID_REQUEST;
2 is flexible.
"""

from __future__ import annotations

from ister.gateway.handlers.api import Api, Call
from ister.gateway.protocol.api import ApiKey
from ister.gateway.protocol.error_codes import ErrorCode
from ister.gateway.protocol.messages import elect_leaders as messages
from ister.gateway.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)

_PREFERRED, _UNCLEAN = 0, 1


def handle(call: Call, request: ElectLeadersRequest) -> None:
    asked = request.topic_partitions
    code = ErrorCode.NONE
    if request.election_type not in (_PREFERRED, _UNCLEAN):
        code = ErrorCode.INVALID_REQUEST
        words = f"Unknown election type {request.election_type}"
        results = [_all_alike(each, code, words) for each in asked or ()]
    elif asked is None:
        results = [
            ReplicaElectionResult(topic=name, partition_result=())
            for name in call.context.catalog.topics_by_name
        ]
    else:
        results = [_topic(call, each) for each in asked]
    call.reply(ElectLeadersResponse(error_code=int(code), replica_election_results=tuple(results)))


def _topic(call: Call, asked: TopicPartitions) -> ReplicaElectionResult:
    topic = call.context.topic(asked.topic)
    if topic is None:
        words = f"No such topic as {asked.topic}"
        return _all_alike(asked, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, words)
    results = []
    for index in asked.partitions:
        code, words = ErrorCode.ELECTION_NOT_NEEDED, "The partition has the leader it should have."
        if call.context.partition(topic, index) is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            words = f"No such partition as {asked.topic}-{index}"
        results.append(_result(index, code, words))
    return ReplicaElectionResult(topic=asked.topic, partition_result=tuple(results))


def _all_alike(asked: TopicPartitions, code: ErrorCode, words: str) -> ReplicaElectionResult:
    results = tuple(_result(index, code, words) for index in asked.partitions)
    return ReplicaElectionResult(topic=asked.topic, partition_result=results)


def _result(index: int, code: ErrorCode, words: str) -> PartitionResult:
    return PartitionResult(partition_id=index, error_code=int(code), error_message=words)


API = Api(
    key=ApiKey.ELECT_LEADERS,
    versions=(0, 2),
    handle=handle,
    read=messages.REQUEST.read,
    write=messages.RESPONSE.write,
)
