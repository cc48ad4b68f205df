"""OffsetForLeaderEpoch: where a leader's epoch ended (KIP-320), from which a reader detects
that it has lost records.

The versions differ in their encoding and in the clients that may send them.
"""

from __future__ import annotations

from embedded_kafka.context import Context
from embedded_kafka.leader_views import view
from embedded_kafka.parts import Parts
from embedded_kafka.refusals import Refused
from embedded_kafka.wire.server import Message, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from kafka_core.protocol.error_codes import Code
from kafka_core.values import TopicPartition

API_KEY: int = OffsetForLeaderEpochRequest.API_KEY
VERSIONS = (2, 4)
REPEATABLE = True

_Topic = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult


async def handle(parts: Parts, request: Message, context: Context) -> Message:
    """The current epoch ends where the log ends, an earlier one where the next began."""
    topics = []
    for topic in request.topics:
        partitions = []
        for asked in topic.partitions:
            code, epoch, end = Code.NONE, -1, -1
            try:
                # Brokers ask too; they may do so for every topic.
                if not parts.authorizer.allows_by_either("DESCRIBE", topic.topic, on_cluster="CLUSTER_ACTION"):
                    raise Refused(Code.TOPIC_AUTHORIZATION_FAILED, f"DESCRIBE on topic {topic.topic} is denied")
                where = TopicPartition(topic.topic, asked.partition)
                leader = view(parts, where, API_KEY, context)
                leader.check(asked.current_leader_epoch)
                epoch, end = leader.end_of(asked.leader_epoch)
            except Refused as refused:
                code = refused.code
            partitions.append(
                _Topic.EpochEndOffset(
                    error_code=int(code), partition=asked.partition, leader_epoch=epoch, end_offset=end
                )
            )
        topics.append(_Topic(topic=topic.topic, partitions=partitions))
    return OffsetForLeaderEpochResponse(version=request.API_VERSION, topics=topics)
