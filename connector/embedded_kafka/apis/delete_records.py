"""DeleteRecords: move the start of partitions to a later offset; -1 stands for their end.

The versions differ only in their encoding. Of several offsets for one partition the last counts, as in Kafka.
"""

from __future__ import annotations

from embedded_kafka.context import Context
from embedded_kafka.parts import Parts
from embedded_kafka.refusals import Refused
from embedded_kafka.topics.named import last_of_each
from embedded_kafka.wire.server import DeleteRecordsRequest, DeleteRecordsResponse, Message
from kafka_core.protocol.error_codes import Code
from kafka_core.values import TopicPartition

API_KEY: int = DeleteRecordsRequest.API_KEY
VERSIONS = (0, 2)

_Topic = DeleteRecordsResponse.DeleteRecordsTopicResult


async def handle(parts: Parts, request: Message, _context: Context) -> Message:
    """Process each partition separately."""
    topics = []
    named = last_of_each(
        request.topics, lambda topic: (topic.name, topic.partitions), lambda part: part.partition_index
    )
    for topic, places in named:
        partitions = []
        for asked in places:
            code, low = Code.NONE, -1
            try:
                if not parts.authorizer.allows("DELETE", "TOPIC", topic):
                    raise Refused(Code.TOPIC_AUTHORIZATION_FAILED, f"DELETE on topic {topic} is denied")
                known = parts.topics.get(topic)
                if known is not None and known.internal:
                    raise Refused(Code.INVALID_TOPIC_EXCEPTION, f"only the broker may change {topic}")
                where = TopicPartition(topic, asked.partition_index)
                parts.outlook.check_append(where, all_acks=False)
                log = parts.topics.log(where)
                low = log.delete_records(log.end_offset if asked.offset == -1 else asked.offset)
            except Refused as refused:
                code = refused.code
            partitions.append(
                _Topic.DeleteRecordsPartitionResult(
                    partition_index=asked.partition_index, low_watermark=low, error_code=int(code)
                )
            )
        topics.append(_Topic(name=topic, partitions=partitions))
    return DeleteRecordsResponse(version=request.API_VERSION, topics=topics)
