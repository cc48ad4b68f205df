"""LeaveGroup: members leave without waiting for their sessions to expire.

Versions below 3 name one member, and the answer has its code. From 3 on they name several, with a
code each; an administrator can name static ones by group.instance.id alone (KIP-345). The reason of
version 5 is not stored.
"""

from __future__ import annotations

from embedded_kafka.context import Context
from embedded_kafka.parts import Parts
from embedded_kafka.refusals import Refused
from embedded_kafka.wire.server import LeaveGroupRequest, LeaveGroupResponse, Message
from kafka_core.protocol.error_codes import Code

API_KEY: int = LeaveGroupRequest.API_KEY
VERSIONS = (0, 5)

_SEVERAL = 3


async def handle(parts: Parts, request: Message, _context: Context) -> Message:
    """Answer at once; the other members see the change with their next heartbeat."""
    version = request.API_VERSION
    if version >= _SEVERAL:
        leaving = [(member.member_id, member.group_instance_id) for member in request.members]
    else:
        leaving = [(request.member_id, None)]
    if not parts.authorizer.allows("READ", "GROUP", request.group_id):
        return LeaveGroupResponse(version=version, error_code=int(Code.GROUP_AUTHORIZATION_FAILED))
    try:
        codes = await parts.groups.leave(request.group_id, leaving)
    except Refused as refused:
        return LeaveGroupResponse(version=version, error_code=int(refused.code))
    if version < _SEVERAL:
        return LeaveGroupResponse(version=version, error_code=int(codes[0]))
    return LeaveGroupResponse(
        version=version,
        error_code=int(Code.NONE),
        members=[
            LeaveGroupResponse.MemberResponse(member_id=member_id, group_instance_id=instance_id, error_code=int(code))
            for (member_id, instance_id), code in zip(leaving, codes, strict=True)
        ],
    )
