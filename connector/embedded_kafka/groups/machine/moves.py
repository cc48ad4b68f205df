"""One consumer group of the classic protocol: every state it can be in and every move between them.

Owns: the table of moves; members, generation, leader, protocol, which member waits for which answer, every deadline.
Does not know: offsets, the log's form, sockets, the time of day, how member ids are generated.
Invariants:
- A group without members is EMPTY or on its way there.
- In COMPLETING_REBALANCE and STABLE all members are of one generation and have a protocol in common.
- Every ticket is answered once.
- An assignment is sent only after the value that holds it was stored.
- A group has at most `Limits.max_members` members and as many ids in reserve.
Source: Kafka's GroupCoordinator and ClassicGroup; KIP-345 (static members), KIP-394 (member ids), KIP-814 (skipped
assignment).
"""

from __future__ import annotations

from dataclasses import replace

from embedded_kafka.groups.machine.events import (
    AnswerCode,
    AnswerJoin,
    AnswerLeave,
    AnswerSync,
    Assignments,
    Close,
    CommitOffsets,
    Delete,
    Effect,
    Event,
    GroupRefusal,
    Heartbeat,
    Join,
    Leave,
    Loaded,
    NotStored,
    Store,
    Sync,
    Tick,
)
from embedded_kafka.groups.machine.joining import (
    NEW_MEMBER_JOIN_TIMEOUT_MS,
    on_join_completing,
    on_join_empty,
    on_join_preparing,
    on_join_stable,
)
from embedded_kafka.groups.machine.members import Member, static_holder
from embedded_kafka.groups.machine.rebalance import prepare, try_to_complete
from embedded_kafka.groups.machine.value import Draft, Group, GroupState, InitialDelay, Limits, Step, refusal_of
from kafka_core.table import Move, Moves, step

__all__ = [
    "MOVES",
    "NEW_MEMBER_JOIN_TIMEOUT_MS",
    "AnswerCode",
    "AnswerJoin",
    "AnswerLeave",
    "AnswerSync",
    "Close",
    "CommitOffsets",
    "Delete",
    "Effect",
    "Event",
    "Group",
    "GroupRefusal",
    "GroupState",
    "Heartbeat",
    "InitialDelay",
    "Join",
    "Leave",
    "Limits",
    "Loaded",
    "Member",
    "NotStored",
    "Store",
    "Sync",
    "Tick",
    "handle",
]


def handle(group: Group, event: Event) -> Step:
    """The next value and what the shell has to do; IllegalMove, with nothing changed, for an impossible event."""
    return step(MOVES, group, event, "group")


def _of_generation(group: Group, event: Heartbeat | Sync | CommitOffsets) -> GroupRefusal | None:
    refusal = refusal_of(group, event.member_id, event.instance_id)
    if refusal is None and event.generation != group.generation:
        return GroupRefusal.ILLEGAL_GENERATION
    return refusal


# ---- syncing


def _sync_refusal(group: Group, event: Sync) -> GroupRefusal | None:
    refusal = _of_generation(group, event)
    if refusal is None and (
        event.protocol_type not in (None, group.protocol_type) or event.protocol_name not in (None, group.protocol_name)
    ):
        return GroupRefusal.INCONSISTENT_GROUP_PROTOCOL
    return refusal


def on_sync_empty(group: Group, event: Sync) -> Step:
    """The group has no members."""
    return group, (AnswerSync(event.ticket, GroupRefusal.UNKNOWN_MEMBER_ID),)


def on_sync_preparing(group: Group, event: Sync) -> Step:
    """Too late: join again."""
    refusal = _sync_refusal(group, event) or GroupRefusal.REBALANCE_IN_PROGRESS
    return group, (AnswerSync(event.ticket, refusal),)


