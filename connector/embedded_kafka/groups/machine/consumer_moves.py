"""One group of the consumer protocol: every state it can be in and every move between them.

Owns: the table of moves; members, epochs, targets, deadlines.
Does not know: offsets, the log's form, sockets, the time of day, which topics exist but for what an event says.
Invariants:
- A refused event leaves the group as it was.
- A member's epoch never falls, except to that of one that left for a while.
- After an accepted Beat the target assignment is of the group's epoch.
Source: KIP-848; Kafka's GroupMetadataManager.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from embedded_kafka.groups.machine.assignors import ASSIGNORS, Wish
from embedded_kafka.groups.machine.consumer_events import (
    AnswerBeat,
    Beat,
    ConsumerEffect,
    Depart,
    Expel,
    ReadOffsets,
    WriteOffsets,
)
from embedded_kafka.groups.machine.consumer_value import (
    JOINING,
    LEAVING_FOR_A_WHILE,
    NOTHING,
    Consumer,
    ConsumerGroup,
    ConsumerGroupState,
    Phase,
    settled,
)
from embedded_kafka.groups.machine.events import AnswerCode, Close, Delete, GroupRefusal, Loaded, Tick
from embedded_kafka.groups.machine.reconciling import Target, reconcile
from kafka_core.table import Move, Moves, step

ConsumerEvent = Beat | Depart | Expel | WriteOffsets | ReadOffsets | Tick | Delete | Close | Loaded
ConsumerStep = tuple[ConsumerGroup, tuple[ConsumerEffect, ...]]


def handle(group: ConsumerGroup, event: ConsumerEvent) -> ConsumerStep:
    """The next value and what the shell has to do; IllegalMove, with nothing changed, for an impossible event."""
    return step(MOVES, group, event, "consumer group")


# ---- joining and going on


def _epoch_refusal(member: Consumer, event: Beat) -> GroupRefusal | None:
    """A member that lost the answer with its new epoch comes with the one before. That is no danger as long as it uses
    nothing that it does not have."""
    if event.epoch in (member.epoch, JOINING):
        return None
    lost = event.epoch == member.previous_epoch and event.owned is not None and event.owned <= member.assigned
    return None if lost and event.epoch < member.epoch else GroupRefusal.FENCED_MEMBER_EPOCH


def _refusal(group: ConsumerGroup, event: Beat) -> GroupRefusal | None:
    known = group.members.get(event.member_id)
    holder = group.holder_of(event.instance_id)
    if event.epoch == JOINING:
        if holder is not None:
            return None if holder.epoch == LEAVING_FOR_A_WHILE else GroupRefusal.UNRELEASED_INSTANCE_ID
        full = known is None and len(group.members) >= group.limits.max_members
        return GroupRefusal.GROUP_MAX_SIZE_REACHED if full else None
    if event.instance_id is not None:
        if holder is None:
            return GroupRefusal.UNKNOWN_MEMBER_ID
        if holder.member_id != event.member_id:
            return GroupRefusal.FENCED_INSTANCE_ID
    return GroupRefusal.UNKNOWN_MEMBER_ID if known is None else _epoch_refusal(known, event)


def _admitted(group: ConsumerGroup, event: Beat) -> ConsumerGroup:
    """The group with the member: as it is, a new one, or in the place of the static one that left for a while."""
    holder = group.holder_of(event.instance_id) if event.epoch == JOINING else None
    if holder is None:
        known = group.members.get(event.member_id) or Consumer(event.member_id)
        return replace(group, members={**group.members, event.member_id: known})
    back = replace(holder, member_id=event.member_id, epoch=JOINING, previous_epoch=JOINING)
    members = {each: member for each, member in group.members.items() if each != holder.member_id}
    targets = {each: shares for each, shares in group.targets.items() if each != holder.member_id}
    targets[event.member_id] = group.targets.get(holder.member_id, NOTHING)
    return replace(group, members={**members, event.member_id: back}, targets=targets)


def _updated(member: Consumer, event: Beat, session_timeout_ms: int) -> Consumer:
    return replace(
        member,
        instance_id=event.instance_id if event.instance_id is not None else member.instance_id,
        rack_id=event.rack_id if event.rack_id is not None else member.rack_id,
        client_id=event.client_id,
        client_host=event.client_host,
        topics=event.topics if event.topics is not None else member.topics,
        regex=event.regex if event.regex is not None else member.regex,
        rebalance_timeout_ms=(
            event.rebalance_timeout_ms if event.rebalance_timeout_ms != -1 else member.rebalance_timeout_ms
        ),
        assignor=event.assignor if event.assignor is not None else member.assignor,
        deadline_ms=event.now_ms + session_timeout_ms,
    )


def _subscribed(group: ConsumerGroup, event: Beat, changed: bool) -> ConsumerGroup:
    """A new epoch where the member's subscription is another one, or what exists of the group's topics."""
    group = _matching(group, {**group.matches, **event.catalogue.matches})
    topics = {name: topic for name, topic in event.catalogue.topics.items() if name in group.wanted}
    if changed or topics != group.topics:
        return replace(group, topics=topics, epoch=group.epoch + 1)
    return group


def _matching(group: ConsumerGroup, matches: Mapping[str, frozenset[str]]) -> ConsumerGroup:
    """The group with what its own members' expressions match."""
    regexes = {member.regex for member in group.members.values()}
    matches = {regex: names for regex, names in matches.items() if regex in regexes}
    return group if matches == group.matches else replace(group, matches=matches)


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


