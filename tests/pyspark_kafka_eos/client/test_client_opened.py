"""A request that puts something into a transaction and fails: the coordinator may know of it, so it has to be ended."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ReadPartition
from confluent_kafka.admin import AdminClient, NewTopic

from embedded_kafka.embedded import EmbeddedKafka
from kafka_core.errors import AuthorizationFailed
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.writing.producer import Producer
from pyspark_kafka_eos.client.writing.session import SessionState
from tests.pyspark_kafka_eos.client.client_tools import record_batch, settings_for

pytestmark = [pytest.mark.kafka, pytest.mark.embedded]

GROUP, NO_OFFSET, WAIT_S = "readers", -1001, 30.0
OUT, SEEN, HIDDEN = "out", "source-seen", "source-hidden"


@pytest.fixture(params=["2", "1"])
def kafka(request: pytest.FixtureRequest) -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(in_process=True, config={"transaction.version": request.param}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        for made in admin.create_topics([NewTopic(name, 1, 1) for name in (OUT, SEEN, HIDDEN)]).values():
            made.result(WAIT_S)
        yield broker


@pytest.fixture
def producer(kafka: EmbeddedKafka) -> Iterator[Producer]:
    cluster = Cluster(settings_for(kafka.bootstrap_servers))
    cluster.refresh_topics([OUT, SEEN, HIDDEN])
    producer = Producer(cluster, "pipe:0", delivery_timeout_ms=20_000)
    producer.initialize()
    producer.begin()
    yield producer
    cluster.close()


def committed(kafka: EmbeddedKafka, topic: str) -> int:
    """The group's offset as librdkafka sees it."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": GROUP})
    try:
        (found,) = consumer.committed([ReadPartition(topic, 0)], timeout=WAIT_S)
        return int(found.offset)
    finally:
        consumer.close()


def state(producer: Producer) -> str:
    assert producer.transactional_id is not None
    return producer.transactions.describe([producer.transactional_id])[producer.transactional_id].state


def commit_another(producer: Producer) -> None:
    """The next transaction of the same session, with one record."""
    if producer.session.state is not SessionState.READY:
        producer.initialize()
    producer.begin()
    write(producer)
    producer.commit()


def write(producer: Producer) -> None:
    identity = producer.identity
    producer.send(TopicPartition(OUT, 0), 1, lambda base: record_batch([b"a"], identity, base, True))


def write_and_flush(producer: Producer) -> None:
    write(producer)
    producer.flush()


def test_offsets_that_were_taken_beside_refused_ones_do_not_show_with_the_next_commit(
    kafka: EmbeddedKafka, producer: Producer
) -> None:
    kafka.deny("READ", "TOPIC", HIDDEN)

    with pytest.raises(AuthorizationFailed, match="READ on the source topic"):
        producer.send_offsets(GROUP, {TopicPartition(SEEN, 0): 7, TopicPartition(HIDDEN, 0): 8})
    producer.abort()

    commit_another(producer)
    kafka.allow_all()
    assert (committed(kafka, SEEN), committed(kafka, HIDDEN)) == (NO_OFFSET, NO_OFFSET)


def test_offsets_whose_answer_was_lost_do_not_show_with_the_next_commit(
    kafka: EmbeddedKafka, producer: Producer
) -> None:
    lost = kafka.fault("TxnOffsetCommit", "drop-answer")
    refused = kafka.fault("TxnOffsetCommit", "error", code="GROUP_AUTHORIZATION_FAILED")

    with pytest.raises(AuthorizationFailed):
        producer.send_offsets(GROUP, {TopicPartition(SEEN, 0): 7})
    producer.abort()

    assert (lost.fired, refused.fired) == (1, 1)
    assert state(producer) in ("PrepareAbort", "CompleteAbort")
    commit_another(producer)
    assert committed(kafka, SEEN) == NO_OFFSET


def test_a_partition_whose_adding_was_not_answered_is_ended_by_the_abort(
    kafka: EmbeddedKafka, producer: Producer
) -> None:
    if producer.session.transaction_version >= 2:
        # The first records add it.
        lost = kafka.fault("Produce", "drop-answer")
        refused = kafka.fault("Produce", "error", code="TOPIC_AUTHORIZATION_FAILED")
    else:
        lost = kafka.fault("AddPartitionsToTxn", "drop-answer")
        refused = kafka.fault("FindCoordinator", "error", code="TRANSACTIONAL_ID_AUTHORIZATION_FAILED")

    with pytest.raises(AuthorizationFailed):
        write_and_flush(producer)
    producer.abort()

    assert (lost.fired, refused.fired) == (1, 1)
    assert state(producer) in ("PrepareAbort", "CompleteAbort")


def test_without_a_transactional_id_an_abort_leaves_a_session_that_can_begin_anew(
    kafka: EmbeddedKafka,
) -> None:
    cluster = Cluster(settings_for(kafka.bootstrap_servers))
    try:
        producer = Producer(cluster, None)
        producer.initialize()
        producer.begin()
        cluster.topic(OUT)
        write_plainly(producer)
        producer.abort()

        producer.initialize()
        producer.begin()
        write_plainly(producer)
        producer.flush()
    finally:
        cluster.close()


def write_plainly(producer: Producer) -> None:
    identity = producer.identity
    producer.send(TopicPartition(OUT, 0), 1, lambda base: record_batch([b"a"], identity, base, False))
