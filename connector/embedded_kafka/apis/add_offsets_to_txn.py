"""AddOffsetsToTxn: the transaction will commit offsets of a group.

The request adds the group's partition of the offsets topic. From version 2 on clients support PRODUCER_FENCED. Clients
of transaction version 2 do not send it, because TxnOffsetCommit adds the partition itself.
"""

from __future__ import annotations

from embedded_kafka.context import Context
from embedded_kafka.parts import Parts
from embedded_kafka.refusals import Refused
from embedded_kafka.wire.server import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse, Message
from kafka_core.protocol.error_codes import Code
from kafka_core.values import ProducerIdentity

API_KEY: int = AddOffsetsToTxnRequest.API_KEY
VERSIONS = (0, 4)

_FIRST_THAT_KNOWS_FENCED = 2


async def handle(parts: Parts, request: Message, _context: Context) -> Message:
    """Add the partition, or return the reason for the refusal."""
    version = request.API_VERSION
    code = Code.NONE
    try:
        if not parts.authorizer.allows("WRITE", "TRANSACTIONAL_ID", request.transactional_id):
            raise Refused(Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "WRITE on the transactional id is denied")
        if not parts.authorizer.allows("READ", "GROUP", request.group_id):
            raise Refused(Code.GROUP_AUTHORIZATION_FAILED, "READ on the group is denied")
        await parts.transactions.add_offsets(
            request.transactional_id,
            ProducerIdentity(request.producer_id, request.producer_epoch),
            parts.groups.partition_for(request.group_id),
        )
    except Refused as refused:
        code = refused.code
        if code is Code.PRODUCER_FENCED and version < _FIRST_THAT_KNOWS_FENCED:
            code = Code.INVALID_PRODUCER_EPOCH
    return AddOffsetsToTxnResponse(version=version, throttle_time_ms=0, error_code=int(code))
