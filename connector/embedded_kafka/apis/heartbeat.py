"""Heartbeat: a member is alive; the answer shows whether it has to rejoin.

Version 3 adds group.instance.id (KIP-345).
"""

from __future__ import annotations

from embedded_kafka.context import Context
from embedded_kafka.parts import Parts
from embedded_kafka.refusals import Refused
from embedded_kafka.wire.server import HeartbeatRequest, HeartbeatResponse, Message
from kafka_core.protocol.error_codes import Code

API_KEY: int = HeartbeatRequest.API_KEY
VERSIONS = (0, 4)


async def handle(parts: Parts, request: Message, _context: Context) -> Message:
    """Answer at once."""
    return HeartbeatResponse(version=request.API_VERSION, error_code=int(await _heard(parts, request)))


async def _heard(parts: Parts, request: Message) -> Code:
    if not parts.authorizer.allows("READ", "GROUP", request.group_id):
        return Code.GROUP_AUTHORIZATION_FAILED
    try:
        return await parts.groups.heartbeat(
            request.group_id,
            generation=request.generation_id,
            member_id=request.member_id,
            instance_id=request.group_instance_id if request.API_VERSION >= 3 else None,
        )
    except Refused as refused:
        return refused.code
