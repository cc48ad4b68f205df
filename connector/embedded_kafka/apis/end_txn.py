"""EndTxn: commit or abort. The answer confirms the decision; the markers are written after it.

From version 2 on clients support PRODUCER_FENCED. Version 5 is transaction version 2 (KIP-890): every end
bumps the epoch, and the answer carries the identity for the next transaction.
"""

from __future__ import annotations

from embedded_kafka.context import Context
from embedded_kafka.parts import Parts
from embedded_kafka.refusals import Refused
from embedded_kafka.wire.server import EndTxnRequest, EndTxnResponse, Message
from kafka_core.protocol.error_codes import Code
from kafka_core.values import NO_EPOCH, NO_PRODUCER_ID, ProducerIdentity

API_KEY: int = EndTxnRequest.API_KEY
VERSIONS = (0, 5)

_FIRST_THAT_KNOWS_FENCED = 2
_FIRST_THAT_BUMPS = 5


async def handle(parts: Parts, request: Message, _context: Context) -> Message:
    """Decide the transaction, or return the reason for the refusal."""
    version = request.API_VERSION
    identity, code = ProducerIdentity(NO_PRODUCER_ID, NO_EPOCH), Code.NONE
    try:
        if not parts.authorizer.allows("WRITE", "TRANSACTIONAL_ID", request.transactional_id):
            raise Refused(Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "WRITE on the transactional id is denied")
        identity = await parts.transactions.end(
            request.transactional_id,
            ProducerIdentity(request.producer_id, request.producer_epoch),
            commit=request.committed,
            version=2 if version >= _FIRST_THAT_BUMPS else 0,
        )
    except Refused as refused:
        code = refused.code
        if code is Code.PRODUCER_FENCED and version < _FIRST_THAT_KNOWS_FENCED:
            code = Code.INVALID_PRODUCER_EPOCH
    following = {} if version < _FIRST_THAT_BUMPS else {
        "producer_id": identity.producer_id, "producer_epoch": identity.epoch,
    }  # fmt: skip
    return EndTxnResponse(version=version, throttle_time_ms=0, error_code=int(code), **following)
