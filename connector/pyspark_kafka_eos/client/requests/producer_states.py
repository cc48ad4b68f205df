"""The producers that write to partitions, from the state of the leaders (DescribeProducers, KIP-664).

Owns: the request to every leader, and its retry where leadership moves.
Does not know: transactions' outcomes, which producers matter.
Invariants: an answer covers every requested partition, or is None where the right to ask is missing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kafka_core.errors import AuthorizationFailed, BrokerUnavailable, ExactlyOnceError
from kafka_core.protocol import messages as m
from kafka_core.protocol.error_codes import Action
from kafka_core.values import TopicPartition, by_topic
from pyspark_kafka_eos.client.asking import ask_leaders
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.definite import Again, again_or_refuse
from pyspark_kafka_eos.client.reading.offsets import each_partition, refusal
from pyspark_kafka_eos.client.wire.versions import Build


@dataclass(frozen=True)
class ProducerState:
    """One producer in one partition. `open_from` is the first offset of its open transaction there, -1 where none is;
    `last_sequence` that of the last record it wrote; `marked`: whether a transaction of it has ended there, as far as
    the leader says.
    """

    epoch: int
    open_from: int
    last_sequence: int = -1
    marked: bool = True


States = dict[TopicPartition, dict[int, ProducerState]]
"""Partition -> producer id -> its state there. Producers that the leader has dropped are left out."""


def describe_producers(
    cluster: Cluster, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
) -> States | None:
    """The producers of every partition; None where READ on a topic is missing, BrokerUnavailable where time is over."""
    budget = cluster.budget(timeout_ms)

    def judge(where: TopicPartition, part: m.Message) -> dict[int, ProducerState] | Again:
        again = again_or_refuse(
            m.DescribeProducersRequest.API_KEY,
            part.error_code,
            lambda action, code: refused(where, action, code),
        )
        return again or _states(part)

    def refused(where: TopicPartition, action: Action, code: int) -> ExactlyOnceError:
        if action is Action.AUTHORIZE:
            return _NotAllowed(str(where))
        return refusal(m.DescribeProducersRequest, code, str(where), "READ on the topic")

    def late(where: TopicPartition, last: Again) -> ExactlyOnceError:
        return BrokerUnavailable(
            f"the leader of {where} did not list its open transactions within the time allowed (last: {last})",
            {"partition": str(where), "timeout_ms": budget.total_ms},
        )

    try:
        return ask_leaders(
            cluster,
            sorted(set(partitions)),
            lambda group: _request(cluster, group),
            lambda answer: each_partition(answer.topics),
            judge,
            deadline_ms=budget.left_ms,
            late=late,
        )
    except _NotAllowed:
        return None


class _NotAllowed(AuthorizationFailed):
    """The right to ask is missing; missing other rights are other errors."""


def _request(cluster: Cluster, partitions: Iterable[TopicPartition]) -> Build:
    topic_class = m.DescribeProducersRequest.TopicRequest
    return cluster.build(
        m.DescribeProducersRequest,
        topics=[topic_class(name=name, partition_indexes=numbers) for name, numbers in by_topic(partitions)],
    )


def _states(partition: m.Message) -> dict[int, ProducerState]:
    return {
        each.producer_id: ProducerState(
            each.producer_epoch,
            each.current_txn_start_offset,
            each.last_sequence,
            each.coordinator_epoch >= 0,
        )
        for each in partition.active_producers
    }
