"""OffsetDelete: remove a group's offsets of partitions that none of its members consumes (KIP-496)."""

from __future__ import annotations

from embedded_kafka.apis.offset_requests import answer_topics, judge, named_in
from embedded_kafka.context import Context
from embedded_kafka.parts import Parts
from embedded_kafka.refusals import Refused
from embedded_kafka.wire.server import Message, OffsetDeleteRequest, OffsetDeleteResponse
from kafka_core.protocol.error_codes import Code

API_KEY: int = OffsetDeleteRequest.API_KEY
VERSIONS = (0, 0)

_TOPIC = OffsetDeleteResponse.OffsetDeleteResponseTopic


async def handle(parts: Parts, request: Message, _context: Context) -> Message:
    """Answer once the removal is in the log. A code for the whole request comes without partitions."""
    version = request.API_VERSION
    if not parts.authorizer.allows("DELETE", "GROUP", request.group_id):
        return OffsetDeleteResponse(version=version, error_code=int(Code.GROUP_AUTHORIZATION_FAILED), topics=[])
    named = named_in(request.topics)
    codes = judge(parts, named)
    try:
        free = [where for where, _ in named if codes[where] is Code.NONE]
        codes.update(await parts.groups.delete_offsets(request.group_id, free))
    except Refused as refused:
        return OffsetDeleteResponse(version=version, error_code=int(refused.code), topics=[])
    topics = answer_topics(request.topics, codes, _TOPIC, _TOPIC.OffsetDeleteResponsePartition)
    return OffsetDeleteResponse(version=version, error_code=int(Code.NONE), topics=topics)
