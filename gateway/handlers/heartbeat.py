"""Heartbeat, versions 0-4: a member is alive, and hears whether a round has begun.

Version 3 brings static members (KIP-345): a second process with the same instance id
fences the first.
"""

from __future__ import annotations

from ister.gateway.coordinator import events
from ister.gateway.errors import code_of
from ister.gateway.handlers.api import Api, Call
from ister.gateway.protocol.api import ApiKey
from ister.gateway.protocol.messages import heartbeat as messages
from ister.gateway.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def handle(call: Call, request: HeartbeatRequest) -> None:
    heartbeat = events.HeartbeatRequest(
        group=request.group_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation=request.generation_id,
    )
    call.context.groups.heartbeat(
        heartbeat,
        lambda result: call.reply(HeartbeatResponse(error_code=int(code_of(result.error)))),
    )


API = Api(
    key=ApiKey.HEARTBEAT,
    versions=(0, 4),
    handle=handle,
    read=messages.REQUEST.read,
    write=messages.RESPONSE.write,
)
