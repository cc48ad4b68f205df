"""TxnOffsetCommit: commit offsets of a group as part of a producer's transaction.

Version 2 adds the leader's epoch, 3 the member that is fenced by its generation (KIP-447). Up to 4 the broker
checks that AddOffsetsToTxn has added the group's partition to the transaction; 5 adds it itself (KIP-890,
transaction version 2).
"""

from __future__ import annotations

from embedded_kafka.apis.offset_requests import answer_topics, judge, named_in, new_offsets
from embedded_kafka.context import Context
from embedded_kafka.groups.codes import commit_code
from embedded_kafka.groups.offsets import NewOffset
from embedded_kafka.parts import Parts
from embedded_kafka.refusals import Refused
from embedded_kafka.topics.internal_topics import OFFSETS_TOPIC
from embedded_kafka.wire.server import Message, TxnOffsetCommitRequest, TxnOffsetCommitResponse
from kafka_core.protocol.error_codes import Code
from kafka_core.values import TopicPartition

API_KEY: int = TxnOffsetCommitRequest.API_KEY
VERSIONS = (0, 5)

_TOPIC = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
_ADDS_PARTITION = 5
_KNOWS_ABORTABLE = 4


async def handle(parts: Parts, request: Message, _context: Context) -> Message:
    """Answer once the offsets are in the log; they become visible when the transaction commits."""
    codes = await _commit(parts, request)
    if request.API_VERSION < 2:
        # Clients of these versions treat COORDINATOR_LOAD_IN_PROGRESS as a fatal error.
        codes = {
            where: Code.COORDINATOR_NOT_AVAILABLE if code is Code.COORDINATOR_LOAD_IN_PROGRESS else code
            for where, code in codes.items()
        }
    topics = answer_topics(request.topics, codes, _TOPIC, _TOPIC.TxnOffsetCommitResponsePartition)
    return TxnOffsetCommitResponse(version=request.API_VERSION, topics=topics)


async def _commit(parts: Parts, request: Message) -> dict[TopicPartition, Code]:
    version = request.API_VERSION
    named = named_in(request.topics)
    refusal = _forbidden(parts, request)
    if refusal is not None:
        return {where: refusal for where, _ in named}
    codes = judge(parts, named)
    offsets = new_offsets(named, codes, with_epoch=version >= 2)
    if not offsets:
        return codes
    try:
        committed = await _commit_in_transaction(parts, request, offsets)
    except Refused as refused:
        committed = {offset.where: _told(refused.code) for offset in offsets}
    return codes | committed


def _forbidden(parts: Parts, request: Message) -> Code | None:
    if not parts.authorizer.allows("WRITE", "TRANSACTIONAL_ID", request.transactional_id):
        return Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if not parts.authorizer.allows("READ", "GROUP", request.group_id):
        return Code.GROUP_AUTHORIZATION_FAILED
    return None if request.group_id else Code.INVALID_GROUP_ID


async def _commit_in_transaction(
    parts: Parts, request: Message, offsets: list[NewOffset]
) -> dict[TopicPartition, Code]:
    partition = TopicPartition(OFFSETS_TOPIC, parts.groups.partition_for(request.group_id))
    parts.topics.ensure_internal(OFFSETS_TOPIC)
    # Before the transaction has the partition: as in Kafka, a broker asks for what it leads.
    parts.groups.check_here(request.group_id)
    await parts.coordinator_of(request.transactional_id).ensure_partition(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        [partition],
        add=request.API_VERSION >= _ADDS_PARTITION,
        knows_abortable=request.API_VERSION >= _KNOWS_ABORTABLE,
    )
    # Invariant: nothing is awaited from here to the append. Otherwise the transaction could end after the
    # check and write its marker here, and the offsets appended after that would never get a marker.
    member = request.API_VERSION >= 3
    return await parts.groups.txn_commit_offsets(
        request.group_id,
        offsets,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        generation=request.generation_id if member else -1,
        member_id=request.member_id if member else "",
        instance_id=request.group_instance_id if member else None,
    )


def _told(code: Code) -> Code:
    # Producers know no epochs of members: to them one is a generation.
    if code in (Code.GROUP_ID_NOT_FOUND, Code.STALE_MEMBER_EPOCH):
        return Code.ILLEGAL_GENERATION
    return commit_code(code)
