"""From a request to its handler: the table of all APIs.

The table is what is served, and ApiVersions tells it. A key or version that is not in it
ends the connection, as it does on Kafka: answering in a guessed layout would be worse.
The one exception is ApiVersions itself (see its handler).
"""

from __future__ import annotations

from typing import Final

from ister.gateway.handlers import (
    alter_configs,
    api_versions,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_topic_partitions,
    elect_leaders,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
)
from ister.gateway.handlers.api import Api, Call, Client
from ister.gateway.handlers.context import Context
from ister.gateway.protocol.api import ApiKey
from ister.gateway.protocol.errors import ProtocolError
from ister.gateway.protocol.headers import Request

_SERVED: Final = (
    alter_configs.API,
    create_partitions.API,
    create_topics.API,
    delete_groups.API,
    delete_records.API,
    delete_topics.API,
    describe_cluster.API,
    describe_configs.API,
    describe_groups.API,
    describe_log_dirs.API,
    describe_topic_partitions.API,
    elect_leaders.API,
    fetch.API,
    find_coordinator.API,
    heartbeat.API,
    incremental_alter_configs.API,
    init_producer_id.API,
    join_group.API,
    leave_group.API,
    list_groups.API,
    list_offsets.API,
    list_partition_reassignments.API,
    metadata.API,
    offset_commit.API,
    offset_delete.API,
    offset_fetch.API,
    offset_for_leader_epoch.API,
    produce.API,
    sync_group.API,
)
APIS: Final[dict[int, Api]] = {
    int(api.key): api for api in (*_SERVED, api_versions.declare(_SERVED))
}
_API_VERSIONS: Final = int(ApiKey.API_VERSIONS)


# Requests of these may be under way together on one connection.
OVERLAPPING: Final = frozenset(key for key, api in APIS.items() if api.overlaps)


class Router:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._items_max = context.settings.request_items_max

    def dispatch(self, client: Client, request: Request) -> Call:
        """Start the request; ProtocolError ends the connection."""
        api = APIS.get(request.api_key)
        if api is None:
            raise ProtocolError(f"API key {request.api_key} is not served")
        call = Call(api, self._context, client, request)
        low, high = api.versions
        if not low <= request.version <= high:
            if request.api_key != _API_VERSIONS:
                raise ProtocolError(f"{api.key.name} version {request.version} is not served")
            call.owe()
            api_versions.refuse_version(call)
            return call
        message = api.read(request.body, request.version, self._items_max)
        if not api.overlaps:
            call.owe()
        api.handle(call, message)
        return call
