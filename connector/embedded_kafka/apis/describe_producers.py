"""DescribeProducers: the producers in a partition's state, and where their open transactions begin (KIP-664).

Every broker that has the partition answers, not its leader alone.
"""

from __future__ import annotations

from embedded_kafka.context import Context
from embedded_kafka.leader_views import view
from embedded_kafka.parts import Parts
from embedded_kafka.refusals import Refused
from embedded_kafka.wire.server import DescribeProducersRequest, DescribeProducersResponse, Message
from kafka_core.protocol.error_codes import Code
from kafka_core.values import TopicPartition

API_KEY: int = DescribeProducersRequest.API_KEY
VERSIONS = (0, 0)
REPEATABLE = True

_Topic = DescribeProducersResponse.TopicResponse
_Partition = _Topic.PartitionResponse


async def handle(parts: Parts, request: Message, context: Context) -> Message:
    """Describe each partition separately."""
    topics = [
        _Topic(
            name=topic.name,
            partitions=[
                _describe(parts, TopicPartition(topic.name, partition), context)
                for partition in topic.partition_indexes
            ],
        )
        for topic in request.topics
    ]
    return DescribeProducersResponse(version=request.API_VERSION, throttle_time_ms=0, topics=topics)


def _describe(parts: Parts, where: TopicPartition, context: Context) -> Message:
    try:
        if not parts.authorizer.allows("READ", "TOPIC", where.topic):
            raise Refused(Code.TOPIC_AUTHORIZATION_FAILED, f"READ on topic {where.topic} is denied")
        producers = view(parts, where, API_KEY, context, replica=True).producers()
    except Refused as refused:
        return _Partition(
            partition_index=where.partition,
            error_code=int(refused.code),
            error_message=refused.message,
            active_producers=[],
        )
    return _Partition(
        partition_index=where.partition,
        error_code=int(Code.NONE),
        error_message=None,
        active_producers=[
            _Partition.ProducerState(
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.last_timestamp_ms,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=producer.transaction_start_offset,
            )
            for producer in producers
        ],
    )
