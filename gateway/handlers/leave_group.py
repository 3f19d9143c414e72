"""LeaveGroup, versions 0-5: members go, or an admin removes them.

Version 3 takes a list (KIP-345): a static member may be named by its instance id alone,
each has its own error, and the error of the whole answer is for the group. Before, one
member leaves and its error is that of the answer. A reason (5, KIP-800) is not kept.
"""

from __future__ import annotations

from ister.gateway.coordinator.events import LeaveResult, LeavingMember
from ister.gateway.errors import code_of
from ister.gateway.handlers.api import Api, Call
from ister.gateway.protocol.api import ApiKey
from ister.gateway.protocol.messages import leave_group as messages
from ister.gateway.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
)

_LIST_FROM = 3


def handle(call: Call, request: LeaveGroupRequest) -> None:
    if call.version >= _LIST_FROM:
        leaving = [
            LeavingMember(each.member_id, each.group_instance_id) for each in request.members
        ]
    else:
        leaving = [LeavingMember(request.member_id)]
    call.context.groups.leave(
        request.group_id, leaving, lambda result: call.reply(_response(call.version, result))
    )


def _response(version: int, result: LeaveResult) -> LeaveGroupResponse:
    if version < _LIST_FROM:
        error = result.error or next((each.error for each in result.members), None)
        return LeaveGroupResponse(error_code=int(code_of(error)))
    return LeaveGroupResponse(
        error_code=int(code_of(result.error)),
        members=tuple(
            MemberResponse(
                member_id=each.member_id,
                group_instance_id=each.instance_id,
                error_code=int(code_of(each.error)),
            )
            for each in result.members
        ),
    )


API = Api(
    key=ApiKey.LEAVE_GROUP,
    versions=(0, 5),
    handle=handle,
    read=messages.REQUEST.read,
    write=messages.RESPONSE.write,
)
