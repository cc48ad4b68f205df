"""Answers about something else, and answers that never come: the caller hears of it, within a time that is known."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from embedded_kafka.embedded import EmbeddedKafka
from kafka_core.errors import (
    AbortableError,
    AuthorizationFailed,
    BrokerUnavailable,
    ExactlyOnceError,
    InternalError,
    ProtocolViolation,
)
from kafka_core.protocol import messages as m
from kafka_core.values import ProducerIdentity, TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.net.network import MOST_UNANSWERED, Network
from pyspark_kafka_eos.client.writing import unconfirmed
from pyspark_kafka_eos.client.writing.delivery import Delivery
from pyspark_kafka_eos.client.writing.producer import Producer
from pyspark_kafka_eos.client.writing.session import SessionState
from pyspark_kafka_eos.client.writing.unconfirmed import Unconfirmed
from tests.pyspark_kafka_eos.client.client_tools import record_batch, settings_for

WAIT_S = 60.0
P0, P1 = TopicPartition("out", 0), TopicPartition("out", 1)
GROUP = "readers"


@pytest.fixture(params=["2", "1"])
def kafka(request: pytest.FixtureRequest) -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(in_process=True, config={"transaction.version": request.param}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic("out", 2, 1)])["out"].result(WAIT_S)
        yield broker


@pytest.fixture
def producer(kafka: EmbeddedKafka) -> Iterator[Producer]:
    cluster = Cluster(settings_for(kafka.bootstrap_servers))
    cluster.topic("out")
    producer = Producer(cluster, "pipe:0", delivery_timeout_ms=2_000)
    producer.initialize()
    producer.begin()
    yield producer
    cluster.close()


def send(producer: Producer, where: TopicPartition = P0, value: bytes = b"a") -> None:
    identity = producer.identity
    producer.send(where, 1, lambda base: record_batch([value], identity, base, True))


def ended(work: Callable[[], Any]) -> BaseException | None:
    """What the work raised; AssertionError where it neither ended nor raised within a minute."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 -- the test judges it
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(WAIT_S)
    assert not thread.is_alive(), "it still waits"
    return raised[0] if raised else None


def state(producer: Producer) -> str:
    assert producer.transactional_id is not None
    return producer.transactions.describe([producer.transactional_id])[producer.transactional_id].state


# ---- an answer about something else


@pytest.mark.kafka
@pytest.mark.embedded
@pytest.mark.parametrize(
    ("action", "said"),
    [("leave-out", "leaves out out-0"), ("other-partition", "names out-1, which was not requested")],
)
def test_a_produce_answer_about_something_else_is_told_to_the_caller_and_the_transaction_aborted(
    kafka: EmbeddedKafka, producer: Producer, action: str, said: str
) -> None:
    fault = kafka.fault_in_answer("Produce", action, partition=0, times=1)
    send(producer)

    error = ended(producer.flush)

    assert isinstance(error, ProtocolViolation)
    assert said in error.message
    assert "the transaction is aborted" in error.message
    assert fault.fired == 1
    assert producer.session.state is SessionState.ABORTABLE_ERROR
    producer.abort()
    assert state(producer) in ("PrepareAbort", "CompleteAbort")


@pytest.mark.kafka
@pytest.mark.embedded
def test_a_caller_that_waits_for_room_hears_of_it_too(kafka: EmbeddedKafka, producer: Producer) -> None:
    fault = kafka.fault_in_answer("Produce", "other-partition", times=1)
    big = b"x" * 900_000

    def fill() -> None:
        for _ in range(100):
            send(producer, value=big)

    error = ended(fill)

    assert isinstance(error, ProtocolViolation)
    assert fault.fired == 1
    producer.abort()
    assert state(producer) in ("PrepareAbort", "CompleteAbort")


@pytest.mark.kafka
@pytest.mark.embedded
@pytest.mark.parametrize("action", ["leave-out", "other-partition"])
def test_offsets_that_the_answer_does_not_name_are_no_success(
    kafka: EmbeddedKafka, producer: Producer, action: str
) -> None:
    fault = kafka.fault_in_answer("TxnOffsetCommit", action, times=1)

    with pytest.raises(ProtocolViolation, match="TxnOffsetCommit"):
        producer.send_offsets(GROUP, {P0: 7})

    assert fault.fired == 1
    producer.abort()
    assert state(producer) in ("PrepareAbort", "CompleteAbort")


