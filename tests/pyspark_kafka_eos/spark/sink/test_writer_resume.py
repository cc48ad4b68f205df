"""A batch that was decided and whose function raised before it returned: what the next start does with a query's
state.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark import TaskContext
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as sf
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from pyspark_kafka_eos import ExactlyOnceWriter, crash_points
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.requests.admin import list_transactions
from pyspark_kafka_eos.client.requests.transactions import Transactions
from pyspark_kafka_eos.model import ClientSettings
from tests.pyspark_kafka_eos.spark.sink.sink_query import write_input
from tests.support.brokers import AnyKafka

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

FILES = 6


class Stopped(Exception):
    """What the function raises after its writer has returned."""


def windows(numbers: Any) -> Any:
    """One window for each file, sent when the watermark has passed it."""
    at = numbers.select(sf.timestamp_seconds(sf.col("value").cast("long")).alias("at"))
    counted = at.withWatermark("at", "0 seconds").groupBy(sf.window("at", "10 seconds")).count()
    return counted.select(sf.concat_ws(" ", sf.col("window.start").cast("long"), sf.col("count")).alias("value"))


def distinct(numbers: Any) -> Any:
    """Four values, each of which comes in every file."""
    return numbers.select((sf.col("value").cast("int") % 4).cast("string").alias("value")).dropDuplicates()


def running(numbers: Any) -> Any:
    """How many rows of each of two keys there were so far."""

    def add(key: tuple[int], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        seen = (state.get[0] if state.exists else 0) + sum(len(frame) for frame in frames)
        state.update((seen,))
        yield pd.DataFrame({"value": [f"{key[0]} {seen}"]})

    keyed = numbers.select((sf.col("value").cast("int") % 2).alias("key"))
    return keyed.groupBy("key").applyInPandasWithState(
        add, "value string", "seen long", "update", GroupStateTimeout.NoTimeout
    )


@pytest.fixture
def run(spark, kafka: AnyKafka, tmp_path: Path) -> Callable[..., tuple[str, list[Any]]]:
    """run(shape, options, files, stop_after=None): what Spark says of the query, "" for nothing, and the writer's
    reports.
    `stop_after`: the function raises once this batch is written.
    """

    def call(
        shape: Callable[[Any], Any],
        options: dict[str, Any],
        *,
        stop_after: int | None = None,
        files: int = FILES,
        mode: str = "append",
    ) -> tuple[str, list[Any]]:
        write_input(tmp_path / "input", files, 10)
        for number, path in enumerate(sorted((tmp_path / "input").glob("*.txt"))):
            # Spark takes the oldest first; of two that are as old, either.
            os.utime(path, (1_700_000_000 + number,) * 2)
        reports: list[Any] = []
        writer = ExactlyOnceWriter({"kafka.bootstrap.servers": kafka.bootstrap_servers, **options})

        def write(frame: Any, batch_id: int) -> None:
            writer(frame, batch_id)
            reports.append(writer.last_report)
            if batch_id == stop_after:
                raise Stopped

        lines = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(tmp_path / "input"))
        query = (
            shape(lines.where(sf.length("value") > 0))
            .writeStream.foreachBatch(write)
            .outputMode(mode)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(300)
        except StreamingQueryException as error:
            return str(error), reports
        finally:
            query.stop()
        return "", reports

    return call


def open_ids(kafka: AnyKafka, pipeline: str, abort: Callable[[list[str]], list[str]] | None = None) -> list[str]:
    """The pipeline's transactions that are open; those of them that `abort` picks are aborted, as by a timeout."""
    cluster = Cluster(ClientSettings((kafka.bootstrap_servers,)))
    try:
        names = list_transactions(cluster, ["Ongoing"])
        found = sorted(name for name in names if name.startswith(pipeline + ":"))
        for name in abort(found) if abort else []:
            Transactions(cluster).init_producer_id(name, 60_000)
        return found
    finally:
        cluster.close()


@contextmanager
def decided_only() -> Iterator[None]:
    """The next batch that is decided fails before any of its transactions is ended."""
    fired = []

    def fail() -> None:
        fired.append(True)
        raise Stopped

    crash_points.arm("before-end", 1, fail)
    try:
        yield
    finally:
        crash_points.arm("")
    assert fired, "no batch was decided"


def found(messages: list[Any]) -> Counter[str]:
    return Counter(message.value().decode() for message in messages)


