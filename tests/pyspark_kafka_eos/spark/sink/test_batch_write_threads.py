"""`df.write` from a thread of a pool: what Spark does by itself there, and the way that docs/writing.md names."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conftest import MakeTopic
from tests.pyspark_kafka_eos.spark.source.source_query import sink, values
from tests.support.brokers import AnyKafka

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.versions]

WRITING = Path(__file__).parents[4] / "docs" / "writing.md"


def test_dataframes_are_written_from_threads_of_a_pool_whose_session_is_made_the_active_one(
    kafka: AnyKafka, spark: SparkSession, topic: MakeTopic, read_topic
) -> None:
    names = [topic(1), topic(1)]
    frame = spark.range(5).selectExpr("cast(cast(id as string) as binary) as value")

    def save(name: str) -> None:
        # This very line is in the document.
        frame.sparkSession.createDataFrame([], "none int")
        frame.write.format("kafka_eos").mode("append").options(**sink(kafka, name)).save()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(save, names))

    assert [values(read_topic(name)) for name in names] == [list(range(5))] * 2
    assert 'frame.sparkSession.createDataFrame([], "none int")' in WRITING.read_text()


def test_without_it_spark_does_not_find_the_format_and_nothing_is_written(
    kafka: AnyKafka, spark: SparkSession, topic: MakeTopic, read_topic
) -> None:
    name = topic(1)
    frame = spark.range(5).selectExpr("cast(cast(id as string) as binary) as value")

    def save() -> None:
        frame.write.format("kafka_eos").mode("append").options(**sink(kafka, name)).save()

    # Where a later Spark finds it here too, the document's paragraph has become needless.
    with ThreadPoolExecutor(1) as pool, pytest.raises(Exception, match="DATA_SOURCE_NOT_FOUND"):
        pool.submit(save).result()

    assert read_topic(name, "read_uncommitted") == []
