"""Which committed offsets are overdue (KIP-211).

Owns: when an offset's retention time starts.
Does not know: logs, transactions.
"""

from __future__ import annotations

from embedded_kafka.groups.machine.consumer_value import ConsumerGroup
from embedded_kafka.groups.machine.moves import Group, GroupState
from embedded_kafka.groups.offsets import NEVER, CommittedOffset, Offsets
from embedded_kafka.groups.subscriptions import subscribed_topics
from kafka_core.values import TopicPartition


def overdue(group: Group | ConsumerGroup, offsets: Offsets, *, retention_ms: int, now_ms: int) -> list[TopicPartition]:
    """The partitions whose offsets may be removed.

    An empty group's offsets age from the time that the group became empty. Offsets of a group that never had
    members age from their commit, and so do those of topics that a group of consumers no longer consumes.
    Offsets of a group with other members never become overdue. Those of a group of the consumer protocol age from their
    commit where no member subscribes to the topic.
    """
    if isinstance(group, ConsumerGroup):
        wanted = group.wanted
        candidates = [where for where in offsets if where.topic not in wanted]
        return [where for where in candidates if _overdue(offsets[where], -1, retention_ms, now_ms)]
    candidates = list(offsets)
    if group.protocol_type is not None and group.state is not GroupState.EMPTY:
        topics = subscribed_topics(group)
        if group.state is not GroupState.STABLE or topics is None:
            return []
        candidates = [where for where in offsets if where.topic not in topics]
    emptied_ms = group.state_since_ms if group.protocol_type and group.state is GroupState.EMPTY else -1
    return [where for where in candidates if _overdue(offsets[where], emptied_ms, retention_ms, now_ms)]


def _overdue(offset: CommittedOffset, emptied_ms: int, retention_ms: int, now_ms: int) -> bool:
    if offset.expire_ms != NEVER:
        return now_ms >= offset.expire_ms
    return now_ms - (emptied_ms if emptied_ms >= 0 else offset.commit_ms) >= retention_ms
