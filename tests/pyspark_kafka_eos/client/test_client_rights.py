"""Where a right is missing, the error names operation and resource, and nothing is asked twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from embedded_kafka.embedded import EmbeddedKafka
from kafka_core.errors import AuthorizationFailed, OptionsError
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster, CoordinatorKind
from pyspark_kafka_eos.client.writing.producer import Producer
from tests.pyspark_kafka_eos.client.client_tools import record_batch, settings_for

pytestmark = [pytest.mark.kafka, pytest.mark.embedded]

WAIT_S = 30.0
WHERE, SOURCE = TopicPartition("out", 0), TopicPartition("in", 0)
ID, GROUP = "pipe:0", "readers"
OF_THE_ID = "WRITE and DESCRIBE on the transactional id prefix"

Act = Callable[[Cluster], object]


@pytest.fixture(scope="module")
def kafka() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(in_process=True, config={"transaction.version": "1"}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        topics = [NewTopic("out", 1), NewTopic("in", 1)]
        for made in admin.create_topics(topics).values():
            made.result(WAIT_S)
        yield broker


@pytest.fixture
def cluster(kafka: EmbeddedKafka) -> Iterator[Cluster]:
    cluster = Cluster(settings_for(kafka.bootstrap_servers))
    cluster.topic("out")
    try:
        yield cluster
    finally:
        cluster.close()


def begun(cluster: Cluster, transactional_id: str | None = ID) -> Producer:
    producer = Producer(cluster, transactional_id)
    producer.initialize()
    producer.begin()
    return producer


def write(producer: Producer) -> None:
    identity, transactional = producer.identity, producer.transactional_id is not None
    producer.send(WHERE, 1, lambda base: record_batch([b"a"], identity, base, transactional))
    producer.flush()


def find_coordinator(cluster: Cluster) -> None:
    cluster.coordinators(CoordinatorKind.TRANSACTION, [ID])


def find_group(cluster: Cluster) -> None:
    cluster.coordinators(CoordinatorKind.GROUP, [GROUP])


def offsets(cluster: Cluster) -> None:
    begun(cluster).send_offsets(GROUP, {SOURCE: 7})


def test_a_group_of_another_type_is_named_with_its_option(kafka: EmbeddedKafka, cluster: Cluster) -> None:
    """Apache Kafka 4.4.0 answers so where the name is a share group's."""
    kafka.fault("TxnOffsetCommit", "error", code="GROUP_ID_NOT_FOUND", times=10)
    try:
        with pytest.raises(OptionsError, match=r"is no consumer group.*offsets\.group"):
            offsets(cluster)
    finally:
        kafka.clear_faults()


@pytest.mark.parametrize(
    ("api", "code", "act", "granted"),
    [
        ("FindCoordinator", "TRANSACTIONAL_ID", find_coordinator, "WRITE on the transactional id prefix"),
        ("FindCoordinator", "GROUP", find_group, "READ on the group"),
        ("InitProducerId", "TRANSACTIONAL_ID", begun, f"{OF_THE_ID} (for transactions without a timeout also TWO_PHASE"),
        (
            "InitProducerId", "CLUSTER", lambda cluster: begun(cluster, None),
            "IDEMPOTENT_WRITE on the cluster, or WRITE on any topic",
        ),
        ("AddPartitionsToTxn", "TRANSACTIONAL_ID", lambda cluster: write(begun(cluster)), OF_THE_ID),
        ("AddPartitionsToTxn", "TOPIC", lambda cluster: write(begun(cluster)), "WRITE on the topic"),
        ("AddOffsetsToTxn", "GROUP", offsets, "READ on the group"),
        ("TxnOffsetCommit", "GROUP", offsets, "READ on the group"),
        ("TxnOffsetCommit", "TOPIC", offsets, "READ on the source topic"),
        ("Produce", "TOPIC", lambda cluster: write(begun(cluster)), "WRITE on the topic"),
        ("Produce", "TRANSACTIONAL_ID", lambda cluster: write(begun(cluster)), OF_THE_ID),
        (
            "Produce", "CLUSTER", lambda cluster: write(begun(cluster, None)),
            "IDEMPOTENT_WRITE on the cluster, or WRITE on any topic",
        ),
    ],
)  # fmt: skip
def test_a_missing_right_is_named_with_its_resource_and_asked_for_once(
    kafka: EmbeddedKafka, cluster: Cluster, api: str, code: str, act: Act, granted: str
) -> None:
    """Rule: seed 000 §5.1.1 and §5.5 (server, authorisation): the transactional id's, the cluster's, the topic's and
    the group's rights are different ones; only an operator can mend them, who has to read which one it is.
    """
    fault = kafka.fault(api, "error", code=f"{code}_AUTHORIZATION_FAILED", times=10)
    try:
        with pytest.raises(AuthorizationFailed) as refusal:
            act(cluster)
        fired = fault.fired
    finally:
        kafka.clear_faults()

    assert f"grant {granted}" in refusal.value.message
    assert ("group" in refusal.value.message.partition("grant")[2]) == (code == "GROUP"), "another right is named, too"
    assert refusal.value.facts["code"] == f"{code}_AUTHORIZATION_FAILED"
    assert fired == 1
