"""What a broker lets somebody write under a producer id that is not his, and so when a record of the ledger counts.

On whatever broker the tests are given. Source: KIP-890 (the check of a transaction's first batch, from 3.6 on), KIP-98
(duplicates by producer id, epoch and sequence).
"""

from __future__ import annotations

import pytest

from kafka_core.errors import AbortableError, ExactlyOnceError
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.writing.appending import append, one_record
from pyspark_kafka_eos.client.writing.delivery import stamper
from pyspark_kafka_eos.client.writing.producer import Producer
from pyspark_kafka_eos.commit.ledger.arrived import require_arrived
from pyspark_kafka_eos.model import ClientSettings
from pyspark_kafka_eos.records import frame, pack
from tests.conftest import MakeTopic
from tests.support.brokers import AnyKafka

pytestmark = pytest.mark.kafka


def begun(cluster: Cluster, name: str) -> Producer:
    producer = Producer(cluster, name)
    producer.initialize()
    producer.begin()
    return producer


def send(producer: Producer, where: TopicPartition, value: bytes, of: Producer | None = None) -> None:
    batch = pack(one_record(b"key", value), transactional=True, compression="none", max_batch_bytes=None)
    producer.send(where, 1, stamper(batch, (of or producer).identity))
    producer.flush()


def without_a_transaction(cluster: Cluster, where: TopicPartition, of: Producer) -> None:
    batch = frame(
        one_record(b"key", b"somebody else's"),
        producer_id=of.identity.producer_id,
        producer_epoch=of.identity.epoch,
        base_sequence=0,
        transactional=False,
        compression="none",
    )
    append(cluster, where, batch, what="a record of somebody else", grant="")


@pytest.fixture
def cluster(kafka: AnyKafka) -> Cluster:
    return Cluster.shared(ClientSettings((kafka.bootstrap_servers,)))


def test_an_acknowledged_duplicate_of_somebody_elses_record_is_not_taken_for_written(
    cluster: Cluster, topic: MakeTopic
) -> None:
    where = TopicPartition(topic(1), 0)
    mine = begun(cluster, f"{where.topic}:driver")
    without_a_transaction(cluster, where, mine)
    send(mine, where, b"mine")  # acknowledged

    with pytest.raises(AbortableError, match="has acknowledged what"):
        require_arrived(mine, where.topic)

    mine.abort()


def test_what_was_written_has_arrived(cluster: Cluster, topic: MakeTopic) -> None:
    where = TopicPartition(topic(1), 0)
    mine = begun(cluster, f"{where.topic}:driver")
    send(mine, where, b"mine")

    require_arrived(mine, where.topic)

    mine.commit()


def test_nobody_writes_in_a_transaction_under_the_producer_id_of_another_id(cluster: Cluster, topic: MakeTopic) -> None:
    where = TopicPartition(topic(1), 0)
    mine = begun(cluster, f"{where.topic}:driver")
    his = begun(cluster, f"evil-{where.topic}")

    with pytest.raises(ExactlyOnceError):
        send(his, where, b"his", of=mine)

    his.abort()
    mine.abort()
