"""OffsetForLeaderEpoch: where a leader's epoch ended (KIP-320); the only leader there ever was has epoch 0.

Versions differ in their encoding and in who may ask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from connector.broker.apis.fetch import check_leader_epoch
from connector.broker.refusals import Refused
from connector.model import TopicPartition
from connector.protocol.error_codes import Code
from connector.protocol.server import Message, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse

if TYPE_CHECKING:
    from connector.broker.context import Context
    from connector.broker.node import Node

API_KEY: int = OffsetForLeaderEpochRequest.API_KEY
VERSIONS = (2, 4)

_Topic = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult


async def handle(node: Node, request: Message, _context: Context) -> Message:
    """Epoch 0 ends where the log does; no other is known."""
    topics = []
    for topic in request.topics:
        partitions = []
        for asked in topic.partitions:
            code, epoch, end = Code.NONE, -1, -1
            try:
                if not node.authorizer.allows("DESCRIBE", "TOPIC", topic.topic):
                    raise Refused(
                        Code.TOPIC_AUTHORIZATION_FAILED, f"DESCRIBE on topic {topic.topic} is denied"
                    )
                log = node.topics.log(TopicPartition(topic.topic, asked.partition))
                check_leader_epoch(asked.current_leader_epoch)
                if asked.leader_epoch == 0:
                    epoch, end = 0, log.end_offset
            except Refused as refused:
                code = refused.code
            partitions.append(
                _Topic.EpochEndOffset(
                    error_code=int(code), partition=asked.partition, leader_epoch=epoch, end_offset=end
                )
            )
        topics.append(_Topic(topic=topic.topic, partitions=partitions))
    return OffsetForLeaderEpochResponse(version=request.API_VERSION, topics=topics)
