"""Streaming queries from Kafka to Kafka for the tests of the source: made, run to their end, and judged from outside.

Owns: writing input, running a query in either way of writing, what an independent reader and the group say afterwards.
Does not know: what a test expects.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Place
from pyspark.errors import StreamingQueryException

from pyspark_kafka_eos import ExactlyOnceWriter
from tests.support.brokers import AnyKafka

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TIMEOUT_S = 300


def produce(kafka: AnyKafka, topic: str, partition: int, values: range, **more: Any) -> None:
    """Add a record for each number."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": "0"})
    for number in values:
        producer.produce(topic, b"%d" % number, partition=partition, **more)
    assert producer.flush(30) == 0


def stream_of(spark: SparkSession, kafka: AnyKafka, name: str = "", **options: Any) -> DataFrame:
    """A source from its earliest offsets, unless the options say something else."""
    reader = spark.readStream.format("kafka_eos").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    if name:
        reader = reader.name(name)
    for option, value in {"startingOffsets": "earliest", **options}.items():
        if value is not None:
            reader = reader.option(option, value)
    return reader.load()


def start(stream: DataFrame, way: str, options: Mapping[str, Any], checkpoint: Path, **trigger: Any) -> Any:
    """Start a query that copies values; `way`: format or foreachBatch."""
    rows = stream.select("value")
    writer = rows.writeStream.option("checkpointLocation", str(checkpoint))
    if trigger:
        writer = writer.trigger(**trigger)
    if way == "foreachBatch":
        writer = writer.foreachBatch(ExactlyOnceWriter(options))
    else:
        writer = writer.format("kafka_eos")
        for option, value in options.items():
            writer = writer.option(option, value)
    return writer.start()


def run(stream: DataFrame, way: str, options: Mapping[str, Any], checkpoint: Path, **trigger: Any) -> str:
    """The same to its end; what Spark says of its failure, empty where it did not fail."""
    query = start(stream, way, options, checkpoint, **(trigger or {"availableNow": True}))
    try:
        assert query.awaitTermination(TIMEOUT_S), "the query came to no end"
    except StreamingQueryException as error:
        return str(error)
    finally:
        query.stop()
    return ""


def sink(kafka: AnyKafka, topic: str, **more: Any) -> dict[str, Any]:
    """The sink's options; the pipeline is named after the topic."""
    return {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "topic": topic,
        "pipeline": f"p-{topic}",
        **more,
    }


def committed(kafka: AnyKafka, group: str, topic: str, partitions: int = 1) -> list[int | None]:
    """What the group has committed of each partition, None where nothing."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group, "log_level": "0"})
    try:
        places = consumer.committed([Place(topic, number) for number in range(partitions)], timeout=30)
        return [place.offset if place.offset >= 0 else None for place in places]
    finally:
        consumer.close()


def values(messages: list[Any]) -> list[int]:
    """The numbers in the messages, in order."""
    return sorted(int(message.value()) for message in messages)
