"""JoinGroup, versions 0-9: become a member; answered when the round is complete.

The answer may take as long as the rebalance timeout. If the client goes away meanwhile
the member stays until its session ends, as on Kafka: it may come back and ask again, and
the answer that nobody waits for goes nowhere.

Versions: 1 a rebalance timeout (before: the session timeout), 4 a first join without a
member id is told one and comes again (KIP-394), 5 static members (KIP-345), 7 type and
name of the protocol in the answer (KIP-559; before, no protocol is an empty name), 8 a
reason (KIP-800; not kept), 9 a static leader that comes back may be told to skip the
assignment (KIP-814).
"""

from __future__ import annotations

from ister.gateway.coordinator.events import JoinRequest, JoinResult, Protocol
from ister.gateway.errors import code_of
from ister.gateway.handlers.api import Api, Call
from ister.gateway.protocol.api import ApiKey
from ister.gateway.protocol.messages import join_group as messages
from ister.gateway.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)

_MEMBER_ID_REQUIRED_FROM = 4
_NULL_PROTOCOL_FROM = 7
_SKIP_ASSIGNMENT_FROM = 9


def handle(call: Call, request: JoinGroupRequest) -> None:
    join = JoinRequest(
        group=request.group_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        client_id=call.request.client_id or "",
        client_host=f"/{call.client.host}",  # with the slash, as Java prints an address
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple(Protocol(each.name, each.metadata) for each in request.protocols),
        member_id_required=call.version >= _MEMBER_ID_REQUIRED_FROM,
        skip_assignment_known=call.version >= _SKIP_ASSIGNMENT_FROM,
    )
    call.context.groups.join(join, lambda result: call.reply(_response(call.version, result)))


def _response(version: int, result: JoinResult) -> JoinGroupResponse:
    protocol = result.protocol
    if protocol is None and version < _NULL_PROTOCOL_FROM:
        protocol = ""
    return JoinGroupResponse(
        error_code=int(code_of(result.error)),
        generation_id=result.generation,
        protocol_type=result.protocol_type,
        protocol_name=protocol,
        leader=result.leader,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=tuple(
            JoinGroupResponseMember(
                member_id=each.id, group_instance_id=each.instance_id, metadata=each.metadata
            )
            for each in result.members
        ),
    )


API = Api(
    key=ApiKey.JOIN_GROUP,
    versions=(0, 9),
    handle=handle,
    read=messages.REQUEST.read,
    write=messages.RESPONSE.write,
)
