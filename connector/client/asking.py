"""Asking until the answer is definite: one loop, and its forms for a coordinator, a leader and several leaders.

Owns: the deadline, asking again, finding the coordinator or the leader anew.
Does not know: what an answer means, which `judge` decides by the table of codes.
Invariants:
- An answer is returned only where `judge` accepts it.
- A lost connection and a broker that is not there prove nothing, so they are asked again.
- Any other error ends the asking at once.
- When time is over, `late` gets the last reason; it raises, or gives a value in place of the answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from connector.errors import BrokerUnavailable, ExactlyOnceError, UnknownTopic
from connector.model import TopicPartition
from connector.protocol import messages as m
from connector.protocol.error_codes import Action, action_for, name_of

if TYPE_CHECKING:
    from connector.client.cluster import Cluster, CoordinatorKind
    from connector.client.network import Node

T = TypeVar("T")

RETRY_BACKOFF_MS = 20.0
"""Pause between tries of a coordinator request. CONCURRENT_TRANSACTIONS lasts a few milliseconds while markers are
written; Java's 100 ms would be most of a small commit, 2 ms would load the broker for nothing."""

ELECTION_BACKOFF_MS = 50.0
"""Pause where another leader or controller is waited for: an election takes longer than a marker. Half would ask a busy broker
for nothing, double would delay every read behind an election."""

NEW_TOPIC_MS = 2_000
"""How long a topic that no broker knows is asked for again: one that was made a moment ago is known everywhere within a
second. Half would refuse it on a busy cluster; double only delays the error for a name that is misspelt."""


@dataclass(frozen=True)
class Again:
    """Not definite: why, and whether another broker is to be found first. `error`: what a broker or a lost connection
    gave as the reason, None where an answer was only not definite."""

    reason: str
    moved: bool = False
    error: ExactlyOnceError | None = None

    def __str__(self) -> str:
        return self.reason

    def as_error(self) -> ExactlyOnceError:
        """What to raise for it once time is over."""
        return self.error or BrokerUnavailable(self.reason)


def until_definite(
    attempt: Callable[[], T | Again],
    *,
    deadline_ms: float,
    late: Callable[[Again], T],
    pause: Callable[[float], None],
    pause_ms: float = RETRY_BACKOFF_MS,
) -> T:
    """The first answer of `attempt` that is not `Again`. BrokerUnavailable counts as `Again`; `late` once `deadline_ms` are over.

    There is one attempt at least, and none begins behind the deadline.
    """
    deadline = time.monotonic() + deadline_ms / 1000
    while True:
        try:
            found = attempt()
            if not isinstance(found, Again):
                return found
            last = found
        except BrokerUnavailable as error:
            last = Again(str(error), error=error)
        if time.monotonic() >= deadline:
            return late(last)
        pause(pause_ms)


def again_or_refuse(
    api_key: int, code: int, refuse: Callable[[Action, int], ExactlyOnceError], about: object = ""
) -> Again | None:
    """None for a good code, `Again` where the table says so (`about` then stands in the reason); raises what `refuse` gives for any
    other."""
    action = action_for(api_key, code)
    if action is Action.DONE:
        return None
    if action in (Action.RETRY, Action.REDISCOVER):
        reason = f"{name_of(code)} for {about}" if about else name_of(code)
        return Again(reason, moved=action is Action.REDISCOVER)
    raise refuse(action, code)


def ask_coordinator(
    cluster: Cluster,
    kind: CoordinatorKind,
    key: str,
    build: Callable[[], m.Message],
    judge: Callable[[m.Message], T | Again],
    *,
    deadline_ms: float,
    late: Callable[[Again], T],
    pause_ms: float = RETRY_BACKOFF_MS,
) -> T:
    """What `judge` makes of the coordinator's answer; the coordinator is found anew where it moved or does not answer."""

    def attempt() -> T | Again:
        try:
            found = judge(cluster.call(cluster.coordinator(kind, key), build()))
        except BrokerUnavailable:
            cluster.forget_coordinator(kind, key)
            raise
        if isinstance(found, Again) and found.moved:
            cluster.forget_coordinator(kind, key)
        return found

    return until_definite(attempt, deadline_ms=deadline_ms, late=late, pause=cluster.pause, pause_ms=pause_ms)


