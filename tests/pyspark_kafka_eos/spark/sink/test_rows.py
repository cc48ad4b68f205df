"""Which columns of a frame become records, and when Spark need not make another plan for that."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from pyspark_kafka_eos.spark.sink.rows import select_columns

pytestmark = [pytest.mark.spark, pytest.mark.versions]


@pytest.mark.parametrize(
    "schema",
    [
        "value string",
        "key binary, value string",
        "key string, value binary, headers array<struct<key:string,value:binary>>, partition int, timestamp timestamp",
    ],
)
def test_a_frame_of_just_these_columns_is_taken_as_it_is(spark: SparkSession, schema: str) -> None:
    frame = spark.createDataFrame([], schema)

    assert select_columns(frame, "t") is frame


@pytest.mark.parametrize(
    ("schema", "columns"),
    [
        ("value string, key string", ["key", "value"]),
        ("VALUE string", ["value"]),
        ("value string, other int", ["value"]),
        ("value string, topic string", ["value"]),
    ],
)
def test_other_columns_and_another_order_are_put_right(spark: SparkSession, schema: str, columns: list[str]) -> None:
    frame = spark.createDataFrame([], schema)

    assert select_columns(frame, "t").columns == columns
    assert "topic" in select_columns(spark.createDataFrame([], "value string, topic string"), None).columns
