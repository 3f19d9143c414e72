"""AlterConfigs, versions 0-2: all settings of a topic at once; what is left out is default.

The older of the two ways (KIP-339 is the other, `incremental_alter_configs.py`), kept for
tools that read, modify and write back everything. Version 2 is flexible. Settings of the
broker are refused; see `config_edits.py` for what is checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from ister.gateway.errors import RequestError, code_of, words_of
from ister.gateway.handlers.api import Api, Call
from ister.gateway.handlers.config_edits import Edit, Errors, Values, apply_edits
from ister.gateway.protocol.api import ApiKey
from ister.gateway.protocol.error_codes import ErrorCode
from ister.gateway.protocol.messages import alter_configs as messages
from ister.gateway.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


def handle(call: Call, request: AlterConfigsRequest) -> None:
    edits = [
        Edit(
            resource.resource_type,
            resource.resource_name,
            [config.name for config in resource.configs],
            partial(_replaced, resource),
        )
        for resource in request.resources
    ]
    apply_edits(call, edits, request.validate_only, partial(_answer, call, request))


def _replaced(resource: AlterConfigsResource, _: Mapping[str, str]) -> Values:
    missing = [config.name for config in resource.configs if config.value is None]
    if missing:
        raise RequestError(
            ErrorCode.INVALID_REQUEST, f"Null value not supported for : {','.join(missing)}"
        )
    return {config.name: config.value for config in resource.configs}


def _answer(call: Call, request: AlterConfigsRequest, errors: Errors) -> None:
    responses = tuple(
        AlterConfigsResourceResponse(
            error_code=int(code_of(error)),
            error_message=words_of(error),
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        for resource, error in zip(request.resources, errors, strict=True)
    )
    call.reply(AlterConfigsResponse(responses=responses))


API = Api(
    key=ApiKey.ALTER_CONFIGS,
    versions=(0, 2),
    handle=handle,
    read=messages.REQUEST.read,
    write=messages.RESPONSE.write,
)
