"""JoinGroup: become a member of a group, and wait for its next generation.

Version 0 has no rebalance timeout and uses the session's. Clients below version 4 join with the first
request and receive their member id with its answer; later ones receive the id first and join with a second
request (KIP-394). Version 5 adds group.instance.id (KIP-345), 7 a protocol name that may be null, 9 leaders
that need not assign (KIP-814).
"""

from __future__ import annotations

from embedded_kafka.apis.subscribed import existing
from embedded_kafka.context import Context
from embedded_kafka.groups.codes import code_of
from embedded_kafka.groups.machine.moves import AnswerJoin
from embedded_kafka.parts import Parts
from embedded_kafka.refusals import Refused
from embedded_kafka.wire.server import JoinGroupRequest, JoinGroupResponse, Message
from kafka_core.protocol.error_codes import Code

API_KEY: int = JoinGroupRequest.API_KEY
VERSIONS = (0, 9)


async def handle(parts: Parts, request: Message, context: Context) -> Message:
    """Answer when the generation is known, or at once with a refusal."""
    version = request.API_VERSION
    if not parts.authorizer.allows("READ", "GROUP", request.group_id):
        return _refused(request, Code.GROUP_AUTHORIZATION_FAILED)
    try:
        answer = await parts.groups.join(
            request.group_id,
            member_id=request.member_id,
            instance_id=request.group_instance_id if version >= 5 else None,
            client_id=context.client_id,
            client_host=f"/{context.client_host}",
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms if version >= 1 else request.session_timeout_ms,
            protocol_type=request.protocol_type,
            protocols=[(protocol.name, bytes(protocol.metadata)) for protocol in request.protocols],
            require_known_member_id=version >= 4,
            skips_assignment=version >= 9,
            existing=lambda wanted, expression: existing(parts, wanted, expression),
        )
    except Refused as refused:
        return _refused(request, refused.code)
    if answer.refusal is not None:
        return _refused(request, code_of(answer.refusal), answer.member_id)
    return _joined(version, answer)


def _refused(request: Message, code: Code, member_id: str | None = None) -> Message:
    version = request.API_VERSION
    return JoinGroupResponse(
        version=version,
        error_code=int(code),
        generation_id=-1,
        protocol_name=None if version >= 7 else "",
        leader="",
        member_id=request.member_id if member_id is None else member_id,
        members=[],
    )


def _joined(version: int, answer: AnswerJoin) -> Message:
    return JoinGroupResponse(
        version=version,
        error_code=int(Code.NONE),
        generation_id=answer.generation,
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol_name,
        leader=answer.leader,
        skip_assignment=answer.skip_assignment,
        member_id=answer.member_id,
        members=[
            JoinGroupResponse.JoinGroupResponseMember(
                member_id=member_id, group_instance_id=instance_id, metadata=metadata
            )
            for member_id, instance_id, metadata in answer.members
        ],
    )
