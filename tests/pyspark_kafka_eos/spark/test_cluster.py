"""Faults of a cluster: tasks that fail, executors that die, stages that run again, zombies. Real Spark with two
executor processes, real Kafka, librdkafka reads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from spark_jobs.proof import Look
from tests.conftest import MakeTopic
from tests.pyspark_kafka_eos.spark.cluster import (
    ROWS,
    Application,
    Query,
    eventually,
    executors_of,
    frozen,
    kill_executor_of,
    processes,
    sinks_of,
)
from tests.support.brokers import AnyKafka

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


@pytest.fixture(scope="module")
def application(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Application]:
    """One for all tests of this file: to start it takes longer than any of them."""
    started = Application(tmp_path_factory.mktemp("cluster"))
    try:
        yield started
    finally:
        started.close()


@pytest.fixture
def settings() -> dict[str, str]:
    """What a test's application has besides the usual settings."""
    return {}


@pytest.fixture
def query(
    application: Application, settings: dict[str, str], kafka: AnyKafka, topic: MakeTopic, tmp_path: Path
) -> Iterator[Query]:
    """A query with a topic, a pipeline and a checkpoint of its own."""
    application.have(settings)
    with closing(Look(kafka.bootstrap_servers)) as look:
        yield Query(application, kafka, look, topic(partitions=2), tmp_path)
        application.ask("stop")


def each_once(batches: int = 1) -> Counter[int]:
    """What a reader must find."""
    return Counter(range(batches * ROWS))


# ---- tasks and executors


@pytest.mark.long
def test_a_task_that_failed_after_writing_leaves_nothing_beside_what_its_retry_writes(query: Query) -> None:
    run = query.run(holds={"1.0": 5}, fails=("1.0",))
    run.held("1.0")
    query.await_records_of(1)
    run.go("1.0")

    outcome = run.end()

    assert outcome["errors"] == []
    assert [report["records"] for report in outcome["reports"]] == [ROWS]
    assert run.attempts(0) == [0]
    assert run.attempts(1) == [0, 1]
    assert query.records() == each_once()
    # The failed attempt's records are in the log, and only a reader of everything sees them.
    assert set((query.records("read_uncommitted") - each_once()).values()) == {1}


@pytest.mark.long
def test_a_job_goes_on_when_an_executor_is_killed_while_its_task_writes(query: Query) -> None:
    run = query.run(holds={"1.0": 5})
    run.held("1.0")
    query.await_records_of(1)
    kill_executor_of(query, run, "1.0")

    outcome = run.end()

    assert outcome["errors"] == []
    assert [report["records"] for report in outcome["reports"]] == [ROWS]
    assert run.attempts(1) == [0, 1]
    assert query.records() == each_once()
    assert set((query.records("read_uncommitted") - each_once()).values()) == {1}


def test_with_scope_batch_an_executor_killed_while_its_task_writes_costs_one_try_and_no_record(
    query: Query,
) -> None:
    run = query.run(holds={"1.0": 5}, scope="batch")
    run.held("1.0")
    # So it was granted a turn, and nobody can say what else it wrote.
    query.await_records_of(1)
    kill_executor_of(query, run, "1.0")

    outcome = run.end()

    assert outcome["errors"] == []
    assert [report["records"] for report in outcome["reports"]] == [ROWS]
    assert [report["redone"] for report in outcome["reports"]] == [1]
    assert query.records() == each_once()
    # The first try's records are in the log, and only a reader of everything sees them.
    assert query.records("read_uncommitted") > query.records()


# ---- stages


@pytest.mark.long
def test_a_stage_that_runs_again_because_shuffled_rows_are_gone_writes_each_record_once(query: Query) -> None:
    run = query.run(holds={"1.0": 5}, shuffled=True)
    run.held("1.0")
    query.await_records_of(1)
    # With the executor go the rows that it kept for both slots: the retry cannot fetch them, and Spark starts over.
    kill_executor_of(query, run, "1.0")

    outcome = run.end()

    assert outcome["errors"] == []
    assert query.stage_attempt(run.who("1.0")["stage"]) >= 1
    # Attempt numbers begin at 0 again: they do not tell the two starts apart.
    assert (run.attempts(1)[0], run.attempts(1)[-1]) == (0, 0)
    assert len(run.attempts(1)) >= 2
    assert query.records() == each_once()
    assert query.records("read_uncommitted") > query.records()