def on_sync_completing(group: Group, event: Sync) -> Step:
    """A follower waits; the leader's assignment is stored and then sent to all members that wait: STABLE."""
    refusal = _sync_refusal(group, event)
    if refusal is not None:
        return group, (AnswerSync(event.ticket, refusal),)
    draft = Draft(group)
    member = group.members[event.member_id]
    if member.sync_ticket is not None:
        # As in a repeated Join: no client reads this answer, but the earlier request waits here.
        draft.say(AnswerSync(member.sync_ticket, GroupRefusal.REBALANCE_IN_PROGRESS))
    draft.put(replace(member, sync_ticket=event.ticket))
    _synced(draft, event.member_id)
    if event.member_id == group.leader:
        assignments: Assignments = dict(event.assignments)
        draft.set(
            state=GroupState.STABLE,
            state_since_ms=event.now_ms,
            members={
                each: replace(member, assignment=assignments.get(each, b""))
                for each, member in draft.group.members.items()
            },
        )
        draft.say(Store(required=True))
        draft.answer_syncs(None, event.now_ms)
    return draft.step()


def on_sync_stable(group: Group, event: Sync) -> Step:
    """The member gets its assignment."""
    refusal = _sync_refusal(group, event)
    if refusal is not None:
        return group, (AnswerSync(event.ticket, refusal),)
    draft = Draft(group)
    draft.put(replace(group.members[event.member_id], sync_ticket=event.ticket))
    _synced(draft, event.member_id)
    draft.answer_syncs(None, event.now_ms)
    return draft.step()


def _synced(draft: Draft, member_id: str) -> None:
    awaited = draft.group.awaited - {member_id}
    draft.set(awaited=awaited, sync_deadline_ms=draft.group.sync_deadline_ms if awaited else None)


def on_assignment_not_stored(group: Group, event: NotStored) -> Step:
    """All members that wait for the assignment get the refusal, and the group starts over."""
    draft = Draft(group)
    draft.say(AnswerSync(event.event.ticket, event.refusal))
    draft.answer_syncs(event.refusal, event.now_ms)
    prepare(draft, event.now_ms)
    try_to_complete(draft, event.now_ms)
    return draft.step()


def on_return_not_stored(group: Group, event: NotStored) -> Step:
    """The static member is not back: its old id stays the valid one."""
    return group, (AnswerJoin(event.event.ticket, "", event.refusal),)


# ---- staying


def on_heartbeat_empty(group: Group, event: Heartbeat) -> Step:
    """The group has no members."""
    return group, (AnswerCode(GroupRefusal.UNKNOWN_MEMBER_ID),)


def on_heartbeat_preparing(group: Group, event: Heartbeat) -> Step:
    """The member's session is extended, and the member has to join again."""
    group, effects = on_heartbeat(group, event)
    return group, (AnswerCode(GroupRefusal.REBALANCE_IN_PROGRESS),) if effects == (AnswerCode(),) else effects


def on_heartbeat(group: Group, event: Heartbeat) -> Step:
    """The member's session is extended."""
    refusal = _of_generation(group, event)
    draft = Draft(group)
    if refusal is None:
        draft.revive(event.member_id, event.now_ms)
    draft.say(AnswerCode(refusal))
    return draft.step()


def on_commit_empty(group: Group, event: CommitOffsets) -> Step:
    """A consumer without membership may commit; the group has no members."""
    return group, (AnswerCode(None if event.generation < 0 else GroupRefusal.UNKNOWN_MEMBER_ID),)


def on_commit(group: Group, event: CommitOffsets) -> Step:
    """Members of this generation may commit, which extends their sessions; strangers only in a transaction."""
    stranger = event.generation < 0 and not event.member_id and event.instance_id is None
    draft = Draft(group)
    if stranger:
        # Producers before KIP-447 name no member, so only the producer epoch fences their transactions.
        draft.say(AnswerCode(None if event.transactional else GroupRefusal.UNKNOWN_MEMBER_ID))
        return draft.step()
    refusal = _of_generation(group, event)
    if refusal is None and not event.transactional:
        draft.revive(event.member_id, event.now_ms)
    draft.say(AnswerCode(refusal))
    return draft.step()


