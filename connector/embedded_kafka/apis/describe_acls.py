"""DescribeAcls: the ACLs that a filter finds, grouped by their resource.

Denials set by a test are not ACLs and are not listed. A broker without an authorizer answers SECURITY_DISABLED, as
Kafka does.
"""

from __future__ import annotations

from embedded_kafka.context import Context
from embedded_kafka.parts import Parts
from embedded_kafka.security.acls import AclBinding, AclFilter, Operation, Pattern, Permission, Resource
from embedded_kafka.security.authorizer import CLUSTER
from embedded_kafka.wire.server import DescribeAclsRequest, DescribeAclsResponse, Message
from kafka_core.protocol.error_codes import Code

API_KEY: int = DescribeAclsRequest.API_KEY
VERSIONS = (1, 3)
REPEATABLE = True
GROWS = "resources"

_Resource = DescribeAclsResponse.DescribeAclsResource


async def handle(parts: Parts, request: Message, _context: Context) -> Message:
    """List the ACLs, or return the reason for the refusal."""
    if parts.authorizer.acls is None:
        return _refused(request, Code.SECURITY_DISABLED, "No Authorizer is configured on the broker")
    if not parts.authorizer.allows("DESCRIBE", "CLUSTER", CLUSTER):
        return _refused(request, Code.CLUSTER_AUTHORIZATION_FAILED, "DESCRIBE on the cluster is denied")
    wanted = filter_of(request)
    if wanted is None:
        return _refused(request, Code.INVALID_REQUEST, "the filter has an unknown type, operation or permission")
    grouped: dict[tuple[Resource, Pattern, str], list[AclBinding]] = {}
    for acl in parts.authorizer.acls:
        if wanted.matches(acl):
            grouped.setdefault((acl.resource, acl.pattern, acl.name), []).append(acl)
    return DescribeAclsResponse(
        version=request.API_VERSION,
        error_code=int(Code.NONE),
        error_message=None,
        resources=[
            _Resource(
                resource_type=int(resource),
                resource_name=name,
                pattern_type=int(pattern),
                acls=[
                    _Resource.AclDescription(
                        principal=acl.principal,
                        host=acl.host,
                        operation=int(acl.operation),
                        permission_type=int(acl.permission),
                    )
                    for acl in acls
                ],
            )
            for (resource, pattern, name), acls in grouped.items()
        ],
    )


def filter_of(asked: Message) -> AclFilter | None:
    """The filter in a request; None where a number in it has no meaning."""
    try:
        return AclFilter(
            Resource(asked.resource_type_filter),
            Pattern(asked.pattern_type_filter),
            asked.resource_name_filter,
            asked.principal_filter,
            asked.host_filter,
            Operation(asked.operation),
            Permission(asked.permission_type),
        )
    except ValueError:
        return None


def _refused(request: Message, code: Code, reason: str) -> Message:
    return DescribeAclsResponse(version=request.API_VERSION, error_code=int(code), error_message=reason, resources=[])
