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

from dataclasses import replace

from embedded_kafka.groups.machine.advancing import admitted, advanced, matching
from embedded_kafka.groups.machine.classic_moves import on_classic_heartbeat, on_classic_join, on_classic_sync
from embedded_kafka.groups.machine.consumer_events import (
    AnswerBeat,
    Beat,
    ClassicJoin,
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
from embedded_kafka.groups.machine.events import (
    AnswerCode,
    AnswerLeave,
    Close,
    Delete,
    GroupRefusal,
    Heartbeat,
    Loaded,
    Sync,
    Tick,
)
from kafka_core.table import Move, Moves, step

ConsumerEvent = (
    Beat | Depart | Expel | ClassicJoin | Sync | Heartbeat | WriteOffsets | ReadOffsets | Tick | Delete | Close | Loaded
)
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
            released = holder.classic is not None or holder.epoch == LEAVING_FOR_A_WHILE
            return None if released else GroupRefusal.UNRELEASED_INSTANCE_ID
        full = known is None and len(group.members) >= group.limits.max_members
        return GroupRefusal.GROUP_MAX_SIZE_REACHED if full else None
    if event.instance_id is not None:
        if holder is None:
            return GroupRefusal.UNKNOWN_MEMBER_ID
        if holder.member_id != event.member_id:
            return GroupRefusal.FENCED_INSTANCE_ID
    return GroupRefusal.UNKNOWN_MEMBER_ID if known is None else _epoch_refusal(known, event)


def on_beat(group: ConsumerGroup, event: Beat) -> ConsumerStep:
    """The member joins, or goes on: what it says of itself is taken over, and it comes one step nearer to its
    target."""
    refusal = _refusal(group, event)
    if refusal is not None:
        return group, (AnswerCode(refusal),)
    holder = group.holder_of(event.instance_id) if event.epoch == JOINING else None
    entered = admitted(group, event.member_id, holder)
    before = entered.members[event.member_id]
    after = advanced(entered, event)
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
    left = matching(replace(group, members=members, targets=targets, epoch=group.epoch + 1), group.matches)
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
    """The members are gone, whoever asks; all of them together make one new epoch."""
    found = [
        (group.holder_of(instance_id) if not member_id else None) or _leaver(group, member_id, instance_id)
        for member_id, instance_id in event.members
    ]
    gone = {member.member_id for member in found if isinstance(member, Consumer)}
    refusals = tuple(member if isinstance(member, GroupRefusal) else None for member in found)
    return _without(group, gone), (AnswerLeave(refusals),)


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
    if member.classic is not None:
        return group, (AnswerCode(None if event.epoch == member.epoch else GroupRefusal.ILLEGAL_GENERATION),)
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
    other = GroupRefusal.STALE_MEMBER_EPOCH if member.classic is None else GroupRefusal.ILLEGAL_GENERATION
    return group, (AnswerCode(None if event.epoch == member.epoch else other),)


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
            deadline_ms=event.now_ms + member.session_ms(group.limits),
            revoke_by_ms=(
                event.now_ms + member.rebalance_timeout_ms
                if member.phase is Phase.UNREVOKED_PARTITIONS and member.classic is None
                else None
            ),
            classic=None if member.classic is None else replace(member.classic, join_by_ms=None, sync_by_ms=None),
        )
        for each, member in group.members.items()
    }
    return settled(replace(group, members=members)), ()


MOVES: Moves[ConsumerGroupState] = {
    (ConsumerGroupState.EMPTY, Beat): Move(on_beat, ConsumerGroupState.EMPTY, ConsumerGroupState.STABLE),
    (ConsumerGroupState.EMPTY, Depart): Move(on_depart, ConsumerGroupState.EMPTY),
    (ConsumerGroupState.EMPTY, Expel): Move(on_expel, ConsumerGroupState.EMPTY),
    (ConsumerGroupState.EMPTY, Sync): Move(on_classic_sync, ConsumerGroupState.EMPTY),
    (ConsumerGroupState.EMPTY, Heartbeat): Move(on_classic_heartbeat, ConsumerGroupState.EMPTY),
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
    (ConsumerGroupState.ASSIGNING, ClassicJoin): Move(
        on_classic_join, ConsumerGroupState.ASSIGNING, ConsumerGroupState.RECONCILING, ConsumerGroupState.STABLE
    ),
    (ConsumerGroupState.ASSIGNING, Sync): Move(on_classic_sync, ConsumerGroupState.ASSIGNING),
    (ConsumerGroupState.ASSIGNING, Heartbeat): Move(on_classic_heartbeat, ConsumerGroupState.ASSIGNING),
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
    (ConsumerGroupState.RECONCILING, ClassicJoin): Move(
        on_classic_join, ConsumerGroupState.RECONCILING, ConsumerGroupState.STABLE
    ),
    (ConsumerGroupState.RECONCILING, Sync): Move(on_classic_sync, ConsumerGroupState.RECONCILING),
    (ConsumerGroupState.RECONCILING, Heartbeat): Move(on_classic_heartbeat, ConsumerGroupState.RECONCILING),
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
    (ConsumerGroupState.STABLE, ClassicJoin): Move(
        on_classic_join, ConsumerGroupState.STABLE, ConsumerGroupState.RECONCILING
    ),
    (ConsumerGroupState.STABLE, Sync): Move(on_classic_sync, ConsumerGroupState.STABLE),
    (ConsumerGroupState.STABLE, Heartbeat): Move(on_classic_heartbeat, ConsumerGroupState.STABLE),
    (ConsumerGroupState.STABLE, WriteOffsets): Move(on_write, ConsumerGroupState.STABLE),
    (ConsumerGroupState.STABLE, ReadOffsets): Move(on_read, ConsumerGroupState.STABLE),
    (ConsumerGroupState.STABLE, Tick): Move(
        on_tick, ConsumerGroupState.STABLE, ConsumerGroupState.ASSIGNING, ConsumerGroupState.EMPTY
    ),
    (ConsumerGroupState.STABLE, Delete): Move(on_delete, ConsumerGroupState.STABLE),
    (ConsumerGroupState.STABLE, Close): Move(on_close, ConsumerGroupState.DEAD),
}
