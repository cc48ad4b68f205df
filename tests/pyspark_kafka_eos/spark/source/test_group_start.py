"""A query whose checkpoint is lost goes on from the group that its sink has committed to: every record once."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from tests.conftest import MakeTopic
from tests.pyspark_kafka_eos.commit.judge import messages_of
from tests.support.brokers import AnyKafka

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

_STARTS = 5
"""Spark gives a new Python worker 10 s to answer, which it does not on a machine that does much else."""


def write(kafka: AnyKafka, topic: str, numbers: range) -> None:
    """Add numbered records."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": "0"})
    for number in numbers:
        producer.produce(topic, b"%d" % number)
    assert producer.flush(30) == 0


def copy(spark: SparkSession, kafka: AnyKafka, source: dict[str, str], sink: dict[str, str], checkpoint: Path) -> None:
    """Run a query over all records that are there."""
    servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    rows = spark.readStream.format("kafka_eos").options(**servers, **source).load()
    writer = (
        rows.select("value")
        .writeStream.format("kafka_eos")
        .options(**servers, **sink)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
    )
    for _ in range(_STARTS):
        try:
            assert writer.start().awaitTermination(600)
            return
        except StreamingQueryException as error:
            if "failed to connect back" not in str(error):
                raise
    raise AssertionError("no Python worker answers Spark in time")


def test_a_query_with_a_new_checkpoint_goes_on_where_its_pipelines_group_is(
    spark: SparkSession, kafka: AnyKafka, topic: MakeTopic, tmp_path: Path
) -> None:
    given, output = topic(2), topic(2)
    source, sink = {"subscribe": given}, {"topic": output, "pipeline": f"p-{output}"}
    write(kafka, given, range(10))
    copy(spark, kafka, {**source, "startingOffsets": "earliest"}, sink, tmp_path / "lost")
    write(kafka, given, range(10, 15))

    copy(
        spark,
        kafka,
        {**source, "startingOffsets": "group", "kafka.group.id": sink["pipeline"]},
        {**sink, "adopt.checkpoint": "true"},
        tmp_path / "new",
    )

    values = [message.value() for message in messages_of(kafka, output)]
    assert sorted(map(int, values)) == list(range(15))
