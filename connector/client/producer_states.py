"""What the leaders of partitions know of the producers that write there (DescribeProducers, KIP-664).

Owns: asking every leader, again where leadership moves.
Does not know: transactions' outcomes, which producers matter.
Invariants: an answer is complete (every partition asked for is in it) or None, where the right to ask is missing.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from connector.client.cluster import Cluster
from connector.client.offsets import MissingPartitions, group_by_leader, refusal
from connector.errors import BrokerUnavailable, ExactlyOnceError
from connector.model import TopicPartition, by_topic
from connector.protocol import messages as m
from connector.protocol.error_codes import Action, action_for, name_of

_WAIT_MS = 30_000
"""How long a partition without a leader is waited for. An election takes seconds; half would stop queries during a slow
one, double delays the error where a partition is gone for good."""


@dataclass(frozen=True)
class ProducerState:
    """One producer in one partition. `open_from` is the first offset of its open transaction there, -1 where none is;
    `last_sequence` that of the last record it wrote."""

    epoch: int
    open_from: int
    last_sequence: int = -1


States = dict[TopicPartition, dict[int, ProducerState]]
"""Partition -> producer id -> its state there. Producers that the leader has forgotten are left out."""


def describe_producers(
    cluster: Cluster, partitions: Iterable[TopicPartition], timeout_ms: int = _WAIT_MS
) -> States | None:
    """The producers of every partition; None where READ on a topic is missing, BrokerUnavailable where time is over."""
    deadline = time.monotonic() + timeout_ms / 1000
    missing = set(partitions)
    found: States = {}
    reason = "no leader"
    absent = MissingPartitions()
    while missing:
        groups = group_by_leader(cluster, sorted(missing))
        absent.judge(cluster, groups.get(-1, ()))
        asked = [(leader, group) for leader, group in groups.items() if leader >= 0]
        requests = [(leader, _request(cluster, group)) for leader, group in asked]
        for answer in cluster.network.call_many(requests):
            if isinstance(answer, ExactlyOnceError):
                reason = str(answer)
                continue
            for topic in answer.topics:
                for partition in topic.partitions:
                    action = action_for(m.DescribeProducersRequest.API_KEY, partition.error_code)
                    if action is Action.AUTHORIZE:
                        return None
                    where = TopicPartition(topic.name, partition.partition_index)
                    if action is Action.DONE:
                        found[where] = _states(partition)
                        missing.discard(where)
                    elif action in (Action.RETRY, Action.REDISCOVER):
                        reason = name_of(partition.error_code)
                    else:
                        raise refusal(
                            m.DescribeProducersRequest, partition.error_code, str(where), "READ on the topic"
                        )
        if missing and time.monotonic() >= deadline:
            where = min(missing)
            raise BrokerUnavailable(
                f"the leader of {where} could not say which transactions are open there (last: {reason})",
                {"partition": str(where), "timeout_ms": timeout_ms},
            )
        if missing:
            cluster.pause(100)
            cluster.refresh_topics(sorted({where.topic for where in missing}))
    return found


def _request(cluster: Cluster, partitions: list[TopicPartition]) -> m.Message:
    topic_class = m.DescribeProducersRequest.TopicRequest
    return cluster.build(
        m.DescribeProducersRequest,
        topics=[topic_class(name=name, partition_indexes=numbers) for name, numbers in by_topic(partitions)],
    )


def _states(partition: m.Message) -> dict[int, ProducerState]:
    return {
        each.producer_id: ProducerState(
            each.producer_epoch, each.current_txn_start_offset, each.last_sequence
        )
        for each in partition.active_producers
    }
