"""JoinGroup in every state of a consumer group: which members are admitted, under which id, and what follows.

Owns: admission, member ids, the return of members.
Does not know: deadlines other than a member's own, what follows once all have joined.
Invariants: a refused request leaves the group as it was, except that a member for which there is no room is removed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from embedded_kafka.groups.machine.events import AnswerJoin, GroupRefusal, Join, Store
from embedded_kafka.groups.machine.members import Member, common_protocols, elect_protocol, static_holder
from embedded_kafka.groups.machine.rebalance import answer_with_generation, prepare, try_to_complete
from embedded_kafka.groups.machine.value import Draft, Group, GroupState, Step, refusal_of

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
"""How long a member that never got an answer may wait for its first one: Kafka's value. A member cannot send heartbeats
before it has its id; without this limit a client that gave up would keep its place in a slow rebalance indefinitely.
"""


def _has_room(group: Group, member_id: str) -> bool:
    if group.state is GroupState.EMPTY:
        return True
    if group.state is GroupState.PREPARING_REBALANCE:
        joined = [each for each, member in group.members.items() if member.join_ticket is not None]
        return member_id in joined or len(joined) < group.limits.max_members
    return member_id in group.members or len(group.members) < group.limits.max_members


def _supports(group: Group, event: Join) -> bool:
    if group.state is GroupState.EMPTY:
        return bool(event.protocol_type and event.protocols)
    if group.protocol_type != event.protocol_type or not event.protocols:
        return False
    return not group.members or not common_protocols(group.members).isdisjoint(dict(event.protocols))


Rejoined = Callable[[Draft, Join], None]
"""What a known member's request does."""
Replaced = Callable[[Draft, Join, str | None], None]
"""What follows once a static member has come back under a new id; the third argument is the previous leader."""


def _join(group: Group, event: Join, rejoined: Rejoined, replaced: Replaced) -> Step:
    draft = Draft(group)
    refusal: GroupRefusal | None = None
    if not _has_room(group, event.member_id):
        draft.remove(event.member_id)
        draft.say(AnswerJoin(event.ticket, "", GroupRefusal.GROUP_MAX_SIZE_REACHED))
    elif not _supports(group, event):
        refusal = GroupRefusal.INCONSISTENT_GROUP_PROTOCOL
    elif not event.member_id:
        _join_unknown(draft, event, replaced)
    elif event.member_id in group.pending:
        if event.instance_id is None:
            _add(draft, event, event.member_id)
        else:
            # Ids are reserved for dynamic members only, so no client that follows the protocol comes here.
            refusal = GroupRefusal.UNKNOWN_SERVER_ERROR
    else:
        refusal = refusal_of(group, event.member_id, event.instance_id)
        if refusal is None:
            rejoined(draft, event)
    if refusal is not None:
        draft.say(AnswerJoin(event.ticket, event.member_id, refusal))
    try_to_complete(draft, event.now_ms)
    return draft.step()


def _join_unknown(draft: Draft, event: Join, replaced: Replaced) -> None:
    group, new_id = draft.group, event.new_member_id
    holder = None if event.instance_id is None else static_holder(group.members, event.instance_id)
    if holder is not None:
        _replace_static(draft, event, group.members[holder])
        replaced(draft, event, group.leader)
    elif event.instance_id is not None or not event.require_known_member_id:
        _add(draft, event, new_id)
    elif len(group.pending) >= group.limits.max_members:
        draft.say(AnswerJoin(event.ticket, "", GroupRefusal.GROUP_MAX_SIZE_REACHED))
    else:
        draft.set(pending={**group.pending, new_id: event.now_ms + event.session_timeout_ms})
        draft.say(AnswerJoin(event.ticket, new_id, GroupRefusal.MEMBER_ID_REQUIRED))


def _add(draft: Draft, event: Join, member_id: str) -> None:
    group = draft.group
    member = Member(
        member_id,
        event.instance_id,
        event.client_id,
        event.client_host,
        event.session_timeout_ms,
        event.rebalance_timeout_ms,
        event.protocols,
        join_ticket=event.ticket,
        new=True,
        deadline_ms=event.now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS,
    )
    draft.set(
        protocol_type=group.protocol_type if group.members else event.protocol_type,
        leader=group.leader or member_id,
        pending={each: at for each, at in group.pending.items() if each != member_id},
    )
    draft.put(member)
    if group.state is not GroupState.PREPARING_REBALANCE:
        prepare(draft, event.now_ms)
    elif group.initial is not None and group.generation == 0:
        draft.set(initial=replace(group.initial, joined=True))


