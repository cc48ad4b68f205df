"""A query from one topic to another that is followed by its consumer group.

Owns: the source's records, the query, what librdkafka says of the group.
Does not know: who else follows it, what must come out.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from pyspark_kafka_eos import ExactlyOnceWriter
from tests.conftest import topics_of
from tests.support.brokers import AnyKafka

RECORDS = 25
LIMIT = 10
TIMEOUT_S = 240


class Job:
    """A query from one topic to another, and what librdkafka says of its group."""

    def __init__(self, spark: SparkSession, kafka: AnyKafka, checkpoint: Path) -> None:
        self.spark = spark
        self.servers = {"bootstrap.servers": kafka.bootstrap_servers}
        self.options = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
        self.source, self.target = topics_of(kafka)(partitions=2), topics_of(kafka)(partitions=2)
        self.pipeline = f"p-{self.target}"
        self.checkpoint = checkpoint
        producer = Producer(self.servers)
        for number in range(RECORDS):
            producer.produce(self.source, str(number), partition=number % 2)
        producer.flush()

    def start(self, checkpoint: Path | None = None) -> StreamingQuery:
        rows = (
            self.spark.readStream.format("kafka_eos")
            .options(**self.options, subscribe=self.source, startingOffsets="earliest")
            .option("maxOffsetsPerTrigger", LIMIT)
            .load()
        )
        writer = ExactlyOnceWriter({**self.options, "topic": self.target, "pipeline": self.pipeline})
        return (
            rows.select("key", "value")
            .writeStream.queryName(self.target)
            .foreachBatch(writer)
            .option("checkpointLocation", str(checkpoint or self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )

    def run(self) -> StreamingQuery:
        query = self.start()
        assert query.awaitTermination(TIMEOUT_S)
        return query

    def group(self) -> list[tuple[int, int, int]]:
        """(committed by the query's group, last stable offset, end) of each partition, as any lag tool finds them."""
        found = []
        settings = {**self.servers, "group.id": self.pipeline}
        with (
            closing(Consumer({**settings, "isolation.level": "read_committed"})) as committed,
            closing(Consumer({**settings, "isolation.level": "read_uncommitted"})) as everything,
        ):
            partitions = [TopicPartition(self.source, number) for number in (0, 1)]
            for each in committed.committed(partitions, timeout=TIMEOUT_S):
                stable = committed.get_watermark_offsets(each, timeout=TIMEOUT_S)[1]
                found.append((each.offset, stable, everything.get_watermark_offsets(each, timeout=TIMEOUT_S)[1]))
        return found
