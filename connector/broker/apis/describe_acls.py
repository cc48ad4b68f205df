"""DescribeAcls: this broker has no ACLs. Denials set by a test are not ACLs and are not listed.

Kafka without an authorizer also answers SECURITY_DISABLED.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from connector.protocol.error_codes import Code
from connector.protocol.server import DescribeAclsRequest, DescribeAclsResponse, Message

if TYPE_CHECKING:
    from connector.broker.context import Context
    from connector.broker.node import Node

API_KEY: int = DescribeAclsRequest.API_KEY
VERSIONS = (1, 3)
REPEATABLE = True


async def handle(_node: Node, request: Message, _context: Context) -> Message:
    """Answer that the broker has no authorizer."""
    return DescribeAclsResponse(
        version=request.API_VERSION,
        error_code=int(Code.SECURITY_DISABLED),
        error_message="No Authorizer is configured on the broker",
        resources=[],
    )