@pytest.mark.kafka
@pytest.mark.embedded
def test_without_a_guarantee_an_answer_that_leaves_the_batch_out_counts_it_as_lost(
    kafka: EmbeddedKafka,
) -> None:
    cluster = Cluster(settings_for(kafka.bootstrap_servers))
    try:
        cluster.topic("out")
        fault = kafka.fault_in_answer("Produce", "leave-out", times=1)
        sender = Unconfirmed(cluster)
        sender.send(P0, 1, lambda base: record_batch([b"a"], Unconfirmed.identity, base, False))
        sender.flush()
    finally:
        cluster.close()

    assert fault.fired == 1
    assert (sender.lost, sender.last_reason) == (1, "out-0: the answer leaves the partition out")


# ---- a batch that is never taken


@pytest.mark.kafka
@pytest.mark.embedded
def test_a_batch_that_is_never_taken_is_given_up_after_the_delivery_timeout(kafka: EmbeddedKafka) -> None:
    """Rule: seed 000 §5.4 (shouldResetProducerState): what was sent again until its time was over ends the epoch."""
    cluster = Cluster(settings_for(kafka.bootstrap_servers))
    try:
        cluster.topic("out")
        producer = Producer(cluster, "pipe:0", delivery_timeout_ms=500)
        producer.initialize()
        producer.begin()
        fault = kafka.fault("Produce", "error", code="NOT_ENOUGH_REPLICAS", times=10_000)
        send(producer)

        error = ended(producer.flush)

        assert isinstance(error, AbortableError)
        assert "not acknowledged within kafka.delivery.timeout.ms (last: NOT_ENOUGH_REPLICAS)" in error.message
        assert fault.fired > 1
        assert producer.session.state is SessionState.ABORTABLE_ERROR
        sent = fault.fired
        producer.abort()
        assert fault.fired == sent, "what was given up was sent again"
        assert state(producer) in ("PrepareAbort", "CompleteAbort", "Empty")
    finally:
        cluster.close()


# ---- answers that never come


class Silent:
    """A cluster whose network takes everything and does nothing; `answer` does what the loop would."""

    def __init__(self, *, answers: ExactlyOnceError | m.Message | None = None) -> None:
        self.network = self
        self.settings = settings_for("127.0.0.1:1", request_timeout_ms=50)
        self._answers = answers
        self.asked = 0

    def leader(self, _where: TopicPartition) -> int:
        return 1

    def on_loop(self, action: Callable[[], None]) -> None:
        action()

    def later(self, _delay_ms: float, _action: Callable[[], None]) -> None:
        """The loop does nothing later either."""

    def send_on_loop(self, _node: object, _request: object, done: Callable[[Any], None]) -> None:
        self.asked += 1
        if self._answers is not None:
            done(self._answers)


def delivery(cluster: Silent) -> Delivery:
    return Delivery(
        cast(Cluster, cluster),
        ProducerIdentity(7, 0),
        transactional_id="pipe:0",
        transaction_version=2,
        delivery_timeout_ms=100,
        buffer_bytes=10,
    )


def test_room_that_never_comes_is_waited_for_no_longer_than_twice_the_delivery_timeout() -> None:
    cluster = Silent()
    sending = delivery(cluster)
    sending.submit(P0, 1, lambda _base: b"x" * 20)

    error = ended(lambda: sending.submit(P0, 1, lambda _base: b"x" * 20))

    assert isinstance(error, AbortableError)
    assert "still unacknowledged" in error.message
    assert cluster.asked == 1


@pytest.mark.parametrize("work", [Delivery.flush, lambda sending: sending.settled([P0], wait=True)])
def test_acknowledgements_that_never_come_end_the_wait(work: Callable[[Delivery], object]) -> None:
    sending = delivery(Silent())
    sending.submit(P0, 1, lambda _base: b"x")

    assert isinstance(ended(lambda: work(sending)), AbortableError)


