"""What a client may do, as the broker tells it (KIP-430), and as librdkafka reads it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import TopicCollection
from confluent_kafka.admin import AclOperation, AdminClient

from embedded_kafka import EmbeddedKafka
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.requests import rights
from pyspark_kafka_eos.client.requests.admin import list_transactions
from pyspark_kafka_eos.client.requests.transactions import Transactions
from pyspark_kafka_eos.model import ClientSettings
from tests.conftest import topics_of

pytestmark = [pytest.mark.kafka, pytest.mark.embedded]


@pytest.fixture
def denying() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(in_process=True) as broker:
        yield broker


def test_librdkafka_reads_the_operations_on_topics_and_on_the_cluster(denying: EmbeddedKafka) -> None:
    topic = topics_of(denying)()
    denying.deny("WRITE", "TOPIC", topic)
    denying.deny("CREATE", "CLUSTER")
    admin = AdminClient({"bootstrap.servers": denying.bootstrap_servers})

    (asked,) = admin.describe_topics(TopicCollection([topic]), include_authorized_operations=True).values()
    of_topic = set(asked.result(30).authorized_operations)
    of_cluster = set(admin.describe_cluster(include_authorized_operations=True).result(30).authorized_operations)

    assert AclOperation.WRITE not in of_topic
    assert {AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS} <= of_topic
    assert AclOperation.CREATE not in of_cluster
    assert AclOperation.IDEMPOTENT_WRITE in of_cluster


def test_asking_for_the_right_to_write_under_an_id_changes_nothing_of_it(denying: EmbeddedKafka) -> None:
    cluster = Cluster(ClientSettings((denying.bootstrap_servers,)))
    try:
        transactions = Transactions(cluster)
        identity = transactions.init_producer_id("p:0", 60_000)
        before = transactions.describe(["p:0"])

        assert rights.may_write_id(cluster, "p:0") is True
        assert rights.may_write_id(cluster, "p:1") is True
        denying.deny("WRITE", "TRANSACTIONAL_ID", "p:0")
        assert rights.may_write_id(cluster, "p:0") is False

        assert before["p:0"].identity == identity
        assert transactions.describe(["p:0"]) == before
        assert set(list_transactions(cluster)) == {"p:0"}
    finally:
        cluster.close()
