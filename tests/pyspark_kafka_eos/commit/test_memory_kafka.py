"""The cluster in memory answers what the embedded broker answers: the same script is played to both, by the real client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import pytest

from embedded_kafka.embedded import EmbeddedKafka
from kafka_core.errors import ExactlyOnceError
from kafka_core.values import ProducerIdentity, TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.reading.log_reader import read_raw
from pyspark_kafka_eos.client.reading.offsets import READ_COMMITTED, READ_UNCOMMITTED, Offsets
from pyspark_kafka_eos.client.requests.ends import EndRequest
from pyspark_kafka_eos.client.requests.producer_states import describe_producers
from pyspark_kafka_eos.client.requests.transactions import Transactions, TransactionView
from pyspark_kafka_eos.client.writing.producer import Producer
from pyspark_kafka_eos.model import ClientSettings
from pyspark_kafka_eos.records import MarkerKind, control_marker, scan
from tests.conftest import MakeTopic, topics_of
from tests.pyspark_kafka_eos.commit.fakes import MemoryCluster, send, skipping_clock
from tests.pyspark_kafka_eos.commit.memory_kafka import MemoryKafka

pytestmark = [pytest.mark.kafka, pytest.mark.embedded]


class Forget(Protocol):
    """Has the next marker for a partition forgotten; what it gives says how often that happened."""

    def __call__(self, where: TopicPartition) -> Callable[[], int]: ...


@dataclass
class Played:
    """A script's answers, with producer ids by the order in which they came up, so that two clusters can be compared."""

    cluster: Cluster
    topic: str
    prefix: str
    said: list[str] = field(default_factory=list)
    numbers: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.transactions = Transactions(self.cluster)
        self.parts = [TopicPartition(self.topic, number) for number in range(2)]

    def note(self, what: str, answer: object) -> None:
        self.said.append(f"{what}: {answer}")

    def who(self, identity: ProducerIdentity) -> str:
        if identity.producer_id < 0:
            return "nobody"
        return f"{self.number(identity.producer_id)}@{identity.epoch}"

    def number(self, producer_id: int) -> str:
        return self.numbers.setdefault(producer_id, f"p{len(self.numbers)}")

    def attempt(self, what: str, action: Callable[[], object]) -> None:
        """Note what comes of it: the answer, or the error by class and code."""
        try:
            answer = action()
        except ExactlyOnceError as error:
            self.note(what, f"{type(error).__name__} {error.facts.get('code', '')}")
            return
        self.note(what, self.who(answer) if isinstance(answer, ProducerIdentity) else answer)

    def producer(self, name: str) -> Producer:
        producer = Producer(self.cluster, self.prefix + name)
        self.attempt(f"init {name}", producer.initialize)
        return producer

    def end(self, name: str, identity: ProducerIdentity, *, commit: bool, version: int = 0) -> None:
        request = EndRequest(
            self.prefix + name, identity, commit, version or self.cluster.transaction_version
        )
        answer = self.transactions.end(request)
        following = self.who(answer.next_identity) if answer.next_identity else "none"
        self.note(f"end {name} {commit}", (answer.definite, answer.reason, following))

    def look(self, *names: str) -> None:
        """Everything that anybody may ask: coordinators, leaders, logs, positions."""
        for name in names:
            # Markers are written after the answer; what is seen is what is settled.
            view = self._settled(self.prefix + name)
            self.note(name, (view.state, self.who(view.identity), sorted(map(_number, view.partitions))))
        states = describe_producers(self.cluster, self.parts)
        assert states is not None
        for where in self.parts:
            known = {
                self.number(producer_id): (state.epoch, state.open_from, state.last_sequence)
                for producer_id, state in states[where].items()
            }
            self.note(f"producers of {where.partition}", sorted(known.items()))
            read = read_raw(self.cluster, where, 0)
            batches = [
                (
                    info.base_offset,
                    info.last_offset,
                    f"{self.number(info.producer_id)}@{info.producer_epoch}",
                    _kind(control_marker((info, data)).kind) if info.control else "records",
                )
                for info, data in scan(read.records)
            ]
            self.note(
                f"log of {where.partition}",
                (batches, read.high_watermark, read.last_stable_offset, read.log_start_offset),
            )
        offsets = Offsets(self.cluster)
        for isolation in (READ_COMMITTED, READ_UNCOMMITTED):
            self.note(isolation, [at for _, at in sorted(offsets.latest(self.parts, isolation).items())])
        self.note("earliest", [at for _, at in sorted(offsets.earliest(self.parts).items())])

    def _settled(self, name: str) -> TransactionView:
        while True:
            view = self.transactions.describe([name])[name]
            if not view.state.startswith("Prepare"):
                return view
            self.cluster.pause()


def _number(where: TopicPartition) -> str:
    return str(where.partition) if not where.topic.startswith("__") else "offsets"


def _kind(kind: MarkerKind) -> str:
    return kind.name.lower()


# ---- the scripts


def committed_and_aborted(played: Played, _forget: Forget) -> None:
    for name, commit in (("a", True), ("b", False)):
        producer = played.producer(name)
        producer.begin()
        for where in played.parts:
            send(producer, where, b"1")
            send(producer, where, b"2")
        producer.flush()
        played.look(name)
        if commit:
            producer.commit()
        else:
            producer.abort()
        played.look("a", "b") if name == "b" else played.look(name)


