"""Somebody with WRITE on a topic and none on the pipeline's transactional ids, as the ledger's tests need him.

Owns: his ways to write: without a transaction, under whatever producer id; in a transaction of his own id.
Does not know: what he writes, what a test expects.
"""

from __future__ import annotations

from kafka_core.protocol import messages as m
from kafka_core.protocol.error_codes import Code, name_of
from kafka_core.values import NO_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, ProducerIdentity, TopicPartition
from pyspark_kafka_eos.client.asking import ask_leader
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.wire.produce import produce_request
from pyspark_kafka_eos.client.wire.versions import Versions
from pyspark_kafka_eos.client.writing.appending import append, one_record
from pyspark_kafka_eos.client.writing.delivery import stamper
from pyspark_kafka_eos.client.writing.producer import Producer
from pyspark_kafka_eos.records import frame, pack
from tests.pyspark_kafka_eos.commit.fakes import NodeCluster, World

HIS_ID = "evil:driver"
"""A pipeline's id that is his."""

NOBODY = ProducerIdentity(NO_PRODUCER_ID, NO_EPOCH)


def put(
    cluster: Cluster,
    where: TopicPartition,
    key: bytes,
    value: bytes | None,
    identity: ProducerIdentity = NOBODY,
    compression: str = "none",
) -> None:
    """A record without a transaction, the first one under this identity."""
    batch = frame(
        one_record(key, value),
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        base_sequence=NO_SEQUENCE if identity == NOBODY else 0,
        transactional=False,
        compression=compression,
    )
    append(cluster, where, batch, what="a record of somebody else", grant="")


def put_into(
    cluster: Cluster, his: str, where: TopicPartition, key: bytes, value: bytes | None, mine: ProducerIdentity, at: int
) -> None:
    """A record in the open transaction of somebody else's identity, the next one at sequence `at`, by leave of a
    transactional id of his own: a broker asks no coordinator while that transaction is open.
    """
    batch = frame(
        one_record(key, value),
        producer_id=mine.producer_id,
        producer_epoch=mine.epoch,
        base_sequence=at,
        transactional=True,
        compression="gzip",
    )

    def build(versions: Versions) -> m.Message:
        version = versions.of(m.ProduceRequest, cluster.transaction_version)
        return produce_request(version, his, 30_000, [(where.topic, where.partition, batch)])

    def judge(answer: m.Message) -> None:
        (code,) = [each.error_code for topic in answer.responses for each in topic.partition_responses]
        assert code == Code.NONE, name_of(code)

    cluster.topic(where.topic)
    ask_leader(cluster, where, lambda: build, judge, deadline_ms=30_000, late=lambda last: None)


# ---- his ways to write into the ledger of a world, with a client of his own


def plainly(world: World, key: bytes, value: bytes | None) -> None:
    """As any producer does."""
    put(NodeCluster(world.kafka), world.where, key, value)


def in_a_transaction_of_his_own(world: World, key: bytes, value: bytes | None) -> None:
    """Committed."""
    his = begun(NodeCluster(world.kafka), HIS_ID)
    send(his, world.where, key, value)
    his.commit()


def left_open(world: World, key: bytes, value: bytes | None) -> None:
    """In a transaction of his own that does not end."""
    send(begun(NodeCluster(world.kafka), HIS_ID), world.where, key, value)


def begun(cluster: Cluster, name: str) -> Producer:
    """A producer of this id with a transaction in which nothing is yet."""
    producer = Producer(cluster, name)
    producer.initialize()
    producer.begin()
    return producer


def send(
    producer: Producer,
    where: TopicPartition,
    key: bytes,
    value: bytes | None,
    identity: ProducerIdentity | None = None,
) -> None:
    """A record in the producer's transaction, under its own identity or another one; returns when it is
    acknowledged.
    """
    batch = pack(one_record(key, value), transactional=True, compression="none", max_batch_bytes=None)
    producer.send(where, 1, stamper(batch, identity or producer.identity))
    producer.flush()
