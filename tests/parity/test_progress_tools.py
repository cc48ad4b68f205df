"""Kafka's own tool sees how far a streaming query is, on every broker that is judged."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from tests.parity.brokers import Broker
from tests.parity.test_java_groups import offsets
from tests.pyspark_kafka_eos.spark.follow import TIMEOUT_S, Job

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.parity]


def test_consumer_groups_shows_a_query_at_the_end_and_then_what_has_come_since(
    broker: Broker, spark: SparkSession, tmp_path: Path
) -> None:
    job = Job(spark, broker, tmp_path)

    job.run()
    assert offsets(broker, job.pipeline) == {0: ("13", "13", "0"), 1: ("12", "12", "0")}

    producer = Producer(job.servers)
    for _ in range(3):
        producer.produce(job.source, b"new", partition=1)
    assert producer.flush(TIMEOUT_S) == 0
    assert offsets(broker, job.pipeline) == {0: ("13", "13", "0"), 1: ("12", "15", "3")}
