"""What the client does about answers that ask for another try: it asks again, and the caller sees nothing of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from embedded_kafka.embedded import EmbeddedKafka
from kafka_core.errors import AbortableError
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.requests.transactions import Transactions
from pyspark_kafka_eos.client.writing.producer import Producer
from pyspark_kafka_eos.client.writing.session import SessionState
from tests.pyspark_kafka_eos.client.client_tools import record_batch, settings_for

pytestmark = [pytest.mark.kafka, pytest.mark.embedded]

WAIT_S = 30.0
ID, GROUP = "pipe:0", "readers"
WHERE, SOURCE = TopicPartition("out", 0), TopicPartition("in", 0)
COORDINATED = ("InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn")


@pytest.fixture(scope="module")
def kafka() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(in_process=True, config={"transaction.version": "1"}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        for made in admin.create_topics([NewTopic("out", 1), NewTopic("in", 1)]).values():
            made.result(WAIT_S)
        yield broker
        broker.clear_faults()


@pytest.fixture
def cluster(kafka: EmbeddedKafka) -> Iterator[Cluster]:
    kafka.clear_faults()
    cluster = Cluster(settings_for(kafka.bootstrap_servers))
    cluster.topic("out")
    try:
        yield cluster
    finally:
        cluster.close()


def send(producer: Producer, value: bytes) -> None:
    identity = producer.identity
    producer.send(WHERE, 1, lambda base: record_batch([value], identity, base, True))


def one_transaction(cluster: Cluster) -> Producer:
    """From the identity to the commit, with records and offsets."""
    producer = Producer(cluster, ID)
    producer.initialize()
    producer.begin()
    send(producer, b"a")
    producer.send_offsets(GROUP, {SOURCE: 7})
    producer.commit()
    return producer


@pytest.mark.parametrize("code", ["NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE"])
@pytest.mark.parametrize("api", COORDINATED)
def test_a_coordinator_that_moved_is_found_anew_and_asked_again(
    kafka: EmbeddedKafka, cluster: Cluster, api: str, code: str
) -> None:
    """Rule: seed 003 (high availability): the coordinator is another broker now, which FindCoordinator names."""
    one_transaction(cluster)
    moved = kafka.fault(api, "error", code=code)
    found = kafka.fault("FindCoordinator", "delay", delay_ms=0, times=100)

    producer = one_transaction(cluster)

    assert (moved.fired, found.fired) == (1, 1)
    assert producer.session.state is SessionState.UNINITIALIZED


@pytest.mark.parametrize("api", ["InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn"])
def test_while_the_last_transaction_is_being_completed_the_same_is_asked_again(
    kafka: EmbeddedKafka, cluster: Cluster, api: str
) -> None:
    """Rule: seed 003 (EndTxnRequest: prepare, markers, complete): CONCURRENT_TRANSACTIONS passes."""
    busy = kafka.fault(api, "error", code="CONCURRENT_TRANSACTIONS", times=3)

    producer = one_transaction(cluster)

    assert busy.fired == 3
    assert producer.session.state is SessionState.UNINITIALIZED


def test_a_producer_id_is_asked_for_until_a_broker_has_one(kafka: EmbeddedKafka, cluster: Cluster) -> None:
    """Rule: seed 000 §5.4 (maybeWaitForProducerId): the request for a producer id is repeated; any broker may
    answer.
    """
    none_yet = kafka.fault("InitProducerId", "error", code="COORDINATOR_LOAD_IN_PROGRESS", times=3)

    identity = Transactions(cluster).init_producer_id(None, 60_000)

    assert none_yet.fired == 3
    assert (identity.producer_id >= 0, identity.epoch) == (True, 0)


def test_a_leader_that_lost_the_producers_state_costs_one_transaction(kafka: EmbeddedKafka, cluster: Cluster) -> None:
    """Rule: seed 001 (motivation 2; safe epoch incrementing, 1, 2 and 4): UNKNOWN_PRODUCER_ID ends the transaction, not
    the session, which goes on under the next epoch and from sequence 0.
    """
    producer = Producer(cluster, ID)
    before = producer.initialize()
    producer.begin()
    lost = kafka.fault("Produce", "error", code="UNKNOWN_PRODUCER_ID")
    send(producer, b"lost")

    with pytest.raises(AbortableError, match="UNKNOWN_PRODUCER_ID"):
        producer.flush()

    assert (lost.fired, producer.session.state) == (1, SessionState.ABORTABLE_ERROR)
    producer.abort()
    after = producer.initialize()
    assert (after.producer_id, after.epoch > before.epoch) == (before.producer_id, True)
    producer.begin()
    send(producer, b"kept")
    producer.flush()
    assert [each.last_sequence for each in producer.written_partitions()] == [0]
    producer.commit()