def ask_leader(
    cluster: Cluster,
    where: TopicPartition,
    build: Callable[[], m.Message],
    judge: Callable[[m.Message], T | Again],
    *,
    deadline_ms: float,
    late: Callable[[Again], T],
    lane: str | None = None,
) -> T:
    """What `judge` makes of the answer of a partition's leader, who is found anew where leadership moved. `lane`: a connection
    of its own. UnknownTopic where no broker knows the topic."""

    def attempt() -> T | Again:
        leader = cluster.leader(where)
        if leader < 0:
            cluster.topic(where.topic, refresh=True, timeout_ms=int(deadline_ms))
            leader = cluster.leader(where)
        if leader < 0:
            return Again("no leader")
        try:
            found = judge(
                cluster.call(leader if lane is None else cluster.network.lane(leader, lane), build())
            )
        except BrokerUnavailable as error:
            found = Again(str(error), moved=True, error=error)
        if isinstance(found, Again) and found.moved:
            cluster.refresh_topics([where.topic], int(deadline_ms))
        return found

    return until_definite(
        attempt, deadline_ms=deadline_ms, late=late, pause=cluster.pause, pause_ms=ELECTION_BACKOFF_MS
    )


def ask_leaders(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    build: Callable[[Sequence[TopicPartition]], m.Message],
    parts: Callable[[m.Message], Iterable[tuple[TopicPartition, Any]]],
    judge: Callable[[TopicPartition, Any], T | Again],
    *,
    deadline_ms: float,
    late: Callable[[TopicPartition, Again], ExactlyOnceError],
) -> dict[TopicPartition, T]:
    """What `judge` makes of every partition's part of its leader's answer. `build`: the request for the partitions of one leader;
    `parts`: the partitions of an answer. Only what is not definite is asked again.

    UnknownTopic for a topic that does not exist, or a partition that its topic has lost.
    """
    found: dict[TopicPartition, T] = {}
    missing = list(dict.fromkeys(partitions))
    stale: set[str] = set()
    absent = MissingPartitions()
    deadline = time.monotonic() + deadline_ms / 1000

    def attempt() -> dict[TopicPartition, T] | Again:
        if stale:
            cluster.refresh_topics(sorted(stale), max(1, int((deadline - time.monotonic()) * 1000)))
            stale.clear()
        groups = group_by_leader(cluster, missing)
        leaderless = groups.pop(-1, [])
        absent.judge(cluster, leaderless)
        stale.update(where.topic for where in leaderless)
        reason = "no leader"
        calls: list[tuple[Node, m.Message]] = [(leader, build(group)) for leader, group in groups.items()]
        for group, answer in zip(groups.values(), cluster.network.call_many(calls), strict=True):
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


def group_by_leader(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> dict[int, list[TopicPartition]]:
    """Partitions by the broker that leads them, under -1 those without a leader now: also such as the metadata does not
    have (yet), which are the caller's to wait for (`MissingPartitions`). UnknownTopic for a topic that does not exist."""
    groups: dict[int, list[TopicPartition]] = {}
    for where in partitions:
        cluster.topic(where.topic)
        groups.setdefault(cluster.leader(where), []).append(where)
    return groups


class MissingPartitions:
    """Patience for partitions that their topic's metadata lacks: a broker that lags, or one that restarts, answers without
    a partition that is there."""

    def __init__(self, patience_ms: int = NEW_TOPIC_MS) -> None:
        self._patience_s = patience_ms / 1000
        self._missed_s: dict[TopicPartition, float] = {}

    def judge(self, cluster: Cluster, partitions: Iterable[TopicPartition]) -> None:
        """UnknownTopic where one of these has been missing for all of the patience, at every look since the first."""
        now_s = time.monotonic()
        missing: dict[TopicPartition, float] = {}
        for where in partitions:
            count = len(cluster.topic(where.topic).leaders)
            if where.partition < count:
                continue
            missing[where] = self._missed_s.get(where, now_s)
            if now_s - missing[where] >= self._patience_s:
                raise UnknownTopic(
                    f"topic {where.topic!r} has {count} partitions, so there is no partition {where.partition}; it was "
                    "made anew with fewer, or the number is wrong",
                    {"topic": where.topic, "partition": where.partition, "partitions": count},
                )
        self._missed_s = missing
