"""The live groups of the consumer protocol: runs their machines, and stores before it answers.

Owns: every such group's present value, when each is to be looked at again, how an empty group of one protocol becomes
one of the other.
Does not know: offsets, the log, which topics exist.
Invariants: a change is in the log before it is visible; where it cannot be written nothing has changed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from embedded_kafka.due import DueTimes
from embedded_kafka.groups.codes import code_of
from embedded_kafka.groups.consumers_log import Record, Records, records_of
from embedded_kafka.groups.journal import tombstones
from embedded_kafka.groups.machine.consumer_events import (
    AnswerBeat,
    Beat,
    Catalogue,
    ConsumerEffect,
    Depart,
    Expel,
    WriteOffsets,
)
from embedded_kafka.groups.machine.consumer_moves import ConsumerEvent, handle
from embedded_kafka.groups.machine.consumer_value import JOINING, ConsumerGroup, ConsumerGroupState, ConsumerLimits
from embedded_kafka.groups.machine.events import Close, CommitOffsets, GroupRefusal, Loaded, Tick
from embedded_kafka.groups.machine.value import GroupState
from embedded_kafka.groups.memberships import GROUPS_AT_MOST, Memberships
from embedded_kafka.refusals import Refused
from kafka_core.protocol.error_codes import Code
from kafka_core.values import TopicPartition

log = logging.getLogger(__name__)

Existing = Callable[[frozenset[str], str], Catalogue]
"""What exists of topics with these names, and of those that this expression (empty: none) matches."""


class ConsumerGroups:
    """All such groups of the broker. `store` writes records of one group to the log; Refused where that fails."""

    def __init__(self, limits: ConsumerLimits, store: Callable[[str, Records], None], classic: Memberships) -> None:
        self.limits = limits
        self._classic = classic
        self._store = store
        self._groups: dict[str, ConsumerGroup] = {}
        self._due: DueTimes[str] = DueTimes()

    def __iter__(self) -> Iterator[ConsumerGroup]:
        return iter(list(self._groups.values()))

    def get(self, group_id: str) -> ConsumerGroup | None:
        """The group's present value."""
        return self._groups.get(group_id)

    def keep(self, group: ConsumerGroup) -> None:
        """Add or replace the group. Refused(POLICY_VIOLATION) where the broker has too many."""
        if group.group_id not in self._groups and len(self._groups) >= GROUPS_AT_MOST:
            raise Refused(Code.POLICY_VIOLATION, f"this broker keeps at most {GROUPS_AT_MOST} groups of this kind")
        self._groups[group.group_id] = group
        self._look_again(group)

    def restore(self, group: ConsumerGroup, now_ms: int) -> None:
        """The group was read from the log: its members have whole timeouts."""
        self.keep(handle(group, Loaded(now_ms))[0])

    def drop(self, group_id: str) -> None:
        """Drop the group, whose records are gone already."""
        self._groups.pop(group_id, None)

    def heard(self, group_id: str, event: Beat | Depart, existing: Existing) -> AnswerBeat:
        """ConsumerGroupHeartbeat. Refused, with nothing changed, also where the group is of the other protocol and has
        members."""
        group = self.get(group_id)
        also: Records = []
        classic = self._classic.get(group_id)
        if group is None:
            if classic is not None and (classic.state is not GroupState.EMPTY or classic.pending):
                raise Refused(Code.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
            if event.epoch != JOINING:
                raise Refused(Code.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
            group = ConsumerGroup(group_id, self.limits)
            also = [] if classic is None else tombstones(classic)
        if isinstance(event, Beat):
            event = self._informed(group, event, existing)
        answer = self.ask(group, event, also)
        if not isinstance(answer, AnswerBeat):
            refusal = answer.refusal or GroupRefusal.UNKNOWN_SERVER_ERROR
            raise Refused(code_of(refusal), refusal.value)
        if classic is not None:
            self._classic.forget(group_id)
        return answer

    def give_way(self, group_id: str) -> None:
        """A member of the classic protocol wants to join. An empty group goes; INCONSISTENT_GROUP_PROTOCOL where there
        are members, because this broker does not mix the protocols."""
        group = self.get(group_id)
        if group is None:
            return
        if group.state is not ConsumerGroupState.EMPTY:
            raise Refused(
                Code.INCONSISTENT_GROUP_PROTOCOL, f"the members of {group_id} use the consumer protocol (KIP-848)"
            )
        self._store(group_id, tombstones(group))
        self.drop(group_id)

    def expel(self, group: ConsumerGroup, members: Sequence[tuple[str, str | None]], now_ms: int) -> list[Code]:
        """LeaveGroup: remove members (member id, instance id); the code for each."""
        codes = []
        for member_id, instance_id in members:
            group = self._groups.get(group.group_id, group)
            codes.append(code_of(self.ask(group, Expel(now_ms, member_id, instance_id)).refusal))
        return codes

    def may_write(
        self, group: ConsumerGroup, event: CommitOffsets, partitions: Iterable[TopicPartition]
    ) -> GroupRefusal | None:
        """Why these offsets may not be committed; None where they may."""
        topics = group.topics
        shares = frozenset(
            (topics[where.topic].topic_id, where.partition) if where.topic in topics else None for where in partitions
        )
        who = (event.member_id, event.generation, event.instance_id)
        return self.ask(group, WriteOffsets(*who, event.transactional, shares)).refusal

    def ask(self, group: ConsumerGroup, event: ConsumerEvent, also: Sequence[Record] = ()) -> ConsumerEffect:
        """Make the group's next move, and return its one answer. `also`: records that go with the group's own, in the
        same batch. Refused where they cannot be written: then the group is as it was."""
        after, effects = handle(group, event)
        (answer,) = effects
        if answer.refusal is None:
            self._move(group, after, also)
        return answer

    def _informed(self, group: ConsumerGroup, event: Beat, existing: Existing) -> Beat:
        """The event with what exists of the topics that it and the group are about."""
        known = group.members.get(event.member_id) or group.holder_of(event.instance_id)
        regex = event.regex if event.regex is not None else "" if known is None else known.regex
        return replace(event, catalogue=existing(group.wanted.union(event.topics or ()), regex))

    def tick(self, now_ms: int, at_most: int | None = None) -> None:
        """Remove members whose time is over, in `at_most` groups (None: all), the rest with the next tick."""
        for group_id in self._due.due(now_ms, at_most):
            group = self._groups.get(group_id)
            if group is not None:
                # Before the move: one that cannot be written must be tried again.
                self._look_again(group)
                self._pass_time(group, now_ms)

    def catch_up(self, group_id: str, now_ms: int) -> None:
        """Remove members whose time is over, in one group."""
        group = self._groups.get(group_id)
        if group is not None and group.due_ms is not None and group.due_ms <= now_ms:
            self._pass_time(group, now_ms)

    def close(self) -> None:
        """Drop every group."""
        for group in self:
            if group.state is not ConsumerGroupState.DEAD:
                handle(group, Close())
        self._groups.clear()

    def _pass_time(self, group: ConsumerGroup, now_ms: int) -> None:
        after, _ = handle(group, Tick(now_ms))
        try:
            self._move(group, after)
        except Refused as refused:
            log.warning("group %s could not be written, so its members stay: %s", group.group_id, refused)

    def _move(self, before: ConsumerGroup, after: ConsumerGroup, also: Sequence[Record] = ()) -> None:
        if after is before:
            return
        known = self._groups.get(before.group_id)
        records = [*also, *records_of(before.group_id, known, after)]
        if known is None and len(self._groups) >= GROUPS_AT_MOST:
            raise Refused(Code.POLICY_VIOLATION, f"this broker keeps at most {GROUPS_AT_MOST} groups of this kind")
        if records:
            self._store(before.group_id, records)
        self.keep(after)

    def _look_again(self, group: ConsumerGroup) -> None:
        due_ms = group.due_ms
        if due_ms is not None:
            self._due.by(group.group_id, due_ms)