def test_an_answer_that_cannot_be_read_reaches_the_caller() -> None:
    sending = delivery(Silent(answers=cast(m.Message, object())))
    sending.submit(P0, 1, lambda _base: b"x")

    error = ended(sending.flush)

    assert isinstance(error, InternalError)
    assert "AttributeError" in error.message


def test_without_a_guarantee_what_is_never_answered_is_lost_and_the_caller_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(unconfirmed, "BUFFER_BYTES", 10)
    sender = Unconfirmed(cast(Cluster, Silent()))

    for _ in range(2):
        assert ended(lambda: sender.send(P0, 1, lambda _base: b"x" * 20)) is None
    assert ended(sender.flush) is None

    assert sender.lost == 2


@pytest.mark.slow
def test_requests_that_the_loop_has_lost_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network(settings_for("127.0.0.1:1", request_timeout_ms=50))
    taken = threading.Event()
    monkeypatch.setattr(network, "send_on_loop", lambda *_arguments: taken.set())
    try:
        error = ended(lambda: network.call_many([(1, cast(m.Message, None))]))
    finally:
        network.close()

    assert taken.is_set()
    assert isinstance(error, BrokerUnavailable)
    assert "neither got an answer nor timed out" in error.message


REQUESTS = 3 * MOST_UNANSWERED + 7


def test_of_many_requests_a_bounded_number_is_on_its_way_and_all_are_answered_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each answer costs the library a search through all timers."""
    network = Network(settings_for("127.0.0.1:1"))
    unanswered: list[int] = []
    most = 0
    sent = threading.Event()

    def send(node: Any, _request: object, done: Callable[[Any], None], _timeout_ms: int | None) -> None:
        nonlocal most
        unanswered.append(node)
        most = max(most, len(unanswered))

        def answer() -> None:
            unanswered.remove(node)
            done(node)

        network.later(1, answer)

    monkeypatch.setattr(network, "send_on_loop", send)
    try:
        requests = [(number, cast(m.Message, None)) for number in range(REQUESTS)]
        answers = network.call_many(requests, sent=sent.set)
    finally:
        network.close()

    assert answers == list(range(REQUESTS))
    assert most == MOST_UNANSWERED
    assert sent.is_set()


def test_many_requests_that_fail_at_once_are_all_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next request is sent when an answer comes; a broker that is away answers within that very call."""
    network = Network(settings_for("127.0.0.1:1"))
    away = BrokerUnavailable("away")
    monkeypatch.setattr(network, "send_on_loop", lambda _node, _request, done, _timeout: done(away))
    try:
        answers = network.call_many([(1, cast(m.Message, None))] * 5_000)
    finally:
        network.close()

    assert answers == [away] * 5_000


@pytest.mark.slow
def test_a_wait_for_many_answers_goes_on_while_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound is for the time without any answer: 10,000 slots on a slow coordinator take longer than one request
    may.
    """
    network = Network(settings_for("127.0.0.1:1", request_timeout_ms=50))
    waiting: list[Callable[[Any], None]] = []

    def send(_node: Any, _request: object, done: Callable[[Any], None], _timeout_ms: int | None) -> None:
        waiting.append(done)
        network.later(800 * len(waiting), lambda: waiting.pop(0)(True))

    monkeypatch.setattr(network, "send_on_loop", send)
    try:
        answers = network.call_many([(1, cast(m.Message, None))] * 4)
    finally:
        network.close()

    assert answers == [True] * 4


def test_a_loop_that_has_ended_is_an_unavailable_broker() -> None:
    network = Network(settings_for("127.0.0.1:1"))
    network.close()

    with pytest.raises(BrokerUnavailable, match="closed or broken"):
        network.call_many([(1, cast(m.Message, None))])


def test_credentials_that_are_refused_while_sending_reach_the_caller() -> None:
    sending = delivery(Silent(answers=AuthorizationFailed("the broker refused the credentials")))
    sending.submit(P0, 1, lambda _base: b"x")

    assert isinstance(ended(sending.flush), AuthorizationFailed)
