"""ListOffsets: the first and the end offset of a partition, and the first offset at or after a time.

For read_committed readers the end is the last stable offset (version 2). -3 requests the record with the
largest timestamp (version 7, KIP-734), -4 the earliest local offset (8, KIP-405), -5 the last tiered one (9),
which this broker never has.
"""

from __future__ import annotations

from embedded_kafka.context import Context
from embedded_kafka.leader_views import View, view
from embedded_kafka.parts import Parts
from embedded_kafka.refusals import Refused
from embedded_kafka.topics.named import last_of_each, more_than_once
from embedded_kafka.wire.server import ListOffsetsRequest, ListOffsetsResponse, Message
from kafka_core.protocol.error_codes import Code
from kafka_core.values import TopicPartition

API_KEY: int = ListOffsetsRequest.API_KEY
VERSIONS = (1, 9)
REPEATABLE = True

_LATEST, _EARLIEST, _MAX_TIMESTAMP, _EARLIEST_LOCAL, _LATEST_TIERED = -1, -2, -3, -4, -5
_SINCE = {_MAX_TIMESTAMP: 7, _EARLIEST_LOCAL: 8, _LATEST_TIERED: 9}
_READ_COMMITTED = 1
_DEBUGGING = -2
"""The replica id of those who may ask a follower, too."""
_NOT_AVAILABLE_SINCE = 5

_Topic = ListOffsetsResponse.ListOffsetsTopicResponse
_Partition = _Topic.ListOffsetsPartitionResponse


async def handle(parts: Parts, request: Message, context: Context) -> Message:
    """Answer per partition."""
    committed = request.API_VERSION >= 2 and request.isolation_level == _READ_COMMITTED
    topics = []
    named = last_of_each(
        request.topics, lambda topic: (topic.name, topic.partitions), lambda part: part.partition_index
    )
    twice = more_than_once(
        TopicPartition(topic.name, part.partition_index) for topic in request.topics for part in topic.partitions
    )
    for topic, places in named:
        partitions = []
        for asked in places:
            try:
                if not parts.authorizer.allows("DESCRIBE", "TOPIC", topic):
                    raise Refused(Code.TOPIC_AUTHORIZATION_FAILED, f"DESCRIBE on topic {topic} is denied")
                where = TopicPartition(topic, asked.partition_index)
                if where in twice:
                    raise Refused(Code.INVALID_REQUEST, f"{where} is named more than once")
                if _SINCE.get(asked.timestamp, 0) > request.API_VERSION:
                    raise Refused(Code.UNSUPPORTED_VERSION, f"version {request.API_VERSION} has no {asked.timestamp}")
                leader = view(parts, where, API_KEY, context, replica=request.replica_id == _DEBUGGING)
                leader.check(asked.current_leader_epoch if request.API_VERSION >= 4 else -1)
                offset, timestamp_ms = _find(leader, asked.timestamp, committed)
                # As in Kafka, "latest" is the leader's own, also where an open transaction ends it before the log's
                # end.
                epoch = leader.epoch if asked.timestamp == _LATEST else -1
                if epoch < 0 <= offset:
                    epoch = leader.epoch_at(offset)
                partitions.append(_answer(asked.partition_index, Code.NONE, offset, timestamp_ms, epoch))
            except Refused as refused:
                old = refused.code is Code.OFFSET_NOT_AVAILABLE and request.API_VERSION < _NOT_AVAILABLE_SINCE
                code = Code.LEADER_NOT_AVAILABLE if old else refused.code
                partitions.append(_answer(asked.partition_index, code, -1, -1))
        topics.append(_Topic(name=topic, partitions=partitions))
    return ListOffsetsResponse(version=request.API_VERSION, topics=topics)


def _find(leader: View, timestamp_ms: int, committed: bool) -> tuple[int, int]:
    if timestamp_ms == _LATEST:
        return leader.latest(committed), -1
    if timestamp_ms in (_EARLIEST, _EARLIEST_LOCAL):
        return leader.log_start_offset, -1
    if timestamp_ms == _LATEST_TIERED:
        return -1, -1
    if timestamp_ms == _MAX_TIMESTAMP:
        return leader.offset_of_max_timestamp(committed) or (-1, -1)
    if timestamp_ms < 0:
        raise Refused(Code.UNSUPPORTED_VERSION, f"unknown special timestamp {timestamp_ms}")
    return leader.offset_for_timestamp(timestamp_ms, committed) or (-1, -1)


def _answer(partition: int, code: Code, offset: int, timestamp_ms: int, epoch: int = -1) -> Message:
    return _Partition(
        partition_index=partition,
        error_code=int(code),
        timestamp=timestamp_ms,
        offset=offset,
        leader_epoch=epoch,
    )
