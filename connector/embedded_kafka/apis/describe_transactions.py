"""DescribeTransactions: the coordinator's state of transactional ids (KIP-664).

The answer omits topics that the client may not describe, as in Kafka.
"""

from __future__ import annotations

from embedded_kafka.context import Context
from embedded_kafka.parts import Parts
from embedded_kafka.refusals import Refused
from embedded_kafka.wire.server import DescribeTransactionsRequest, DescribeTransactionsResponse, Message
from kafka_core.protocol.error_codes import Code
from kafka_core.values import by_topic

API_KEY: int = DescribeTransactionsRequest.API_KEY
VERSIONS = (0, 0)
REPEATABLE = True

_State = DescribeTransactionsResponse.TransactionState


async def handle(parts: Parts, request: Message, _context: Context) -> Message:
    """Describe each id separately."""
    states = [_describe(parts, transactional_id) for transactional_id in request.transactional_ids]
    return DescribeTransactionsResponse(version=request.API_VERSION, throttle_time_ms=0, transaction_states=states)


def _describe(parts: Parts, transactional_id: str) -> Message:
    try:
        if not parts.authorizer.allows("DESCRIBE", "TRANSACTIONAL_ID", transactional_id):
            raise Refused(Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "DESCRIBE on the transactional id is denied")
        entry = parts.transactions.describe(transactional_id)
    except Refused as refused:
        # Kafka leaves all other fields at their initial zeros, not at the -1 that means "none" elsewhere.
        return _State(
            error_code=int(refused.code),
            transactional_id=transactional_id,
            transaction_state="",
            transaction_timeout_ms=0,
            transaction_start_time_ms=0,
            producer_id=0,
            producer_epoch=0,
            topics=[],
        )
    return _State(
        error_code=int(Code.NONE),
        transactional_id=transactional_id,
        transaction_state=entry.state.kafka_name,
        transaction_timeout_ms=entry.timeout_ms,
        transaction_start_time_ms=entry.start_ms,
        producer_id=entry.producer_id,
        producer_epoch=entry.epoch,
        topics=[
            _State.TopicData(topic=topic, partitions=partitions)
            for topic, partitions in by_topic(entry.partitions)
            if parts.authorizer.allows("DESCRIBE", "TOPIC", topic)
        ],
    )