def _reconciled(group: ConsumerGroup, event: Beat) -> ConsumerGroup:
    before = group.members[event.member_id]
    if before.reconciled(group.assignment_epoch):
        return group
    shares = group.targets.get(event.member_id, NOTHING)
    target = Target(group.assignment_epoch, shares, group.held_by_others(event.member_id), event.owned)
    member = reconcile(before, target)
    if member.phase is not Phase.UNREVOKED_PARTITIONS:
        member = replace(member, revoke_by_ms=None)
    elif member != before:
        member = replace(member, revoke_by_ms=event.now_ms + member.rebalance_timeout_ms)
    return replace(group, members={**group.members, event.member_id: member})


def on_beat(group: ConsumerGroup, event: Beat) -> ConsumerStep:
    """The member joins, or goes on: what it says of itself is taken over, and it comes one step nearer to its
    target."""
    refusal = _refusal(group, event)
    if refusal is not None:
        return group, (AnswerCode(refusal),)
    admitted = _admitted(group, event)
    before = admitted.members[event.member_id]
    member = _updated(before, event, group.limits.session_timeout_ms)
    changed = (member.topics, member.regex) != (before.topics, before.regex)
    after = replace(admitted, members={**admitted.members, event.member_id: member})
    after = settled(_reconciled(_targeted(_subscribed(after, event, changed)), event))
    member = after.members[event.member_id]
    told = member.assigned if event.full or member.assigned != before.assigned else None
    return after, (AnswerBeat(member.member_id, member.epoch, told),)


# ---- leaving


def _without(group: ConsumerGroup, member_ids: set[str]) -> ConsumerGroup:
    """The members are gone, which makes a new epoch. The target follows with the next Beat."""
    members = {each: member for each, member in group.members.items() if each not in member_ids}
    if len(members) == len(group.members):
        return group
    targets = {each: shares for each, shares in group.targets.items() if each not in member_ids}
    left = _matching(replace(group, members=members, targets=targets, epoch=group.epoch + 1), group.matches)
    topics = {name: topic for name, topic in group.topics.items() if name in left.wanted}
    if not members:
        # There is nothing to assign, as Kafka says since 4.4.
        left = replace(left, assignment_epoch=left.epoch)
    return settled(replace(left, topics=topics))


def _leaver(group: ConsumerGroup, member_id: str, instance_id: str | None) -> Consumer | GroupRefusal:
    if instance_id is not None:
        holder = group.holder_of(instance_id)
        if holder is not None and holder.member_id != member_id:
            return GroupRefusal.FENCED_INSTANCE_ID
        return holder or GroupRefusal.UNKNOWN_MEMBER_ID
    return group.members.get(member_id) or GroupRefusal.UNKNOWN_MEMBER_ID


def on_depart(group: ConsumerGroup, event: Depart) -> ConsumerStep:
    """The member is gone, or, where it is static and says so, away: then its partitions wait for it."""
    member = _leaver(group, event.member_id, event.instance_id)
    if isinstance(member, GroupRefusal):
        return group, (AnswerCode(member),)
    answer = AnswerBeat(member.member_id, event.epoch)
    if event.epoch != LEAVING_FOR_A_WHILE:
        return _without(group, {member.member_id}), (answer,)
    away = replace(member, epoch=LEAVING_FOR_A_WHILE, revoking=NOTHING, revoke_by_ms=None)
    return settled(replace(group, members={**group.members, member.member_id: away})), (answer,)


