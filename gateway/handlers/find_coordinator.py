"""FindCoordinator, versions 0-6: where the coordinator of a group is. It is here.

Version 4 asks for several keys at once. Transactions are not served yet: asking for the
coordinator of a transactional id is refused for good (a retriable answer would make the
client ask for ever). Share groups (6) likewise.
"""

from __future__ import annotations

from ister.gateway.handlers.api import Api, Call
from ister.gateway.protocol.api import ApiKey
from ister.gateway.protocol.error_codes import ErrorCode
from ister.gateway.protocol.messages import find_coordinator as messages
from ister.gateway.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

_GROUP, _TRANSACTION, _SHARE = 0, 1, 2
_NO_TRANSACTIONS = "Transactions are not supported by this broker."
_BATCHED_FROM = 4


def handle(call: Call, request: FindCoordinatorRequest) -> None:
    if call.version >= _BATCHED_FROM:
        # Kafka has an empty text here where all is well, and before the name of "no error".
        found = tuple(_find(call, request.key_type, key) for key in request.coordinator_keys)
        call.reply(FindCoordinatorResponse(coordinators=found))
        return
    one = _find(call, request.key_type, request.key)
    words = one.error_message or ErrorCode(one.error_code).name
    call.reply(
        FindCoordinatorResponse(
            error_code=one.error_code,
            error_message=words,
            node_id=one.node_id,
            host=one.host,
            port=one.port,
        )
    )


def _find(call: Call, key_type: int, key: str) -> Coordinator:
    if key_type == _TRANSACTION:
        return _refused(key, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, _NO_TRANSACTIONS)
    if key_type == _SHARE:
        return _refused(key, ErrorCode.INVALID_REQUEST, "")
    if key_type != _GROUP:
        return _refused(key, ErrorCode.INVALID_REQUEST, f"Unknown coordinator type {key_type}.")
    endpoint = call.client.listener.endpoint
    return Coordinator(
        key=key,
        node_id=call.context.settings.node_id,
        host=endpoint.host,
        port=endpoint.port,
        error_message="",
    )


def _refused(key: str, code: ErrorCode, words: str) -> Coordinator:
    return Coordinator(
        key=key, node_id=-1, host="", port=-1, error_code=int(code), error_message=words
    )


API = Api(
    key=ApiKey.FIND_COORDINATOR,
    versions=(0, 6),
    handle=handle,
    read=messages.REQUEST.read,
    write=messages.RESPONSE.write,
)
