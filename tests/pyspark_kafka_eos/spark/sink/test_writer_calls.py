"""The writer called more than once for a micro-batch, by one function or one writer object."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as sf

from kafka_core.errors import InvalidRow, PipelineConflict
from pyspark_kafka_eos import ExactlyOnceWriter
from tests.pyspark_kafka_eos.spark.sink.test_writer import newest_decision
from tests.pyspark_kafka_eos.spark.sink.test_writer_resume import found, open_ids
from tests.support.brokers import AnyKafka

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

Function = Callable[[Any, int], None]


@pytest.fixture
def run(spark, tmp_path: Path) -> Callable[..., str]:
    """run(function, batches=1): a query that calls it with 10 rows a batch, 0 to 9 first; what Spark says, "" for
    nothing.
    """

    def call(function: Function, batches: int = 1) -> str:
        numbers = tmp_path / "input"
        numbers.mkdir(exist_ok=True)
        for batch in range(batches):
            text = "\n".join(str(number) for number in range(batch * 10, batch * 10 + 10))
            file = numbers / f"{batch}.txt"
            if not file.exists():
                file.write_text(text)
                # Spark takes files by their times, and those of one millisecond in any order.
                os.utime(file, (1_700_000_000 + batch,) * 2)
        query = (
            spark.readStream.format("text")
            .option("maxFilesPerTrigger", 1)
            .load(str(numbers))
            .repartition(2, "value")
            .writeStream.foreachBatch(function)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(300)
        except StreamingQueryException as error:
            return str(error)
        finally:
            query.stop()
        return ""

    return call


def low(frame: Any) -> Any:
    return frame.where(sf.col("value").cast("int") < 5)


def high(frame: Any) -> Any:
    return frame.where(sf.col("value").cast("int") >= 5)


LOW = Counter(str(number) for number in range(5))
ALL = Counter(str(number) for number in range(10))


def options_of(kafka: AnyKafka, topic: str, **more: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "topic": topic,
        "pipeline": f"p-{topic}",
        **more,
    }


@pytest.mark.parametrize("scope", ["task", "batch"])
@pytest.mark.parametrize("writers", [1, 2])
def test_a_second_call_for_a_batch_is_refused_before_it_writes_and_says_what_to_do(
    run, read_topic, topic, kafka: AnyKafka, scope: str, writers: int
) -> None:
    name = topic()
    options = options_of(kafka, name, **{"transaction.scope": scope})
    first = ExactlyOnceWriter(options)
    second = first if writers == 1 else ExactlyOnceWriter(options)
    raised: list[BaseException] = []

    def write(frame: Any, batch_id: int) -> None:
        first(low(frame), batch_id)
        try:
            second(high(frame), batch_id)
        except BaseException as error:
            raised.append(error)
            raise

    said = run(write)

    assert "a second time" in said
    assert isinstance(raised[0], PipelineConflict)
    assert "pipeline of its own" in str(raised[0])
    assert "union" in str(raised[0])
    assert found(read_topic(name, "read_uncommitted")) == LOW
    assert newest_decision(kafka, f"p-{name}").records == 5
    assert open_ids(kafka, f"p-{name}") == []
    # Started again it is refused again, and still nothing is there twice.
    assert "a second time" in run(write)
    assert found(read_topic(name, "read_uncommitted")) == LOW


def test_frames_with_a_writer_and_a_pipeline_each_are_all_written(run, read_topic, topic, kafka: AnyKafka) -> None:
    one, two = topic(), topic()
    writers = [ExactlyOnceWriter(options_of(kafka, name)) for name in (one, two)]

    def write(frame: Any, batch_id: int) -> None:
        writers[0](low(frame), batch_id)
        writers[1](high(frame), batch_id)

    assert run(write, batches=2) == ""
    assert found(read_topic(one)) == LOW
    assert found(read_topic(two)) == Counter(str(number) for number in range(5, 20))


def test_a_call_after_one_that_raised_is_no_second_call(run, read_topic, topic, kafka: AnyKafka) -> None:
    name = topic()
    writer = ExactlyOnceWriter(options_of(kafka, name))

    def write(frame: Any, batch_id: int) -> None:
        with pytest.raises(InvalidRow):
            writer(frame.select("value", sf.lit(99).alias("partition")), batch_id)
        writer(frame, batch_id)

    assert run(write) == ""
    assert found(read_topic(name)) == ALL


def test_the_same_object_serves_the_query_when_it_is_started_again(run, read_topic, topic, kafka: AnyKafka) -> None:
    name = topic()
    writer = ExactlyOnceWriter(options_of(kafka, name))
    fail = [True]

    def write(frame: Any, batch_id: int) -> None:
        writer(frame, batch_id)
        if fail:
            fail.clear()
            raise RuntimeError("after the writer")

    assert "after the writer" in run(write)
    # Batch 0 again, in another run.
    assert run(write, batches=2) == ""
    assert found(read_topic(name)) == Counter(str(number) for number in range(20))


def test_at_least_once_a_second_call_writes_beside_the_first(run, read_topic, topic, kafka: AnyKafka) -> None:
    name = topic()
    # Every partition has its leader then.
    assert not read_topic(name)
    writer = ExactlyOnceWriter(options_of(kafka, name, **{"delivery.guarantee": "at-least-once"}))

    def write(frame: Any, batch_id: int) -> None:
        writer(low(frame), batch_id)
        writer(high(frame), batch_id)

    assert run(write) == ""
    assert found(read_topic(name)) == ALL
