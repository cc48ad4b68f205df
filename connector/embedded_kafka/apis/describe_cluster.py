"""DescribeCluster: the brokers (KIP-700), and what the client may do on the cluster (KIP-430).

Version 1 distinguishes brokers from controllers; this cluster has no separate controller: any
broker does what is for it.
"""

from __future__ import annotations

from embedded_kafka.context import Context
from embedded_kafka.parts import Parts
from embedded_kafka.wire.server import DescribeClusterRequest, DescribeClusterResponse, Message
from kafka_core.protocol.error_codes import Code

API_KEY: int = DescribeClusterRequest.API_KEY
VERSIONS = (0, 2)

_BROKERS = 1
_FIRST_WITH_FENCED = 2


async def handle(parts: Parts, request: Message, _context: Context) -> Message:
    """Describe the brokers that are alive; with version 2 also those that the controller has given up, if asked."""
    version = request.API_VERSION
    endpoint_type = request.endpoint_type if version >= 1 else _BROKERS
    if endpoint_type != _BROKERS:
        return DescribeClusterResponse(
            version=version,
            error_code=int(Code.INVALID_REQUEST),
            error_message="This broker has no controller endpoints.",
            cluster_id=parts.cluster_id,
            brokers=[],
        )
    operations = {}
    if request.include_cluster_authorized_operations:
        operations["authorized_operations"] = parts.authorizer.allowed_on_cluster()
    return DescribeClusterResponse(
        version=version,
        **operations,
        error_code=int(Code.NONE),
        cluster_id=parts.cluster_id,
        controller_id=parts.outlook.controller,
        brokers=[
            DescribeClusterResponse.DescribeClusterBroker(broker_id=node_id, host=host, port=port, rack=None)
            for node_id, host, port in parts.outlook.alive
        ]
        + [
            DescribeClusterResponse.DescribeClusterBroker(
                broker_id=each.node_id, host=each.address.host, port=each.address.port, rack=None, is_fenced=True
            )
            for each in parts.brokers
            if version >= _FIRST_WITH_FENCED and request.include_fenced_brokers and each.fenced
        ],
    )
