"""Where a partition's replicas are, and which of them leads next.

Owns: the default placement, the choice of a leader.
Does not know: epochs, what a broker is.
Invariants: the same topic, partition and brokers give the same replicas, so a restart needs no file of them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from embedded_kafka.topics.java_hash import partition_of

NO_LEADER = -1
"""Kafka's id for "no broker leads it"."""


def replicas_of(topic: str, partition: int, factor: int, brokers: Sequence[int]) -> tuple[int, ...]:
    """The brokers with a replica, the preferred leader first. A factor beyond the number of brokers means all of them.

    As in Kafka consecutive partitions begin at consecutive brokers. The first one follows from the topic's name, where
    Kafka draws it at random.
    """
    first = partition_of(topic, len(brokers)) + partition
    return tuple(brokers[(first + at) % len(brokers)] for at in range(min(factor, len(brokers))))


def next_leader(replicas: Sequence[int], in_sync: Collection[int], alive: Collection[int], before: int) -> int:
    """The first replica that is in sync and alive, another one than `before` where there is one; else NO_LEADER."""
    able = [each for each in replicas if each in in_sync and each in alive]
    return next((each for each in able if each != before), able[0] if able else NO_LEADER)
