"""DeleteGroups: remove groups without members, and their offsets (KIP-229)."""

from __future__ import annotations

from embedded_kafka.context import Context
from embedded_kafka.parts import Parts
from embedded_kafka.refusals import Refused
from embedded_kafka.wire.server import DeleteGroupsRequest, DeleteGroupsResponse, Message
from kafka_core.protocol.error_codes import Code

API_KEY: int = DeleteGroupsRequest.API_KEY
VERSIONS = (0, 2)


async def handle(parts: Parts, request: Message, _context: Context) -> Message:
    """Answer for each group once its removal is in the log."""
    results = [
        DeleteGroupsResponse.DeletableGroupResult(group_id=group_id, error_code=int(await _delete(parts, group_id)))
        for group_id in dict.fromkeys(request.groups_names)
    ]
    return DeleteGroupsResponse(version=request.API_VERSION, results=results)


async def _delete(parts: Parts, group_id: str) -> Code:
    if not parts.authorizer.allows("DELETE", "GROUP", group_id):
        return Code.GROUP_AUTHORIZATION_FAILED
    try:
        await parts.groups.delete_group(group_id)
    except Refused as refused:
        return refused.code
    return Code.NONE
