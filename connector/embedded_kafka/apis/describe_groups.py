"""DescribeGroups: state, protocol and members of groups.

Version 3 adds the operations that the client may perform, 4 group.instance.id. A group that does not exist is
"Dead"; from version 6 on its code is also GROUP_ID_NOT_FOUND (KIP-1043). A group of the consumer protocol does not
exist here: ConsumerGroupDescribe has it.
"""

from __future__ import annotations

from embedded_kafka.apis.group_rights import operations_on
from embedded_kafka.context import Context
from embedded_kafka.groups.machine.moves import Group, GroupState, Member
from embedded_kafka.parts import Parts
from embedded_kafka.refusals import Refused
from embedded_kafka.wire.server import DescribeGroupsRequest, DescribeGroupsResponse, Message
from kafka_core.protocol.error_codes import Code

API_KEY: int = DescribeGroupsRequest.API_KEY
VERSIONS = (0, 6)
REPEATABLE = True

_DESCRIBED = DescribeGroupsResponse.DescribedGroup
_NOT_ASKED = None
"""The library encodes it as Kafka's lowest number."""


async def handle(parts: Parts, request: Message, _context: Context) -> Message:
    """Answer for each group."""
    version = request.API_VERSION
    operations = version >= 3 and request.include_authorized_operations
    groups = []
    for group_id in request.groups:
        described = await _describe(parts, version, group_id)
        if operations and described.error_code == Code.NONE:
            described.authorized_operations = operations_on(parts, group_id)
        groups.append(described)
    return DescribeGroupsResponse(version=version, groups=groups)


async def _describe(parts: Parts, version: int, group_id: str) -> Message:
    if not parts.authorizer.allows("DESCRIBE", "GROUP", group_id):
        return _without(group_id, Code.GROUP_AUTHORIZATION_FAILED, "")
    try:
        group = await parts.groups.describe(group_id)
    except Refused as refused:
        return _without(group_id, refused.code, "")
    if isinstance(group, Group):
        return _DESCRIBED(
            error_code=int(Code.NONE),
            error_message=None,
            group_id=group_id,
            group_state=group.state.kafka_name,
            protocol_type=group.protocol_type or "",
            protocol_data=(group.protocol_name or "") if group.state is GroupState.STABLE else "",
            members=[_member(group, member) for member in group.members.values()],
            authorized_operations=_NOT_ASKED,
        )
    if version < 6:
        return _without(group_id, Code.NONE, GroupState.DEAD.kafka_name)
    why = f"Group {group_id} not found." if group is None else f"Group {group_id} is not a classic group."
    return _without(group_id, Code.GROUP_ID_NOT_FOUND, GroupState.DEAD.kafka_name, why)


def _member(group: Group, member: Member) -> Message:
    # Until the group is stable, the assignment would be that of the previous generation.
    stable = group.state is GroupState.STABLE
    return _DESCRIBED.DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.metadata(group.protocol_name) if stable else b"",
        member_assignment=member.assignment if stable else b"",
    )


def _without(group_id: str, code: Code, state: str, message: str | None = None) -> Message:
    return _DESCRIBED(
        error_code=int(code),
        error_message=message,
        group_id=group_id,
        group_state=state,
        protocol_type="",
        protocol_data="",
        members=[],
        authorized_operations=_NOT_ASKED,
    )
