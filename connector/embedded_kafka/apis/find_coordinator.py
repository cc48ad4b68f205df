"""FindCoordinator: the broker that coordinates a group or a transactional id, which is always this one.

The first request creates the internal topic behind it. From version 4 on a request has several keys (KIP-699).
"""

from __future__ import annotations

from embedded_kafka.context import Context
from embedded_kafka.parts import Parts
from embedded_kafka.topics.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from embedded_kafka.wire.server import FindCoordinatorRequest, FindCoordinatorResponse, Message
from kafka_core.protocol.error_codes import Code

API_KEY: int = FindCoordinatorRequest.API_KEY
VERSIONS = (0, 6)

_GROUP, _TRANSACTION = 0, 1


async def handle(parts: Parts, request: Message, _context: Context) -> Message:
    """Name this broker, or return the reason for the refusal."""
    version = request.API_VERSION
    key_type = _GROUP if version == 0 else request.key_type
    if version < 4:
        code = _judge(parts, key_type, request.key)
        return FindCoordinatorResponse(
            version=version, error_code=int(code), error_message=_message(code), **_place(parts, code)
        )
    coordinators = []
    for key in request.coordinator_keys:
        code = _judge(parts, key_type, key)
        coordinators.append(
            FindCoordinatorResponse.Coordinator(
                key=key, error_code=int(code), error_message=_message(code), **_place(parts, code)
            )
        )
    return FindCoordinatorResponse(version=version, coordinators=coordinators)


def _judge(parts: Parts, key_type: int, key: str) -> Code:
    if key_type == _GROUP:
        if not parts.authorizer.allows("DESCRIBE", "GROUP", key):
            return Code.GROUP_AUTHORIZATION_FAILED
        return _judge_partition(parts, OFFSETS_TOPIC, parts.groups.partition_for(key))
    if key_type == _TRANSACTION:
        if not parts.authorizer.allows("DESCRIBE", "TRANSACTIONAL_ID", key):
            return Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return _judge_partition(parts, TRANSACTIONS_TOPIC, parts.transactions.partition_for(key))
    # Share groups (KIP-932) are not supported.
    return Code.INVALID_REQUEST


def _judge_partition(parts: Parts, topic: str, partition: int) -> Code:
    parts.topics.ensure_internal(topic)
    return Code.COORDINATOR_NOT_AVAILABLE if partition in parts.topics.offline(topic) else Code.NONE


def _message(code: Code) -> str | None:
    return None if code is Code.NONE else code.name


def _place(parts: Parts, code: Code) -> dict[str, object]:
    if code is not Code.NONE:
        return {"node_id": -1, "host": "", "port": -1}
    return {"node_id": parts.config.node_id, "host": parts.host, "port": parts.port}
