"""A topic whose records are kept in a store that is slower than its broker waits: every record is read, in a batch and
in a stream.

Kafka answers such a Fetch without records and without an error (KIP-405; from 3.8 on after remote.fetch.max.wait.ms).
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from embedded_kafka.embedded import EmbeddedKafka
from embedded_kafka.real import LocalKafka
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.reading.fetcher import Fetcher, OffsetRange
from pyspark_kafka_eos.client.reading.offsets import Offsets
from pyspark_kafka_eos.model import ClientSettings
from tests.conftest import MakeTopic
from tests.pyspark_kafka_eos.client.fetcher.conftest import Writers, write
from tests.support.brokers import AnyKafka

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

TIERED_KAFKA = "4.1.1"
MANY = 40_000
_WAIT_S = 60


def read_as_batch(spark: SparkSession, kafka: AnyKafka, topic: str) -> list[int]:
    """The offsets that `spark.read` finds, in order."""
    frame = (
        spark.read.format("kafka_eos")
        .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        .option("subscribe", topic)
        .load()
    )
    return sorted(row.offset for row in frame.select("offset").collect())


def read_as_stream(spark: SparkSession, kafka: AnyKafka, topic: str, checkpoint: Path) -> list[int]:
    """The offsets that a query finds in what is there, in order."""
    found: list[int] = []

    def take(frame: DataFrame, _batch_id: int) -> None:
        found.extend(row.offset for row in frame.select("offset").collect())

    stream = (
        spark.readStream.format("kafka_eos")
        .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    query = stream.writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint)).start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    return sorted(found)


@pytest.mark.embedded
def test_records_that_come_late_are_read_by_a_batch_and_by_a_stream(
    kafka: EmbeddedKafka, spark: SparkSession, topic: MakeTopic, tmp_path: Path
) -> None:
    plain = Writers(kafka.bootstrap_servers).plain()
    name, other = topic(1), topic(1)
    for each in (name, other):
        for number in range(40):
            write(plain, each, 0, [{"value": b"%d" % number}])
    late = [
        kafka.fault_in_answer("Fetch", "slow-store", topic=each, below=30, delay_ms=1_500) for each in (name, other)
    ]

    assert read_as_batch(spark, kafka, name) == list(range(40))
    assert read_as_stream(spark, kafka, other, tmp_path) == list(range(40))
    assert all(fault.fired > 0 for fault in late)


@pytest.mark.real
def test_every_record_of_tiered_storage_is_read_though_every_remote_fetch_expires(
    spark: SparkSession, tmp_path: Path
) -> None:
    config = {"remote.fetch.max.wait.ms": "1"}
    with LocalKafka(TIERED_KAFKA, tiered=True, fast_start=True, config=config) as tiered:
        fill_remotely(tiered, "t")
        where = TopicPartition("t", 0)
        cluster = Cluster(ClientSettings((tiered.bootstrap_servers,)))
        try:
            fetcher = CountingFetcher(cluster)
            end = Offsets(cluster).ends([where])[where]
            offsets = [
                at
                for batch in fetcher.read_ranges([OffsetRange(where, 0, end.offset, end.log)])
                for at in batch.column("offset").to_pylist()
            ]
        finally:
            cluster.close()

        assert fetcher.empty > 0  # the event was played
        assert offsets == list(range(MANY))
        assert read_as_batch(spark, tiered, "t") == list(range(MANY))
        assert read_as_stream(spark, tiered, "t", tmp_path) == list(range(MANY))


class CountingFetcher(Fetcher):
    """Counts the answers that had nothing although there was something."""

    empty = 0

    def _is_empty(self, each: object) -> None:
        self.empty += 1
        super()._is_empty(each)  # type: ignore[arg-type]


def fill_remotely(kafka: LocalKafka, name: str) -> None:
    """A topic with MANY records, all of them in the remote store and none on the broker's own disk."""
    settings = {
        "remote.storage.enable": "true", "segment.bytes": str(1024 * 1024), "local.retention.ms": "1",
        "retention.ms": "-1", "file.delete.delay.ms": "0",
    }  # fmt: skip
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    for made in admin.create_topics([NewTopic(name, 1, config=settings)]).values():
        made.result(_WAIT_S)
    plain = Writers(kafka.bootstrap_servers).plain()
    for first in range(0, MANY, 1000):
        write(plain, name, 0, [{"value": b"%0100d" % number} for number in range(first, first + 1000)])
    local = kafka.data_dir / "broker-0" / f"{name}-0"
    deadline = time.monotonic() + _WAIT_S
    while [path.stem for path in local.glob("*.log")] != [f"{MANY:020}"]:
        assert time.monotonic() < deadline, "the segments did not go to the remote store"
        time.sleep(0.1)