def on_expel(group: ConsumerGroup, event: Expel) -> ConsumerStep:
    """The member is gone, whoever asks."""
    holder = group.holder_of(event.instance_id) if not event.member_id else None
    member = holder or _leaver(group, event.member_id, event.instance_id)
    if isinstance(member, GroupRefusal):
        return group, (AnswerCode(member),)
    return _without(group, {member.member_id}), (AnswerCode(),)


def on_tick(group: ConsumerGroup, event: Tick) -> ConsumerStep:
    """Members whose session is over, or who did not give back in time, are gone."""
    gone = {each for each, member in group.members.items() if member.due_ms <= event.now_ms}
    return _without(group, gone), ()


# ---- offsets and the group as a whole


def on_write(group: ConsumerGroup, event: WriteOffsets) -> ConsumerStep:
    """A member may commit what it has had since the epoch that it knows, so that a commit that crosses its next epoch
    counts (KIP-1251); strangers only where there are no members, or in a transaction."""
    if event.epoch < 0 and (
        not group.members or (event.transactional and not event.member_id and event.instance_id is None)
    ):
        return group, (AnswerCode(),)
    member = group.members.get(event.member_id)
    if member is None:
        return group, (AnswerCode(GroupRefusal.UNKNOWN_MEMBER_ID),)
    had = event.epoch < member.epoch and all(
        share is not None and share in member.since and member.since[share] <= event.epoch for share in event.shares
    )
    return group, (AnswerCode(None if had or event.epoch == member.epoch else GroupRefusal.STALE_MEMBER_EPOCH),)


def on_read(group: ConsumerGroup, event: ReadOffsets) -> ConsumerStep:
    """Whoever says to be a member has to be one of this epoch; all others may read."""
    if event.member_id is None and event.epoch < 0:
        return group, (AnswerCode(),)
    member = group.members.get(event.member_id or "")
    if member is None:
        return group, (AnswerCode(GroupRefusal.UNKNOWN_MEMBER_ID),)
    return group, (AnswerCode(None if event.epoch == member.epoch else GroupRefusal.STALE_MEMBER_EPOCH),)


def on_delete_empty(group: ConsumerGroup, event: Delete) -> ConsumerStep:
    """The group is gone."""
    return replace(group, state=ConsumerGroupState.DEAD), (AnswerCode(),)


def on_delete(group: ConsumerGroup, event: Delete) -> ConsumerStep:
    """The group has members."""
    return group, (AnswerCode(GroupRefusal.NON_EMPTY_GROUP),)


def on_close(group: ConsumerGroup, event: Close) -> ConsumerStep:
    """Nobody waits for an answer here: members ask again."""
    return replace(group, state=ConsumerGroupState.DEAD), ()


def on_loaded(group: ConsumerGroup, event: Loaded) -> ConsumerStep:
    """Every deadline begins anew."""
    members = {
        each: replace(
            member,
            deadline_ms=event.now_ms + group.limits.session_timeout_ms,
            revoke_by_ms=(
                event.now_ms + member.rebalance_timeout_ms if member.phase is Phase.UNREVOKED_PARTITIONS else None
            ),
        )
        for each, member in group.members.items()
    }
    return settled(replace(group, members=members)), ()


