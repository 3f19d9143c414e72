"""DescribeCluster, versions 0-2: the one broker, at the address of the listener used.

Version 1 asks for brokers or controllers (KIP-919): there are no controllers to talk to.
Version 2 may ask for fenced brokers: there are none.
"""

from __future__ import annotations

from ister.gateway.handlers.api import Api, Call
from ister.gateway.handlers.authorized import CLUSTER_OPERATIONS, NOT_ASKED
from ister.gateway.protocol.api import ApiKey
from ister.gateway.protocol.error_codes import ErrorCode
from ister.gateway.protocol.messages import describe_cluster as messages
from ister.gateway.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

_BROKERS, _CONTROLLERS = 1, 2


def handle(call: Call, request: DescribeClusterRequest) -> None:
    if request.endpoint_type != _BROKERS:
        _refuse(call, request.endpoint_type)
        return
    endpoint = call.client.listener.endpoint
    node = call.context.settings.node_id
    call.reply(
        DescribeClusterResponse(
            cluster_id=call.context.catalog.cluster_id,
            controller_id=node,
            brokers=(
                DescribeClusterBroker(broker_id=node, host=endpoint.host, port=endpoint.port),
            ),
            cluster_authorized_operations=(
                CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
            ),
        )
    )


def _refuse(call: Call, endpoint_type: int) -> None:
    code, words = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unknown endpoint type {endpoint_type}"
    if endpoint_type == _CONTROLLERS:
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        words = "The request was sent to an endpoint of type BROKER, not CONTROLLER"
    call.reply(
        DescribeClusterResponse(
            error_code=int(code), error_message=words, cluster_id="", brokers=()
        )
    )


API = Api(
    key=ApiKey.DESCRIBE_CLUSTER,
    versions=(0, 2),
    handle=handle,
    read=messages.REQUEST.read,
    write=messages.RESPONSE.write,
)
