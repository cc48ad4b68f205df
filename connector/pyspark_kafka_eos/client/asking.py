"""Asking a coordinator, many coordinators, a leader or several leaders until the answer is definite.

Owns: looking up the coordinator or the leader again where it moved or does not answer, also while a request hangs.
Does not know: the loop's deadline and its retries (`definite`); what an answer means: `judge` decides that from the
table of codes.
Invariant: an answer is returned only where `judge` accepts it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kafka_core import runtime
from kafka_core.errors import AbortableError, BrokerUnavailable, ExactlyOnceError, ProducerFenced, UnknownTopic
from kafka_core.protocol import messages as m
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client import elsewhere
from pyspark_kafka_eos.client.cluster import Cluster, CoordinatorKind
from pyspark_kafka_eos.client.definite import (
    ELECTION_BACKOFF_MS,
    NEW_TOPIC_MS,
    RETRY_BACKOFF_MS,
    Again,
    Budget,
    T,
    until_definite,
)
from pyspark_kafka_eos.client.every_broker import Doubt, is_replaced, require_coordinators
from pyspark_kafka_eos.client.net.network import Node
from pyspark_kafka_eos.client.wire.versions import Request


def ask_coordinator(
    cluster: Cluster,
    kind: CoordinatorKind,
    key: str,
    build: Callable[[], Request],
    judge: Callable[[m.Message], T | Again],
    *,
    deadline_ms: float,
    late: Callable[[Again], T],
    pause_ms: float = RETRY_BACKOFF_MS,
    sure: bool = False,
) -> T:
    """The result of `judge` for the coordinator's answer. A coordinator that moved or does not answer is
    looked up again. Where it refuses what depends on what it knows of the id or the group, and most brokers name
    another one, that one's word counts: one that was cut off knows nothing that began after that.

    `sure`: each time the coordinator that most brokers name is asked, for who concludes from the answer.
    """
    budget, doubt = Budget(deadline_ms), Doubt(cluster, kind)

    def attempt() -> T | Again:
        asked = -1
        try:
            if sure:
                require_coordinators(cluster, kind, [key])
            node = cluster.coordinator(kind, key, budget.left_ms)
            asked = cluster.coordinator_id(kind, key)
            watched = elsewhere.at_coordinators(cluster, kind, [[key]])
            found = judge(cluster.call(node, build(), budget, elsewhere=watched))
        except BrokerUnavailable:
            cluster.forget_coordinator(kind, key)
            raise
        except (ProducerFenced, AbortableError) as error:
            if not is_replaced(cluster, kind, key, asked):
                raise
            return Again(str(error), error=error)
        if isinstance(found, Again) and found.moved:
            cluster.forget_coordinator(kind, key)
        elif isinstance(found, Again):
            doubt.asked_to_wait([key])
        return found

    return until_definite(attempt, deadline_ms=deadline_ms, late=late, pause=cluster.pause, pause_ms=pause_ms)


def ask_coordinators(
    cluster: Cluster,
    kind: CoordinatorKind,
    keys: Iterable[str],
    build: Callable[[str], Request],
    judge: Callable[[str, m.Message], T | Again],
    *,
    deadline_ms: float,
    late: Callable[[str, Again], ExactlyOnceError],
    connections: int = 1,
) -> dict[str, T]:
    """The result of `judge` for each key's answer; all keys are asked at once. Only those without a definite result are
    asked again. `connections`: see `Cluster.coordinators`.
    """
    found: dict[str, T] = {}
    missing = list(dict.fromkeys(keys))
    budget, doubt = Budget(deadline_ms), Doubt(cluster, kind)

    def attempt() -> dict[str, T] | Again:
        nodes = cluster.coordinators(kind, missing, connections=connections, timeout_ms=budget.left_ms)
        last = Again("the coordinator is not ready")
        calls = [(nodes[key], build(key)) for key in missing]
        watched = elsewhere.at_coordinators(cluster, kind, [[key] for key in missing])
        for key, answer in zip(missing, cluster.call_many(calls, budget, elsewhere=watched), strict=True):
            if isinstance(answer, BrokerUnavailable):
                judged: T | Again = Again(str(answer), moved=True, error=answer)
            elif isinstance(answer, ExactlyOnceError):
                raise answer
            else:
                judged = judge(key, answer)
            if not isinstance(judged, Again):
                found[key] = judged
                continue
            last = judged
            if judged.moved:
                cluster.forget_coordinator(kind, key)
        missing[:] = [key for key in missing if key not in found]
        doubt.asked_to_wait(missing)
        return last if missing else found

    def give_up(last: Again) -> dict[str, T]:
        raise late(missing[0], last)

    if missing:
        until_definite(attempt, deadline_ms=deadline_ms, late=give_up, pause=cluster.pause)
    return found


def ask_leader(
    cluster: Cluster,
    where: TopicPartition,
    build: Callable[[], Request],
    judge: Callable[[m.Message], T | Again],
    *,
    deadline_ms: float,
    late: Callable[[Again], T],
    connection: str | None = None,
) -> T:
    """The result of `judge` for the answer of a partition's leader, which is looked up again where leadership
    moved. `connection`: the name of a dedicated connection. Raises UnknownTopic where no broker has the topic."""

    budget = Budget(deadline_ms)

    def attempt() -> T | Again:
        leader = cluster.leader(where)
        if leader < 0:
            cluster.topic(where.topic, refresh=True, timeout_ms=budget.left_ms)
            leader = cluster.leader(where)
        if leader < 0:
            return Again("no leader")
        try:
            node = leader if connection is None else cluster.network.named(leader, connection)
            watched = elsewhere.at_leaders(cluster, [[where]], [leader])
            found = judge(cluster.call(node, build(), budget, elsewhere=watched))
        except BrokerUnavailable as error:
            found = Again(str(error), moved=True, error=error)
        if isinstance(found, Again) and found.moved:
            cluster.refresh_topics([where.topic], budget.left_ms)
        return found

    return until_definite(
        attempt, deadline_ms=deadline_ms, late=late, pause=cluster.pause, pause_ms=ELECTION_BACKOFF_MS
    )


def ask_leaders(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    build: Callable[[Sequence[TopicPartition]], Request],
    parts: Callable[[m.Message], Iterable[tuple[TopicPartition, Any]]],
    judge: Callable[[TopicPartition, Any], T | Again],
    *,
    deadline_ms: float,
    late: Callable[[TopicPartition, Again], ExactlyOnceError],
) -> dict[TopicPartition, T]:
    """The result of `judge` for every partition's part of its leader's answer. `build` makes the request for
    the partitions of one leader; `parts` yields the partitions of an answer. Only partitions without a
    definite result are requested again.

    Raises UnknownTopic for a topic that does not exist, or for a partition that its topic has lost.
    """
    found: dict[TopicPartition, T] = {}
    missing = list(dict.fromkeys(partitions))
    stale: set[str] = set()
    absent = MissingPartitions()
    budget = Budget(deadline_ms)

    def attempt() -> dict[TopicPartition, T] | Again:
        if stale:
            cluster.refresh_topics(sorted(stale), budget.left_ms)
            stale.clear()
        groups = group_by_leader(cluster, missing)
        leaderless = groups.pop(-1, [])
        absent.refuse_lost(cluster, leaderless)
        stale.update(where.topic for where in leaderless)
        reason = "no leader"
        calls: list[tuple[Node, Request]] = [(leader, build(group)) for leader, group in groups.items()]
        watched = elsewhere.at_leaders(cluster, list(groups.values()), list(groups))
        answers = cluster.call_many(calls, budget, elsewhere=watched)
        for group, answer in zip(groups.values(), answers, strict=True):
            if isinstance(answer, BrokerUnavailable):
                reason = str(answer)
                stale.update(where.topic for where in group)
                continue
            if isinstance(answer, ExactlyOnceError):
                raise answer
            for where, part in parts(answer):
                judged = judge(where, part)
                if not isinstance(judged, Again):
                    found[where] = judged
                    continue
                reason = judged.reason
                if judged.moved:
                    stale.add(where.topic)
        missing[:] = [where for where in missing if where not in found]
        return Again(reason) if missing else found

    def give_up(last: Again) -> dict[TopicPartition, T]:
        raise late(min(missing), last)

    if missing:
        until_definite(
            attempt,
            deadline_ms=deadline_ms,
            late=give_up,
            pause=cluster.pause,
            pause_ms=ELECTION_BACKOFF_MS,
        )
    return found


def group_by_leader(cluster: Cluster, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
    """Partitions by the id of the broker that leads them. Under -1: those without a leader now, including
    partitions that the metadata does not have (yet); the caller waits for those (`MissingPartitions`). Raises
    UnknownTopic for a topic that does not exist."""
    groups: dict[int, list[TopicPartition]] = {}
    for where in partitions:
        cluster.topic(where.topic)
        groups.setdefault(cluster.leader(where), []).append(where)
    return groups


class MissingPartitions:
    """A grace period for partitions that their topic's metadata lacks: the answer of a broker that lags or
    restarts may omit a partition that exists."""

    def __init__(self, patience_ms: int = NEW_TOPIC_MS) -> None:
        self._patience_s = patience_ms / 1000
        self._missed_s: dict[TopicPartition, float] = {}

    def refuse_lost(self, cluster: Cluster, partitions: Iterable[TopicPartition]) -> None:
        """Raises UnknownTopic where one of these was missing at every look during the whole grace period."""
        now_s = runtime.monotonic()
        missing: dict[TopicPartition, float] = {}
        for where in partitions:
            count = len(cluster.topic(where.topic).leaders)
            if where.partition < count:
                continue
            missing[where] = self._missed_s.get(where, now_s)
            if now_s - missing[where] >= self._patience_s:
                raise UnknownTopic(
                    f"topic {where.topic!r} has {count} partitions, so there is no partition "
                    f"{where.partition}; the topic was recreated with fewer, or the number is wrong",
                    {"topic": where.topic, "partition": where.partition, "partitions": count},
                )
        self._missed_s = missing
