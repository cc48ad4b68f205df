"""One process's view of one Kafka cluster: features, partition leaders, and coordinators of ids.

Owns: the cache of leaders, coordinators and finalised features, and when it is refreshed.
Does not know: producer state, transactions, Spark.
Invariants:
- A request is built in a version that the broker which is asked and this package both support (`wire.versions`).
- A request for a topic's metadata never creates the topic.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from enum import IntEnum
from typing import Any

from kafka_core import runtime
from kafka_core.errors import (
    AuthorizationFailed,
    BrokerUnavailable,
    ExactlyOnceError,
    UnknownTopic,
    UnsupportedVersion,
)
from kafka_core.protocol import messages as m
from kafka_core.protocol.error_codes import Code
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.coordinator_answers import not_found_error
from pyspark_kafka_eos.client.definite import (
    ELECTION_BACKOFF_MS,
    NEW_TOPIC_MS,
    RETRY_BACKOFF_MS,
    Again,
    Budget,
    again_or_refuse,
    until_definite,
)
from pyspark_kafka_eos.client.net.network import Answer, Elsewhere, Network, Node
from pyspark_kafka_eos.client.others import OtherBrokers
from pyspark_kafka_eos.client.topic_info import TopicInfo, is_lacking, left_out, merged, not_known
from pyspark_kafka_eos.client.wire.versions import Build, Request, Versions
from pyspark_kafka_eos.model import ClientSettings

log = logging.getLogger(__name__)

OLDEST_BROKER_API = m.DescribeTransactionsRequest.API_KEY
"""Kafka 3.0 is the first with DescribeTransactions (KIP-664), without which no outcome can be proven."""

_VERSIONS_WITHIN_MS = 2_000
"""How long one broker may take to say what it supports. Half fails a busy one; a broker that is down costs as much."""


class CoordinatorKind(IntEnum):
    """What a coordinator coordinates (FindCoordinator's key type)."""

    GROUP = 0
    TRANSACTION = 1


class _Shared:
    """The clusters of one process, and who connects to one now."""

    def __init__(self) -> None:
        self.lock = runtime.lock()
        """Of the two dictionaries. Never held while anything is waited for."""
        self.clusters: dict[ClientSettings, Cluster] = {}
        self.connecting: dict[ClientSettings, runtime.Lock] = {}
        """Held by the thread that connects. A cluster that does not answer delays only the threads that ask for it."""
        self.refused: dict[ClientSettings, tuple[float, AuthorizationFailed]] = {}
        """When a login was refused last, in monotonic seconds: threads that waited for it do not send the password
        again.
        """


_shared = runtime.PerProcess(_Shared)


class Cluster:
    """Connections and metadata of one cluster, shared by everything in this process that uses the same settings."""

    def __init__(self, settings: ClientSettings, timeout_ms: int = 30_000) -> None:
        self.settings = settings
        self.network = Network(settings)
        self._topics: dict[str, TopicInfo] = {}
        self.gone_topic_ids: set[str] = set()
        self.lacked_until_s: dict[str, float] = {}  # both by the word of most brokers: `absence`
        self._coordinators: dict[tuple[CoordinatorKind, str], tuple[int, str, int]] = {}
        self._left: dict[tuple[CoordinatorKind, str], int] = {}
        self._cluster_id: str | None = None
        self._others = OtherBrokers(self.network)
        try:
            budget = self.budget(timeout_ms)
            self.network.bootstrap(timeout_ms)
            self._refuse_old_broker()
            self.features = self._finalized_features(budget)
        except BaseException:
            self.network.close()
            raise

    @staticmethod
    def shared(settings: ClientSettings, timeout_ms: int = 30_000) -> Cluster:
        """This process's cluster for these settings, connected at the first call.

        Spark reuses Python workers between batches, and forks them: the process id is part of the key, because a
        forked child must not use its parent's sockets.
        """
        shared, asked_s = _shared(), runtime.monotonic()
        with shared.lock:
            known = shared.clusters.get(settings)
            connecting = shared.connecting.setdefault(settings, runtime.lock())
        if known is not None:
            return known
        if not connecting.acquire(timeout=timeout_ms / 1000):
            raise BrokerUnavailable(
                "another thread of this process is still connecting to the cluster after the time allowed",
                {"bootstrap_servers": ",".join(settings.bootstrap_servers), "timeout_ms": timeout_ms},
            )
        try:
            with shared.lock:
                known, refused = shared.clusters.get(settings), shared.refused.get(settings)
            if known is not None:
                return known
            if refused is not None and refused[0] >= asked_s:
                raise refused[1]
            cluster = Cluster(settings, timeout_ms)
            with shared.lock:
                shared.clusters[settings] = cluster
            return cluster
        except AuthorizationFailed as error:
            with shared.lock:
                shared.refused[settings] = (runtime.monotonic(), error)
            raise
        finally:
            connecting.release()

    @staticmethod
    def close_shared() -> None:
        """Close every cluster that `shared` keeps for this process; the next call of `shared` reconnects. No
        request may be in flight on them. A forked child does not close its parent's clusters."""
        shared = _shared()
        with shared.lock:
            mine = list(shared.clusters.values())
        for cluster in mine:
            cluster.close()

    def close(self) -> None:
        """Close the connections and remove this cluster from the shared cache."""
        shared = _shared()
        with shared.lock:
            if shared.clusters.get(self.settings) is self:
                del shared.clusters[self.settings]
        self.network.close()

    def cluster_id(self) -> str:
        """The id that the cluster was created with, empty where its brokers return none. Requested once."""
        if self._cluster_id is None:
            answer = self.call_any(self.metadata_request([]))
            self._cluster_id = str(answer.cluster_id or "")
        return self._cluster_id

    # ---- versions

    @property
    def transaction_version(self) -> int:
        """2 where the cluster has finalised transaction.version >= 2 (KIP-890), else 1."""
        return 2 if self.features.get("transaction.version", 0) >= 2 else 1

    @property
    def speaks_two_phase(self) -> bool:
        """Whether every broker that answers supports InitProducerId v6 (KIP-939): each may coordinate a slot. They may
        still reject transactions without a timeout.
        """
        wanted = m.InitProducerIdRequest, m.TWO_PHASE_INIT_VERSION
        if self.transaction_version < 2 or not all(each.supports(*wanted) for each in self.network.known_versions()):
            return False
        return all(each.supports(*wanted) for each in self._versions_of_all())

    def offers(self, request: type[Any], version: int) -> bool:
        """Whether every broker that this process is connected to supports an API in this version, or in a newer one
        that this package has. Asks nobody.
        """
        return all(each.offers(request, version) for each in self.network.known_versions())

    def build(self, request: type[Any], *, transaction_version: int | None = None, **fields: Any) -> Build:
        """A request that is made when its connection is known, in the version that `Versions.of` chooses."""
        asked = transaction_version or self.transaction_version
        return lambda versions: request(version=versions.of(request, asked), **fields)

    def _versions_of_all(self) -> list[Versions]:
        # One that does not answer has no say: it would hold up the run, and is most likely as the others are.
        found: list[Versions] = []
        for node in self.network.brokers():
            with suppress(BrokerUnavailable):
                found.append(self.network.versions_of(node, _VERSIONS_WITHIN_MS))
        return found

    def _refuse_old_broker(self) -> None:
        if any(OLDEST_BROKER_API not in each.apis for each in self.network.known_versions()):
            raise UnsupportedVersion(
                "this broker is older than Kafka 3.0 (it cannot describe transactions, so no outcome could be "
                "proven); nothing was written; use Kafka 3.0 or newer",
                {"bootstrap_servers": ",".join(self.settings.bootstrap_servers)},
            )

    def _finalized_features(self, budget: Budget) -> dict[str, int]:
        request = self.build(
            m.ApiVersionsRequest,
            transaction_version=1,
            client_software_name="pyspark-kafka-eos",
            client_software_version="1",
        )
        # Not to one fixed broker: a broker killed a moment ago is still listed. The bootstrap server may not have heard
        # of an upgrade yet, so two have been asked.
        self.call_any(request, budget.left_ms)
        return self.network.features

    # ---- calls

    def budget(self, total_ms: float | None = None) -> Budget:
        """The time of one question: `total_ms`, or kafka.default.api.timeout.ms."""
        return Budget(self.settings.api_timeout_ms if total_ms is None else total_ms)

    def any_node(self) -> Node:
        """A broker for what any of them can answer; one that was silent a moment ago only where there is no other."""
        return self.network.any_node(self._others.silent())

    def call(
        self, node: Node, request: Request, budget: Budget | None = None, *, elsewhere: Elsewhere | None = None
    ) -> m.Message:
        """Send one request and return its answer. An error does not show whether the request took effect.

        It takes a part of the budget. `elsewhere`: see `Network.call_many`.
        """
        (answer,) = self.call_many([(node, request)], budget, elsewhere=elsewhere)
        if isinstance(answer, ExactlyOnceError):
            raise answer
        return answer

    def call_many(
        self,
        requests: Sequence[tuple[Node, Request]],
        budget: Budget | None = None,
        *,
        sent: Callable[[], None] | None = None,
        elsewhere: Elsewhere | None = None,
    ) -> list[Answer]:
        """As `Network.call_many`, each request with its part of the budget."""
        timeout_ms = None if budget is None else budget.request_ms(self.settings.request_timeout_ms)
        return self.network.call_many(requests, timeout_ms, sent=sent, elsewhere=elsewhere)

    def call_any(self, request: Request, deadline_ms: float | None = None, but: Collection[int] = ()) -> m.Message:
        """Send a request that any broker can answer, with retries until one does or the time is over.

        While one is silent the others are asked as well; the first answer counts. `but`: asked only where there is no
        other.
        """
        budget = self.budget(deadline_ms)

        def attempt() -> m.Message:
            node = self.network.any_node(self._others.silent().union(but))

            def another(_: Sequence[int]) -> dict[int, Answer]:
                answer = self._others.ask(request, {node})
                return {} if answer is None else {0: answer}

            return self.call(node, request, budget, elsewhere=another)

        def late(last: Again) -> m.Message:
            raise last.as_error()

        return until_definite(attempt, deadline_ms=budget.left_ms, late=late, pause=self.pause)

    @staticmethod
    def pause(delay_ms: float = RETRY_BACKOFF_MS) -> None:
        """Wait before another try."""
        runtime.sleep(delay_ms / 1000)

    # ---- topics

    def topic(
        self,
        name: str,
        *,
        refresh: bool = False,
        timeout_ms: float | None = None,
        new_topic_ms: int = NEW_TOPIC_MS,
    ) -> TopicInfo:
        """Partitions and leaders of a topic; UnknownTopic where it does not exist. Never creates it."""
        budget = self.budget(timeout_ms)
        if refresh or name not in self._topics:
            self.refresh_topics([name], budget.left_ms, new_topic_ms)
        found = self._topics.get(name)
        if found is None:
            raise left_out(name, budget.total_ms)
        return found

    def refresh_topics(
        self, names: Sequence[str], timeout_ms: float | None = None, new_topic_ms: int = NEW_TOPIC_MS
    ) -> None:
        """Refresh the leaders of topics; waits until every partition has one, or the time is over."""
        budget = self.budget(timeout_ms)
        patient_until = runtime.monotonic() + new_topic_ms / 1000

        def attempt() -> Again | None:
            answer = self.call_any(self.metadata_request(names), budget.left_ms)
            try:
                settled = self.take_metadata(answer, names)
                return None if settled else Again("a partition has no leader, or a topic is left out")
            except UnknownTopic as error:
                known = bool(new_topic_ms) and self._known_elsewhere(names)
                if known:
                    return None
                if known is None:
                    return Again(str(error), error=not_known(error))
                if runtime.monotonic() >= patient_until:
                    raise
                return Again(str(error))

        def late(last: Again) -> None:
            # The caller waits for partitions without a leader.
            if last.error is not None:
                raise last.error

        until_definite(attempt, deadline_ms=budget.left_ms, late=late, pause=self.pause, pause_ms=100)

    def _known_elsewhere(self, names: Sequence[str]) -> bool | None:
        """Whether another broker has the topics that one lacks: that one may have been cut off before they were
        created. Their leaders are known then. None where less than a majority of the brokers says that they lack them.
        """
        lacking, brokers = 0, len(self.network.brokers())
        if brokers > 1:
            for answer in self._others.answers(self.metadata_request(names), ()):
                lacking += any(map(is_lacking, answer.topics))
                answer.topics = [topic for topic in answer.topics if topic.error_code == Code.NONE]
                if self.take_metadata(answer, names):
                    return True
        return False if 2 * lacking > brokers or brokers < 2 else None

    def look_for_leaders(self, topics: Collection[str], hanging: Collection[int]) -> None:
        """Take the leaders of topics from a broker that answers at once, while others hang. Where none does, nothing is
        learnt.
        """
        answer = self._others.ask(self.metadata_request(sorted(topics)), hanging)
        if answer is not None:
            with suppress(ExactlyOnceError):
                self.take_metadata(answer)

    def look_for_brokers(self, hanging: Collection[int]) -> set[int]:
        """The brokers in the cluster, by one that answers at once while others hang; empty where none does."""
        answer = self._others.ask(self.metadata_request([]), hanging)
        return set() if answer is None else {broker.node_id for broker in answer.brokers}

    def request_leaders_on_loop(self, names: Sequence[str], done: Any) -> None:
        """Like `refresh_topics` from the loop's thread: one attempt, no wait. Calls `done()` in any case."""

        def take(answer: Answer) -> None:
            try:
                if not isinstance(answer, ExactlyOnceError):
                    self.take_metadata(answer)
            except ExactlyOnceError as error:
                # A broker that has just started lacks its topics. Waiting callers have deadlines.
                log.debug("metadata refresh: %s", error)
            finally:
                done()

        try:
            node = self.any_node()
        except BrokerUnavailable:
            done()
            return
        self.network.send_on_loop(node, self.metadata_request(names), take)

    def leader(self, where: TopicPartition) -> int:
        """Broker id of the partition's leader by the newest metadata, -1 where none is known."""
        leaders = info.leaders if (info := self._topics.get(where.topic)) else ()
        return leaders[where.partition] if where.partition < len(leaders) else -1

    def leader_epoch(self, where: TopicPartition) -> int:
        """The epoch of the partition's leader by the newest metadata, -1 where none is known."""
        epochs = info.epochs if (info := self._topics.get(where.topic)) else ()
        return epochs[where.partition] if where.partition < len(epochs) else -1

    def topic_id(self, name: str) -> str:
        """The id of a topic by the newest metadata, empty where none is known."""
        return info.topic_id if (info := self._topics.get(name)) else ""

    def metadata_request(self, names: Sequence[str]) -> Build:
        """The request for the leaders of these topics."""
        return self.build(
            m.MetadataRequest,
            topics=[m.MetadataRequest.MetadataRequestTopic(name=name) for name in names],
            allow_auto_topic_creation=False,
        )

    def take_metadata(self, answer: m.Message, names: Iterable[str] = ()) -> bool:
        """Keep what an answer says; whether it has a leader of every partition of `names`. UnknownTopic,
        AuthorizationFailed.
        """
        self.network.take_brokers(answer)
        settled = set(names) <= {topic.name for topic in answer.topics}
        for topic in answer.topics:
            if is_lacking(topic):
                self._topics.pop(topic.name, None)
                raise UnknownTopic(
                    f"topic {topic.name!r} does not exist (any more); create it or correct the name",
                    {"topic": topic.name},
                )
            if topic.error_code == Code.TOPIC_AUTHORIZATION_FAILED:
                raise AuthorizationFailed(
                    f"no right to describe topic {topic.name!r}; grant READ (a source), WRITE (an output) or both (a ledger)",
                    {"topic": topic.name},
                )
            info = merged(self._topics.get(topic.name), topic)
            leaders = info.leaders
            settled = settled and topic.error_code == Code.NONE and -1 not in leaders and bool(leaders)
            if leaders:
                self._topics[topic.name] = info
        return settled

    # ---- coordinators

    def coordinators(
        self, kind: CoordinatorKind, keys: Iterable[str], *, connections: int = 1, timeout_ms: float | None = None
    ) -> dict[str, Node]:
        """The coordinator of each key, as a dedicated connection. `connections` spreads the keys over that many
        connections per broker, because a broker answers the requests of one connection in order."""
        wanted = list(dict.fromkeys(keys))
        missing = [key for key in wanted if (kind, key) not in self._coordinators]
        budget = self.budget(timeout_ms)

        def attempt() -> Again | None:
            last = Again("the answer lacks it")
            request = self.coordinator_request(kind, missing)
            left = {self._left[kind, key] for key in missing if (kind, key) in self._left}
            for found in self.call_any(request, budget.left_ms, left).coordinators:
                again = again_or_refuse(
                    m.FindCoordinatorRequest.API_KEY,
                    found.error_code,
                    functools.partial(not_found_error, kind.name.lower(), found.key),
                )
                if again is None and found.key in missing:
                    self._coordinators[kind, found.key] = (found.node_id, found.host, found.port)
                last = again or last
            missing[:] = [key for key in missing if (kind, key) not in self._coordinators]
            return last if missing else None

        def late(last: Again) -> None:
            raise last.error or BrokerUnavailable(
                f"no {kind.name.lower()} coordinator for {missing[0]!r} within the time allowed (last: {last})",
                {"key": missing[0], "timeout_ms": budget.total_ms},
            )

        if missing:
            until_definite(
                attempt, deadline_ms=budget.left_ms, late=late, pause=self.pause, pause_ms=ELECTION_BACKOFF_MS
            )
        nodes: dict[str, Node] = {}
        for index, key in enumerate(wanted):
            node, host, port = self._coordinators[kind, key]
            nodes[key] = self.network.dedicated(node, index % connections, host, port)
        return nodes

    def coordinator_id(self, kind: CoordinatorKind, key: str) -> int:
        """The broker id of the coordinator that a key was last found at, -1 where none is known."""
        found = self._coordinators.get((kind, key))
        return -1 if found is None else found[0]

    def look_for_coordinators(self, kind: CoordinatorKind, asked: Mapping[str, int]) -> dict[str, int]:
        """Those of the keys that have another coordinator than the one that was asked and hangs, by a broker that
        answers at once: key -> broker id. They are found there from now on.
        """
        answer = self._others.ask(self.coordinator_request(kind, sorted(asked)), set(asked.values()))
        moved: dict[str, int] = {}
        for found in answer.coordinators if answer is not None else ():
            if found.error_code == Code.NONE and found.key in asked and found.node_id != asked[found.key]:
                self._coordinators[kind, found.key] = (found.node_id, found.host, found.port)
                moved[found.key] = found.node_id
        return moved

    def coordinator_request(self, kind: CoordinatorKind, keys: Sequence[str]) -> Build:
        return self.build(m.FindCoordinatorRequest, key_type=int(kind), coordinator_keys=list(keys))

    def coordinator(self, kind: CoordinatorKind, key: str, timeout_ms: float | None = None) -> Node:
        """The coordinator of one key."""
        return self.coordinators(kind, [key], timeout_ms=timeout_ms)[key]

    def take_coordinator(self, kind: CoordinatorKind, key: str, place: tuple[int, str, int]) -> None:
        """(broker id, host, port) of the coordinator that was learnt elsewhere."""
        self._coordinators[kind, key] = place

    def forget_coordinator(self, kind: CoordinatorKind, key: str) -> None:
        """Drop a cached coordinator, which moved or does not answer; the next use looks it up again, at another broker:
        one that was cut off names itself.
        """
        found = self._coordinators.pop((kind, key), None)
        if found is not None:
            self._left[kind, key] = found[0]
