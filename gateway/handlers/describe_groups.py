"""DescribeGroups, versions 0-6: state, protocol and members of groups.

Members show their metadata and assignment while the group is stable. Version 3 tells what
the client may do, if asked (KIP-430), 4 the instance ids of static members (KIP-345). A
group that does not exist is in the state Dead, without an error below version 6, from
there on with GROUP_ID_NOT_FOUND (KIP-1043).
"""

from __future__ import annotations

from ister.gateway.coordinator.errors import CoordinatorUnavailable
from ister.gateway.coordinator.states import GroupState
from ister.gateway.coordinator.views import GroupDescription
from ister.gateway.errors import code_of, words_of
from ister.gateway.handlers.api import Api, Call
from ister.gateway.handlers.authorized import GROUP_OPERATIONS, NOT_ASKED
from ister.gateway.protocol.api import ApiKey
from ister.gateway.protocol.error_codes import ErrorCode
from ister.gateway.protocol.messages import describe_groups as messages
from ister.gateway.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

_NOT_FOUND_FROM = 6


def handle(call: Call, request: DescribeGroupsRequest) -> None:
    allowed = GROUP_OPERATIONS if request.include_authorized_operations else NOT_ASKED
    call.reply(
        DescribeGroupsResponse(
            groups=tuple(_describe(call, group_id, allowed) for group_id in request.groups)
        )
    )


def _describe(call: Call, group_id: str, allowed: int) -> DescribedGroup:
    groups = call.context.groups
    if groups.closed:  # where to, is not known any more: nobody is to take it for dead
        error = CoordinatorUnavailable()
        return _nothing(group_id, "", allowed, code_of(error), words_of(error))
    found = groups.describe(group_id)
    if found is not None:
        return _found(found, allowed)
    dead = GroupState.DEAD.value
    if call.version < _NOT_FOUND_FROM:
        return _nothing(group_id, dead, allowed)
    words = f"Group {group_id} not found."
    return _nothing(group_id, dead, allowed, ErrorCode.GROUP_ID_NOT_FOUND, words)


def _found(group: GroupDescription, allowed: int) -> DescribedGroup:
    return DescribedGroup(
        group_id=group.id,
        group_state=group.state.value,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol,
        members=tuple(
            DescribedGroupMember(
                member_id=each.id,
                group_instance_id=each.instance_id,
                client_id=each.client_id,
                client_host=each.client_host,
                member_metadata=each.metadata,
                member_assignment=each.assignment,
            )
            for each in group.members
        ),
        authorized_operations=allowed,
    )


def _nothing(
    group_id: str,
    state: str,
    allowed: int,
    error: ErrorCode = ErrorCode.NONE,
    words: str | None = None,
) -> DescribedGroup:
    return DescribedGroup(
        error_code=int(error),
        error_message=words,
        group_id=group_id,
        group_state=state,
        protocol_type="",
        protocol_data="",
        members=(),
        authorized_operations=allowed if error is ErrorCode.NONE else NOT_ASKED,
    )


API = Api(
    key=ApiKey.DESCRIBE_GROUPS,
    versions=(0, 6),
    handle=handle,
    read=messages.REQUEST.read,
    write=messages.RESPONSE.write,
)
