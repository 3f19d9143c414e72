"""InitProducerId, versions 0-5: a producer id that nobody else has, with epoch 0.

Without a transactional id every call gives a fresh id, also when the client tells its
old one (3, KIP-360), as Kafka does. With a transactional id it is refused for good.
"""

from __future__ import annotations

from ister.gateway.errors import code_of
from ister.gateway.handlers.api import Api, Call
from ister.gateway.protocol.api import ApiKey
from ister.gateway.protocol.error_codes import ErrorCode
from ister.gateway.protocol.messages import init_producer_id as messages
from ister.gateway.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)


def handle(call: Call, request: InitProducerIdRequest) -> None:
    if request.transactional_id is not None:
        error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        if not request.transactional_id:
            error = ErrorCode.INVALID_REQUEST
        call.reply(InitProducerIdResponse(error_code=int(error), producer_epoch=-1))
        return

    def given(producer_id: int, error: BaseException | None) -> None:
        if error is not None:
            code = code_of(error)
            if code is ErrorCode.REQUEST_TIMED_OUT:
                code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS  # what clients expect to repeat
            call.reply(InitProducerIdResponse(error_code=int(code), producer_epoch=-1))
        else:
            call.reply(InitProducerIdResponse(producer_id=producer_id, producer_epoch=0))

    call.context.producer_ids.take(given)


API = Api(
    key=ApiKey.INIT_PRODUCER_ID,
    versions=(0, 5),
    handle=handle,
    read=messages.REQUEST.read,
    write=messages.RESPONSE.write,
)
