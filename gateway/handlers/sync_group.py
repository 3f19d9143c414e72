"""SyncGroup, versions 0-5: the leader brings the assignment, everybody gets its part.

Answered when the assignment is durable, or when the round is over without one. A client
that goes away meanwhile stays a member until its session ends; its answer goes nowhere.

Versions: 3 static members (KIP-345), 5 type and name of the protocol, which must be those
of the group and must be there (KIP-559).
"""

from __future__ import annotations

from ister.gateway.coordinator.errors import InconsistentProtocol
from ister.gateway.coordinator.events import SyncRequest, SyncResult
from ister.gateway.errors import code_of
from ister.gateway.handlers.api import Api, Call
from ister.gateway.protocol.api import ApiKey
from ister.gateway.protocol.messages import sync_group as messages
from ister.gateway.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

_PROTOCOL_FROM = 5


def handle(call: Call, request: SyncGroupRequest) -> None:
    if call.version >= _PROTOCOL_FROM and None in (request.protocol_type, request.protocol_name):
        call.reply(_response(SyncResult(InconsistentProtocol())))
        return
    sync = SyncRequest(
        group=request.group_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation=request.generation_id,
        protocol_type=request.protocol_type,
        protocol=request.protocol_name,
        assignments=tuple((each.member_id, each.assignment) for each in request.assignments),
    )
    call.context.groups.sync(sync, lambda result: call.reply(_response(result)))


def _response(result: SyncResult) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=int(code_of(result.error)),
        protocol_type=result.protocol_type,
        protocol_name=result.protocol,
        assignment=result.assignment,
    )


API = Api(
    key=ApiKey.SYNC_GROUP,
    versions=(0, 5),
    handle=handle,
    read=messages.REQUEST.read,
    write=messages.RESPONSE.write,
)
