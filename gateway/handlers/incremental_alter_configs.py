"""IncrementalAlterConfigs, versions 0-1: single settings of a topic (KIP-339).

SET and DELETE (back to the default), and for lists APPEND and SUBTRACT: each item once, on
the default if the topic sets nothing, without an error for an item that is there already or
missing. APPEND and SUBTRACT on anything but a list are INVALID_CONFIG. Version 1 is
flexible. Settings of the broker are refused; see `config_edits.py` for what is checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from ister.gateway.errors import RequestError, code_of, words_of
from ister.gateway.handlers.api import Api, Call
from ister.gateway.handlers.config_edits import Edit, Errors, Values, apply_edits
from ister.gateway.protocol.api import ApiKey
from ister.gateway.protocol.error_codes import ErrorCode
from ister.gateway.protocol.messages import incremental_alter_configs as messages
from ister.gateway.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ister.gateway.settings import BrokerSettings
from ister.gateway.topic_configs import TOPIC_CONFIGS, ConfigType, default_of

SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
_NAMES = {SET: "SET", DELETE: "DELETE", APPEND: "APPEND", SUBTRACT: "SUBTRACT"}


def handle(call: Call, request: IncrementalAlterConfigsRequest) -> None:
    edits = [
        Edit(
            resource.resource_type,
            resource.resource_name,
            [config.name for config in resource.configs],
            partial(_changed, resource, call.context.settings),
        )
        for resource in request.resources
    ]
    apply_edits(call, edits, request.validate_only, partial(_answer, call, request))


def _changed(
    resource: AlterConfigsResource, settings: BrokerSettings, present: Mapping[str, str]
) -> Values:
    missing = [
        each.name
        for each in resource.configs
        if each.value is None and each.config_operation != DELETE
    ]
    if missing:
        raise RequestError(
            ErrorCode.INVALID_REQUEST, f"Null value not supported for : {','.join(missing)}"
        )
    values: Values = {**present}
    for each in resource.configs:
        if each.config_operation == SET:
            values[each.name] = each.value
        elif each.config_operation == DELETE:
            values.pop(each.name, None)  # also a name that nobody knows, as in Kafka
        elif each.config_operation in (APPEND, SUBTRACT):
            values[each.name] = _edited_list(each, settings, present)
        else:
            raise RequestError(
                ErrorCode.INVALID_REQUEST, f"Unknown operation type {each.config_operation}"
            )
    return values


def _check_known(name: str) -> None:
    if name not in TOPIC_CONFIGS:
        raise RequestError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}")


def _edited_list(
    edit: AlterableConfig, settings: BrokerSettings, present: Mapping[str, str]
) -> str:
    _check_known(edit.name)
    known = TOPIC_CONFIGS[edit.name]
    if known.type is not ConfigType.LIST:
        raise RequestError(
            ErrorCode.INVALID_CONFIG,
            f"Can't {_NAMES[edit.config_operation]} to key {edit.name}"
            " because its type is not LIST.",
        )
    items = _items(present.get(edit.name, default_of(known, settings)))
    edited = _items(edit.value or "")
    if edit.config_operation == APPEND:
        items += [item for item in edited if item not in items]
    else:
        items = [item for item in items if item not in edited]
    return ",".join(items)


def _items(text: str) -> list[str]:
    return list(dict.fromkeys(item.strip() for item in text.split(",") if item.strip()))


def _answer(call: Call, request: IncrementalAlterConfigsRequest, errors: Errors) -> None:
    responses = tuple(
        AlterConfigsResourceResponse(
            error_code=int(code_of(error)),
            error_message=words_of(error),
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        for resource, error in zip(request.resources, errors, strict=True)
    )
    call.reply(IncrementalAlterConfigsResponse(responses=responses))


API = Api(
    key=ApiKey.INCREMENTAL_ALTER_CONFIGS,
    versions=(0, 1),
    handle=handle,
    read=messages.REQUEST.read,
    write=messages.RESPONSE.write,
)
