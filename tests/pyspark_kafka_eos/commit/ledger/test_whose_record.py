"""What a broker lets somebody write under a producer id that is not his, and so when a record of the ledger counts.

On whatever broker the tests are given. Source: KIP-890 (the check of a transaction's first batch, from 3.6 on), KIP-98
(duplicates by producer id, epoch and sequence).
"""

from __future__ import annotations

import pytest

from kafka_core.errors import AbortableError, ExactlyOnceError
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.commit.ledger.arrived import require_arrived
from pyspark_kafka_eos.model import ClientSettings
from tests.conftest import MakeTopic
from tests.pyspark_kafka_eos.commit.stranger import begun, put, send
from tests.support.brokers import AnyKafka

pytestmark = pytest.mark.kafka


@pytest.fixture
def cluster(kafka: AnyKafka) -> Cluster:
    return Cluster.shared(ClientSettings((kafka.bootstrap_servers,)))


def test_an_acknowledged_duplicate_of_somebody_elses_record_is_not_taken_for_written(
    cluster: Cluster, topic: MakeTopic
) -> None:
    where = TopicPartition(topic(1), 0)
    mine = begun(cluster, f"{where.topic}:driver")
    put(cluster, where, b"key", b"somebody else's", mine.identity)
    send(mine, where, b"key", b"mine")  # acknowledged

    with pytest.raises(AbortableError, match="has acknowledged what"):
        require_arrived(mine, where.topic)

    mine.abort()


def test_what_was_written_has_arrived(cluster: Cluster, topic: MakeTopic) -> None:
    where = TopicPartition(topic(1), 0)
    mine = begun(cluster, f"{where.topic}:driver")
    send(mine, where, b"key", b"mine")

    require_arrived(mine, where.topic)

    mine.commit()


def test_nobody_writes_in_a_transaction_under_the_producer_id_of_another_id(cluster: Cluster, topic: MakeTopic) -> None:
    where = TopicPartition(topic(1), 0)
    mine = begun(cluster, f"{where.topic}:driver")
    his = begun(cluster, f"evil-{where.topic}")

    with pytest.raises(ExactlyOnceError):
        send(his, where, b"key", b"his", mine.identity)

    his.abort()
    mine.abort()
