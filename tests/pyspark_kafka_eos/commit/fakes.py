"""What the unit tests of the commit put behind it: a broker in process, a clock that is not waited for, a run, slots,
decisions.

Owns: `NodeCluster`, the production's own `Cluster` with `NodeKafka` where the sockets would be; building seals and
decisions by production's own code.
Does not know: what a test expects.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from kafka_core.protocol import messages as m
from kafka_core.values import ProducerIdentity, TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.net.network import Answer, Done, Elsewhere, Network, Node
from pyspark_kafka_eos.client.others import OtherBrokers
from pyspark_kafka_eos.client.requests.ends import EndRequest
from pyspark_kafka_eos.client.requests.transactions import Transactions
from pyspark_kafka_eos.client.wire.versions import Request, Versions, built
from pyspark_kafka_eos.client.writing.appending import one_record
from pyspark_kafka_eos.client.writing.producer import Producer
from pyspark_kafka_eos.commit.ledger.topic import SETTINGS, Ledger
from pyspark_kafka_eos.commit.markers import Mender
from pyspark_kafka_eos.commit.proof import Fate, fates_of
from pyspark_kafka_eos.commit.shell import CommitShell, Replay
from pyspark_kafka_eos.model import ClientSettings, Decision, RoutedTopic, Seal
from pyspark_kafka_eos.options import SinkOptions
from pyspark_kafka_eos.records import decode, pack, scan, stamp
from tests.pyspark_kafka_eos.commit.node_kafka import NodeKafka

LEDGER = "ledger"
PIPELINE = "pipe"
GROUP = "group"
DRIVER = f"{PIPELINE}:driver"
SOURCE = TopicPartition("source", 0)
OUTPUT = [TopicPartition("out", number) for number in range(4)]

DECIDED_MS = 1_000_000_000_000
"""Of batch 0, in milliseconds since 1970. Its records are younger: they have the time at which a test runs."""

RUN_OPTIONS = {
    "kafka.bootstrap.servers": "memory:1",
    "pipeline": PIPELINE,
    "topic": "out",
    "offsets.group": GROUP,
    "transaction.margin.ms": "500",
}

_FASTER = 100
"""How much faster than waited for: 30 s are 15 rounds of 20 ms then, instead of 1500."""

_clock_skipped_s = 0.0


class NodeNetwork(Network):
    """Calls are answered at once, on the caller's thread; what belongs to the loop runs one after another."""

    connections = 1
    """As if to one broker."""

    def __init__(self, kafka: NodeKafka) -> None:
        self.kafka = kafka
        self.together: list[list[str]] = []
        """The requests of each call by their APIs; those of one call are on their way at the same time."""
        self._one_at_a_time = threading.RLock()
        self._actions: deque[Callable[[], None]] = deque()
        self._running = False

    def versions_of(self, node: Node, timeout_ms: int | None = None) -> Versions:
        return Versions(self.kafka.api_versions, node)

    def known_versions(self) -> list[Versions]:
        return [self.versions_of(node) for node in self.kafka.brokers]

    def any_node(self, but: Collection[int] = ()) -> Node:
        return next((each for each in self.kafka.brokers if each not in but), self.kafka.brokers[0])

    def brokers(self) -> list[int]:
        return list(self.kafka.brokers)

    def knows(self, node: Node) -> bool:
        return True

    def refresh_brokers(self) -> None:
        """There is one."""

    def take_brokers(self, answer: Any) -> None:
        """They are known."""

    def named(self, node: int, use: str) -> Node:
        return node

    def dedicated(self, node: int, use: int | str, host: str, port: int) -> Node:
        return node

    def on_loop(self, action: Callable[[], None]) -> None:
        with self._one_at_a_time:
            self._actions.append(action)
            if self._running:
                return
            self._running = True
            try:
                while self._actions:
                    self._actions.popleft()()
            finally:
                self._running = False

    def later(self, delay_ms: float, action: Callable[[], None]) -> None:
        skip(delay_ms)
        self.on_loop(action)

    def send_on_loop(self, node: Node, request: Request, done: Done, timeout_ms: int | None = None) -> None:
        answer = self.kafka.answer(built(request, self.versions_of(node)), node)
        self.on_loop(lambda: done(answer))

    def call_many(
        self,
        requests: Sequence[tuple[Node, Request]],
        timeout_ms: int | None = None,
        *,
        sent: Callable[[], None] | None = None,
        elsewhere: Elsewhere | None = None,
    ) -> list[Answer]:
        with self._one_at_a_time:
            made = [(built(request, self.versions_of(node)), node) for node, request in requests]
            self.together.append([m.api_name(request.API_KEY) for request, _ in made])
            answers = [self.kafka.answer(request, node) for request, node in made]
        if sent is not None:
            sent()
        return answers

    def close(self) -> None:
        """Nothing is open."""


