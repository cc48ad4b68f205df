"""The live groups of the consumer protocol: runs their machines, and stores before it answers.

Owns: every such group's present value, when each is to be looked at again, when a group of one protocol becomes one of
the other.
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
from embedded_kafka.groups.group_configs import GroupConfigs
from embedded_kafka.groups.journal import generation_of, tombstones
from embedded_kafka.groups.machine.consumer_events import (
    AnswerBeat,
    Beat,
    Catalogue,
    ClassicJoin,
    ConsumerEffect,
    Depart,
    Expel,
    ReadOffsets,
    WriteOffsets,
)
from embedded_kafka.groups.machine.consumer_moves import handle
from embedded_kafka.groups.machine.consumer_value import JOINING, ConsumerGroup, ConsumerGroupState, ConsumerLimits
from embedded_kafka.groups.machine.embedded_protocol import CONSUMER, NotConsumers, Subscription, read_subscription
from embedded_kafka.groups.machine.events import (
    AnswerCode,
    AnswerJoin,
    AnswerLeave,
    AnswerSync,
    Close,
    CommitOffsets,
    GroupRefusal,
    Heartbeat,
    Join,
    Loaded,
    Sync,
    Tick,
)
from embedded_kafka.groups.machine.migrating import shares_of, subscriptions_of, to_classic, to_consumer
from embedded_kafka.groups.machine.value import Group, GroupState
from embedded_kafka.groups.memberships import GROUPS_AT_MOST, Memberships
from embedded_kafka.refusals import Refused
from kafka_core.protocol.error_codes import Code
from kafka_core.values import TopicPartition

log = logging.getLogger(__name__)

MemberEvent = Beat | Depart | Expel | ClassicJoin | Sync | Heartbeat
Existing = Callable[[frozenset[str], str], Catalogue]
"""What exists of topics with these names, and of those that this expression (empty: none) matches."""


class ConsumerGroups:
    """All such groups of the broker. `store` writes records of one group to the log; Refused where that fails.
    `configs`: what is set for single groups."""

    def __init__(
        self,
        limits: ConsumerLimits,
        configs: GroupConfigs,
        store: Callable[[str, Records], None],
        classic: Memberships,
    ) -> None:
        self.limits = limits
        self._configs = configs
        self._classic = classic
        self._store = store
        self._groups: dict[str, ConsumerGroup] = {}
        self._due: DueTimes[str] = DueTimes()

    def __iter__(self) -> Iterator[ConsumerGroup]:
        return iter(list(self._groups.values()))

    def get(self, group_id: str) -> ConsumerGroup | None:
        """The group's present value, with the limits of now."""
        group = self._groups.get(group_id)
        return None if group is None else self._limited(group)

    def keep(self, group: ConsumerGroup) -> None:
        """Add or replace the group. Refused(POLICY_VIOLATION) where the broker has too many."""
        if group.group_id not in self._groups and len(self._groups) >= GROUPS_AT_MOST:
            raise Refused(Code.POLICY_VIOLATION, f"this broker keeps at most {GROUPS_AT_MOST} groups of this kind")
        self._groups[group.group_id] = group
        self._look_again(group)

    def restore(self, group: ConsumerGroup, now_ms: int) -> None:
        """The group was read from the log: its members have whole timeouts."""
        self.keep(handle(self._limited(group), Loaded(now_ms))[0])

    def drop(self, group_id: str) -> None:
        """Drop the group, whose records are gone already."""
        self._groups.pop(group_id, None)

    def heard(self, group_id: str, event: Beat | Depart, existing: Existing) -> AnswerBeat:
        """ConsumerGroupHeartbeat. Refused, with nothing changed, also where the group is of the other protocol, has
        members and cannot become one of this one."""
        group = self.get(group_id)
        also: Records = []
        classic = self._classic.get(group_id)
        if group is None:
            if classic is not None and (event.epoch != JOINING or not self._may_upgrade(classic)):
                raise Refused(Code.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
            if event.epoch != JOINING:
                raise Refused(Code.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
            group = ConsumerGroup(group_id, self.limits)
            if classic is not None:
                group = self._upgraded(classic, event.now_ms, existing)
                also = tombstones(classic)
            group = self._limited(group)
        if isinstance(event, Beat):
            event = self._informed(group, event, existing)
        answer = self.ask(group, event, also)
        if not isinstance(answer, AnswerBeat):
            refusal = _code_in(answer) or GroupRefusal.UNKNOWN_SERVER_ERROR
            raise Refused(code_of(refusal), refusal.value)
        if classic is not None:
            self._classic.hand_over(classic)
        return answer

    def give_way(self, group_id: str) -> None:
        """A member of the classic protocol wants to join, and has no id yet: an empty group becomes a classic one."""
        group = self.get(group_id)
        if group is not None and group.state is ConsumerGroupState.EMPTY:
            self._store(group_id, tombstones(group))
            self.drop(group_id)

    def admit(self, group: ConsumerGroup, event: Join, existing: Existing) -> AnswerJoin:
        """JoinGroup of a group with members. Refused(UNKNOWN_SERVER_ERROR) for metadata that is none of a consumer."""
        try:
            asked = read_subscription(event.protocols[0][1]) if event.protocols else Subscription(())
        except NotConsumers as error:
            if event.protocol_type == CONSUMER:
                raise Refused(Code.UNKNOWN_SERVER_ERROR, f"no consumer's metadata: {error}") from error
            asked = Subscription(())
        names = frozenset(name for name, _ in asked.owned)
        word = Beat(
            event.now_ms,
            event.member_id or event.new_member_id,
            JOINING,
            event.client_id,
            event.client_host,
            instance_id=event.instance_id,
            rack_id=asked.rack_id,
            rebalance_timeout_ms=event.rebalance_timeout_ms,
            topics=tuple(sorted(set(asked.topics))),
            owned=shares_of(asked.owned, existing(names, "").topics),
        )
        answer = self.ask(group, ClassicJoin(event, self._informed(group, word, existing)))
        assert isinstance(answer, AnswerJoin)
        return answer

    def sync(self, group: ConsumerGroup, event: Sync) -> AnswerSync:
        """SyncGroup of a member of the classic protocol."""
        answer = self.ask(group, event)
        assert isinstance(answer, AnswerSync)
        return answer

    def alive(self, group: ConsumerGroup, event: Heartbeat) -> GroupRefusal | None:
        """Heartbeat of a member of the classic protocol: None for success, or a refusal."""
        return _code_in(self.ask(group, event))

    def expel(self, group: ConsumerGroup, members: Sequence[tuple[str, str | None]], now_ms: int) -> list[Code]:
        """LeaveGroup: remove members (member id, instance id); the code for each."""
        answer = self.ask(group, Expel(now_ms, tuple(members)))
        assert isinstance(answer, AnswerLeave)
        return [code_of(refusal) for refusal in answer.refusals]

    def may_write(
        self, group: ConsumerGroup, event: CommitOffsets, partitions: Iterable[TopicPartition]
    ) -> GroupRefusal | None:
        """Why these offsets may not be committed; None where they may."""
        topics = group.topics
        shares = frozenset(
            (topics[where.topic].topic_id, where.partition) if where.topic in topics else None for where in partitions
        )
        who = (event.member_id, event.generation, event.instance_id)
        return self.consider(group, WriteOffsets(*who, event.transactional, shares))

    def ask(self, group: ConsumerGroup, event: MemberEvent, also: Sequence[Record] = ()) -> ConsumerEffect:
        """Make the group's next move, and return its one answer. `also`: records that go with the group's own, in the
        same batch. Refused where they cannot be written: then the group is as it was."""
        after, (answer,) = handle(group, event)
        self._move(group, after, event.now_ms, also)
        return answer

    def consider(self, group: ConsumerGroup, event: WriteOffsets | ReadOffsets) -> GroupRefusal | None:
        """Why the offsets may not be written or read; None where they may. Nothing changes."""
        return _code_in(handle(group, event)[1][0])

    def _limited(self, group: ConsumerGroup) -> ConsumerGroup:
        limits = self._configs.limits(group.group_id, self.limits)
        same = group.limits is limits or group.limits == limits
        return group if same else replace(group, limits=limits)

    def _may_upgrade(self, classic: Group) -> bool:
        if classic.state is GroupState.EMPTY:
            return not classic.pending
        fits = len(classic.members) <= self.limits.max_members
        return self.limits.may_upgrade and classic.protocol_type == CONSUMER and fits

    def _upgraded(self, classic: Group, now_ms: int, existing: Existing) -> ConsumerGroup:
        if classic.state is GroupState.EMPTY:
            return ConsumerGroup(classic.group_id, self.limits)
        try:
            asked = subscriptions_of(classic)
            topics = existing(frozenset(name for each in asked.values() for name in each.topics), "").topics
            return to_consumer(classic, asked, self.limits, topics, now_ms)
        except NotConsumers as error:
            raise Refused(
                Code.GROUP_ID_NOT_FOUND, f"Group {classic.group_id} cannot become a consumer group: {error}"
            ) from error

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
            self._move(group, after, now_ms)
        except Refused as refused:
            log.warning("group %s could not be written, so its members stay: %s", group.group_id, refused)

    def _move(self, before: ConsumerGroup, after: ConsumerGroup, now_ms: int, also: Sequence[Record] = ()) -> None:
        if after is before:
            return
        known = self._groups.get(before.group_id)
        if self._goes_back(before, after):
            self._downgrade(before, after, now_ms)
            return
        records = [*also, *records_of(before.group_id, known, after)]
        if known is None and len(self._groups) >= GROUPS_AT_MOST:
            raise Refused(Code.POLICY_VIOLATION, f"this broker keeps at most {GROUPS_AT_MOST} groups of this kind")
        if records:
            self._store(before.group_id, records)
        self.keep(after)

    def _goes_back(self, before: ConsumerGroup, after: ConsumerGroup) -> bool:
        """Whether a member has left and all others use the classic protocol, or the last static one that used this one
        has come back with the classic one."""
        if before.members.keys() <= after.members.keys():
            # Nobody has left. One that goes on under its id with the classic protocol changes the group when the next
            # one leaves.
            return False
        only_classic = 0 < len(after.members) == after.classics <= self._classic.limits.max_members
        fewer = len(after.members) < len(before.members)
        return self.limits.may_downgrade and only_classic and (fewer or before.classics < len(before.members))

    def _downgrade(self, before: ConsumerGroup, after: ConsumerGroup, now_ms: int) -> None:
        replaced = len(after.members) == len(before.members)
        epoch = after.epoch if replaced else before.epoch
        group = to_classic(after, epoch, self._classic.limits, now_ms, rebalance=not replaced)
        self._store(before.group_id, [*tombstones(before), *generation_of(group)])
        self.drop(before.group_id)
        self._classic.keep(group)

    def _look_again(self, group: ConsumerGroup) -> None:
        due_ms = group.due_ms
        if due_ms is not None:
            self._due.by(group.group_id, due_ms)


def _code_in(answer: ConsumerEffect) -> GroupRefusal | None:
    assert isinstance(answer, AnswerCode)
    return answer.refusal
