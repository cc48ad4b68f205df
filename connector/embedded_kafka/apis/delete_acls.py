"""DeleteAcls: remove the ACLs that each filter finds, and name them.

A broker without an authorizer answers SECURITY_DISABLED, as Kafka does.
"""

from __future__ import annotations

from embedded_kafka.apis.describe_acls import filter_of
from embedded_kafka.context import Context
from embedded_kafka.parts import Parts
from embedded_kafka.refusals import Refused
from embedded_kafka.security.acls import AclBinding
from embedded_kafka.wire.server import DeleteAclsRequest, DeleteAclsResponse, Message
from kafka_core.protocol.error_codes import Code

API_KEY: int = DeleteAclsRequest.API_KEY
VERSIONS = (1, 3)

_Result = DeleteAclsResponse.DeleteAclsFilterResult


async def handle(parts: Parts, request: Message, _context: Context) -> Message:
    """Remove what the filters find."""
    results = []
    for asked in request.filters:
        try:
            removed = _removed(parts, asked)
        except Refused as refused:
            results.append(_Result(error_code=int(refused.code), error_message=refused.message, matching_acls=[]))
        else:
            results.append(
                _Result(
                    error_code=int(Code.NONE),
                    error_message=None,
                    matching_acls=[_shown(acl) for acl in removed],
                )
            )
    return DeleteAclsResponse(version=request.API_VERSION, filter_results=results)


def _removed(parts: Parts, asked: Message) -> list[AclBinding]:
    acls = parts.authorizer.alterable()
    wanted = filter_of(asked)
    if wanted is None:
        raise Refused(Code.INVALID_REQUEST, "the filter has an unknown type, operation or permission")
    found = [acl for acl in acls if wanted.matches(acl)]
    parts.authorizer.change((), found)
    return found


def _shown(acl: AclBinding) -> Message:
    return _Result.DeleteAclsMatchingAcl(
        error_code=int(Code.NONE),
        error_message=None,
        resource_type=int(acl.resource),
        resource_name=acl.name,
        pattern_type=int(acl.pattern),
        principal=acl.principal,
        host=acl.host,
        operation=int(acl.operation),
        permission_type=int(acl.permission),
    )
