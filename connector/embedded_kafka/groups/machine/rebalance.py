"""The rebalance of a consumer group: all members join, then all get the next generation.

Owns: when the joining ends, which member leads, which protocol is elected.
Does not know: requests; `joining` and `moves` begin a rebalance.
Invariants: a generation begins only with members that joined it or hold a static place.
"""

from __future__ import annotations

from dataclasses import replace

from embedded_kafka.groups.machine.events import AnswerJoin, GroupRefusal, Store
from embedded_kafka.groups.machine.members import elect_protocol
from embedded_kafka.groups.machine.value import Draft, Group, GroupState, InitialDelay


def _rebalance_timeout_ms(group: Group) -> int:
    return max((member.rebalance_timeout_ms for member in group.members.values()), default=0)


def prepare(draft: Draft, now_ms: int) -> None:
    """All members have to join again. The caller tries to complete afterwards, because all may be there already."""
    group = draft.group
    if group.state is GroupState.COMPLETING_REBALANCE:
        draft.answer_syncs(GroupRefusal.REBALANCE_IN_PROGRESS, now_ms)
    initial = None
    wait_ms = _rebalance_timeout_ms(group)
    if group.state is GroupState.EMPTY:
        delay_ms = group.limits.initial_rebalance_delay_ms
        initial = InitialDelay(delay_ms, max(wait_ms - delay_ms, 0))
        wait_ms = delay_ms
    draft.set(
        state=GroupState.PREPARING_REBALANCE,
        state_since_ms=now_ms,
        awaited=frozenset(),
        sync_deadline_ms=None,
        join_deadline_ms=now_ms + wait_ms,
        initial=initial,
    )


def try_to_complete(draft: Draft, now_ms: int) -> None:
    """Begin the next generation if all have joined, or if the time for it is over; nothing in any other state."""
    group = draft.group
    if group.state is not GroupState.PREPARING_REBALANCE or group.join_deadline_ms is None:
        return
    due = now_ms >= group.join_deadline_ms
    initial = group.initial
    if initial is not None:
        if due and initial.joined and initial.remaining_ms:
            delay_ms = min(group.limits.initial_rebalance_delay_ms, initial.remaining_ms)
            remaining_ms = max(initial.remaining_ms - initial.delay_ms, 0)
            draft.set(
                initial=InitialDelay(delay_ms, remaining_ms),
                join_deadline_ms=group.join_deadline_ms + delay_ms,
            )
            return
        complete = due
    else:
        joined = all(member.join_ticket is not None for member in group.members.values())
        complete = due or (joined and not group.pending)
    if complete:
        _complete(draft, now_ms)


def _complete(draft: Draft, now_ms: int) -> None:
    for member in list(draft.group.members.values()):
        if member.join_ticket is None and not member.static:
            draft.remove(member.member_id)
    members = draft.group.members
    if not members:
        draft.set(
            state=GroupState.EMPTY,
            state_since_ms=now_ms,
            generation=draft.group.generation + 1,
            protocol_name=None,
            join_deadline_ms=None,
            initial=None,
        )
        draft.say(Store(required=False))
        return
    joined = [each for each, member in members.items() if member.join_ticket is not None]
    if not joined:
        # Static members only, and none came back in time: they keep their places until their sessions end.
        draft.set(join_deadline_ms=now_ms + _rebalance_timeout_ms(draft.group), initial=None)
        return
    draft.set(
        state=GroupState.COMPLETING_REBALANCE,
        state_since_ms=now_ms,
        generation=draft.group.generation + 1,
        protocol_name=elect_protocol(members),
        leader=draft.group.leader if draft.group.leader in joined else joined[0],
        join_deadline_ms=None,
        initial=None,
        awaited=frozenset(members),
        sync_deadline_ms=now_ms + _rebalance_timeout_ms(draft.group),
    )
    for member in members.values():
        if member.join_ticket is not None:
            leads = member.member_id == draft.group.leader
            draft.say(answer_with_generation(draft.group, member.join_ticket, member.member_id, to_leader=leads))
        deadline_ms = now_ms + member.session_timeout_ms
        draft.put(replace(member, join_ticket=None, new=False, deadline_ms=deadline_ms))


def answer_with_generation(group: Group, ticket: int, member_id: str, *, to_leader: bool) -> AnswerJoin:
    """The group as it is, in answer to a Join; only the leader's answer has all members."""
    return AnswerJoin(
        ticket,
        member_id,
        None,
        group.generation,
        group.protocol_type,
        group.protocol_name,
        group.leader or "",
        tuple(
            (member.member_id, member.instance_id, member.metadata(group.protocol_name))
            for member in group.members.values()
            if to_leader
        ),
    )
