"""Produce: append records to partitions' logs.

From version 12 on (transaction version 2, KIP-890) the request itself adds its partitions to the transaction;
before, they must have been added. From version 10 on the refusal of a broker that does not lead the partition names
the one that does (KIP-951). Of several batches for one partition the last is written, as in Kafka.
Version 13 names topics by id only and is not offered. There is one copy of the records, so acks=all differs from
acks=1 in what is refused only: too few replicas in sync, and a leader whom its followers have left.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Sequence

from embedded_kafka.context import Context
from embedded_kafka.log import BatchHeader, claimed_header, only_batch
from embedded_kafka.parts import Parts
from embedded_kafka.refusals import Disconnect, RecordError, RecordsRefused, Refused
from embedded_kafka.topics.named import last_of_each
from embedded_kafka.wire.server import Message, ProduceRequest, ProduceResponse
from kafka_core.protocol.error_codes import Code
from kafka_core.values import TopicPartition

log = logging.getLogger(__name__)

API_KEY: int = ProduceRequest.API_KEY
VERSIONS = (3, 12)
ADVERTISED_FROM = 0
"""Older librdkafka disables compression for a broker without Produce 0 (KAFKA-18659). Kafka 4
advertises it as well."""

_FIRST_THAT_ADDS_PARTITIONS = 12
_FIRST_THAT_KNOWS_ABORTABLE = 11
_FIRST_THAT_NAMES_LEADERS = 10
_FIRST_WITH_ZSTD, _ZSTD = 7, 4
_SAY_NOTHING_OF_THE_LOG = (
    Code.CORRUPT_MESSAGE, Code.MESSAGE_TOO_LARGE, Code.RECORD_LIST_TOO_LARGE, Code.KAFKA_STORAGE_ERROR,
)  # fmt: skip
"""Refusals that Kafka answers without the log's start offset; its answer to the others has it."""
_ALL_ACKS = (-1, 0, 1)
_IN_SYNC = -1

_Topic = ProduceResponse.TopicProduceResponse
_Partition = _Topic.PartitionProduceResponse


async def handle(parts: Parts, request: Message, _context: Context) -> Message | None:
    """Append each partition's batch; a refused one does not block the others."""
    refused = _refused_as_a_whole(parts, request)
    responses = []
    moved: set[int] = set()
    asked = last_of_each(request.topic_data, lambda topic: (topic.name, topic.partition_data), lambda data: data.index)
    for topic, places in asked:
        partitions = []
        for data in places:
            where = TopicPartition(topic, data.index)
            try:
                if refused is not None:
                    raise refused
                partitions.append(await _append(parts, request, where, data.records))
            except Refused as error:
                answer = _error(data.index, error.code, error.message)
                if error.code is Code.NOT_LEADER_OR_FOLLOWER and request.API_VERSION >= _FIRST_THAT_NAMES_LEADERS:
                    placed = parts.outlook.placed(where)
                    answer.current_leader = _Partition.LeaderIdAndEpoch(
                        leader_id=placed.leader, leader_epoch=placed.epoch
                    )
                    moved.add(placed.leader)
                partitions.append(answer)
            except OSError as error:
                log.error("cannot write to %s: %s", where, error)
                partitions.append(_error(data.index, Code.KAFKA_STORAGE_ERROR, errno.errorcode.get(error.errno or 0)))
        responses.append(_Topic(name=topic, partition_responses=partitions))
    if request.acks == 0:
        if any(part.error_code != Code.NONE for topic in responses for part in topic.partition_responses):
            # The only way to report a failure to a client that wants no answer.
            raise Disconnect("records that are not to be acknowledged were refused")
        return None
    answer = ProduceResponse(version=request.API_VERSION, responses=responses)
    if moved:
        # Not in each answer: an empty list of structs costs two microseconds.
        places = [parts.outlook.address(node_id) for node_id in sorted(moved)]
        answer.node_endpoints = [
            ProduceResponse.NodeEndpoint(node_id=place.node_id, host=place.host, port=place.port, rack=None)
            for place in places
            if place is not None
        ]
    return answer


def _refused_as_a_whole(parts: Parts, request: Message) -> Refused | None:
    transactional_id = request.transactional_id
    if request.acks not in _ALL_ACKS:
        return Refused(Code.INVALID_REQUIRED_ACKS, f"acks must be -1, 0 or 1, not {request.acks}")
    transactional = any(header.transactional for header in _claims(request))
    allowed = transactional_id is not None and parts.authorizer.allows("WRITE", "TRANSACTIONAL_ID", transactional_id)
    if transactional and not allowed:
        return Refused(Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "WRITE on the transactional id is denied")
    # Whoever may write to some topic may write with a producer id (KIP-679), and the topic's right is asked for below.
    return None


def _claims(request: Message) -> list[BatchHeader]:
    """The batches' headers, unverified."""
    records = [data.records for topic in request.topic_data for data in topic.partition_data]
    headers = [claimed_header(each) for each in records if each is not None]
    return [header for header in headers if header is not None]


