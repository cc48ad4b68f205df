"""Fetch: whole batches from partitions' logs, up to the last stable offset for read_committed readers.

Waits up to the reader's maximum time for its minimum number of bytes. A partition that is named twice is read once,
from the later entry's offset. There are no fetch sessions (KIP-227): every answer has session 0, so readers request
all their partitions each time. From version 11 on a follower answers as the leader does. From 13 on a request names
topics by id alone (KIP-516), so that a reader of a topic that was recreated is refused.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from uuid import UUID

from embedded_kafka.context import Context
from embedded_kafka.faults.fault import Fault
from embedded_kafka.leader_views import View, view_by
from embedded_kafka.parts import Parts
from embedded_kafka.refusals import Refused
from embedded_kafka.topics.named import Merged, last_of_each
from embedded_kafka.waiting import set_within
from embedded_kafka.wire.server import FetchRequest, FetchResponse, Message
from kafka_core.protocol.error_codes import Code
from kafka_core.protocol.messages import FETCH_BY_ID
from kafka_core.values import TopicPartition

log = logging.getLogger(__name__)

API_KEY: int = FetchRequest.API_KEY
VERSIONS = (4, 13)
REPEATABLE = True

_READ_COMMITTED = 1
_FIRST_FROM_FOLLOWERS = 11
_FIRST_WITH_FETCHED_EPOCH = 12
_NOT_LOOKED_INTO = (
    Code.UNKNOWN_TOPIC_OR_PARTITION,
    Code.UNKNOWN_TOPIC_ID,
    Code.TOPIC_AUTHORIZATION_FAILED,
)

_Leaders = Mapping[TopicPartition, Fault | None]
"""Partition -> the fault by which another leader answers for it."""

_Asked = Merged[str | UUID]
"""The partitions that count, by the name or the id of their topics."""

_Topic = FetchResponse.FetchableTopicResponse
_Partition = _Topic.PartitionData


async def handle(parts: Parts, request: Message, context: Context) -> Message:
    """Read. If there are too few bytes and no partition is refused, wait for more and read again."""
    deadline = asyncio.get_running_loop().time() + min(request.max_wait_ms, parts.config.max_fetch_wait_ms) / 1000
    by_id = request.API_VERSION >= FETCH_BY_ID
    asked: _Asked = last_of_each(
        request.topics,
        lambda topic: (topic.topic_id if by_id else topic.topic, topic.partitions),
        lambda part: part.partition,
    )
    wanted = [
        TopicPartition(name, part.partition)
        for topic, places in asked
        if (name := _name_of(parts, topic))
        for part in places
    ]
    leaders = {where: parts.faults.leading(where, API_KEY, context.client_id) for where in wanted}
    with parts.readers.watching(wanted) as written:
        while True:
            written.clear()
            if parts.unread.left <= 0 and _has_records(parts, request, asked, leaders):
                # Before reading: while many clients leave answers unread, repeated reads would starve all else.
                await parts.unread.room()
            response, size, final = _read(parts, request, asked, leaders)
            left = deadline - asyncio.get_running_loop().time()
            if final or size >= request.min_bytes or left <= 0:
                return response
            if not await set_within(written, left):
                return _read(parts, request, asked, leaders)[0]


def _name_of(parts: Parts, topic: str | UUID) -> str:
    """The name of a topic now, empty where no topic has the id (any more)."""
    if isinstance(topic, str):
        return topic
    found = parts.topics.by_id(topic)
    return "" if found is None else found.name


def _has_records(parts: Parts, request: Message, topics: _Asked, leaders: _Leaders) -> bool:
    committed = request.isolation_level == _READ_COMMITTED
    for topic, places in topics:
        for asked in places:
            where = TopicPartition(_name_of(parts, topic), asked.partition)
            try:
                leader = view_by(parts, where, leaders.get(where), replica=_may_follow(request))
            except Refused:
                # The read answers it.
                continue
            end = leader.last_stable_offset if committed else leader.high_watermark
            if asked.fetch_offset < end:
                return True
    return False


def _read(parts: Parts, request: Message, topics: _Asked, leaders: _Leaders) -> tuple[Message, int, bool]:
    """The answer as of now, its bytes of records, and whether it is final: a partition was refused or
    diverges, so waiting is pointless."""
    # Unread answers are limited: close to the limit, answers shrink to one batch.
    room = min(request.max_bytes, parts.config.fetch_max_bytes, parts.unread.share)
    size = 0
    final = not topics
    responses = []
    for topic, places in topics:
        partitions = []
        # At each look: the topic may be recreated while the request waits.
        name = _name_of(parts, topic)
        for asked in places:
            where = TopicPartition(name, asked.partition)
            try:
                if not isinstance(topic, str) and not name:
                    raise Refused(Code.UNKNOWN_TOPIC_ID, f"no topic has the id {topic}")
                answer = _read_partition(
                    parts, request, where, leaders.get(where), asked, max(0, room - size), first=size == 0
                )
                final = final or answer.diverging_epoch is not None
            except Refused as refused:
                final = True
                answer = _error(where, refused.code)
            except OSError as error:
                log.error("cannot read from %s: %s", where, error)
                final = True
                answer = _error(where, Code.KAFKA_STORAGE_ERROR)
            size += len(answer.records or b"")
            partitions.append(answer)
        topic_id = None if isinstance(topic, str) else topic
        responses.append(_Topic(topic=name, topic_id=topic_id, partitions=partitions))
    return FetchResponse(version=request.API_VERSION, responses=responses), size, final


def _read_partition(
    parts: Parts,
    request: Message,
    where: TopicPartition,
    fault: Fault | None,
    asked: Message,
    room: int,
    *,
    first: bool,
) -> Message:
    if not parts.authorizer.allows("READ", "TOPIC", where.topic):
        raise Refused(Code.TOPIC_AUTHORIZATION_FAILED, f"READ on topic {where.topic} is denied")
    leader = view_by(parts, where, fault, replica=_may_follow(request))
    leader.check(asked.current_leader_epoch if request.API_VERSION >= 9 else -1)
    if request.API_VERSION >= _FIRST_WITH_FETCHED_EPOCH and asked.last_fetched_epoch >= 0:
        diverging = _diverging(leader, where, asked)
        if diverging is not None:
            return diverging
    read = leader.read(
        asked.fetch_offset,
        min(asked.partition_max_bytes, room),
        committed=request.isolation_level == _READ_COMMITTED,
        at_least_one=first,
    )
    return _Partition(
        partition_index=where.partition,
        error_code=int(Code.NONE),
        high_watermark=leader.high_watermark,
        last_stable_offset=leader.last_stable_offset,
        log_start_offset=leader.log_start_offset,
        aborted_transactions=[
            _Partition.AbortedTransaction(producer_id=producer_id, first_offset=offset)
            for producer_id, offset in read.aborted
        ]
        if request.isolation_level == _READ_COMMITTED
        else None,
        records=parts.leaders.stamped(where, read.records),
    )


def _may_follow(request: Message) -> bool:
    """Whether a follower may answer: readers may ask one since KIP-392."""
    return bool(request.API_VERSION >= _FIRST_FROM_FOLLOWERS)


def _diverging(leader: View, where: TopicPartition, asked: Message) -> Message | None:
    """The answer to a reader whose last records this leader lacks: where the reader's epoch ended (KIP-595)."""
    epoch, end = leader.end_of(asked.last_fetched_epoch)
    if epoch < 0:
        raise Refused(Code.OFFSET_OUT_OF_RANGE, f"the leader has no epoch {asked.last_fetched_epoch}")
    agrees = epoch == asked.last_fetched_epoch and end >= asked.fetch_offset
    # An offset before the log's start is out of range for any epoch, so the read itself refuses it.
    if agrees or asked.fetch_offset < leader.log_start_offset:
        return None
    return _Partition(
        partition_index=where.partition,
        error_code=int(Code.NONE),
        high_watermark=leader.high_watermark,
        last_stable_offset=leader.last_stable_offset,
        log_start_offset=leader.log_start_offset,
        diverging_epoch=_Partition.EpochEndOffset(epoch=epoch, end_offset=end),
        aborted_transactions=None,
        records=b"",
    )


def _error(where: TopicPartition, code: Code) -> Message:
    return _Partition(
        partition_index=where.partition,
        error_code=int(code),
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=-1,
        # As in Kafka: a partition that was never read has an empty list, one whose read failed has none.
        aborted_transactions=[] if code in _NOT_LOOKED_INTO else None,
        records=b"",
    )
