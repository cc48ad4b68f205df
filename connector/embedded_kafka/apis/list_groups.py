"""ListGroups: all groups of the broker.

Version 4 adds the state and a filter by it (KIP-518), 5 the type and a filter by it (KIP-848).
"""

from __future__ import annotations

from embedded_kafka.context import Context
from embedded_kafka.groups.machine.consumer_value import ConsumerGroup
from embedded_kafka.groups.machine.embedded_protocol import CONSUMER
from embedded_kafka.groups.machine.moves import Group
from embedded_kafka.parts import Parts
from embedded_kafka.refusals import Refused
from embedded_kafka.security.authorizer import CLUSTER
from embedded_kafka.wire.server import ListGroupsRequest, ListGroupsResponse, Message
from kafka_core.protocol.error_codes import Code

API_KEY: int = ListGroupsRequest.API_KEY
VERSIONS = (0, 5)
REPEATABLE = True
GROWS = "groups"


def _type(group: Group | ConsumerGroup) -> str:
    return "consumer" if isinstance(group, ConsumerGroup) else "classic"


def _protocol(group: Group | ConsumerGroup) -> str:
    return CONSUMER if isinstance(group, ConsumerGroup) else group.protocol_type or ""


async def handle(parts: Parts, request: Message, _context: Context) -> Message:
    """List the groups that the client may describe. Filters ignore case; a filter with unknown
    names matches nothing."""
    version = request.API_VERSION
    states = {state.lower() for state in request.states_filter} if version >= 4 else set()
    types = {kind.lower() for kind in request.types_filter} if version >= 5 else set()
    try:
        groups = await parts.groups.list()
    except Refused as refused:
        return ListGroupsResponse(version=version, error_code=int(refused.code), groups=[])
    everything = parts.authorizer.allows("DESCRIBE", "CLUSTER", CLUSTER)
    listed = [
        ListGroupsResponse.ListedGroup(
            group_id=group.group_id,
            protocol_type=_protocol(group),
            group_state=group.state.kafka_name,
            group_type=_type(group),
        )
        for group in groups
        if (not states or group.state.kafka_name.lower() in states)
        and (not types or _type(group) in types)
        and (everything or parts.authorizer.allows("DESCRIBE", "GROUP", group.group_id))
    ]
    return ListGroupsResponse(version=version, error_code=int(Code.NONE), groups=listed)
