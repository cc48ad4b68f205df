"""Somebody with WRITE on a topic and none on the pipeline's transactional ids, as the ledger's tests need him.

Owns: his ways to write: without a transaction, under whatever producer id; in a transaction of his own id.
Does not know: what he writes, what a test expects.
"""

from __future__ import annotations

from kafka_core.values import NO_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, ProducerIdentity, TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.writing.appending import append, one_record
from pyspark_kafka_eos.client.writing.delivery import stamper
from pyspark_kafka_eos.client.writing.producer import Producer
from pyspark_kafka_eos.records import frame, pack

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
    sequence: int | None = None,
) -> None:
    """A record in the producer's transaction, under its own identity and sequence or others; returns when it is
    acknowledged.
    """
    batch = pack(one_record(key, value), transactional=True, compression="none", max_batch_bytes=None)
    stamp = stamper(batch, identity or producer.identity)
    producer.send(where, 1, stamp if sequence is None else lambda _: stamp(sequence))
    producer.flush()
