"""The partitions that a request about committed offsets names: which of them are allowed, and the answer's shape.

Owns: authorization and existence, per partition.
Does not know: the operation on the allowed partitions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from embedded_kafka.groups.offsets import NO_LEADER_EPOCH, NewOffset
from embedded_kafka.parts import Parts
from kafka_core.protocol.error_codes import Code
from kafka_core.values import TopicPartition

Named = list[tuple[TopicPartition, Any]]
"""Each partition with the request's entry for it, in the request's order."""


def named_in(topics: Any) -> Named:
    """The partitions of a request's topics."""
    return [
        (TopicPartition(topic.name, entry.partition_index), entry) for topic in topics for entry in topic.partitions
    ]


def judge(parts: Parts, named: Named) -> dict[TopicPartition, Code]:
    """NONE for each partition that exists and whose topic may be read."""
    codes = {}
    for where, _ in named:
        if not parts.authorizer.allows("READ", "TOPIC", where.topic):
            codes[where] = Code.TOPIC_AUTHORIZATION_FAILED
        elif not parts.topics.has(where):
            codes[where] = Code.UNKNOWN_TOPIC_OR_PARTITION
        else:
            codes[where] = Code.NONE
    return codes


def new_offsets(named: Named, codes: Mapping[TopicPartition, Code], *, with_epoch: bool) -> list[NewOffset]:
    """The offsets to commit for the allowed partitions; `with_epoch`: the request's version
    has the leader's epoch."""
    return [
        NewOffset(
            where,
            entry.committed_offset,
            entry.committed_leader_epoch if with_epoch else NO_LEADER_EPOCH,
            entry.committed_metadata or "",
        )
        for where, entry in named
        if codes[where] is Code.NONE
    ]


def answer_topics(
    topics: Any, codes: Mapping[TopicPartition, Code], topic_class: Any, partition_class: Any
) -> list[Any]:
    """The answer's topics in the request's order, without topics that have no partitions. The classes are
    those of the answer's nested structs."""
    return [
        topic_class(
            name=topic.name,
            partitions=[
                partition_class(
                    partition_index=entry.partition_index,
                    error_code=int(codes[TopicPartition(topic.name, entry.partition_index)]),
                )
                for entry in topic.partitions
            ],
        )
        for topic in topics
        if topic.partitions
    ]
