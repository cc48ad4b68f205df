"""Members of the classic protocol in a group of the consumer protocol: their JoinGroup, SyncGroup and Heartbeat are
steps on the way that others take with heartbeats alone (KIP-848, online migration).

Owns: what such a member is told and when it has to come again.
Does not know: how targets and assignments are made (`advancing`), groups of the classic protocol alone (`moves`).
Invariants: every answer comes at once; nobody leads, for the broker assigns.
Source: Kafka's GroupMetadataManager.
"""

from __future__ import annotations

from dataclasses import replace

from embedded_kafka.groups.machine.advancing import admitted, advanced
from embedded_kafka.groups.machine.consumer_events import ClassicJoin, ConsumerEffect
from embedded_kafka.groups.machine.consumer_value import NOTHING, ClassicSide, Consumer, ConsumerGroup, Phase
from embedded_kafka.groups.machine.embedded_protocol import CONSUMER, read_subscription, write_assignment
from embedded_kafka.groups.machine.events import AnswerCode, AnswerJoin, AnswerSync, GroupRefusal, Heartbeat, Join, Sync

_Step = tuple[ConsumerGroup, tuple[ConsumerEffect, ...]]


def on_classic_join(group: ConsumerGroup, event: ClassicJoin) -> _Step:
    """The member joins, or joins again to take its next step; it has to sync within its rebalance timeout."""
    join = event.join
    refusal = _join_refusal(group, join)
    if refusal is not None:
        return group, (AnswerJoin(join.ticket, "", refusal),)
    if join.require_known_member_id and not join.member_id and join.instance_id is None:
        return group, (AnswerJoin(join.ticket, join.new_member_id, GroupRefusal.MEMBER_ID_REQUIRED),)
    word = event.word
    holder = None if join.member_id else group.holder_of(join.instance_id)
    side = ClassicSide(
        join.session_timeout_ms, join.protocols, sync_by_ms=join.now_ms + max(join.rebalance_timeout_ms, 0)
    )
    after = advanced(admitted(group, word.member_id, holder), word, side)
    epoch = after.members[word.member_id].epoch
    return after, (AnswerJoin(join.ticket, word.member_id, None, epoch, CONSUMER, join.protocols[0][0]),)


def on_classic_sync(group: ConsumerGroup, event: Sync) -> _Step:
    """The member gets what it has of its target by now; where there is a newer one it has to join again first."""
    member = _member(group, event)
    if isinstance(member, GroupRefusal):
        return group, (AnswerSync(event.ticket, member),)
    side = _side(member)
    name, metadata = side.protocols[0]
    if event.protocol_type not in (None, CONSUMER) or event.protocol_name not in (None, name):
        return group, (AnswerSync(event.ticket, GroupRefusal.INCONSISTENT_GROUP_PROTOCOL),)
    if _newest(group) > member.epoch and member.phase is not Phase.UNREVOKED_PARTITIONS:
        after = _put(group, _called(member, event.now_ms))
        return after, (AnswerSync(event.ticket, GroupRefusal.REBALANCE_IN_PROGRESS),)
    synced = replace(member, classic=replace(side, sync_by_ms=None), deadline_ms=event.now_ms + side.session_timeout_ms)
    assignment = write_assignment(group.by_name(member.assigned), read_subscription(metadata).version)
    answer = AnswerSync(event.ticket, None, event.protocol_type, event.protocol_name, assignment)
    return _put(group, synced), (answer,)


def on_classic_heartbeat(group: ConsumerGroup, event: Heartbeat) -> _Step:
    """The member's session is extended; it has to join again where there is something to give back or to take."""
    member = _member(group, event)
    if isinstance(member, GroupRefusal):
        return group, (AnswerCode(member),)
    member = replace(member, deadline_ms=event.now_ms + _side(member).session_timeout_ms)
    if _has_to_come(group, member):
        return _put(group, _called(member, event.now_ms)), (AnswerCode(GroupRefusal.REBALANCE_IN_PROGRESS),)
    return _put(group, member), (AnswerCode(),)


def _join_refusal(group: ConsumerGroup, join: Join) -> GroupRefusal | None:
    if join.member_id not in group.members and len(group.members) >= group.limits.max_members:
        return GroupRefusal.GROUP_MAX_SIZE_REACHED
    member = group.members.get(join.member_id)
    comes_new = member is None or member.classic is None
    if comes_new and not group.limits.may_upgrade and not group.limits.may_downgrade:
        # The group would never have one protocol again (KAFKA-20640).
        return GroupRefusal.INCONSISTENT_GROUP_PROTOCOL
    if join.protocol_type != CONSUMER or not _supported(group, set(dict(join.protocols))):
        return GroupRefusal.INCONSISTENT_GROUP_PROTOCOL
    if join.instance_id is None or not join.member_id:
        return None
    holder = group.holder_of(join.instance_id)
    if holder is None:
        return GroupRefusal.UNKNOWN_MEMBER_ID
    return None if holder.member_id == join.member_id else GroupRefusal.FENCED_INSTANCE_ID


def _supported(group: ConsumerGroup, names: set[str]) -> set[str]:
    """Those of the protocols that every member of the classic protocol supports."""
    sides = (member.classic for member in group.members.values() if member.classic is not None)
    return names.intersection(*(dict(side.protocols) for side in sides))


def _member(group: ConsumerGroup, event: Sync | Heartbeat) -> Consumer | GroupRefusal:
    holder = group.holder_of(event.instance_id)
    if event.instance_id is not None and holder is not None and holder.member_id != event.member_id:
        return GroupRefusal.FENCED_INSTANCE_ID
    member = group.members.get(event.member_id) if event.instance_id is None else holder
    if member is None or member.classic is None:
        return GroupRefusal.UNKNOWN_MEMBER_ID
    return member if event.generation == member.epoch else GroupRefusal.ILLEGAL_GENERATION


def _has_to_come(group: ConsumerGroup, member: Consumer) -> bool:
    if member.epoch < _newest(group) or member.phase is Phase.UNREVOKED_PARTITIONS:
        return True
    missing = group.targets.get(member.member_id, NOTHING) - member.assigned
    return member.phase is Phase.UNRELEASED_PARTITIONS and missing.isdisjoint(group.held_by_others(member.member_id))


def _newest(group: ConsumerGroup) -> int:
    """The epoch that a member has to come for. A member of the consumer protocol makes the target with its heartbeat.
    Where there is none, nobody would: Kafka 4.4 leaves the partitions without an owner then."""
    return group.epoch if group.classics == len(group.members) else group.assignment_epoch


def _called(member: Consumer, now_ms: int) -> Consumer:
    """It has to join within its rebalance timeout, counted from the first time that it was told."""
    side = _side(member)
    by_ms = side.join_by_ms if side.join_by_ms is not None else now_ms + max(member.rebalance_timeout_ms, 0)
    return replace(member, classic=replace(side, join_by_ms=by_ms))


def _side(member: Consumer) -> ClassicSide:
    assert member.classic is not None
    return member.classic


def _put(group: ConsumerGroup, member: Consumer) -> ConsumerGroup:
    return replace(group, members={**group.members, member.member_id: member})