def _replace_static(draft: Draft, event: Join, old: Member) -> None:
    group, new_id = draft.group, event.new_member_id
    draft.refuse_waiting(old, GroupRefusal.FENCED_INSTANCE_ID, old.member_id)
    member = replace(
        old,
        member_id=new_id,
        session_timeout_ms=event.session_timeout_ms,
        rebalance_timeout_ms=event.rebalance_timeout_ms,
        protocols=event.protocols,
        join_ticket=event.ticket,
        sync_ticket=None,
        deadline_ms=event.now_ms + event.session_timeout_ms,
    )
    awaited = (group.awaited - {old.member_id}) | ({new_id} if old.member_id in group.awaited else set())
    draft.set(
        members={
            (new_id if each == old.member_id else each): member if each == old.member_id else kept
            for each, kept in group.members.items()
        },
        leader=new_id if group.leader == old.member_id else group.leader,
        awaited=awaited,
    )


def _update(draft: Draft, event: Join) -> None:
    member = draft.group.members[event.member_id]
    if member.join_ticket is not None:
        # The member asked again, so no client reads the answer to its earlier request; but that request waits here.
        draft.say(AnswerJoin(member.join_ticket, member.member_id, GroupRefusal.REBALANCE_IN_PROGRESS))
    draft.put(
        replace(
            member,
            session_timeout_ms=event.session_timeout_ms,
            rebalance_timeout_ms=event.rebalance_timeout_ms,
            protocols=event.protocols,
            join_ticket=event.ticket,
        )
    )


def _no_member(draft: Draft, event: Join, leader: str | None = None) -> None:
    raise AssertionError(f"a group without members has {event.member_id or event.instance_id!r}")


def _all_awaited(draft: Draft, event: Join, leader: str | None) -> None:
    """All members have to join anyway."""


def _update_and_prepare(draft: Draft, event: Join) -> None:
    _update(draft, event)
    prepare(draft, event.now_ms)


def _rejoin_completing(draft: Draft, event: Join) -> None:
    if draft.group.members[event.member_id].protocols != event.protocols:
        _update_and_prepare(draft, event)
    else:
        leads = draft.group.leader == event.member_id
        draft.say(answer_with_generation(draft.group, event.ticket, event.member_id, to_leader=leads))


def _rejoin_stable(draft: Draft, event: Join) -> None:
    group = draft.group
    if group.leader == event.member_id or group.members[event.member_id].protocols != event.protocols:
        _update_and_prepare(draft, event)
    else:
        draft.say(answer_with_generation(group, event.ticket, event.member_id, to_leader=False))


def on_join_empty(group: Group, event: Join) -> Step:
    """Give the member an id or admit it: the first member makes the group prepare."""
    return _join(group, event, _no_member, _no_member)


def on_join_preparing(group: Group, event: Join) -> Step:
    """The member waits with the others; when all have joined, the next generation begins."""
    return _join(group, event, _update, _all_awaited)


def on_join_completing(group: Group, event: Join) -> Step:
    """A member that missed its answer gets it again; a new member, or one with other protocols, restarts the
    rebalance.
    """
    return _join(group, event, _rejoin_completing, _prepare_again)


def on_join_stable(group: Group, event: Join) -> Step:
    """The leader, a new member, or one with other protocols starts a rebalance; a returning static member does not."""
    return _join(group, event, _rejoin_stable, _return_of_static)


def _prepare_again(draft: Draft, event: Join, leader: str | None) -> None:
    prepare(draft, event.now_ms)


def _return_of_static(draft: Draft, event: Join, leader: str | None) -> None:
    group, new_id = draft.group, event.new_member_id
    if elect_protocol(group.members) != group.protocol_name:
        prepare(draft, event.now_ms)
        return
    draft.put(replace(group.members[new_id], join_ticket=None))
    leads = group.leader == new_id
    # The new id must be in the log before the member acts under it: after a restart the old one would fence it.
    draft.say(Store(required=True))
    answer = answer_with_generation(draft.group, event.ticket, new_id, to_leader=leads and event.skips_assignment)
    if event.skips_assignment:
        draft.say(replace(answer, skip_assignment=leads))
    else:
        # An older client that finds itself the leader would assign again, which no member waits for. The
        # previous leader's id names no member now, so the client asks for its assignment as a follower does.
        draft.say(replace(answer, leader=leader or ""))
