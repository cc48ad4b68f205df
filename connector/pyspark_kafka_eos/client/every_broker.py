"""Leaders and coordinators by the word of every broker, where that of the one that was asked may be stale.

Owns: one question to all brokers at once.
Does not know: why the caller doubts the leader that it knows.
Invariants:
- The newest leader that any of them names is known afterwards: epochs only grow (`topic_info`).
- No broker's word removes a topic: one that has just started lacks its topics.
- Coordinators have no epoch, so only more than half of the brokers move one. Where nobody can tell, nobody is believed
  (`require_coordinators`, `is_replaced`): a doubt that finds no majority is not over.

Without this a client that is connected to the broker that was cut off asks it alone: a library prefers connections that
it has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from kafka_core import runtime
from kafka_core.errors import BrokerUnavailable, ExactlyOnceError
from kafka_core.protocol import messages as m
from kafka_core.protocol.error_codes import Code
from pyspark_kafka_eos.client.cluster import Cluster, CoordinatorKind
from pyspark_kafka_eos.client.wire.versions import Request

_PATIENCE_MS = 2_000
"""How long one broker may take. Half fails a busy one; a broker that is down costs each round as much."""

_MORE_PATIENCE_MS = 8_000
"""How long where a majority is needed and could not be had in that time. Half may never have one of a cluster under
load; double is waited behind two brokers that are silent, where nothing can be concluded.
"""

_FIRST_DOUBT_S = 1.0
"""How long a coordinator may ask for patience before the others are asked. Markers take milliseconds, a log that is
loaded seconds. With half, a busy cluster is asked for nothing; double is waited behind a broker that was cut off.
"""

_REFUSED = (Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, Code.GROUP_AUTHORIZATION_FAILED)


def ask_every_broker(cluster: Cluster, topics: Iterable[str]) -> None:
    """Refresh the leaders of these topics from all brokers of the cluster. One that does not answer is left out."""
    names = set(topics)
    for answer in answers_of_all(cluster, names) if names else ():
        answer.topics = [topic for topic in answer.topics if topic.error_code == Code.NONE]
        cluster.take_metadata(answer)


def answers_of_all(cluster: Cluster, topics: Iterable[str]) -> list[m.Message]:
    """What each broker that answers in time says of these topics."""
    return answers_to(cluster, cluster.metadata_request(sorted(set(topics))))


def is_replaced(cluster: Cluster, kind: CoordinatorKind, key: str, asked: int) -> bool:
    """Whether more than half of the brokers name another coordinator of the key than broker `asked`. It is found there
    from now on. BrokerUnavailable where nobody can tell now: it may be asked again.
    """
    if is_alone(cluster):
        return False
    found = find_coordinators(cluster, kind, [key])
    if key not in found:
        raise _no_majority(cluster, kind, key)
    return found[key] != asked


def is_alone(cluster: Cluster) -> bool:
    """Whether the cluster has one broker, which nobody can contradict."""
    return len(cluster.network.brokers()) == 1


def require_coordinators(cluster: Cluster, kind: CoordinatorKind, keys: Iterable[str]) -> None:
    """`find_coordinators` for who concludes from what a coordinator tells. BrokerUnavailable where for one of the keys
    nobody can tell now who coordinates it: it may be asked again. Where no broker is allowed to say, the next look-up
    has the refusal.
    """
    wanted = set(keys)
    if is_alone(cluster) or not wanted:
        return
    request = cluster.coordinator_request(kind, sorted(wanted))
    for patience_ms in (_PATIENCE_MS, _MORE_PATIENCE_MS):
        answers = answers_to(cluster, request, patience_ms)
        found = _most(cluster, kind, wanted, answers)
        refused = {each.key for answer in answers for each in answer.coordinators if each.error_code in _REFUSED}
        unknown = wanted - found.keys() - refused
        if not unknown:
            return
        # A broker that was replaced is counted until the list says so.
        cluster.network.refresh_brokers()
    raise _no_majority(cluster, kind, min(unknown))


def _no_majority(cluster: Cluster, kind: CoordinatorKind, key: str) -> BrokerUnavailable:
    brokers = cluster.network.brokers()
    return BrokerUnavailable(
        f"who coordinates the {kind.name.lower()} {key!r} is not known: no majority of the brokers "
        f"{', '.join(map(str, brokers))} names the same one; nothing is concluded from this; start the brokers that do not answer",
        {"key": key},
    )


def brokers_by_most(cluster: Cluster) -> list[int]:
    """The brokers that most of those that answer name. One that was cut off goes on to name those of its time, without
    one that started since. BrokerUnavailable where no majority answers now: it may be asked again.
    """
    answers = answers_of_all(cluster, [])
    if 2 * len(answers) <= len(cluster.network.brokers()):
        cluster.network.refresh_brokers()
        raise BrokerUnavailable("less than half of the brokers say which brokers there are")
    named = Counter(broker.node_id for answer in answers for broker in answer.brokers)
    return sorted(broker for broker, votes in named.items() if 2 * votes > len(answers))


def find_coordinators(cluster: Cluster, kind: CoordinatorKind, keys: Iterable[str]) -> dict[str, int]:
    """The broker that more than half of the brokers name as the coordinator of a key, for each key where they do. It is
    found there from now on. Empty where the cluster has one broker, which nobody can contradict.

    A coordinator that was cut off goes on to tell of ids and of groups what it knew then, so who concludes from that
    asks by `require_coordinators`.
    """
    wanted = set(keys)
    if is_alone(cluster) or not wanted:
        return {}
    return _most(cluster, kind, wanted, answers_to(cluster, cluster.coordinator_request(kind, sorted(wanted))))


def _most(
    cluster: Cluster, kind: CoordinatorKind, wanted: Collection[str], answers: Sequence[m.Message]
) -> dict[str, int]:
    named = Counter(
        (found.key, (found.node_id, found.host, found.port))
        for answer in answers
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


def answers_to(cluster: Cluster, request: Request, patience_ms: int = _PATIENCE_MS) -> list[m.Message]:
    """The answer of each broker that gives one in time."""
    answers = cluster.network.call_many([(node, request) for node in cluster.network.brokers()], patience_ms)
    return [answer for answer in answers if not isinstance(answer, ExactlyOnceError)]