def on_commit_completing(group: Group, event: CommitOffsets) -> Step:
    """Only within transactions: a member has no partitions of this generation yet."""
    _, effects = on_commit(group, event)
    if effects == (AnswerCode(),) and not event.transactional:
        return group, (AnswerCode(GroupRefusal.REBALANCE_IN_PROGRESS),)
    return group, effects


# ---- leaving


def on_leave(group: Group, event: Leave) -> Step:
    """Those that are members leave; the others rebalance."""
    draft = Draft(group)
    refusals: list[GroupRefusal | None] = []
    members = len(group.members)
    for member_id, instance_id in event.members:
        refusals.append(_leave(draft, member_id, instance_id))
    if len(draft.group.members) < members and group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
        prepare(draft, event.now_ms)
    try_to_complete(draft, event.now_ms)
    draft.say(AnswerLeave(tuple(refusals)))
    return draft.step()


def _leave(draft: Draft, member_id: str, instance_id: str | None) -> GroupRefusal | None:
    group = draft.group
    if not member_id:
        holder = None if instance_id is None else static_holder(group.members, instance_id)
        if holder is None:
            return GroupRefusal.UNKNOWN_MEMBER_ID
        draft.remove(holder)
        return None
    refusal = None if member_id in group.pending else refusal_of(group, member_id, instance_id)
    if refusal is None:
        draft.remove(member_id)
    return refusal


def on_tick(group: Group, event: Tick) -> Step:
    """Members and reserved ids past their deadline are removed;
    an overdue phase ends without the missing members."""
    now_ms = event.now_ms
    draft = Draft(group)
    for member_id, deadline_ms in group.pending.items():
        if now_ms >= deadline_ms:
            draft.remove(member_id)
    for member in group.members.values():
        if member.overdue(now_ms):
            draft.remove(member.member_id)
    if group.sync_deadline_ms is not None and now_ms >= group.sync_deadline_ms:
        for member_id in group.awaited:
            draft.remove(member_id)
    if draft.group.members.keys() != group.members.keys() and group.state in (
        GroupState.COMPLETING_REBALANCE,
        GroupState.STABLE,
    ):
        prepare(draft, now_ms)
    try_to_complete(draft, now_ms)
    return draft.step()


def on_delete_empty(group: Group, event: Delete) -> Step:
    """Removed."""
    return replace(group, state=GroupState.DEAD, state_since_ms=event.now_ms), (AnswerCode(),)


def on_delete(group: Group, event: Delete) -> Step:
    """Not while it has members."""
    return group, (AnswerCode(GroupRefusal.NON_EMPTY_GROUP),)


def on_close(group: Group, event: Close) -> Step:
    """Every member that waits is refused: with NOT_COORDINATOR it looks for the coordinator again."""
    draft = Draft(group)
    for member in group.members.values():
        draft.refuse_waiting(member, event.refusal, member.member_id)
    draft.set(state=GroupState.DEAD, members={}, pending={}, awaited=frozenset())
    return draft.step()


def on_loaded(group: Group, event: Loaded) -> Step:
    """Sessions restart; a group above a limit that was lowered meanwhile rebalances to fit the limit."""
    draft = Draft(group)
    for member_id in group.members:
        draft.revive(member_id, event.now_ms)
    if len(group.members) > group.limits.max_members:
        prepare(draft, event.now_ms)
    return draft.step()


