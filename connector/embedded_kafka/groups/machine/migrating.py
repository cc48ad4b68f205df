"""A group with members becomes one of the other protocol (KIP-848, online migration).

Owns: what of the one value becomes what of the other.
Does not know: when that is allowed, the log.
Invariants: no member loses a partition by it; the generation, or epoch, goes on.
Source: Kafka's ConsumerGroup.fromClassicGroup and ClassicGroup.fromConsumerGroup.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from embedded_kafka.groups.machine.consumer_value import (
    NOTHING,
    ClassicSide,
    Consumer,
    ConsumerGroup,
    ConsumerLimits,
    Shares,
    Subscribed,
    settled,
)
from embedded_kafka.groups.machine.embedded_protocol import (
    CONSUMER,
    Named,
    Subscription,
    read_assignment,
    read_subscription,
    write_assignment,
)
from embedded_kafka.groups.machine.members import Member, elect_protocol
from embedded_kafka.groups.machine.rebalance import prepare
from embedded_kafka.groups.machine.value import Draft, Group, GroupState, Limits


def shares_of(named: Named, topics: Mapping[str, Subscribed]) -> Shares:
    """The partitions of topics that exist, by the topics' ids."""
    return frozenset(
        (topics[name].topic_id, partition) for name, partitions in named if name in topics for partition in partitions
    )


def subscriptions_of(group: Group) -> dict[str, Subscription]:
    """What each member of a classic group of consumers asks for. NotConsumers."""
    return {
        each: read_subscription(
            member.metadata(group.protocol_name) or next((data for _, data in member.protocols), b"")
        )
        for each, member in group.members.items()
    }


def to_consumer(
    group: Group,
    asked: Mapping[str, Subscription],
    limits: ConsumerLimits,
    topics: Mapping[str, Subscribed],
    now_ms: int,
) -> ConsumerGroup:
    """A classic group of consumers as one of the consumer protocol, in which every member has what it was assigned
    last. `asked`: its `subscriptions_of`; `topics`: what exists of them. NotConsumers."""
    members = {each: _consumer(group, member, asked[each], topics, now_ms) for each, member in group.members.items()}
    return settled(
        ConsumerGroup(
            group.group_id,
            limits,
            epoch=group.generation,
            assignment_epoch=group.generation,
            members=members,
            targets={each: member.assigned for each, member in members.items()},
            topics=topics,
        )
    )


def _consumer(
    group: Group, member: Member, subscription: Subscription, topics: Mapping[str, Subscribed], now_ms: int
) -> Consumer:
    assigned = shares_of(read_assignment(member.assignment), topics)
    return Consumer(
        member.member_id,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=tuple(sorted(set(subscription.topics))),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        epoch=group.generation,
        previous_epoch=group.generation,
        assigned=assigned,
        since=dict.fromkeys(assigned, group.generation),
        deadline_ms=now_ms + member.session_timeout_ms,
        classic=ClassicSide(member.session_timeout_ms, member.protocols),
    )


def to_classic(group: ConsumerGroup, epoch: int, limits: Limits, now_ms: int, *, rebalance: bool) -> Group:
    """A group whose members all use the classic protocol as a classic group, in which every member is assigned what is
    its target. `epoch` becomes its generation. `rebalance`: all have to join again."""
    members = {each: _member(member, now_ms) for each, member in group.members.items()}
    protocol = elect_protocol(members)
    members = {each: _assigned(group, member, protocol) for each, member in members.items()}
    draft = Draft(
        Group(
            group.group_id,
            limits,
            GroupState.STABLE,
            epoch,
            CONSUMER,
            protocol,
            next(iter(members)),
            members,
            state_since_ms=now_ms,
        )
    )
    if rebalance:
        prepare(draft, now_ms)
    return draft.group


def _member(member: Consumer, now_ms: int) -> Member:
    assert member.classic is not None
    return Member(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.classic.session_timeout_ms,
        member.rebalance_timeout_ms,
        member.classic.protocols,
        deadline_ms=now_ms + member.classic.session_timeout_ms,
    )


def _assigned(group: ConsumerGroup, member: Member, protocol: str) -> Member:
    shares = group.by_name(group.targets.get(member.member_id, NOTHING))
    version = read_subscription(member.metadata(protocol)).version
    return replace(member, assignment=write_assignment(shares, version))
