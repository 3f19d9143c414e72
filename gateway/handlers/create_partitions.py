"""CreatePartitions, versions 0-3: more partitions; answered when they can be written to.

Every topic of the request is in the answer, once. Checked as Kafka checks, in its order:
a name twice in the request, whether the topic is there, the count (a total, which must
be more than there are), an assignment by hand, which has to name this broker for each new
partition. `validate_only` stops there. The broker's own topics stay as they are. Version 2
is flexible; 3 adds only an error that concerns quotas, which are not served.
"""

from __future__ import annotations

from collections import Counter
from functools import partial

from ister.gateway.errors import RequestError, code_of, words_of
from ister.gateway.handlers.api import Api, Call
from ister.gateway.handlers.gather import Gather
from ister.gateway.protocol.api import ApiKey
from ister.gateway.protocol.error_codes import ErrorCode
from ister.gateway.protocol.messages import create_partitions as messages
from ister.gateway.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from ister.gateway.topic_admin import PARTITIONS_MAX, check_not_internal
from ister.metadata.catalog import Topic

_Errors = dict[str, BaseException | None]


def handle(call: Call, request: CreatePartitionsRequest) -> None:
    counts = Counter(topic.name for topic in request.topics)
    errors: _Errors = dict.fromkeys(counts)
    gather = Gather(lambda: _answer(call, errors))
    budget = PARTITIONS_MAX
    for asked in request.topics:
        try:
            if counts[asked.name] > 1:
                raise RequestError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            topic = call.context.topic(asked.name)
            if topic is None:
                raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            check_not_internal(topic.name)
            budget -= _added(call, topic, asked)
            if budget < 0:
                raise RequestError(
                    ErrorCode.POLICY_VIOLATION,
                    "Excessively large number of partitions per request.",
                )
        except RequestError as error:
            errors[asked.name] = error
            continue
        if not request.validate_only:
            _grow(call, topic, asked.count, errors, gather)
    gather.begun()


def _added(call: Call, topic: Topic, asked: CreatePartitionsTopic) -> int:
    """How many partitions come; RequestError if they cannot."""
    added = asked.count - topic.partitions
    if added == 0:
        raise RequestError(
            ErrorCode.INVALID_PARTITIONS, f"Topic already has {topic.partitions} partition(s)."
        )
    if added < 0:
        raise RequestError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {topic.name} currently has {topic.partitions} partition(s);"
            f" {asked.count} would not be an increase.",
        )
    if asked.assignments is not None:
        _check_assignments(call, added, asked)
    return added


def _check_assignments(call: Call, added: int, asked: CreatePartitionsTopic) -> None:
    assignments = asked.assignments or ()
    if len(assignments) != added:
        raise RequestError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {added} additional partition(s), but {len(assignments)}"
            " assignment(s) were specified.",
        )
    node = call.context.settings.node_id
    if any(each.broker_ids != (node,) for each in assignments):
        raise RequestError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The only broker there is has the id {node}."
        )


def _grow(call: Call, topic: Topic, count: int, errors: _Errors, gather: Gather) -> None:
    done = gather.expect(partial(errors.__setitem__, topic.name))
    try:
        call.context.topics.grow(topic, count, done)
    except Exception as error:  # a full queue, a race: said in the topic's answer
        done(error)


def _answer(call: Call, errors: _Errors) -> None:
    results = tuple(
        CreatePartitionsTopicResult(
            name=name, error_code=int(code_of(error)), error_message=words_of(error)
        )
        for name, error in errors.items()
    )
    call.reply(CreatePartitionsResponse(results=results))


API = Api(
    key=ApiKey.CREATE_PARTITIONS,
    versions=(0, 3),
    handle=handle,
    read=messages.REQUEST.read,
    write=messages.RESPONSE.write,
)
