"""SyncGroup: the leader submits the assignment, every member receives its part.

Version 3 adds group.instance.id, 5 the protocol's type and name, which are then required (KIP-559).
"""

from __future__ import annotations

from embedded_kafka.context import Context
from embedded_kafka.groups.codes import code_of
from embedded_kafka.parts import Parts
from embedded_kafka.refusals import Refused
from embedded_kafka.wire.server import Message, SyncGroupRequest, SyncGroupResponse
from kafka_core.protocol.error_codes import Code

API_KEY: int = SyncGroupRequest.API_KEY
VERSIONS = (0, 5)


async def handle(parts: Parts, request: Message, _context: Context) -> Message:
    """Answer when the assignment is stored, or at once with a refusal."""
    version = request.API_VERSION
    named = version >= 5
    if named and (request.protocol_type is None or request.protocol_name is None):
        return _refused(version, Code.INCONSISTENT_GROUP_PROTOCOL)
    if not parts.authorizer.allows("READ", "GROUP", request.group_id):
        return _refused(version, Code.GROUP_AUTHORIZATION_FAILED)
    try:
        answer = await parts.groups.sync(
            request.group_id,
            generation=request.generation_id,
            member_id=request.member_id,
            instance_id=request.group_instance_id if version >= 3 else None,
            protocol_type=request.protocol_type if named else None,
            protocol_name=request.protocol_name if named else None,
            assignments=[(part.member_id, bytes(part.assignment)) for part in request.assignments],
        )
    except Refused as refused:
        return _refused(version, refused.code)
    if answer.refusal is not None:
        return _refused(version, code_of(answer.refusal))
    return SyncGroupResponse(
        version=version,
        error_code=int(Code.NONE),
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol_name,
        assignment=answer.assignment,
    )


def _refused(version: int, code: Code) -> Message:
    return SyncGroupResponse(version=version, error_code=int(code), assignment=b"")
