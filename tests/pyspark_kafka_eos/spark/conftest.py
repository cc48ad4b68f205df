"""A streaming query over made-up rows, run to its end, and what an independent reader then finds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from pyspark_kafka_eos import ExactlyOnceWriter
from tests.pyspark_kafka_eos.commit.judge import messages_of
from tests.support.brokers import AnyKafka

Shape = Callable[[DataFrame], DataFrame]


@dataclass
class Outcome:
    """How a query ended: what the writer raised, what Spark said of it, and how many batches were written."""

    raised: BaseException | None = None
    spark_says: str = ""
    reports: list[Any] = field(default_factory=list)


class Enough(Exception):
    """Ends a query after the batches that a test wants."""


@pytest.fixture
def run_query(spark: SparkSession, kafka: AnyKafka, tmp_path: Path) -> Callable[..., Outcome]:
    """run_query(shape, options, batches=1, rows=10, partitions=2, checkpoint=None): runs `batches` micro-batches of a
    source whose rows are (timestamp, value: long counting from 0), shaped by `shape` into the columns to write."""

    def run(
        shape: Shape,
        options: Mapping[str, Any],
        *,
        batches: int = 1,
        rows: int = 10,
        partitions: int = 2,
        checkpoint: str | None = None,
    ) -> Outcome:
        outcome = Outcome()
        writer = ExactlyOnceWriter({"kafka.bootstrap.servers": kafka.bootstrap_servers, **options})
        left = batches

        def write(frame: DataFrame, batch_id: int) -> None:
            nonlocal left
            if left == 0:
                # Returning would tell Spark that this batch is done.
                raise Enough
            try:
                writer(frame, batch_id)
            except BaseException as error:
                outcome.raised = error
                raise
            outcome.reports.append(writer.last_report)
            left -= 1

        source = (
            spark.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", rows)
            .option("numPartitions", partitions)
            .load()
        )
        query = (
            shape(source)
            .writeStream.foreachBatch(write)
            .option("checkpointLocation", checkpoint or str(tmp_path / "checkpoint"))
            .start()
        )
        try:
            query.awaitTermination(120)
        except StreamingQueryException as error:
            outcome.spark_says = str(error)
        finally:
            query.stop()
        return outcome

    return run


@pytest.fixture
def read_topic(kafka: AnyKafka) -> Callable[..., list[Message]]:
    """read_topic(topic, isolation="read_committed"): every message of a topic that librdkafka shows."""

    def read(topic: str, isolation: str = "read_committed") -> list[Message]:
        return messages_of(kafka, topic, isolation)

    return read