def ends_that_are_repeated_or_turned_round(played: Played, _forget: Forget) -> None:
    producer = played.producer("a")
    producer.begin()
    send(producer, played.parts[0], b"1")
    producer.flush()
    identity = producer.identity
    played.end("a", identity, commit=True)
    played.look("a")
    played.end("a", identity, commit=True)
    played.end("a", identity, commit=False)
    played.end("a", ProducerIdentity(identity.producer_id, 17), commit=True)
    played.end("a", ProducerIdentity(987_654, 0), commit=True)
    played.end("unheard-of", identity, commit=True)
    played.look("a", "unheard-of")


def fenced_by_a_newer_one(played: Played, _forget: Forget) -> None:
    older = played.producer("a")
    older.begin()
    send(older, played.parts[0], b"1")
    older.flush()
    newer = played.producer("a")
    played.look("a")

    def write_on() -> None:
        send(older, played.parts[0], b"2")
        older.flush()

    played.attempt("older writes on", write_on)
    played.end("a", older.identity, commit=True)
    played.attempt("older again", older.initialize)
    newer.begin()
    send(newer, played.parts[0], b"3")
    newer.flush()
    newer.commit()
    played.look("a")


def asked_with_the_identity_at_hand(played: Played, _forget: Forget) -> None:
    first = played.producer("a").identity
    init = played.transactions.init_producer_id
    name = f"{played.prefix}a"
    played.attempt("with the current", lambda: init(name, 60_000, first))
    played.attempt("with the same again", lambda: init(name, 60_000, first))
    played.attempt("without", lambda: init(name, 60_000))
    played.attempt("with the first", lambda: init(name, 60_000, first))
    played.look("a")


def mended_after_a_forgotten_marker(played: Played, forget: Forget) -> None:
    producer = played.producer("a")
    producer.begin()
    for where in played.parts:
        send(producer, where, b"1")
    producer.flush()
    forgotten = forget(played.parts[1])
    producer.commit()
    played.look("a")
    played.note("forgotten", forgotten())
    identity = played.transactions.init_producer_id(f"{played.prefix}a", 60_000)
    played.transactions.add_partitions(f"{played.prefix}a", identity, [played.parts[1]])
    played.look("a")
    played.end("a", identity, commit=True, version=1)
    played.look("a")


def offsets_of_a_group(played: Played, _forget: Forget) -> None:
    group = f"{played.prefix}group"
    for commit, at in ((True, 5), (False, 9)):
        producer = played.producer("a")
        producer.begin()
        producer.send_offsets(group, {played.parts[0]: at})
        if commit:
            producer.commit()
        else:
            producer.abort()
        played.look("a")
        found = Offsets(played.cluster).committed(group, played.parts)
        played.note("committed", sorted((where.partition, offset) for where, offset in found.items()))


def positions_that_are_not_there(played: Played, _forget: Forget) -> None:
    read = read_raw(played.cluster, played.parts[0], 3)
    played.note("behind the end", (read.out_of_range, bytes(read.records)))
    read = read_raw(played.cluster, played.parts[0], 0)
    played.note("at the end", (read.out_of_range, bytes(read.records), read.high_watermark))
    played.attempt("no topic", lambda: played.cluster.topic("nowhere", new_topic_ms=0))


SCRIPTS = [
    committed_and_aborted,
    ends_that_are_repeated_or_turned_round,
    fenced_by_a_newer_one,
    asked_with_the_identity_at_hand,
    mended_after_a_forgotten_marker,
    offsets_of_a_group,
    positions_that_are_not_there,
]


@dataclass
class Broker:
    """The embedded broker, which knows nothing of the one in memory."""

    kafka: EmbeddedKafka
    cluster: Cluster
    make_topic: MakeTopic
    version: int


@pytest.fixture(scope="module", params=[1, 2])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    version = str(request.param)
    with EmbeddedKafka(in_process=True, config={"transaction.version": version}) as kafka:
        cluster = Cluster(ClientSettings((kafka.bootstrap_servers,)))
        yield Broker(kafka, cluster, topics_of(kafka), request.param)
        cluster.close()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_the_cluster_in_memory_answers_as_the_embedded_broker_does(
    broker: Broker, script: Callable[[Played, Forget], None]
) -> None:
    real = Played(broker.cluster, broker.make_topic(2), f"{script.__name__}.")

    def forget(where: TopicPartition) -> Callable[[], int]:
        fault = broker.kafka.fault_at_marker(where.topic, where.partition, "forget")
        return lambda: fault.fired

    script(real, forget)

    memory = MemoryKafka(broker.version)
    memory.create("out", 2)
    played = Played(MemoryCluster(memory), "out", f"{script.__name__}.")

    def forget_here(where: TopicPartition) -> Callable[[], int]:
        fault = memory.forget_marker(where)
        return lambda: fault.fired

    with skipping_clock():
        script(played, forget_here)

    assert played.said == real.said
    assert len(played.said) > 2, "the script said nothing"
