"""OffsetCommit: store a group's next offsets to read.

Versions 2 to 4 may set a retention time, 6 adds the leader's epoch, 7 group.instance.id. For a group that
does not exist the code is GROUP_ID_NOT_FOUND from 9 on, ILLEGAL_GENERATION before. 9 is the first for members of the
consumer protocol, whose epoch it has in the generation's place (KIP-848). 10 names topics by id only and is not
offered.
"""

from __future__ import annotations

from embedded_kafka.apis.offset_requests import answer_topics, judge, named_in, new_offsets
from embedded_kafka.context import Context
from embedded_kafka.groups.codes import commit_code
from embedded_kafka.parts import Parts
from embedded_kafka.refusals import Refused
from embedded_kafka.wire.server import Message, OffsetCommitRequest, OffsetCommitResponse
from kafka_core.protocol.error_codes import Code
from kafka_core.values import TopicPartition

API_KEY: int = OffsetCommitRequest.API_KEY
VERSIONS = (2, 9)

_TOPIC = OffsetCommitResponse.OffsetCommitResponseTopic


async def handle(parts: Parts, request: Message, _context: Context) -> Message:
    """Answer once the offsets are in the log."""
    codes = await _commit(parts, request)
    topics = answer_topics(request.topics, codes, _TOPIC, _TOPIC.OffsetCommitResponsePartition)
    return OffsetCommitResponse(version=request.API_VERSION, topics=topics)


async def _commit(parts: Parts, request: Message) -> dict[TopicPartition, Code]:
    version = request.API_VERSION
    named = named_in(request.topics)
    if not parts.authorizer.allows("READ", "GROUP", request.group_id):
        return {where: Code.GROUP_AUTHORIZATION_FAILED for where, _ in named}
    codes = judge(parts, named)
    offsets = new_offsets(named, codes, with_epoch=version >= 6)
    if not offsets:
        return codes
    try:
        committed = await parts.groups.commit_offsets(
            request.group_id,
            offsets,
            generation=request.generation_id_or_member_epoch,
            member_id=request.member_id,
            instance_id=request.group_instance_id if version >= 7 else None,
            knows_epochs=version >= 9,
            retention_ms=request.retention_time_ms if version <= 4 else -1,
        )
    except Refused as refused:
        code = commit_code(refused.code)
        if code is Code.GROUP_ID_NOT_FOUND and version < 9:
            code = Code.ILLEGAL_GENERATION
        committed = {offset.where: code for offset in offsets}
    return codes | committed
