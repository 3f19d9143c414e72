"""ApiVersions, versions 0-4: what is served, from the declarations of the handlers.

A version that is not known is answered in version 0 with UNSUPPORTED_VERSION and one
entry, that of ApiVersions itself; clients then ask again with a version we have. No
features are announced: none of ours is switched by one. What a client calls itself
(KIP-511) is not judged.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ister.gateway.handlers.api import Api, Call
from ister.gateway.protocol.api import ApiKey
from ister.gateway.protocol.error_codes import ErrorCode
from ister.gateway.protocol.messages import api_versions as messages
from ister.gateway.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)

VERSIONS = (0, 4)
_NAMES_FROM = 3
# What KIP-511 allows in the name and version of a client.
_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def declare(apis: Iterable[Api]) -> Api:
    """The API that tells about all others, and about itself."""
    served: list[ApiVersion] = []

    def handle(call: Call, request: ApiVersionsRequest) -> None:
        if call.version >= _NAMES_FROM and not _is_named(request):
            code = int(ErrorCode.INVALID_REQUEST)
            call.reply(ApiVersionsResponse(error_code=code, api_keys=()))
            return
        call.reply(ApiVersionsResponse(api_keys=tuple(served)))

    own = Api(
        key=ApiKey.API_VERSIONS,
        versions=VERSIONS,
        handle=handle,
        read=messages.REQUEST.read,
        write=messages.RESPONSE.write,
    )
    served += sorted((_entry(api) for api in (*apis, own)), key=lambda entry: entry.api_key)
    return own


def _is_named(request: ApiVersionsRequest) -> bool:
    names = (request.client_software_name, request.client_software_version)
    return all(_NAME.fullmatch(each) for each in names)


def refuse_version(call: Call) -> None:
    """For a version that is not served."""
    entry = ApiVersion(
        api_key=int(ApiKey.API_VERSIONS), min_version=VERSIONS[0], max_version=VERSIONS[1]
    )
    body = messages.RESPONSE.write(
        ApiVersionsResponse(error_code=int(ErrorCode.UNSUPPORTED_VERSION), api_keys=(entry,)), 0
    )
    call.send((body,))


def _entry(api: Api) -> ApiVersion:
    low, high = api.versions
    if api.advertised_from is not None:
        low = api.advertised_from
    return ApiVersion(api_key=int(api.key), min_version=low, max_version=high)
