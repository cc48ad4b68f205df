"""How many tasks Spark ran, as it says itself, and what becomes of a batch of which it lost one's result."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from pyspark_kafka_eos.spark.sink.tasks import tasks_of
from tests.pyspark_kafka_eos.spark.sink.test_writer_resume import open_ids

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

SHAPES: dict[str, Callable[[SparkSession], Any]] = {
    "plain": lambda spark: spark.range(0, 100, 1, 3),
    "empty": lambda spark: spark.range(10).where(sf.lit(False)),
    "coalesced by Spark": lambda spark: spark.range(0, 100, 1, 3).groupBy("id").count(),
    "repartitioned": lambda spark: spark.range(100).repartition(7),
    "sorted": lambda spark: spark.range(0, 1000, 1, 3).repartition(5, "id").sort("id"),
    "joined": lambda spark: spark.range(0, 100, 1, 3).join(sf.broadcast(spark.range(5)), "id"),
    "united": lambda spark: spark.range(0, 9, 1, 2).union(spark.range(0, 9, 1, 3)),
}


def one_row(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        pass
    yield pa.RecordBatch.from_pydict({"one": pa.array([1], pa.int32())})


@pytest.mark.versions
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_the_number_is_that_of_the_tasks_that_ran_and_asking_runs_nothing(
    spark: SparkSession, shape: Callable[[SparkSession], Any]
) -> None:
    group = "count the jobs"
    spark.sparkContext.setJobGroup(group, group)
    try:
        frame = shape(spark).mapInArrow(one_row, "one int")
        ran = len(frame.collect())
        jobs = len(spark.sparkContext.statusTracker().getJobIdsForGroup(group))

        assert tasks_of(frame) == ran

        assert len(spark.sparkContext.statusTracker().getJobIdsForGroup(group)) == jobs
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
        spark.sparkContext.setLocalProperty("spark.job.description", None)


def test_what_cannot_say_is_not_asked_further() -> None:
    assert tasks_of(object()) is None  # type: ignore[arg-type]


@pytest.mark.parametrize("scope", ["task", "batch"])
def test_a_batch_of_which_the_last_tasks_result_is_lost_is_not_decided(
    run_query, read_topic, topic, kafka, monkeypatch: pytest.MonkeyPatch, scope: str
) -> None:
    from pyspark.sql.classic.dataframe import DataFrame

    name = topic()
    lost: list[Any] = []
    collect = DataFrame.collect

    def collect_without_the_last(frame: Any) -> Any:
        rows = collect(frame)
        if not lost and frame.columns == ["slot", "seal", "failure"]:
            lost.append(rows.pop())
        return rows

    monkeypatch.setattr(DataFrame, "collect", collect_without_the_last)
    options = {"topic": name, "pipeline": f"p-{name}", "transaction.scope": scope}

    def value_only(source: Any) -> Any:
        return source.select(sf.col("value").cast("string").alias("value"))

    outcome = run_query(value_only, options)

    assert lost[0]["slot"] == 1
    assert "not every slot has its seal" in str(outcome.raised)
    assert read_topic(name) == []
    assert open_ids(kafka, f"p-{name}") == []
    assert run_query(value_only, options).raised is None
    assert sorted(int(message.value()) for message in read_topic(name)) == list(range(10))
