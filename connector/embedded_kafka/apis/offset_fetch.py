"""OffsetFetch: the committed offsets of groups.

Version 1 has a code per partition only; 2 adds a code for the whole answer, and a null list that requests all
partitions; 5 the leader's epoch; 7 `require_stable` (KIP-447); 8 several groups at once (KIP-709); 9 the member that
asks and its epoch, which matters only to groups of the consumer protocol (KIP-848). 10 names topics by id only
and is not offered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from embedded_kafka.context import Context
from embedded_kafka.groups.offsets import FetchedOffset
from embedded_kafka.parts import Parts
from embedded_kafka.refusals import Refused
from embedded_kafka.wire.server import Message, OffsetFetchRequest, OffsetFetchResponse
from kafka_core.protocol.error_codes import Code
from kafka_core.values import TopicPartition, by_topic

API_KEY: int = OffsetFetchRequest.API_KEY
VERSIONS = (1, 9)
REPEATABLE = True

_GROUP = OffsetFetchResponse.OffsetFetchResponseGroup
_TOPICS = _GROUP.OffsetFetchResponseTopics
_TOPIC = OffsetFetchResponse.OffsetFetchResponseTopic

_NOBODY = (None, -1)
"""The member of a request that names none."""

Fetched = Mapping[TopicPartition, FetchedOffset]


async def handle(parts: Parts, request: Message, _context: Context) -> Message:
    """Answer from memory, which holds only offsets that are in the log."""
    version = request.API_VERSION
    stable = request.require_stable if version >= 7 else False
    if version >= 8:
        groups = []
        for asked in request.groups:
            member = (asked.member_id, asked.member_epoch) if version >= 9 else _NOBODY
            code, fetched = await _fetch(parts, asked.group_id, asked.topics, stable, member)
            named = None if code is not Code.NONE else asked.topics
            topics = _topics(named, fetched, _TOPICS, _TOPICS.OffsetFetchResponsePartitions)
            groups.append(_GROUP(group_id=asked.group_id, topics=topics, error_code=int(code)))
        return OffsetFetchResponse(version=version, groups=groups)
    code, fetched = await _fetch(parts, request.group_id, request.topics, stable)
    if version == 1 and code is not Code.NONE:
        fetched = {where: FetchedOffset(code=code) for where in _named(request.topics)}
    named = None if code is not Code.NONE else request.topics
    topics = _topics(named, fetched, _TOPIC, _TOPIC.OffsetFetchResponsePartition)
    return OffsetFetchResponse(version=version, topics=topics, error_code=int(code))


def _named(topics: Any) -> list[TopicPartition]:
    return [TopicPartition(topic.name, partition) for topic in topics for partition in topic.partition_indexes]


async def _fetch(
    parts: Parts, group_id: str, topics: Any, stable: bool, member: tuple[str | None, int] = _NOBODY
) -> tuple[Code, Fetched]:
    if not parts.authorizer.allows("DESCRIBE", "GROUP", group_id):
        return Code.GROUP_AUTHORIZATION_FAILED, {}
    asked = None if topics is None else _named(topics)
    try:
        fetched = await parts.groups.fetch_offsets(
            group_id, asked, require_stable=stable, member_id=member[0], member_epoch=member[1]
        )
    except Refused as refused:
        return refused.code, {}
    hidden = {where for where in fetched if not parts.authorizer.allows("DESCRIBE", "TOPIC", where.topic)}
    if asked is None:
        # A request for all partitions must not reveal topics that the client may not describe.
        return Code.NONE, {where: found for where, found in fetched.items() if where not in hidden}
    forbidden = FetchedOffset(code=Code.TOPIC_AUTHORIZATION_FAILED)
    return Code.NONE, {where: forbidden if where in hidden else found for where, found in fetched.items()}


def _topics(asked: Any, fetched: Fetched, topic_class: Any, partition_class: Any) -> list[Any]:
    """The requested topics in the request's order, with its repetitions; all topics, in any order, for None."""
    named = by_topic(fetched) if asked is None else [(topic.name, topic.partition_indexes) for topic in asked]
    return [
        topic_class(
            name=topic,
            partitions=[
                _partition(partition, fetched[TopicPartition(topic, partition)], partition_class)
                for partition in partitions
            ],
        )
        for topic, partitions in named
    ]


def _partition(partition: int, found: FetchedOffset, partition_class: Any) -> Any:
    return partition_class(
        partition_index=partition,
        committed_offset=found.offset,
        committed_leader_epoch=found.leader_epoch,
        metadata=found.metadata,
        error_code=int(found.code),
    )
