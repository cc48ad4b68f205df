"""The value of one consumer group, and a draft of its next one.

Owns: the states, the group's facts, the bookkeeping that every move needs.
Does not know: which move follows which event; `moves` has the table.
Invariants:
- A Group is never changed.
- A Draft lives within one handler.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from embedded_kafka.groups.machine.events import AnswerJoin, AnswerSync, Effect, GroupRefusal
from embedded_kafka.groups.machine.members import Member, Members, static_holder


class GroupState(Enum):
    """How far the group is."""

    EMPTY = "no members; there may be committed offsets"
    PREPARING_REBALANCE = "members are expected to join"
    COMPLETING_REBALANCE = "all members have the new generation; the leader's assignment is awaited"
    STABLE = "every member can have its assignment"
    DEAD = "removed, or the broker stops; no event comes any more"

    @property
    def kafka_name(self) -> str:
        """As Kafka's tools show it: "PreparingRebalance"."""
        return "".join(word.capitalize() for word in self.name.split("_"))


@dataclass(frozen=True)
class Limits:
    """The broker's settings for all groups."""

    max_members: int = 1_000
    initial_rebalance_delay_ms: int = 0


@dataclass(frozen=True)
class InitialDelay:
    """The first rebalance of an empty group: it waits `delay_ms`, and again while new members come and time remains."""

    delay_ms: int
    remaining_ms: int
    joined: bool = False


@dataclass(frozen=True)
class Group:
    """One group. `pending`: member ids given out but not yet used (KIP-394), with their deadlines; `awaited`: members
    whose Sync of this generation is still to come."""

    group_id: str
    limits: Limits = Limits()
    state: GroupState = GroupState.EMPTY
    generation: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str | None = None
    members: Members = field(default_factory=dict)
    pending: Mapping[str, int] = field(default_factory=dict)
    awaited: frozenset[str] = frozenset()
    join_deadline_ms: int | None = None
    sync_deadline_ms: int | None = None
    initial: InitialDelay | None = None
    state_since_ms: int = -1

    @property
    def due_ms(self) -> int | None:
        """The first deadline of all that are running: from then on time alone changes the group; None: never."""
        times = [
            *self.pending.values(),
            *(member.due_ms for member in self.members.values()),
            self.join_deadline_ms,
            self.sync_deadline_ms,
        ]
        return min((each for each in times if each is not None), default=None)


Step = tuple[Group, tuple[Effect, ...]]


class Draft:
    """A move in the making: the value so far and the effects so far."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.effects: list[Effect] = []

    def set(self, **changes: Any) -> None:
        """Change fields of the value."""
        self.group = replace(self.group, **changes)

    def put(self, member: Member) -> None:
        """Add a member, or replace it."""
        self.set(members={**self.group.members, member.member_id: member})

    def say(self, effect: Effect) -> None:
        """Add an effect."""
        self.effects.append(effect)

    def step(self) -> Step:
        """What the handler returns."""
        return self.group, tuple(self.effects)

    def revive(self, member_id: str, now_ms: int) -> None:
        """Restart the member's session."""
        member = self.group.members[member_id]
        self.put(replace(member, deadline_ms=now_ms + member.session_timeout_ms))

    def answer_syncs(self, refusal: GroupRefusal | None, now_ms: int) -> None:
        """Answer all members that wait for an assignment; their sessions restart."""
        group = self.group
        for member in group.members.values():
            if member.sync_ticket is None:
                continue
            if refusal is None:
                answer = AnswerSync(
                    member.sync_ticket, None, group.protocol_type, group.protocol_name, member.assignment
                )
            else:
                answer = AnswerSync(member.sync_ticket, refusal)
            self.say(answer)
            self.put(replace(member, sync_ticket=None, deadline_ms=now_ms + member.session_timeout_ms))

    def refuse_waiting(self, member: Member, refusal: GroupRefusal, told_id: str) -> None:
        """Refuse the requests whose answers the member waits for."""
        if member.join_ticket is not None:
            self.say(AnswerJoin(member.join_ticket, told_id, refusal))
        if member.sync_ticket is not None:
            self.say(AnswerSync(member.sync_ticket, refusal))

    def remove(self, member_id: str) -> None:
        """Remove a member or a reserved id. Its waiting requests are refused; if it led, the next member leads."""
        group = self.group
        member = group.members.get(member_id)
        if member is not None:
            self.refuse_waiting(member, GroupRefusal.UNKNOWN_MEMBER_ID, "")
        members = {each: kept for each, kept in group.members.items() if each != member_id}
        self.set(
            members=members,
            pending={each: at for each, at in group.pending.items() if each != member_id},
            awaited=group.awaited - {member_id},
            leader=next(iter(members), None) if group.leader == member_id else group.leader,
        )


def refusal_of(group: Group, member_id: str, instance_id: str | None) -> GroupRefusal | None:
    """Why these ids are no member's, or are a replaced static member's; None for a member."""
    if instance_id is not None:
        holder = static_holder(group.members, instance_id)
        if holder is None:
            return GroupRefusal.UNKNOWN_MEMBER_ID
        if holder != member_id:
            return GroupRefusal.FENCED_INSTANCE_ID
    return None if member_id in group.members else GroupRefusal.UNKNOWN_MEMBER_ID
