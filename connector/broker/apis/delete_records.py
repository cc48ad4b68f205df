"""DeleteRecords: let partitions begin at a later offset; -1 stands for their end.

The same in every version but for the encoding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from connector.broker.refusals import Refused
from connector.model import TopicPartition
from connector.protocol.error_codes import Code
from connector.protocol.server import DeleteRecordsRequest, DeleteRecordsResponse, Message

if TYPE_CHECKING:
    from connector.broker.context import Context
    from connector.broker.node import Node

API_KEY: int = DeleteRecordsRequest.API_KEY
VERSIONS = (0, 2)

_Topic = DeleteRecordsResponse.DeleteRecordsTopicResult


async def handle(node: Node, request: Message, _context: Context) -> Message:
    """Each partition by itself."""
    topics = []
    for topic in request.topics:
        partitions = []
        for asked in topic.partitions:
            code, low = Code.NONE, -1
            try:
                if not node.authorizer.allows("DELETE", "TOPIC", topic.name):
                    raise Refused(Code.TOPIC_AUTHORIZATION_FAILED, f"DELETE on topic {topic.name} is denied")
                known = node.topics.get(topic.name)
                if known is not None and known.internal:
                    raise Refused(Code.INVALID_TOPIC_EXCEPTION, f"{topic.name} is kept by the broker alone")
                log = node.topics.log(TopicPartition(topic.name, asked.partition_index))
                low = log.delete_records(log.end_offset if asked.offset == -1 else asked.offset)
            except Refused as refused:
                code = refused.code
            partitions.append(
                _Topic.DeleteRecordsPartitionResult(
                    partition_index=asked.partition_index, low_watermark=low, error_code=int(code)
                )
            )
        topics.append(_Topic(name=topic.name, partitions=partitions))
    return DeleteRecordsResponse(version=request.API_VERSION, topics=topics)