MOVES: Moves[ConsumerGroupState] = {
    (ConsumerGroupState.EMPTY, Beat): Move(on_beat, ConsumerGroupState.EMPTY, ConsumerGroupState.STABLE),
    (ConsumerGroupState.EMPTY, Depart): Move(on_depart, ConsumerGroupState.EMPTY),
    (ConsumerGroupState.EMPTY, Expel): Move(on_expel, ConsumerGroupState.EMPTY),
    (ConsumerGroupState.EMPTY, WriteOffsets): Move(on_write, ConsumerGroupState.EMPTY),
    (ConsumerGroupState.EMPTY, ReadOffsets): Move(on_read, ConsumerGroupState.EMPTY),
    (ConsumerGroupState.EMPTY, Tick): Move(on_tick, ConsumerGroupState.EMPTY),
    (ConsumerGroupState.EMPTY, Delete): Move(on_delete_empty, ConsumerGroupState.DEAD),
    (ConsumerGroupState.EMPTY, Close): Move(on_close, ConsumerGroupState.DEAD),
    (ConsumerGroupState.EMPTY, Loaded): Move(
        on_loaded,
        ConsumerGroupState.EMPTY,
        ConsumerGroupState.ASSIGNING,
        ConsumerGroupState.RECONCILING,
        ConsumerGroupState.STABLE,
    ),
    (ConsumerGroupState.ASSIGNING, Beat): Move(
        on_beat, ConsumerGroupState.ASSIGNING, ConsumerGroupState.RECONCILING, ConsumerGroupState.STABLE
    ),
    (ConsumerGroupState.ASSIGNING, Depart): Move(on_depart, ConsumerGroupState.ASSIGNING, ConsumerGroupState.EMPTY),
    (ConsumerGroupState.ASSIGNING, Expel): Move(on_expel, ConsumerGroupState.ASSIGNING, ConsumerGroupState.EMPTY),
    (ConsumerGroupState.ASSIGNING, WriteOffsets): Move(on_write, ConsumerGroupState.ASSIGNING),
    (ConsumerGroupState.ASSIGNING, ReadOffsets): Move(on_read, ConsumerGroupState.ASSIGNING),
    (ConsumerGroupState.ASSIGNING, Tick): Move(on_tick, ConsumerGroupState.ASSIGNING, ConsumerGroupState.EMPTY),
    (ConsumerGroupState.ASSIGNING, Delete): Move(on_delete, ConsumerGroupState.ASSIGNING),
    (ConsumerGroupState.ASSIGNING, Close): Move(on_close, ConsumerGroupState.DEAD),
    (ConsumerGroupState.RECONCILING, Beat): Move(on_beat, ConsumerGroupState.RECONCILING, ConsumerGroupState.STABLE),
    (ConsumerGroupState.RECONCILING, Depart): Move(
        on_depart, ConsumerGroupState.RECONCILING, ConsumerGroupState.ASSIGNING, ConsumerGroupState.EMPTY
    ),
    (ConsumerGroupState.RECONCILING, Expel): Move(
        on_expel, ConsumerGroupState.RECONCILING, ConsumerGroupState.ASSIGNING, ConsumerGroupState.EMPTY
    ),
    (ConsumerGroupState.RECONCILING, WriteOffsets): Move(on_write, ConsumerGroupState.RECONCILING),
    (ConsumerGroupState.RECONCILING, ReadOffsets): Move(on_read, ConsumerGroupState.RECONCILING),
    (ConsumerGroupState.RECONCILING, Tick): Move(
        on_tick, ConsumerGroupState.RECONCILING, ConsumerGroupState.ASSIGNING, ConsumerGroupState.EMPTY
    ),
    (ConsumerGroupState.RECONCILING, Delete): Move(on_delete, ConsumerGroupState.RECONCILING),
    (ConsumerGroupState.RECONCILING, Close): Move(on_close, ConsumerGroupState.DEAD),
    (ConsumerGroupState.STABLE, Beat): Move(on_beat, ConsumerGroupState.STABLE, ConsumerGroupState.RECONCILING),
    (ConsumerGroupState.STABLE, Depart): Move(
        on_depart,
        ConsumerGroupState.STABLE,
        ConsumerGroupState.RECONCILING,
        ConsumerGroupState.ASSIGNING,
        ConsumerGroupState.EMPTY,
    ),
    (ConsumerGroupState.STABLE, Expel): Move(
        on_expel, ConsumerGroupState.STABLE, ConsumerGroupState.ASSIGNING, ConsumerGroupState.EMPTY
    ),
    (ConsumerGroupState.STABLE, WriteOffsets): Move(on_write, ConsumerGroupState.STABLE),
    (ConsumerGroupState.STABLE, ReadOffsets): Move(on_read, ConsumerGroupState.STABLE),
    (ConsumerGroupState.STABLE, Tick): Move(
        on_tick, ConsumerGroupState.STABLE, ConsumerGroupState.ASSIGNING, ConsumerGroupState.EMPTY
    ),
    (ConsumerGroupState.STABLE, Delete): Move(on_delete, ConsumerGroupState.STABLE),
    (ConsumerGroupState.STABLE, Close): Move(on_close, ConsumerGroupState.DEAD),
}
