"""Transactions of a pipeline's ids that brokers left without a marker: where they are.

Owns: the partitions to look at, and the look.
Does not know: how a marker is written (`markers`), whose batch it was.
Invariants: nothing here changes anything.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.definite import NEW_TOPIC_MS
from pyspark_kafka_eos.client.reading import absence
from pyspark_kafka_eos.client.reading.offsets import LogMark
from pyspark_kafka_eos.commit.open_parts import states_of
from pyspark_kafka_eos.model import Decision


def hanging(
    cluster: Cluster, topic: str | None, newest: Decision | None, ids: Mapping[str, int]
) -> dict[str, list[TopicPartition]]:
    """Transactional id -> the partitions of the output topic, and of the newest decision's topics, in which its
    producer has something open. `topic`: the output topic, None where the rows name theirs. `ids`: with their producer
    ids.

    UnknownTopic where `topic` does not exist, BrokerUnavailable where too few brokers say whether an earlier one does.
    """
    earlier = {part.topic for seal in (newest.seals if newest else ()) for part in seal.partitions} - {topic}
    # Metadata are refreshed: an earlier output topic may have been deleted since, and nothing hangs in a deleted topic.
    # Whether a topic of the name is the same one does not matter: what hangs in it is found.
    there = absence.existing(cluster, {TopicPartition(name, 0): LogMark() for name in earlier})
    counts = {where.topic: len(cluster.topic(where.topic).leaders) for where in there}
    if topic is not None:
        # It may be so new that a broker's metadata lack it.
        counts[topic] = len(cluster.topic(topic, refresh=True, new_topic_ms=NEW_TOPIC_MS).leaders)
    partitions = {TopicPartition(name, number) for name, count in counts.items() for number in range(count)}
    states = states_of(cluster, partitions) if ids else None
    found: dict[str, list[TopicPartition]] = {}
    for transactional_id, producer_id in ids.items():
        for where, producers in (states or {}).items():
            if producer_id in producers and producers[producer_id].open_from >= 0:
                found.setdefault(transactional_id, []).append(where)
    return found


__all__ = ["hanging"]