class NodeCluster(Cluster):
    """Production's view of a cluster, over the broker on this thread."""

    def __init__(self, kafka: NodeKafka) -> None:
        self.kafka = kafka
        self.settings = ClientSettings(("memory:1",))
        self.network = self.calls = NodeNetwork(kafka)
        self._topics = {}
        self.gone_topic_ids = set()
        self.lacked_until_s = {}
        self._coordinators, self._left = {}, {}
        self._cluster_id = None
        self._others = OtherBrokers(self.network)
        self.features = {"transaction.version": kafka.version}

    def pause(self, delay_ms: float = 20) -> None:  # type: ignore[override]
        """Waiting is skipped, and time goes faster, so that deadlines come after few rounds; what the test has in store
        for a pause happens.
        """
        skip(_FASTER * delay_ms)
        self.kafka.paused()


def skip(delay_ms: float) -> None:
    """The steady clock goes on by so much."""
    global _clock_skipped_s
    _clock_skipped_s += delay_ms / 1000


OLDER_IS_SLOW = [pytest.param(2, id="version2"), pytest.param(1, id="version1", marks=pytest.mark.slow)]
"""For `world`, where a file has so many cases that `make check` plays those of transaction version 2 alone."""


@contextmanager
def skipping_clock() -> Iterator[None]:
    """Production's steady clock, moved on by what would have been waited for."""
    steady = time.monotonic
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "monotonic", lambda: steady() + _clock_skipped_s)
        yield


# ---- what a test begins with


@dataclass
class World:
    """A cluster with an output topic, a ledger of one partition, and one pipeline's means to commit."""

    kafka: NodeKafka
    cluster: NodeCluster = field(init=False)
    ledger: Ledger = field(init=False)
    mender: Mender = field(init=False)
    transactions: Transactions = field(init=False)

    def __post_init__(self) -> None:
        self.kafka.create("out", len(OUTPUT))
        self.kafka.create("source")
        self.kafka.create(LEDGER, configs=SETTINGS)
        self.fresh_process()

    def fresh_process(self) -> None:
        """Everything that a process remembers is gone."""
        self.cluster = NodeCluster(self.kafka)
        self.ledger = Ledger(self.cluster, LEDGER, PIPELINE)
        self.mender = Mender(self.cluster, self.ledger, 60_000)
        self.transactions = Transactions(self.cluster)

    @property
    def where(self) -> TopicPartition:
        return self.ledger.partition

    # ---- transactions

    def driver(self) -> Producer:
        """A new run's driver, which has fenced the older ones."""
        producer = Producer(self.cluster, DRIVER)
        producer.initialize()
        return producer

    def slot(
        self,
        slot: int,
        records: Mapping[int, int] | None = None,
        *,
        name: str | None = None,
        digests: Mapping[int, int] | None = None,
    ) -> Seal:
        """A slot that is written and sealed. `records`: of each output partition, by number."""
        wanted = {slot: 2} if records is None else records
        producer = Producer(self.cluster, name or f"{PIPELINE}:{slot}")
        producer.initialize()
        producer.begin()
        for number, count in wanted.items():
            for each in range(count):
                send(producer, OUTPUT[number], f"slot {slot} row {each}".encode())
        seal = producer.seal(slot, records=sum(wanted.values()), size_bytes=0, digest=7 + slot)
        routed = RoutedTopic("out", str(self.kafka.topic("out").topic_id), self.kafka.topic("out").partitions)
        seal = replace(seal, topics=(routed,) if wanted else ())
        if digests is None:
            return seal
        parts = (replace(part, digest=digests[part.partition]) for part in seal.partitions)
        return replace(seal, partitions=tuple(parts))

    def end(self, seal: Seal, *, commit: bool) -> None:
        """By whoever: production's own end of a sealed transaction."""
        assert seal.identity is not None
        (answer,) = self.transactions.end_many(
            [EndRequest(seal.transactional_id, seal.identity, commit, seal.transaction_version)]
        )
        assert answer.definite, answer

    def decide(self, decision: Decision, producer: Producer | None = None, *, commit: bool = True) -> Producer:
        """Put a decision into the ledger as a driver does, and end its transaction unless it is left open."""
        producer = producer or self.driver()
        producer.begin()
        self.ledger.add_decision(producer, decision)
        producer.send_offsets(GROUP, {SOURCE: 5})
        producer.flush()
        if commit:
            producer.commit()
        return producer

    def state(self, name: str) -> str:
        """What the coordinator says of an id, in Kafka's words."""
        return self.transactions.describe([name])[name].state

    def identity(self, name: str) -> ProducerIdentity:
        return self.transactions.describe([name])[name].identity

    def fates(self, seal: Seal) -> list[Fate]:
        """What the logs say of a seal, in the order of its partitions."""
        return list(fates_of(self.cluster, [seal])[seal.slot].values())

    # ---- what readers see

    def shown(self, where: TopicPartition) -> list[bytes]:
        """The values that a reader of committed records gets."""
        log = self.kafka.log(where)
        ends = {
            (each.info.producer_id, each.info.base_offset): each.commit
            for each in log.batches
            if each.commit is not None
        }
        values: list[bytes] = []
        for each in log.batches:
            info = each.info
            after = sorted(at for owner, at in ends if owner == info.producer_id and at > info.base_offset)
            if info.control or (info.transactional and not (after and ends[info.producer_id, after[0]])):
                continue
            values += decode((info, memoryview(each.data))).value.to_pylist()
        return values

    def ledger_keys(self, where: TopicPartition | None = None) -> list[bytes]:
        """The key of each record in a partition of the ledger (the pipeline's own), in order; markers are left out."""
        keys: list[bytes] = []
        for each in self.kafka.log(where or self.where).batches:
            if not each.info.control:
                ((info, data),) = scan(each.data)
                keys += decode((info, data)).key.to_pylist()
        return keys

    def unnamed_keys(self) -> list[bytes]:
        """The same but for the note that names a run's producer ids."""
        return [key for key in self.ledger_keys() if not key.endswith(b"/named")]

    # ---- the shell

    def shell(
        self,
        decision: Decision,
        producer: Producer | None = None,
        *,
        run: FakeRun | None = None,
        replay: Replay | None = None,
        left_ms: float = 60_000,
    ) -> CommitShell:
        """One commit; half a second is the margin."""
        run = run or FakeRun()
        run.cluster, run.ledger, run.mender = self.cluster, self.ledger, self.mender
        run.producer, run.left = producer or self.driver(), left_ms
        return CommitShell(run, decision, {SOURCE: 5}, replay)


