"""A topic's partitions by the metadata, merged so that an older answer never replaces a newer one.

Invariants:
- A topic with one id never loses partitions.
- The epochs of its leaders only grow.
Source: KIP-320 (leader epochs), KIP-516 (topic ids).
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from kafka_core.errors import BrokerUnavailable, ProtocolViolation, UnknownTopic
from kafka_core.protocol import messages as m
from kafka_core.protocol.error_codes import Code

PARTITIONS_AT_MOST = 500_000
"""Partitions that one topic may have. Kafka's largest clusters have some 2 million in all. A write for which a broker
sends the wrong number 524,288 takes 97 MB, double twice that, and without a limit one wrong bit costs 16 GB.
"""


@dataclass(frozen=True)
class TopicInfo:
    """A topic's partitions: `leaders[i]` is the broker id that leads partition i, or -1 while it has no
    leader; `epochs[i]` counts its leaders, -1 where the broker does not report that. `topic_id` differs
    between topics of one name that were created one after another; empty where the cluster has no ids (before
    Kafka 2.8, or metadata of such a version)."""

    name: str
    leaders: tuple[int, ...]
    epochs: tuple[int, ...] = ()
    topic_id: str = ""


_NO_TOPIC_ID = UUID(int=0)


def merged(known: TopicInfo | None, topic: m.Message) -> TopicInfo:
    """A topic by a metadata answer, without a step back behind newer facts from another broker.

    Brokers receive changes one after another. A topic with the same id never loses partitions, and the epochs of its
    leaders only grow (KIP-320): an answer that contradicts this is the older one. ProtocolViolation where a partition's
    number is impossible.
    """
    topic_id = "" if topic.topic_id in (None, _NO_TOPIC_ID) else str(topic.topic_id)
    found = {each.partition_index: (each.leader_id, each.leader_epoch) for each in topic.partitions}
    impossible = next((index for index in found if not 0 <= index < PARTITIONS_AT_MOST), None)
    if impossible is not None:
        raise ProtocolViolation(
            f"Metadata names partition {impossible} of topic {topic.name!r}, which no topic can have; nothing of it was used",
            {"topic": topic.name, "partition": impossible},
        )
    if known is not None and known.topic_id == topic_id != "":
        for index, before in enumerate(zip(known.leaders, known.epochs, strict=True)):
            _, epoch = found.setdefault(index, before)
            if 0 <= epoch < before[1]:
                found[index] = before
    places = [found.get(index, (-1, -1)) for index in range(1 + max(found, default=-1))]
    return TopicInfo(topic.name, tuple(leader for leader, _ in places), tuple(epoch for _, epoch in places), topic_id)


def is_lacking(topic: m.Message) -> bool:
    """Whether the broker that answered so does not have the topic."""
    return topic.error_code in (Code.UNKNOWN_TOPIC_OR_PARTITION, Code.INVALID_TOPIC_EXCEPTION)


def not_known(lacked: UnknownTopic) -> BrokerUnavailable:
    """The error where a broker lacks a topic and too few others say whether they have it."""
    return BrokerUnavailable(
        f"whether topic {lacked.facts['topic']!r} exists is not known: a broker lacks it, which may have been cut off before it was "
        "created, and no majority of the brokers says the same; start the brokers that do not answer",
        lacked.facts,
    )


def left_out(name: str, timeout_ms: float) -> BrokerUnavailable:
    """The error where every answer left the topic out, or had no partition of it."""
    return BrokerUnavailable(
        f"no broker answered with the partitions of topic {name!r} within the time allowed",
        {"topic": name, "timeout_ms": timeout_ms},
    )