@pytest.mark.long
def test_a_slot_that_a_later_attempt_of_its_stage_took_over_after_it_was_sealed_is_written_again(
    query: Query,
) -> None:
    run = query.run(holds={"0.0": 5, "1.0": 5, "0.1": 0, "1.1": 0, "1.2": 0}, shuffled=True)
    run.held("0.0")
    run.held("1.0")
    query.await_records_of(0, 1)
    kill_executor_of(query, run, "1.0")
    # Slot 0 still runs in the stage's first attempt, and Spark starts it in the second one too.
    run.held("0.1")
    run.go("0.0")
    # Its executor is free for slot 1, so slot 0 is sealed and its seal is with the driver.
    run.held("1.1", "1.2")
    sealed = query.written()[0]
    run.go("0.1")
    query.await_records_of(0, beyond=sealed)
    run.go("1.1")
    run.go("1.2")

    outcome = run.end()

    assert outcome["errors"] == []
    assert query.stage_attempt(run.who("1.0")["stage"]) >= 1
    assert run.who("0.0")["stage"] == run.who("0.1")["stage"]
    assert run.attempts(0)[:2] == [0, 0]
    assert [report["redone"] for report in outcome["reports"]] == [1]
    assert query.records() == each_once()


# ---- zombies: query.stop() does not wait for the tasks


def test_tasks_that_go_on_after_a_stop_add_nothing_to_what_the_next_run_writes(query: Query) -> None:
    old = query.run("old", holds={"0.0": 5, "1.0": 5})
    old.held("0.0")
    old.held("1.0")
    query.await_records_of(0, 1)
    sinks = sinks_of(old, "0.0", "1.0")
    query.application.ask("stop")
    assert set(sinks) <= set(processes())
    new = query.run("new")
    old.go("0.0")
    old.go("1.0")

    outcome = new.end()

    assert old.went_on("0.0") and old.went_on("1.0")
    assert outcome["errors"] == []
    assert new.attempts(0) == new.attempts(1) == [0] * len(outcome["reports"])
    assert query.records() == each_once(len(outcome["reports"]))
    assert query.records("read_uncommitted") > query.records()


@pytest.mark.long
def test_tasks_that_begin_to_write_only_after_a_stop_add_nothing_either(query: Query) -> None:
    old = query.run("old", holds={"0.0": 0, "1.0": 0})
    old.held("0.0")
    old.held("1.0")
    with frozen(sinks_of(old, "0.0", "1.0")):
        old.go("0.0")
        old.go("1.0")
        old.handed_over("0.0", "1.0")
        query.application.ask("stop")
        assert query.written() == {0: 0, 1: 0}
        new = query.run("new")

    outcome = new.end()

    assert outcome["errors"] == []
    assert query.records() == each_once(len(outcome["reports"]))
    # Nobody but the old run's tasks wrote what does not show: those of the new run had one start each.
    assert new.attempts(0) == new.attempts(1) == [0] * len(outcome["reports"])
    assert query.records("read_uncommitted") > query.records()


# ---- dynamic allocation

DYNAMIC = {
    "spark.dynamicAllocation.enabled": "true",
    # There is no external shuffle service.
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "0",
    "spark.dynamicAllocation.maxExecutors": "2",
    "spark.dynamicAllocation.executorIdleTimeout": "1s",
    "spark.dynamicAllocation.schedulerBacklogTimeout": "1s",
}


@pytest.mark.long
@pytest.mark.parametrize("settings", [DYNAMIC], ids=["dynamic-allocation"])
def test_executors_that_dynamic_allocation_removes_and_one_that_is_killed_cost_no_record(
    query: Query,
) -> None:
    run = query.run("first", holds={"1.0": 5})
    run.held("1.0")
    before = executors_of(query)
    run.go("1.0")
    first = run.end()
    # With them go what they kept: connections, Python workers, caches.
    eventually("no executor is left", lambda: not executors_of(query))
    written = query.written()[1]

    run = query.run("second", holds={"1.0": 5})
    run.held("1.0")
    query.await_records_of(1, beyond=written)
    new = executors_of(query)
    kill_executor_of(query, run, "1.0")

    second = run.end()

    assert before and new and not before & new
    assert (first["errors"], second["errors"]) == ([], [])
    assert run.attempts(1) == [0, 1]
    assert query.records() == each_once(len(first["reports"] + second["reports"]))


# ---- speculation


@pytest.mark.parametrize("settings", [{"spark.speculation": "true"}], ids=["speculation"])
def test_with_speculation_the_first_batch_is_refused_and_nothing_is_written(query: Query) -> None:
    run = query.run()

    outcome = run.end()

    (error,) = outcome["errors"]
    assert error.startswith("OptionsError: spark.speculation is true")
    assert "spark.speculation is true" in outcome["spark_says"]
    assert outcome["reports"] == []
    assert run.attempts(0) == run.attempts(1) == []
    assert query.written() == {0: 0, 1: 0}
    assert query.records("read_uncommitted") == Counter()
