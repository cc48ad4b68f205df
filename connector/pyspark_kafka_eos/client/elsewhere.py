"""Whether somebody else is in charge of what a broker is asked for that does not answer: asked while its request hangs.

Owns: the look at other brokers for coordinators, leaders and the list of brokers; the words with which a request is
given up.
Does not know: what was asked, what follows.
Invariants:
- A request is given up only where another broker names somebody else in charge: a broker that is slow is waited for, as
  long as its request may take.
- A broker's word moves a leader only with a later epoch (`topic_info`), so that one that is behind moves none.

A broker that is frozen, or cut off, answers nothing and keeps its connections. The others elect new leaders and
coordinators within its session's timeout, 9 s by default. Without a look elsewhere each question to it takes
kafka.request.timeout.ms.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from kafka_core import runtime
from kafka_core.errors import BrokerUnavailable
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster, CoordinatorKind
from pyspark_kafka_eos.client.net.network import Answer, Elsewhere

LOOK_AFTER_S = 1.0
"""How long a leader may leave batches or a fetch unanswered before another broker is asked who leads their partitions,
and how long from look to look; so long are `Network.call_many`'s, too. With half, a busy cluster is asked for nothing;
with double, a task waits so much longer behind a frozen broker.
"""


def at_coordinators(cluster: Cluster, kind: CoordinatorKind, keys: Sequence[Collection[str]]) -> Elsewhere:
    """For requests to coordinators, `keys[i]` those of request i: given up where one of its keys has another
    coordinator.
    """
    asked = {key: cluster.coordinator_id(kind, key) for group in keys for key in group}

    def moved(missing: Sequence[int]) -> Mapping[int, str]:
        wanted = {key: asked[key] for index in missing for key in keys[index]}
        now = cluster.look_for_coordinators(kind, wanted)
        return {
            index: f"broker {asked[key]}, and broker {now[key]} coordinates {key!r} now"
            for index in missing
            for key in keys[index]
            if key in now
        }

    return _given_up(moved)


def at_leaders(cluster: Cluster, groups: Sequence[Collection[TopicPartition]], leaders: Sequence[int]) -> Elsewhere:
    """For requests to leaders, `groups[i]` the partitions of request i: given up where one of them has another one."""

    def moved(missing: Sequence[int]) -> Mapping[int, str]:
        cluster.look_for_leaders(
            {where.topic for index in missing for where in groups[index]}, {leaders[index] for index in missing}
        )
        return {
            index: f"broker {leaders[index]}, and broker {cluster.leader(where)} leads {where} now"
            for index in missing
            for where in groups[index]
            if cluster.leader(where) not in (-1, leaders[index])
        }

    return _given_up(moved)


def among_brokers(cluster: Cluster, brokers: Sequence[int]) -> Elsewhere:
    """For requests to each broker: given up where another one no longer lists it."""

    def moved(missing: Sequence[int]) -> Mapping[int, str]:
        listed = cluster.look_for_brokers({brokers[index] for index in missing})
        return {
            index: f"broker {brokers[index]}, which is not in the cluster now"
            for index in missing
            if listed and brokers[index] not in listed
        }

    return _given_up(moved)


def _given_up(moved: Callable[[Sequence[int]], Mapping[int, str]]) -> Elsewhere:
    began_s = runtime.monotonic()

    def elsewhere(missing: Sequence[int]) -> Mapping[int, Answer]:
        found = moved(missing)
        silent_s = runtime.monotonic() - began_s
        return {index: BrokerUnavailable(f"no answer for {silent_s:.0f} s from {who}") for index, who in found.items()}

    return elsewhere
