"""Transactions of a pipeline's ids that brokers left without a marker: where they are.

Owns: the partitions to look at, and the look.
Does not know: how a marker is written (`markers`), whose batch it was.
Invariants: nothing here changes anything.
"""

from __future__ import annotations

from collections.abc import Mapping

from connector.client.asking import NEW_TOPIC_MS
from connector.client.cluster import Cluster
from connector.commit.open_parts import states_of
from connector.errors import UnknownTopic
from connector.model import Decision, TopicPartition


def hanging(
    cluster: Cluster, topic: str | None, newest: Decision | None, ids: Mapping[str, int]
) -> dict[str, list[TopicPartition]]:
    """Transactional id -> the partitions of the output topic, and of the newest decision's topics, in which its producer has
    something open. `topic`: the output topic, None where the rows name theirs. `ids`: with their producer ids.

    UnknownTopic where `topic` does not exist.
    """
    topics = {part.topic for seal in (newest.seals if newest else ()) for part in seal.partitions}
    topics |= {topic} if topic is not None else set()
    partitions: set[TopicPartition] = set()
    for name in topics:
        # Metadata is refreshed: an earlier output topic may have been
        # deleted since, and nothing hangs in a deleted topic. Only the topic
        # to be written now may be so new that a broker's metadata lacks it.
        grace_ms = NEW_TOPIC_MS if name == topic else 0
        try:
            count = len(cluster.topic(name, refresh=True, new_topic_ms=grace_ms).leaders)
        except UnknownTopic:
            if name == topic:
                raise
            continue
        partitions |= {TopicPartition(name, number) for number in range(count)}
    states = states_of(cluster, partitions) if ids else None
    found: dict[str, list[TopicPartition]] = {}
    for transactional_id, producer_id in ids.items():
        for where, producers in (states or {}).items():
            if producer_id in producers and producers[producer_id].open_from >= 0:
                found.setdefault(transactional_id, []).append(where)
    return found


__all__ = ["hanging"]
