"""Leaders and coordinators by the word of every broker, where that of the one that was asked may be stale.

Owns: one question to all brokers at once.
Does not know: why the caller doubts the leader that it knows.
Invariants:
- The newest leader that any of them names is known afterwards: epochs only grow (`topic_info`).
- No broker's word removes a topic: one that has just started lacks its topics.
- Coordinators have no epoch, so only more than half of the brokers move one.

Without this a client that is connected to the broker that was cut off asks it alone: a library prefers connections that
it has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from kafka_core import runtime
from kafka_core.errors import ExactlyOnceError
from kafka_core.protocol import messages as m
from kafka_core.protocol.error_codes import Code
from pyspark_kafka_eos.client.cluster import Cluster, CoordinatorKind
from pyspark_kafka_eos.client.wire.versions import Request

_PATIENCE_MS = 2_000
"""How long one broker may take. Half fails a busy one; a broker that is down costs each round as much."""

_FIRST_DOUBT_S = 1.0
"""How long a coordinator may ask for patience before the others are asked. Markers take milliseconds, a log that is
loaded seconds. With half, a busy cluster is asked for nothing; double is waited behind a broker that was cut off.
"""


def ask_every_broker(cluster: Cluster, topics: Iterable[str]) -> None:
    """Refresh the leaders of these topics from all brokers of the cluster. One that does not answer is left out."""
    names = set(topics)
    for answer in answers_of_all(cluster, names) if names else ():
        answer.topics = [topic for topic in answer.topics if topic.error_code == Code.NONE]
        cluster.take_metadata(answer)


def answers_of_all(cluster: Cluster, topics: Iterable[str]) -> list[m.Message]:
    """What each broker that answers in time says of these topics."""
    return _of_all(cluster, cluster.metadata_request(sorted(set(topics))))


def is_replaced(cluster: Cluster, kind: CoordinatorKind, key: str, asked: int) -> bool:
    """Whether more than half of the brokers name another coordinator of the key than broker `asked`. It is found there
    from now on.
    """
    return find_coordinators(cluster, kind, [key]).get(key, asked) != asked


def find_coordinators(cluster: Cluster, kind: CoordinatorKind, keys: Iterable[str]) -> dict[str, int]:
    """The broker that more than half of the brokers name as the coordinator of a key, for each key where they do. It is
    found there from now on. Empty where the cluster has one broker, which nobody can contradict.

    A coordinator that was cut off goes on to tell of ids and of groups what it knew then, so who concludes from that
    asks for the coordinator by this first.
    """
    wanted = set(keys)
    if len(cluster.network.brokers()) == 1 or not wanted:
        return {}
    request = cluster.build(m.FindCoordinatorRequest, key_type=int(kind), coordinator_keys=sorted(wanted))
    named = Counter(
        (found.key, (found.node_id, found.host, found.port))
        for answer in _of_all(cluster, request)
        for found in answer.coordinators
        if found.error_code == Code.NONE and found.key in wanted
    )
    most = {key: place for (key, place), votes in named.items() if 2 * votes > len(cluster.network.brokers())}
    for key, place in most.items():
        cluster.take_coordinator(kind, key, place)
    return {key: place[0] for key, place in most.items()}


class Doubt:
    """Whether coordinators that go on asking for patience are still theirs: all brokers are asked behind the first
    second, and each time after double the wait.

    One that was cut off goes on to answer REQUEST_TIMED_OUT or CONCURRENT_TRANSACTIONS: it can have nothing replicated.
    """

    def __init__(self, cluster: Cluster, kind: CoordinatorKind) -> None:
        self._cluster, self._kind = cluster, kind
        self._wait_s = _FIRST_DOUBT_S
        self._due_s = runtime.monotonic() + self._wait_s

    def asked_to_wait(self, keys: Iterable[str]) -> None:
        """The coordinators of these keys have asked for patience again."""
        if runtime.monotonic() < self._due_s:
            return
        find_coordinators(self._cluster, self._kind, keys)
        self._wait_s *= 2
        self._due_s = runtime.monotonic() + self._wait_s


def _of_all(cluster: Cluster, request: Request) -> list[m.Message]:
    answers = cluster.network.call_many([(node, request) for node in cluster.network.brokers()], _PATIENCE_MS)
    return [answer for answer in answers if not isinstance(answer, ExactlyOnceError)]
