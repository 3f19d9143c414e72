"""ListGroups, versions 0-5: all groups, also those that are nothing but cursors.

Version 4 filters by state and tells it (KIP-518), 5 by type (KIP-848; every group here is
of type classic). Filters are compared without regard to case, as Kafka does; a state or
type that does not exist finds nothing.
"""

from __future__ import annotations

from ister.gateway.coordinator.errors import CoordinatorUnavailable
from ister.gateway.errors import code_of
from ister.gateway.handlers.api import Api, Call
from ister.gateway.protocol.api import ApiKey
from ister.gateway.protocol.messages import list_groups as messages
from ister.gateway.protocol.messages.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)


def handle(call: Call, request: ListGroupsRequest) -> None:
    groups = call.context.groups
    if groups.closed:  # a list that lacks groups would be taken for the truth
        code = int(code_of(CoordinatorUnavailable()))
        call.reply(ListGroupsResponse(error_code=code, groups=()))
        return
    states = {each.lower() for each in request.states_filter}
    types = {each.lower() for each in request.types_filter}
    found = tuple(
        ListedGroup(
            group_id=each.id,
            protocol_type=each.protocol_type,
            group_state=each.state.value,
            group_type=each.group_type,
        )
        for each in groups.list_groups()
        if (not states or each.state.value.lower() in states)
        and (not types or each.group_type.lower() in types)
    )
    call.reply(ListGroupsResponse(groups=found))


API = Api(
    key=ApiKey.LIST_GROUPS,
    versions=(0, 5),
    handle=handle,
    read=messages.REQUEST.read,
    write=messages.RESPONSE.write,
)