async def _append(parts: Parts, request: Message, where: TopicPartition, records: bytes | None) -> Message:
    if not parts.authorizer.allows("WRITE", "TOPIC", where.topic):
        raise Refused(Code.TOPIC_AUTHORIZATION_FAILED, f"WRITE on topic {where.topic} is denied")
    if records is None:
        raise Refused(Code.INVALID_RECORD, "no records were sent")
    topic = parts.topics.get(where.topic)
    if topic is not None and topic.internal:
        raise Refused(Code.INVALID_TOPIC_EXCEPTION, f"only the broker may write to {where.topic}")
    all_acks = request.acks == _IN_SYNC
    try:
        parts.outlook.check_append(where, all_acks=all_acks)
    except Refused as refused:
        if refused.code is not Code.REQUEST_TIMED_OUT:
            raise
        return await _alone(parts, request, where, records, refused)
    partition_log = parts.topics.log(where)
    # The log refuses a batch that is too short for a header.
    header = claimed_header(only_batch(memoryview(records)))
    if header is not None and header.codec == _ZSTD and request.API_VERSION < _FIRST_WITH_ZSTD:
        raise Refused(Code.UNSUPPORTED_COMPRESSION_TYPE, "zstd is allowed from version 7 on")
    if (
        header is not None
        and header.transactional
        and not partition_log.has_open(header.producer_id, header.producer_epoch)
    ):
        # The first records of a transaction in this partition are verified with the coordinator (KIP-890).
        # Later ones need no check, because only the coordinator's marker ends the open transaction here.
        try:
            await parts.coordinator_of(request.transactional_id).ensure_partition(
                request.transactional_id, header.producer_id, header.producer_epoch, [where],
                add=request.API_VERSION >= _FIRST_THAT_ADDS_PARTITIONS,
                knows_abortable=request.API_VERSION >= _FIRST_THAT_KNOWS_ABORTABLE,
            )  # fmt: skip
        except Refused as refused:
            raise _as_producers_know_it(refused, request.API_VERSION) from refused
        parts.outlook.check_append(where, all_acks=all_acks)
        partition_log = parts.topics.log(where)
    # Nothing is awaited between the coordinator's answer and the append, so the answer still holds.
    try:
        appended = partition_log.append(
            records,
            now_ms=parts.clock.now_ms(),
            transaction_version=2 if request.API_VERSION >= _FIRST_THAT_ADDS_PARTITIONS else 0,
        )
    except Refused as refused:
        known = -1 if refused.code in _SAY_NOTHING_OF_THE_LOG else partition_log.log_start_offset
        errors = refused.errors if isinstance(refused, RecordsRefused) else ()
        return _error(where.partition, refused.code, refused.message, known, errors)
    parts.readers.wake(where)
    return _Partition(
        index=where.partition,
        error_code=int(Code.NONE),
        base_offset=appended.base_offset,
        log_append_time_ms=appended.log_append_time_ms,
        log_start_offset=partition_log.log_start_offset,
    )


async def _alone(parts: Parts, request: Message, where: TopicPartition, records: bytes, refused: Refused) -> Message:
    """The answer of a leader that was replaced without noticing. It checks and numbers the records as if they were in
    its log; they are gone when it notices. With acks=all they are never acknowledged, and with less at once."""
    stand = parts.outlook.stand_of(where)
    assert stand is not None, "only a leader that was replaced answers alone"
    if stand.fork is None:
        raise Refused(Code.KAFKA_STORAGE_ERROR, f"the log of {where} is damaged")
    version = 2 if request.API_VERSION >= _FIRST_THAT_ADDS_PARTITIONS else 0
    appended = stand.fork(records, parts.clock.now_ms(), version)
    if request.acks == _IN_SYNC:
        await asyncio.sleep(request.timeout_ms / 1000)
        raise refused
    return _Partition(
        index=where.partition,
        error_code=int(Code.NONE),
        base_offset=appended.base_offset,
        log_append_time_ms=appended.log_append_time_ms,
        log_start_offset=-1,
    )


def _as_producers_know_it(refused: Refused, version: int) -> Refused:
    """The coordinator's refusal as a leader's: its retriable "not now" codes become a
    leader's, as in Kafka."""
    not_now = (Code.COORDINATOR_LOAD_IN_PROGRESS, Code.COORDINATOR_NOT_AVAILABLE, Code.NOT_COORDINATOR)
    if refused.code in not_now or (
        refused.code is Code.CONCURRENT_TRANSACTIONS and version < _FIRST_THAT_ADDS_PARTITIONS
    ):
        return Refused(Code.NOT_ENOUGH_REPLICAS, refused.message)
    return refused


def _error(
    partition: int, code: Code, message: str | None, log_start_offset: int = -1, errors: Sequence[RecordError] = ()
) -> Message:  # fmt: skip
    return _Partition(
        index=partition,
        error_code=int(code),
        base_offset=-1,
        log_append_time_ms=-1,
        log_start_offset=log_start_offset,
        record_errors=[
            _Partition.BatchIndexAndErrorMessage(batch_index=each.index, batch_index_error_message=each.message)
            for each in errors
        ],
        error_message=message,
    )
