"""ConsumerGroupDescribe: epochs, members and assignments of groups of the consumer protocol (KIP-848).

Version 1 adds the kind of each member (KIP-1099). A group of the classic protocol does not exist here:
DescribeGroups has it.
"""

from __future__ import annotations

from uuid import UUID

from embedded_kafka.apis.group_rights import operations_on
from embedded_kafka.context import Context
from embedded_kafka.groups.machine.consumer_value import NOTHING, Consumer, ConsumerGroup, Shares, by_topic_id
from embedded_kafka.parts import Parts
from embedded_kafka.refusals import Refused
from embedded_kafka.wire.server import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse, Message
from kafka_core.protocol.error_codes import Code

API_KEY: int = ConsumerGroupDescribeRequest.API_KEY
VERSIONS = (0, 1)
REPEATABLE = True

_DESCRIBED = ConsumerGroupDescribeResponse.DescribedGroup
_MEMBER = _DESCRIBED.Member
_ASSIGNMENT = _MEMBER.Assignment
_NOT_ASKED = -(2**31)
_CLASSIC_MEMBER, _CONSUMER_MEMBER = 0, 1


async def handle(parts: Parts, request: Message, _context: Context) -> Message:
    """Answer for each group."""
    groups = [await _describe(parts, request, group_id) for group_id in request.group_ids]
    return ConsumerGroupDescribeResponse(version=request.API_VERSION, groups=groups)


async def _describe(parts: Parts, request: Message, group_id: str) -> Message:
    try:
        group = await _known(parts, group_id)
    except Refused as refused:
        return _DESCRIBED(
            error_code=int(refused.code),
            error_message=refused.message,
            group_id=group_id,
            group_state="",
            assignor_name="",
            members=[],
            authorized_operations=_NOT_ASKED,
        )
    bits = operations_on(parts, group_id) if request.include_authorized_operations else None
    return _DESCRIBED(
        error_code=int(Code.NONE),
        group_id=group_id,
        group_state=group.state.kafka_name,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor,
        members=[_member(parts, group, member) for member in group.members.values()],
        authorized_operations=_NOT_ASKED if bits is None else sum(1 << bit for bit in bits),
    )


async def _known(parts: Parts, group_id: str) -> ConsumerGroup:
    if not parts.authorizer.allows("DESCRIBE", "GROUP", group_id):
        raise Refused(Code.GROUP_AUTHORIZATION_FAILED, Code.GROUP_AUTHORIZATION_FAILED.name)
    group = await parts.groups.describe(group_id)
    if group is None:
        raise Refused(Code.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
    if not isinstance(group, ConsumerGroup):
        raise Refused(Code.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
    # Names of topics must not be revealed to a client that may not describe them.
    hidden = [name for name in group.wanted if not parts.authorizer.allows("DESCRIBE", "TOPIC", name)]
    if hidden:
        raise Refused(
            Code.TOPIC_AUTHORIZATION_FAILED,
            "The group has described topic(s) that the client is not authorized to describe.",
        )
    return group


def _member(parts: Parts, group: ConsumerGroup, member: Consumer) -> Message:
    return _MEMBER(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
        subscribed_topic_regex=member.regex,
        assignment=_assignment(parts, member.assigned | member.revoking),
        target_assignment=_assignment(parts, group.targets.get(member.member_id, NOTHING)),
        member_type=_CONSUMER_MEMBER if member.classic is None else _CLASSIC_MEMBER,
    )


def _assignment(parts: Parts, shares: Shares) -> Message:
    """The partitions of topics that still exist."""
    return _ASSIGNMENT(
        topic_partitions=[
            _ASSIGNMENT.TopicPartitions(topic_id=topic.topic_id, topic_name=topic.name, partitions=partitions)
            for topic_id, partitions in by_topic_id(shares)
            if (topic := parts.topics.by_id(UUID(bytes=topic_id))) is not None
        ]
    )