@pytest.mark.long
@pytest.mark.parametrize(
    ("shape", "mode", "expected"),
    [
        pytest.param(windows, "append", [f"{start} 10" for start in range(0, 50, 10)], id="windows"),
        pytest.param(distinct, "append", ["0", "1", "2", "3"], id="duplicates"),
        pytest.param(running, "update", [f"{key} {seen}" for key in (0, 1) for seen in range(5, 35, 5)], id="pandas"),
    ],
)
def test_a_query_with_state_goes_on_as_if_the_function_had_returned(
    run, read_topic, topic, shape, mode: str, expected: list[str]
) -> None:
    name = topic()
    options = {"topic": name, "pipeline": f"p-{name}"}
    stopped, _ = run(shape, options, mode=mode, stop_after=1)
    assert "Stopped" in stopped

    said, reports = run(shape, options, mode=mode)

    assert said == ""
    assert (reports[0].batch_id, reports[0].resumed) == (1, True)
    assert found(read_topic(name)) == Counter(expected)


@pytest.mark.parametrize("lost", [slice(0, 1), slice(None)], ids=["one", "all"])
def test_a_repair_saves_the_state_of_every_slot(run, read_topic, topic, kafka: AnyKafka, lost: slice) -> None:
    name = topic()
    options = {"topic": name, "pipeline": f"p-{name}"}
    with decided_only():
        assert "Stopped" in run(distinct, options)[0]
    were_open = open_ids(kafka, f"p-{name}", abort=lambda names: names[lost])
    assert len(were_open) > 1

    said, reports = run(distinct, options)

    assert said == ""
    assert (reports[0].batch_id, reports[0].repaired) == (0, 1)
    assert found(read_topic(name)) == Counter(["0", "1", "2", "3"])
    assert open_ids(kafka, f"p-{name}") == []


def test_files_that_spark_splits_otherwise_are_the_same_rows(
    run, spark, read_topic, topic, kafka: AnyKafka, tmp_path: Path
) -> None:
    name = topic()
    options = {"topic": name, "pipeline": f"p-{name}"}
    spark.conf.set("spark.sql.files.openCostInBytes", "1")
    try:
        spark.conf.set("spark.sql.files.minPartitionNum", "2")
        with decided_only():
            assert "Stopped" in run(lambda lines: lines, options, files=1)[0]
        assert len(open_ids(kafka, f"p-{name}", abort=lambda names: names)) == 2
        spark.conf.set("spark.sql.files.minPartitionNum", "4")

        said, reports = run(lambda lines: lines, options, files=1)
    finally:
        spark.conf.unset("spark.sql.files.openCostInBytes")
        spark.conf.unset("spark.sql.files.minPartitionNum")

    assert said == ""
    assert (reports[0].repaired, reports[0].slots) == (1, 4)
    assert found(read_topic(name)) == Counter(str(number) for number in range(10))


def test_a_repair_that_fails_in_a_task_leaves_nothing_open(
    run, read_topic, topic, kafka: AnyKafka, tmp_path: Path
) -> None:
    name, fail = topic(), tmp_path / "fail"
    options = {"topic": name, "pipeline": f"p-{name}"}

    def failing(lines: Any) -> Any:
        def go(batches: Iterator[Any]) -> Iterator[Any]:
            yield from batches
            context = TaskContext.get()
            if fail.exists() and context is not None and context.partitionId() == 1:
                # After the other slot is sealed.
                while fail.read_text() != "now":
                    time.sleep(0.05)
                raise RuntimeError("the replay fails")

        return lines.repartition(2, "value").mapInArrow(go, "value string")

    with decided_only():
        assert "Stopped" in run(failing, options, files=1)[0]
    assert len(open_ids(kafka, f"p-{name}", abort=lambda names: names[:1])) == 2
    fail.write_text("wait")
    watcher = threading.Thread(target=lambda: _say_now_when_open(kafka, f"p-{name}", fail))
    watcher.start()

    said, _ = run(failing, options, files=1)

    watcher.join()
    assert fail.read_text() == "now"
    assert "the replay fails" in said
    assert open_ids(kafka, f"p-{name}") == []
    fail.unlink()
    assert run(failing, options, files=1)[0] == ""
    assert found(read_topic(name)) == Counter(str(number) for number in range(10))


def _say_now_when_open(kafka: AnyKafka, pipeline: str, fail: Path) -> None:
    """Lets the replay fail once the lost slot is written again."""
    until = time.monotonic() + 120
    while f"{pipeline}:0" not in open_ids(kafka, pipeline) and time.monotonic() < until:
        time.sleep(0.1)
    if time.monotonic() < until:
        fail.write_text("now")
    else:
        fail.unlink()
