"""The end of the jobs that write to Kafka: how the options choose the way in, and what is refused before the start."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient

from kafka_core.errors import ExactlyOnceError
from pyspark_kafka_eos.jobs.config import WritesKafka
from pyspark_kafka_eos.jobs.to_kafka import to_kafka
from spark_jobs.proof import read_all
from tests.conftest import MakeTopic
from tests.support.brokers import AnyKafka

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

ROWS = 40


def config(kafka: AnyKafka, directory: Path, written: str, **more: Any) -> WritesKafka:
    """A job's configuration that writes to this topic."""
    return WritesKafka.model_validate(
        {
            "app_name": "test",
            "kafka": {"bootstrap.servers": kafka.bootstrap_servers},
            "sink": {"topic": written, "pipeline": f"p-{os.getpid()}-{written}", **more},
            "checkpoint_location": (directory / "checkpoint").as_uri(),
        }
    )


def numbers(spark: SparkSession, directory: Path) -> DataFrame:
    """A stream of two micro-batches with the numbers from 0 on, in a column `value`."""
    files = directory / "input"
    files.mkdir()
    for part in range(2):
        path = files / f"{part}.txt"
        path.write_text("\n".join(str(part * ROWS // 2 + row) for row in range(ROWS // 2)))
        # Spark takes files by their times, and those of one millisecond in any order.
        os.utime(path, (1_700_000_000 + part,) * 2)
    return spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(files))


@pytest.mark.long
@pytest.mark.parametrize(
    ("options", "way"),
    [
        pytest.param({}, "PythonTable", id="by format"),
        pytest.param({"transaction.scope": "batch"}, "ForeachBatchSink", id="one transaction for the batch"),
    ],
)
def test_every_row_is_in_the_topic_once_whichever_way_its_options_need(
    spark: SparkSession, kafka: AnyKafka, topic: MakeTopic, tmp_path: Path, options: dict[str, str], way: str
) -> None:
    written = topic(partitions=2)
    job = config(kafka, tmp_path, written, **options)

    query = (
        to_kafka(numbers(spark, tmp_path), job)
        .option("checkpointLocation", job.checkpoint_location)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()

    found = read_all(kafka.bootstrap_servers, written, "read_committed")
    assert Counter(int(value or b"") for _, value in found) == Counter(range(ROWS))
    progress = query.lastProgress
    assert progress is not None
    assert way in json.loads(progress.json)["sink"]["description"]


def test_a_topic_that_is_not_there_is_refused_before_there_is_a_query(
    spark: SparkSession, kafka: AnyKafka, tmp_path: Path
) -> None:
    absent = f"absent-{os.getpid()}"

    with pytest.raises(ExactlyOnceError, match=absent):
        to_kafka(numbers(spark, tmp_path), config(kafka, tmp_path, absent))

    assert spark.streams.active == []
    assert absent not in AdminClient({"bootstrap.servers": kafka.bootstrap_servers}).list_topics(timeout=60).topics
