"""InitProducerId: a producer id and an epoch to write with.

Without a transactional id: a new producer id at epoch 0. With one, the coordinator fences the earlier
producers of that id and aborts their open transaction. From version 3 on clients may send their current
identity (KIP-360); from version 4 on they support PRODUCER_FENCED. Version 6 requests two-phase commit
(KIP-939) and is offered only where that is enabled.
"""

from __future__ import annotations

from embedded_kafka.context import Context
from embedded_kafka.parts import Parts
from embedded_kafka.refusals import Refused
from embedded_kafka.wire.server import InitProducerIdRequest, InitProducerIdResponse, Message
from kafka_core.protocol.error_codes import Code
from kafka_core.values import NO_EPOCH, NO_PRODUCER_ID, ProducerIdentity

API_KEY: int = InitProducerIdRequest.API_KEY
VERSIONS = (0, 6)

_FIRST_WITH_IDENTITY = 3
_FIRST_THAT_KNOWS_FENCED = 4
_FIRST_WITH_TWO_PHASES = 6


async def handle(parts: Parts, request: Message, _context: Context) -> Message:
    """Return an identity, or the reason for the refusal."""
    version = request.API_VERSION
    identity, code = ProducerIdentity(NO_PRODUCER_ID, NO_EPOCH), Code.NONE
    try:
        two_phases = version >= _FIRST_WITH_TWO_PHASES
        _authorize(parts, request.transactional_id, two_phases=bool(two_phases and request.enable2_pc))
        identity = await parts.transactions.init_producer_id(
            request.transactional_id,
            request.transaction_timeout_ms,
            _expected(request) if version >= _FIRST_WITH_IDENTITY else None,
            two_phase=two_phases and request.enable2_pc,
            keep_prepared=two_phases and request.keep_prepared_txn,
        )
    except Refused as refused:
        code = refused.code
        if code is Code.PRODUCER_FENCED and version < _FIRST_THAT_KNOWS_FENCED:
            code = Code.INVALID_PRODUCER_EPOCH
    return InitProducerIdResponse(
        version=version,
        throttle_time_ms=0,
        error_code=int(code),
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
    )


def _authorize(parts: Parts, transactional_id: str | None, *, two_phases: bool) -> None:
    if transactional_id is not None:
        if not parts.authorizer.allows("WRITE", "TRANSACTIONAL_ID", transactional_id):
            raise Refused(Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "WRITE on the transactional id is denied")
        if two_phases and not parts.authorizer.allows("TWO_PHASE_COMMIT", "TRANSACTIONAL_ID", transactional_id):
            raise Refused(
                Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                "TWO_PHASE_COMMIT on the transactional id is denied",
            )
    elif not parts.authorizer.may_write_idempotently():
        raise Refused(Code.CLUSTER_AUTHORIZATION_FAILED, "IDEMPOTENT_WRITE on the cluster is denied")


def _expected(request: Message) -> ProducerIdentity | None:
    identity = ProducerIdentity(request.producer_id, request.producer_epoch)
    if identity == ProducerIdentity(NO_PRODUCER_ID, NO_EPOCH):
        return None
    if identity.producer_id == NO_PRODUCER_ID or identity.epoch == NO_EPOCH:
        raise Refused(Code.INVALID_REQUEST, "a producer id without an epoch, or an epoch without an id")
    return identity
