"""AddPartitionsToTxn: add partitions to a transaction; where one is refused, none is added.

Clients send versions 0 to 3, with one transaction; from version 2 on they support PRODUCER_FENCED.
Brokers send versions 4 and 5 to each other (KIP-890), with several transactions, each to be added or only
verified (`verify_only`).
"""

from __future__ import annotations

from embedded_kafka.context import Context
from embedded_kafka.parts import Parts
from embedded_kafka.refusals import Refused
from embedded_kafka.security.authorizer import CLUSTER
from embedded_kafka.topics.internal_topics import INTERNAL
from embedded_kafka.wire.server import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, Message
from kafka_core.protocol.error_codes import Code
from kafka_core.values import ProducerIdentity, TopicPartition, by_topic

API_KEY: int = AddPartitionsToTxnRequest.API_KEY
VERSIONS = (0, 5)

_FIRST_THAT_KNOWS_FENCED = 2
_FIRST_OF_BROKERS = 4

_Result = AddPartitionsToTxnResponse.AddPartitionsToTxnResult
_Topic = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
_Partition = _Topic.AddPartitionsToTxnPartitionResult

_Codes = dict[TopicPartition, Code]


async def handle(parts: Parts, request: Message, _context: Context) -> Message:
    """Add the partitions that each transaction names, or return the reasons for the refusal."""
    version = request.API_VERSION
    if version < _FIRST_OF_BROKERS:
        partitions = _partitions_of(request.v3_and_below_topics)
        codes = await _add_for_client(parts, request, partitions)
        # The answer repeats a partition as often as the request names it.
        named = [(topic.name, topic.partitions) for topic in request.v3_and_below_topics]
        return AddPartitionsToTxnResponse(
            version=version, throttle_time_ms=0, results_by_topic_v3_and_below=_topics_of(codes, named)
        )
    if not parts.authorizer.allows("CLUSTER_ACTION", "CLUSTER", CLUSTER):
        return AddPartitionsToTxnResponse(
            version=version,
            throttle_time_ms=0,
            error_code=int(Code.CLUSTER_AUTHORIZATION_FAILED),
            results_by_transaction=[],
        )
    results = [
        _Result(
            transactional_id=transaction.transactional_id,
            topic_results=_topics_of(codes, by_topic(codes)),
        )
        for transaction in request.transactions
        for codes in (await _add_for_broker(parts, transaction),)
    ]
    return AddPartitionsToTxnResponse(
        version=version, throttle_time_ms=0, error_code=int(Code.NONE), results_by_transaction=results
    )


async def _add_for_client(parts: Parts, request: Message, partitions: list[TopicPartition]) -> _Codes:
    transactional_id = request.v3_and_below_transactional_id
    if not parts.authorizer.allows("WRITE", "TRANSACTIONAL_ID", transactional_id):
        return dict.fromkeys(partitions, Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    codes = _judge_partitions(parts, partitions, authorize=True)
    if codes is not None:
        return codes
    identity = ProducerIdentity(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
    code = await _add(parts, transactional_id, identity, partitions, version=0)
    if code is Code.PRODUCER_FENCED and request.API_VERSION < _FIRST_THAT_KNOWS_FENCED:
        code = Code.INVALID_PRODUCER_EPOCH
    return dict.fromkeys(partitions, code)


async def _add_for_broker(parts: Parts, transaction: Message) -> _Codes:
    partitions = _partitions_of(transaction.topics)
    codes = _judge_partitions(parts, partitions, authorize=False)
    if codes is not None:
        return codes
    identity = ProducerIdentity(transaction.producer_id, transaction.producer_epoch)
    if transaction.verify_only:
        return {each: _verify(parts, transaction.transactional_id, identity, each) for each in partitions}
    code = await _add(parts, transaction.transactional_id, identity, partitions, version=2)
    return dict.fromkeys(partitions, code)


def _judge_partitions(parts: Parts, partitions: list[TopicPartition], *, authorize: bool) -> _Codes | None:
    """The codes if any partition fails, because then none is added; None if all pass."""
    codes = {}
    for where in partitions:
        # No client has rights on the broker's own topics; Kafka does not consult its authorizer for them.
        if authorize and (where.topic in INTERNAL or not parts.authorizer.allows("WRITE", "TOPIC", where.topic)):
            codes[where] = Code.TOPIC_AUTHORIZATION_FAILED
        elif not parts.topics.has(where):
            codes[where] = Code.UNKNOWN_TOPIC_OR_PARTITION
    if not codes:
        return None
    return {where: codes.get(where, Code.OPERATION_NOT_ATTEMPTED) for where in partitions}


async def _add(
    parts: Parts,
    transactional_id: str,
    identity: ProducerIdentity,
    partitions: list[TopicPartition],
    *,
    version: int,
) -> Code:
    try:
        await parts.transactions.add_partitions(transactional_id, identity, partitions, version=version)
    except Refused as refused:
        return refused.code
    return Code.NONE


def _verify(parts: Parts, transactional_id: str, identity: ProducerIdentity, where: TopicPartition) -> Code:
    try:
        parts.transactions.verify_partition(transactional_id, identity, where)
    except Refused as refused:
        return refused.code
    return Code.NONE


def _partitions_of(topics: list[Message]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, partition) for topic in topics for partition in topic.partitions]


def _topics_of(codes: _Codes, named: list[tuple[str, list[int]]]) -> list[Message]:
    return [
        _Topic(
            name=topic,
            results_by_partition=[
                _Partition(
                    partition_index=partition,
                    partition_error_code=int(codes[TopicPartition(topic, partition)]),
                )
                for partition in partitions
            ],
        )
        for topic, partitions in named
    ]
