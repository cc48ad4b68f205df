"""The writer called with another number than the running micro-batch's, on Spark and where only the checkpoint can
tell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import inheritable_thread_target

from kafka_core.errors import OptionsError
from pyspark_kafka_eos import ExactlyOnceWriter
from pyspark_kafka_eos.spark.sink.query_identity import QueryIdentity
from tests.pyspark_kafka_eos.spark.sink.test_writer_calls import options_of, run
from tests.pyspark_kafka_eos.spark.sink.test_writer_resume import found
from tests.support.brokers import AnyKafka

__all__ = ["run"]

ROWS = [str(number) for number in range(30)]


@pytest.fixture
def by_text() -> Any:
    """A session as Spark Connect's: it reads files by `read.text`."""

    def text(path: str) -> Any:
        return SimpleNamespace(collect=lambda: [(line,) for line in Path(path).read_text().splitlines()])

    return SimpleNamespace(read=SimpleNamespace(text=text))


def identity(directory: Path, logged: int, told: str | None) -> QueryIdentity:
    """Of a query whose offset log has batches 0 to `logged`; `told`: what Spark has told the thread."""
    (directory / "offsets").mkdir()
    for batch in range(logged + 1):
        (directory / "offsets" / str(batch)).write_text("v1\n{}\n{}")
    return QueryIdentity("query", "run", str(directory), told)


@pytest.mark.parametrize("given", [0, 4, 6, 105])
@pytest.mark.parametrize("begins", [True, False])
def test_a_number_that_is_not_the_one_that_spark_has_told_is_refused_by_both(
    tmp_path: Path, by_text: Any, given: int, begins: bool
) -> None:
    running = identity(tmp_path, 5, "5")

    with pytest.raises(OptionsError, match=f"for batch {given}, but the running micro-batch is batch 5") as refused:
        running.require_running(by_text, given, begins=begins)

    assert "writer(df, batch_id)" in refused.value.message
    assert refused.value.facts == {"batch": given, "running_batch": "5", "query": "query"}
    running.require_running(by_text, 5, begins=begins)


def test_a_thread_that_still_has_an_older_batchs_number_may_write_the_running_one(tmp_path: Path, by_text: Any) -> None:
    kept = identity(tmp_path, 5, "3")

    kept.require_running(by_text, 5, begins=False)
    with pytest.raises(OptionsError, match="for batch 4"):
        kept.require_running(by_text, 4, begins=False)


def test_where_spark_tells_no_number_the_offset_log_refuses_an_older_one_when_a_run_begins(
    tmp_path: Path, by_text: Any
) -> None:
    connect = identity(tmp_path, 5, None)

    with pytest.raises(OptionsError, match="for batch 0, but the running micro-batch is a later one"):
        connect.require_running(by_text, 0, begins=True)
    connect.require_running(by_text, 5, begins=True)
    # Nothing is read again in the middle of a run.
    connect.require_running(SimpleNamespace(), 5, begins=False)  # type: ignore[arg-type]


def test_without_a_checkpoint_nothing_is_said(by_text: Any) -> None:
    QueryIdentity("query", "run", None, "5").require_running(by_text, 4, begins=True)


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.parametrize("shift", ["always 0", "100 more"])
def test_a_function_that_passes_another_number_is_refused_before_rows_are_left_out(
    run: Callable[..., str], read_topic: Any, topic: Any, kafka: AnyKafka, shift: str
) -> None:
    name = topic()
    numbers = iter([0, 1, 1, 1])

    def write(frame: Any, batch_id: int) -> None:
        given = 0 if shift == "always 0" else batch_id + 100 * min(1, next(numbers))
        ExactlyOnceWriter(options_of(kafka, name))(frame, given)

    assert run(write, 1) == ""
    for _ in range(2):
        said = run(write, 2)
        assert f"for batch {0 if shift == 'always 0' else 101}, but the running micro-batch is batch 1" in said, said[
            :2000
        ]

    # With Spark's own number the next run writes what was refused.
    assert run(lambda frame, batch_id: ExactlyOnceWriter(options_of(kafka, name))(frame, batch_id), 3) == ""
    assert found(read_topic(name)) == Counter(ROWS)


@pytest.mark.kafka
@pytest.mark.spark
def test_a_function_that_writes_from_threads_that_it_keeps_is_not_refused(
    run: Callable[..., str], read_topic: Any, topic: Any, kafka: AnyKafka
) -> None:
    name = topic()
    writer = ExactlyOnceWriter(options_of(kafka, name))
    kept: list[Callable[..., None]] = []

    with ThreadPoolExecutor(1) as pool:

        def write(frame: Any, batch_id: int) -> None:
            # Made once: it has the first batch's properties for good.
            kept.append(inheritable_thread_target(writer))
            pool.submit(kept[0], frame, batch_id).result(300)

        assert run(write, 3) == ""

    assert found(read_topic(name)) == Counter(ROWS)