@dataclass
class FakeRun:
    """What a commit asks of its run. A world's `shell` puts its cluster, ledger, mender and driver in."""

    timed_out: bool = False
    cleaning_fails: Exception | None = None
    cleaned: int = 0
    narrowed: list[dict[int, frozenset[TopicPartition]]] = field(default_factory=list)
    left: float = 60_000
    timeout_ms: int = 60_000
    newest: Decision | None = None
    options: SinkOptions = field(default_factory=lambda: SinkOptions.parse(RUN_OPTIONS))
    cluster: Cluster = field(init=False)
    ledger: Ledger = field(init=False)
    mender: Mender = field(init=False)
    producer: Producer = field(init=False)

    def left_ms(self) -> float:
        return self.left

    def clean_up(self) -> None:
        self.cleaned += 1
        if self.cleaning_fails is not None:
            raise self.cleaning_fails

    def fenced_by_timeout(self) -> bool:
        return self.timed_out

    def narrow_repair(self, torn: Mapping[int, frozenset[TopicPartition]]) -> None:
        self.narrowed.append(dict(torn))


def send(producer: Producer, where: TopicPartition, value: bytes, key: bytes = b"k") -> None:
    """One record in a batch of its own."""
    packed = pack(one_record(key, value), transactional=True, compression="none", max_batch_bytes=None)
    identity = producer.identity
    producer.send(
        where,
        1,
        lambda base: stamp(packed, producer_id=identity.producer_id, producer_epoch=identity.epoch, base_sequence=base),
    )


def decision_of(seals: Sequence[Seal], *, batch_id: int = 0, query_id: str = "query", **fields: Any) -> Decision:
    """What a driver would decide."""
    return Decision(
        PIPELINE,
        query_id,
        batch_id,
        tuple(seals),
        **{"decided_ms": DECIDED_MS + batch_id, "earlier": (), **fields},
    )


def places(seal: Seal, but: Collection[TopicPartition] = ()) -> list[TopicPartition]:
    """Where a seal wrote."""
    found = [TopicPartition(part.topic, part.partition) for part in seal.partitions]
    return [where for where in found if where not in but]
