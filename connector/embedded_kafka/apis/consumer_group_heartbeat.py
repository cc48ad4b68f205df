"""ConsumerGroupHeartbeat: a member of the consumer protocol joins, goes on, or leaves (KIP-848).

Version 0 gives a member without an id one; from version 1 on members make their own (KIP-1082), and may subscribe to a
regular expression. The member joins with epoch 0 and leaves with -1; a static member leaves for a while with -2.
"""

from __future__ import annotations

from uuid import UUID

from embedded_kafka.apis.subscribed import existing
from embedded_kafka.context import Context
from embedded_kafka.groups.group_configs import HEARTBEAT
from embedded_kafka.groups.machine.consumer_events import AnswerBeat, Beat, Depart
from embedded_kafka.groups.machine.consumer_value import (
    JOINING,
    LEAVING,
    LEAVING_FOR_A_WHILE,
    Shares,
    by_topic_id,
)
from embedded_kafka.groups.patterns import compiled
from embedded_kafka.parts import Parts
from embedded_kafka.refusals import Refused
from embedded_kafka.wire.server import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, Message
from kafka_core import runtime
from kafka_core.protocol.error_codes import Code

API_KEY: int = ConsumerGroupHeartbeatRequest.API_KEY
VERSIONS = (0, 1)

_OWN_ID = 1
"""The first version whose members make their own ids."""
_UNCHANGED = -1
_ASSIGNMENT = ConsumerGroupHeartbeatResponse.Assignment


async def handle(parts: Parts, request: Message, context: Context) -> Message:
    """Answer at once: with the member's epoch, and its partitions where they are news."""
    version = request.API_VERSION
    try:
        answer = await _heard(parts, request, context)
    except Refused as refused:
        return ConsumerGroupHeartbeatResponse(
            version=version, error_code=int(refused.code), error_message=refused.message
        )
    return ConsumerGroupHeartbeatResponse(
        version=version,
        error_code=int(Code.NONE),
        member_id=answer.member_id,
        member_epoch=answer.epoch,
        heartbeat_interval_ms=parts.group_configs.value_ms(request.group_id, HEARTBEAT) if answer.epoch >= 0 else 0,
        assignment=None if answer.assigned is None else _assignment(answer.assigned),
    )


async def _heard(parts: Parts, request: Message, context: Context) -> AnswerBeat:
    regex = request.subscribed_topic_regex if request.API_VERSION >= _OWN_ID else None
    _permit(parts, request)
    _judge(parts, request, regex)
    now_ms = parts.clock.now_ms()
    if request.member_epoch < JOINING:
        event: Beat | Depart = Depart(now_ms, request.member_id, request.instance_id, request.member_epoch)
    else:
        names, owned = request.subscribed_topic_names, request.topic_partitions
        event = Beat(
            now_ms,
            request.member_id or str(runtime.uuid4()),
            request.member_epoch,
            context.client_id or "",
            f"/{context.client_host}",
            instance_id=request.instance_id,
            rack_id=request.rack_id,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            topics=None if names is None else tuple(sorted(set(names))),
            regex=regex,
            assignor=request.server_assignor,
            owned=None if owned is None else _shares(owned),
        )
    return await parts.groups.consumer_heartbeat(
        request.group_id, event, lambda wanted, expression: existing(parts, wanted, expression)
    )


def _permit(parts: Parts, request: Message) -> None:
    if not parts.authorizer.allows("READ", "GROUP", request.group_id):
        raise Refused(Code.GROUP_AUTHORIZATION_FAILED, Code.GROUP_AUTHORIZATION_FAILED.name)
    for name in request.subscribed_topic_names or ():
        if not parts.authorizer.allows("DESCRIBE", "TOPIC", name):
            raise Refused(Code.TOPIC_AUTHORIZATION_FAILED, Code.TOPIC_AUTHORIZATION_FAILED.name)


def _judge(parts: Parts, request: Message, regex: str | None) -> None:
    """Refused(INVALID_REQUEST) where the request contradicts itself, in Kafka's order and words;
    UNSUPPORTED_ASSIGNOR, INVALID_REGULAR_EXPRESSION."""
    epoch = request.member_epoch
    names_itself = request.API_VERSION >= _OWN_ID or epoch != JOINING
    wrong = {
        "GroupId can't be empty.": not request.group_id.strip(),
        "InstanceId can't be empty.": request.instance_id is not None and not request.instance_id.strip(),
        "RackId can't be empty.": request.rack_id is not None and not request.rack_id.strip(),
        "MemberId can't be empty.": names_itself and not request.member_id.strip(),
        "MemberEpoch is invalid.": epoch < LEAVING_FOR_A_WHILE,
        "InstanceId can't be null.": epoch == LEAVING_FOR_A_WHILE and request.instance_id is None,
    }
    if epoch == JOINING:
        wrong |= {
            "RebalanceTimeoutMs must be provided in first request.": request.rebalance_timeout_ms == _UNCHANGED,
            "TopicPartitions must be empty when (re-)joining.": request.topic_partitions != [],
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.": (
                request.subscribed_topic_names is None and regex is None
            ),
        }
    for why, is_so in wrong.items():
        if is_so:
            raise Refused(Code.INVALID_REQUEST, why)
    known = parts.config.group_consumer_assignors.split(",")
    if request.server_assignor is not None and request.server_assignor not in known:
        raise Refused(
            Code.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(known)}.",
        )
    if regex and epoch not in (LEAVING, LEAVING_FOR_A_WHILE):
        compiled(regex)


def _shares(owned: list[Message]) -> Shares:
    # A null id is one that no topic has.
    return frozenset(
        (topic.topic_id.bytes if topic.topic_id is not None else b"", partition)
        for topic in owned
        for partition in topic.partitions
    )


def _assignment(shares: Shares) -> Message:
    return _ASSIGNMENT(
        topic_partitions=[
            _ASSIGNMENT.TopicPartitions(topic_id=UUID(bytes=topic_id), partitions=partitions)
            for topic_id, partitions in by_topic_id(shares)
        ]
    )
