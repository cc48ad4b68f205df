"""A timestamp column without a zone (TIMESTAMP_NTZ): written as Spark casts it to TIMESTAMP, in the session's zone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from pyspark_kafka_eos.records import instants, zone_of
from pyspark_kafka_eos.spark.sink.rows import SESSION_ZONE
from tests.pyspark_kafka_eos.spark.sink.sink_query import run_sink
from tests.support.brokers import AnyKafka

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

Way = Callable[..., None]

SUMMER = 1_720_022_400_000
"""2024-07-03 16:00 in UTC, which is noon in New York."""


@contextmanager
def session_zone(spark: SparkSession, name: str | None) -> Iterator[None]:
    before = spark.conf.get(SESSION_ZONE)
    if name is None:
        spark.conf.unset(SESSION_ZONE)
    else:
        spark.conf.set(SESSION_ZONE, name)
    try:
        yield
    finally:
        spark.conf.set(SESSION_ZONE, before)


def at_noon(frame: DataFrame) -> DataFrame:
    """The rows with the same local time, the last of them for a partition that does not exist."""
    return frame.select(
        "value",
        sf.expr("timestamp_ntz'2024-07-03 12:00:00'").alias("timestamp"),
        sf.when(sf.col("value") == "9", 99).cast("int").alias("partition"),
    )


@pytest.fixture
def write(spark: SparkSession, kafka: AnyKafka, tmp_path: Path) -> Callable[[str, dict[str, Any]], str]:
    """write(way, options): writes the rows 0 to 9 of `at_noon`; what Spark says of a failure, "" without one."""

    def call(way: str, options: dict[str, Any]) -> str:
        complete = {"kafka.bootstrap.servers": kafka.bootstrap_servers, **options}
        if way != "df.write":
            return run_sink(spark, tmp_path, complete, at_noon, way=way)
        numbers = spark.range(10).select(sf.col("id").cast("string").alias("value"))
        try:
            at_noon(numbers).write.format("kafka_eos").options(**complete).mode("append").save()
        except Exception as error:  # noqa: BLE001 -- Spark's own, with ours in its text
            return str(error)
        return ""

    return call


@pytest.mark.versions
@pytest.mark.parametrize(("way", "scope"), [("foreachBatch", "batch"), ("format", "task"), ("df.write", "batch")])
def test_a_local_time_is_written_and_buried_as_the_instant_of_the_sessions_zone(
    spark: SparkSession, write, topic, read_topic, way: str, scope: str
) -> None:
    good, dead = topic(), topic()
    options = {"topic": good, "pipeline": f"p-{good}", "dead.letter.topic": dead, "transaction.scope": scope}

    with session_zone(spark, "America/New_York"):
        assert write(way, options) == ""

    assert [message.timestamp()[1] for message in read_topic(good)] == [SUMMER] * 9
    (letter,) = read_topic(dead)
    assert dict(letter.headers())["kafka_eos.error.timestamp_ms"] == str(SUMMER).encode()


def test_where_the_session_sets_no_zone_the_driver_tells_it_or_the_rows_are_refused(
    spark: SparkSession, write, topic, read_topic
) -> None:
    told, untold = topic(), topic()

    with session_zone(spark, None):
        # The JVM's own.
        expected = spark.sql("select unix_millis(cast(timestamp_ntz'2024-07-03 12:00:00' as timestamp))").first()[0]
        assert write("foreachBatch", {"topic": told, "pipeline": f"p-{told}", "dead.letter.topic": topic()}) == ""
        refused = write("df.write", {"topic": untold, "pipeline": f"p-{untold}"})

    assert {message.timestamp()[1] for message in read_topic(told)} == {expected}
    assert f"set {SESSION_ZONE}, or cast the column: cast(timestamp as timestamp)" in refused
    assert list(read_topic(untold)) == []


@pytest.mark.versions
@pytest.mark.parametrize(
    "zone",
    ["America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Monrovia", "Africa/Casablanca", "Asia/Tehran", "EST", "UTC+1"],
)  # fmt: skip
def test_every_quarter_of_an_hour_is_what_sparks_own_cast_makes_of_it(spark: SparkSession, zone: str) -> None:
    quarters = 366 * 24 * 4
    years = " union all ".join(
        f"select timestamp_micros({int(np.datetime64(str(year), 'us').astype(int))}L + id * 900000000L) at"
        f" from range({quarters})"
        for year in (1970, 1972, 2011, 2024, 2038, 2150)
    )
    with session_zone(spark, "UTC"):
        spark.sql(years).selectExpr("cast(at as timestamp_ntz) as local").createOrReplaceTempView("quarters")
    with session_zone(spark, zone):
        table = spark.sql("select local, unix_micros(cast(local as timestamp)) utc from quarters").toArrow()

    local = table.column("local").cast(pa.timestamp("us")).cast(pa.int64()).to_numpy()
    assert np.array_equal(instants(local, zone_of(zone)), table.column("utc").to_numpy())
