"""FindCoordinator: the broker that coordinates a group or a transactional id: the leader of its partition of the
internal topic.

The first request creates that topic. From version 4 on a request has several keys (KIP-699). Every broker answers.
"""

from __future__ import annotations

from embedded_kafka.cluster.brokers import Address
from embedded_kafka.context import Context
from embedded_kafka.parts import Parts
from embedded_kafka.refusals import Refused
from embedded_kafka.topics.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from embedded_kafka.wire.server import FindCoordinatorRequest, FindCoordinatorResponse, Message
from kafka_core.protocol.error_codes import Code
from kafka_core.values import TopicPartition

API_KEY: int = FindCoordinatorRequest.API_KEY
VERSIONS = (0, 6)

_GROUP, _TRANSACTION = 0, 1
_NOWHERE = Address(-1, "", -1)


async def handle(parts: Parts, request: Message, _context: Context) -> Message:
    """Name the broker, or return the reason for the refusal."""
    version = request.API_VERSION
    key_type = _GROUP if version == 0 else request.key_type
    if version < 4:
        return FindCoordinatorResponse(version=version, **_found(parts, key_type, request.key))
    coordinators = [
        FindCoordinatorResponse.Coordinator(key=key, **_found(parts, key_type, key)) for key in request.coordinator_keys
    ]
    return FindCoordinatorResponse(version=version, coordinators=coordinators)


def _found(parts: Parts, key_type: int, key: str) -> dict[str, object]:
    place, code = _NOWHERE, Code.NONE
    try:
        place = _coordinator(parts, key_type, key)
    except Refused as refused:
        code = refused.code
    message = None if code is Code.NONE else code.name
    return {
        "error_code": int(code), "error_message": message,
        "node_id": place.node_id, "host": place.host, "port": place.port,
    }  # fmt: skip


def _coordinator(parts: Parts, key_type: int, key: str) -> Address:
    if key_type == _GROUP:
        if not parts.authorizer.allows("DESCRIBE", "GROUP", key):
            raise Refused(Code.GROUP_AUTHORIZATION_FAILED, "DESCRIBE on the group is denied")
        return _leader(parts, TopicPartition(OFFSETS_TOPIC, parts.groups.partition_for(key)))
    if key_type == _TRANSACTION:
        if not parts.authorizer.allows("DESCRIBE", "TRANSACTIONAL_ID", key):
            raise Refused(Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "DESCRIBE on the transactional id is denied")
        return _leader(parts, TopicPartition(TRANSACTIONS_TOPIC, parts.transactions.partition_for(key)))
    # Share groups (KIP-932) are not supported.
    raise Refused(Code.INVALID_REQUEST, f"there are no coordinators of type {key_type}")


def _leader(parts: Parts, where: TopicPartition) -> Address:
    parts.topics.ensure_internal(where.topic)
    place = parts.outlook.address(parts.outlook.placed(where).leader)
    if place is None or where.partition in parts.topics.offline(where.topic):
        raise Refused(Code.COORDINATOR_NOT_AVAILABLE, f"no broker leads {where}")
    return place
