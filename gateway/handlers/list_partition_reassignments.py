"""ListPartitionReassignments, version 0: none, because a partition has nowhere to go.

Kafka leaves out what is not being moved, also topics that are not there.
"""

from __future__ import annotations

from ister.gateway.handlers.api import Api, Call
from ister.gateway.protocol.api import ApiKey
from ister.gateway.protocol.messages import list_partition_reassignments as messages
from ister.gateway.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


def handle(call: Call, _: ListPartitionReassignmentsRequest) -> None:
    call.reply(ListPartitionReassignmentsResponse(error_message=None, topics=()))


API = Api(
    key=ApiKey.LIST_PARTITION_REASSIGNMENTS,
    versions=(0, 0),
    handle=handle,
    read=messages.REQUEST.read,
    write=messages.RESPONSE.write,
)
