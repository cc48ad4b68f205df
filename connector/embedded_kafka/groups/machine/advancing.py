"""What the word of a member changes in a group of the consumer protocol, whichever protocol the member uses: its
subscription, the target of all, and its own way there.

Owns: how a member takes its place, when a new epoch begins, that every epoch has a target.
Does not know: which request brought the word, whether it is refused, what is answered.
Invariants: after `advanced` the target is of the group's epoch.
Source: Kafka's GroupMetadataManager.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from embedded_kafka.groups.machine.assignors import ASSIGNORS, Wish
from embedded_kafka.groups.machine.consumer_events import Beat
from embedded_kafka.groups.machine.consumer_value import (
    JOINING,
    NOTHING,
    ClassicSide,
    Consumer,
    ConsumerGroup,
    Phase,
    settled,
)
from embedded_kafka.groups.machine.reconciling import Target, reconcile


def admitted(group: ConsumerGroup, member_id: str, holder: Consumer | None) -> ConsumerGroup:
    """The group with the member: as it is, a new one, or in the place of `holder`, a static one."""
    if holder is None:
        known = group.members.get(member_id) or Consumer(member_id)
        return replace(group, members={**group.members, member_id: known})
    back = replace(holder, member_id=member_id, epoch=JOINING, previous_epoch=JOINING)
    members = {each: member for each, member in group.members.items() if each != holder.member_id}
    targets = {each: shares for each, shares in group.targets.items() if each != holder.member_id}
    targets[member_id] = group.targets.get(holder.member_id, NOTHING)
    return replace(group, members={**members, member_id: back}, targets=targets)


def advanced(group: ConsumerGroup, word: Beat, classic: ClassicSide | None = None) -> ConsumerGroup:
    """What the member says of itself is taken over, and it comes one step nearer to its target."""
    before = group.members[word.member_id]
    member = _updated(before, word, classic)
    member = replace(member, deadline_ms=word.now_ms + member.session_ms(group.limits))
    changed = (member.topics, member.regex) != (before.topics, before.regex)
    after = replace(group, members={**group.members, word.member_id: member})
    return settled(_reconciled(_targeted(_subscribed(after, word, changed)), word))


def matching(group: ConsumerGroup, matches: Mapping[str, frozenset[str]]) -> ConsumerGroup:
    """The group with what its own members' expressions match."""
    regexes = {member.regex for member in group.members.values()}
    matches = {regex: names for regex, names in matches.items() if regex in regexes}
    return group if matches == group.matches else replace(group, matches=matches)


def _updated(member: Consumer, word: Beat, classic: ClassicSide | None) -> Consumer:
    return replace(
        member,
        instance_id=word.instance_id if word.instance_id is not None else member.instance_id,
        rack_id=word.rack_id if word.rack_id is not None else member.rack_id,
        client_id=word.client_id,
        client_host=word.client_host,
        topics=word.topics if word.topics is not None else member.topics,
        regex=word.regex if word.regex is not None else member.regex,
        rebalance_timeout_ms=(
            word.rebalance_timeout_ms if word.rebalance_timeout_ms != -1 else member.rebalance_timeout_ms
        ),
        assignor=word.assignor if word.assignor is not None else member.assignor,
        classic=classic,
    )


def _subscribed(group: ConsumerGroup, word: Beat, changed: bool) -> ConsumerGroup:
    """A new epoch where the member's subscription is another one, or what exists of the group's topics."""
    group = matching(group, {**group.matches, **word.catalogue.matches})
    topics = {name: topic for name, topic in word.catalogue.topics.items() if name in group.wanted}
    if changed or topics != group.topics:
        return replace(group, topics=topics, epoch=group.epoch + 1)
    return group


def _targeted(group: ConsumerGroup) -> ConsumerGroup:
    """A target of the group's epoch."""
    if group.epoch == group.assignment_epoch:
        return group
    wishes = {
        each: Wish(
            member.instance_id,
            frozenset(group.topics[name].topic_id for name in group.names_of(member) if name in group.topics),
        )
        for each, member in group.members.items()
    }
    sizes = {topic.topic_id: topic.partitions for topic in group.topics.values()}
    targets = ASSIGNORS[group.assignor](wishes, group.targets, sizes)
    return replace(group, targets=targets, assignment_epoch=group.epoch)


def _reconciled(group: ConsumerGroup, word: Beat) -> ConsumerGroup:
    before = group.members[word.member_id]
    if before.reconciled(group.assignment_epoch):
        return group
    shares = group.targets.get(word.member_id, NOTHING)
    target = Target(group.assignment_epoch, shares, group.held_by_others(word.member_id), word.owned)
    member = reconcile(before, target)
    if member.phase is not Phase.UNREVOKED_PARTITIONS or member.classic is not None:
        # A member of the classic protocol has the time that its next JoinGroup has.
        member = replace(member, revoke_by_ms=None)
    elif member != before:
        member = replace(member, revoke_by_ms=word.now_ms + member.rebalance_timeout_ms)
    return replace(group, members={**group.members, word.member_id: member})
