"""Partition leaders by every broker's metadata, where those of the one that was asked may be stale.

Owns: one question to all brokers at once.
Does not know: why the caller doubts the leader that it knows.
Invariants:
- The newest leader that any of them names is known afterwards: epochs only grow (`topic_info`).
- No broker's word removes a topic: one that has just started lacks its topics.

Without this a client that is connected to the broker that was cut off asks it alone: a library prefers connections that
it has.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafka_core.errors import ExactlyOnceError
from kafka_core.protocol import messages as m
from kafka_core.protocol.error_codes import Code
from pyspark_kafka_eos.client.cluster import Cluster

_PATIENCE_MS = 2_000
"""How long one broker may take. Half fails a busy one; a broker that is down costs each round as much."""


def ask_every_broker(cluster: Cluster, topics: Iterable[str]) -> None:
    """Refresh the leaders of these topics from all brokers of the cluster. One that does not answer is left out."""
    names = set(topics)
    for answer in answers_of_all(cluster, names) if names else ():
        answer.topics = [topic for topic in answer.topics if topic.error_code == Code.NONE]
        cluster.take_metadata(answer)


def answers_of_all(cluster: Cluster, topics: Iterable[str]) -> list[m.Message]:
    """What each broker that answers in time says of these topics."""
    request = cluster.metadata_request(sorted(set(topics)))
    calls = [(node, request) for node in cluster.network.brokers()]
    answers = cluster.network.call_many(calls, _PATIENCE_MS)
    return [answer for answer in answers if not isinstance(answer, ExactlyOnceError)]