MOVES: Moves[GroupState] = {
    (GroupState.EMPTY, Join): Move(
        on_join_empty, GroupState.EMPTY, GroupState.COMPLETING_REBALANCE, GroupState.PREPARING_REBALANCE
    ),
    (GroupState.EMPTY, Sync): Move(on_sync_empty, GroupState.EMPTY),
    (GroupState.EMPTY, Heartbeat): Move(on_heartbeat_empty, GroupState.EMPTY),
    (GroupState.EMPTY, Leave): Move(on_leave, GroupState.EMPTY),
    (GroupState.EMPTY, CommitOffsets): Move(on_commit_empty, GroupState.EMPTY),
    (GroupState.EMPTY, Tick): Move(on_tick, GroupState.EMPTY),
    (GroupState.EMPTY, Delete): Move(on_delete_empty, GroupState.DEAD),
    (GroupState.EMPTY, Close): Move(on_close, GroupState.DEAD),
    (GroupState.EMPTY, Loaded): Move(on_loaded, GroupState.EMPTY),
    (GroupState.PREPARING_REBALANCE, Join): Move(
        on_join_preparing, GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE
    ),
    (GroupState.PREPARING_REBALANCE, Sync): Move(on_sync_preparing, GroupState.PREPARING_REBALANCE),
    (GroupState.PREPARING_REBALANCE, Heartbeat): Move(on_heartbeat_preparing, GroupState.PREPARING_REBALANCE),
    (GroupState.PREPARING_REBALANCE, Leave): Move(
        on_leave, GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE, GroupState.EMPTY
    ),
    (GroupState.PREPARING_REBALANCE, CommitOffsets): Move(on_commit, GroupState.PREPARING_REBALANCE),
    (GroupState.PREPARING_REBALANCE, Tick): Move(
        on_tick, GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE, GroupState.EMPTY
    ),
    (GroupState.PREPARING_REBALANCE, Delete): Move(on_delete, GroupState.PREPARING_REBALANCE),
    (GroupState.PREPARING_REBALANCE, Close): Move(on_close, GroupState.DEAD),
    (GroupState.COMPLETING_REBALANCE, Join): Move(
        on_join_completing, GroupState.COMPLETING_REBALANCE, GroupState.PREPARING_REBALANCE
    ),
    (GroupState.COMPLETING_REBALANCE, Sync): Move(
        on_sync_completing, GroupState.COMPLETING_REBALANCE, GroupState.STABLE
    ),
    (GroupState.COMPLETING_REBALANCE, Heartbeat): Move(on_heartbeat, GroupState.COMPLETING_REBALANCE),
    (GroupState.COMPLETING_REBALANCE, Leave): Move(
        on_leave, GroupState.COMPLETING_REBALANCE, GroupState.EMPTY, GroupState.PREPARING_REBALANCE
    ),
    (GroupState.COMPLETING_REBALANCE, CommitOffsets): Move(on_commit_completing, GroupState.COMPLETING_REBALANCE),
    (GroupState.COMPLETING_REBALANCE, Tick): Move(
        on_tick, GroupState.COMPLETING_REBALANCE, GroupState.EMPTY, GroupState.PREPARING_REBALANCE
    ),
    (GroupState.COMPLETING_REBALANCE, Delete): Move(on_delete, GroupState.COMPLETING_REBALANCE),
    (GroupState.COMPLETING_REBALANCE, Close): Move(on_close, GroupState.DEAD),
    (GroupState.COMPLETING_REBALANCE, NotStored): Move(on_assignment_not_stored, GroupState.PREPARING_REBALANCE),
    (GroupState.STABLE, Join): Move(
        on_join_stable, GroupState.STABLE, GroupState.COMPLETING_REBALANCE, GroupState.PREPARING_REBALANCE
    ),
    (GroupState.STABLE, Sync): Move(on_sync_stable, GroupState.STABLE),
    (GroupState.STABLE, Heartbeat): Move(on_heartbeat, GroupState.STABLE),
    (GroupState.STABLE, Leave): Move(on_leave, GroupState.STABLE, GroupState.EMPTY, GroupState.PREPARING_REBALANCE),
    (GroupState.STABLE, CommitOffsets): Move(on_commit, GroupState.STABLE),
    (GroupState.STABLE, Tick): Move(on_tick, GroupState.STABLE, GroupState.EMPTY, GroupState.PREPARING_REBALANCE),
    (GroupState.STABLE, Delete): Move(on_delete, GroupState.STABLE),
    (GroupState.STABLE, Close): Move(on_close, GroupState.DEAD),
    (GroupState.STABLE, Loaded): Move(on_loaded, GroupState.STABLE, GroupState.PREPARING_REBALANCE),
    (GroupState.STABLE, NotStored): Move(on_return_not_stored, GroupState.STABLE),
}
