"""CreateAcls: add ACLs, each judged separately; one that exists already is no error.

A broker without an authorizer answers SECURITY_DISABLED, as Kafka does.
"""

from __future__ import annotations

from embedded_kafka.context import Context
from embedded_kafka.parts import Parts
from embedded_kafka.refusals import Refused
from embedded_kafka.security.acls import AclBinding, Operation, Pattern, Permission, Resource
from embedded_kafka.security.authorizer import CLUSTER
from embedded_kafka.wire.server import CreateAclsRequest, CreateAclsResponse, Message
from kafka_core.protocol.error_codes import Code

API_KEY: int = CreateAclsRequest.API_KEY
VERSIONS = (1, 3)

_NONE = (Code.NONE, None)


async def handle(parts: Parts, request: Message, _context: Context) -> Message:
    """Add those that are valid."""
    results: list[tuple[Code, str | None]] = []
    added = []
    for asked in request.creations:
        try:
            parts.authorizer.alterable()
            added.append(_judged(asked))
        except Refused as refused:
            results.append((refused.code, refused.message))
        else:
            results.append(_NONE)
    if added:
        try:
            parts.authorizer.change(added)
        except Refused as refused:
            results = [(refused.code, refused.message) if each == _NONE else each for each in results]
    return CreateAclsResponse(
        version=request.API_VERSION,
        results=[
            CreateAclsResponse.AclCreationResult(error_code=int(code), error_message=reason) for code, reason in results
        ],
    )


def _judged(asked: Message) -> AclBinding:
    try:
        acl = AclBinding(
            Resource(asked.resource_type),
            Pattern(asked.resource_pattern_type),
            asked.resource_name,
            asked.principal,
            asked.host,
            Operation(asked.operation),
            Permission(asked.permission_type),
        )
    except ValueError as error:
        raise Refused(Code.INVALID_REQUEST, f"an ACL has no meaning: {error}") from None
    if acl.resource is Resource.ANY:
        raise Refused(Code.INVALID_REQUEST, "Invalid resourceType")
    if acl.pattern not in (Pattern.LITERAL, Pattern.PREFIXED):
        raise Refused(Code.INVALID_REQUEST, "Invalid patternType")
    if acl.operation is Operation.ANY:
        raise Refused(Code.INVALID_REQUEST, "Invalid operation")
    if acl.permission is Permission.ANY:
        raise Refused(Code.INVALID_REQUEST, "Invalid permissionType")
    if not acl.name:
        raise Refused(Code.INVALID_REQUEST, "Resource name should not be empty")
    if acl.resource is Resource.CLUSTER and acl.name != CLUSTER:
        raise Refused(Code.INVALID_REQUEST, f"The only valid name for the CLUSTER resource is {CLUSTER}")
    if ":" not in acl.principal:
        raise Refused(Code.INVALID_REQUEST, "a principal has a type and a name, with a colon between them: User:alice")
    return acl
