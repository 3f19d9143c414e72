"""DeleteGroups, versions 0-3: groups without members go, with all their cursors.

Answered when that is durable. A group with members is NON_EMPTY_GROUP, one that does not
exist GROUP_ID_NOT_FOUND; version 3 says so in words too (KIP-1043). A group that is named
twice is deleted and answered once.
"""

from __future__ import annotations

from functools import partial

from ister.gateway.coordinator.errors import CoordinatorError, GroupNotEmpty, GroupNotFound
from ister.gateway.errors import code_of, words_of
from ister.gateway.handlers.api import Api, Call
from ister.gateway.handlers.gather import Gather
from ister.gateway.protocol.api import ApiKey
from ister.gateway.protocol.messages import delete_groups as messages
from ister.gateway.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


def handle(call: Call, request: DeleteGroupsRequest) -> None:
    names = list(dict.fromkeys(request.groups_names))
    errors: dict[str, CoordinatorError | None] = {}

    def answer() -> None:
        results = tuple(_result(name, errors[name]) for name in names)
        call.reply(DeleteGroupsResponse(results=results))

    gather = Gather(answer)
    for name in names:
        done = gather.expect(partial(errors.__setitem__, name))
        call.context.groups.delete_group(name, done)
    gather.begun()


def _result(name: str, error: CoordinatorError | None) -> DeletableGroupResult:
    return DeletableGroupResult(
        group_id=name, error_code=int(code_of(error)), error_message=_words(name, error)
    )


def _words(name: str, error: CoordinatorError | None) -> str | None:
    if isinstance(error, GroupNotFound):
        return f"Group {name} not found."
    if isinstance(error, GroupNotEmpty):
        return f"Group {name} is not empty."
    return words_of(error)


API = Api(
    key=ApiKey.DELETE_GROUPS,
    versions=(0, 3),
    handle=handle,
    read=messages.REQUEST.read,
    write=messages.RESPONSE.write,
)
