"""The sink by format, its application killed with SIGKILL or its tasks failing: every row once after the next run.

`test_connect` kills one, and tests/pyspark_kafka_eos/commit/handover/test_handover.py the processes without Spark, in
every `make test`.
"""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.pyspark_kafka_eos.spark.sink.sink_job import run_job
from tests.pyspark_kafka_eos.spark.sink.test_writer import newest_decision
from tests.support.brokers import AnyKafka

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.chaos]


def settings(kafka: AnyKafka, name: str, folder: Path, **more: Any) -> dict[str, Any]:
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": name, "pipeline": f"p-{name}"}
    return {"folder": str(folder), "options": options, "batches": 1, "rows": 200, **more}


@pytest.mark.parametrize(
    ("point", "decided"),
    [
        ("decision-written", False),
        pytest.param("after-decision", True, marks=pytest.mark.versions),
        ("before-end", True),
        ("before-return", True),
    ],
)
def test_killed_at_a_point_of_the_commit_every_row_is_there_once_after_the_next_run(
    kafka: AnyKafka, topic, read_topic, tmp_path: Path, point: str, decided: bool
) -> None:
    name = topic()
    job = settings(kafka, name, tmp_path)

    killed = run_job(**job, crash=point)
    assert killed.exitcode == -signal.SIGKILL, killed.log[-3000:]
    assert (tmp_path / "crash").read_text() == "reached"
    again = run_job(**{**job, "batches": 2})

    assert (again.exitcode, again.said) == (0, ""), again.log[-3000:]
    found = Counter(int(message.value()) for message in read_topic(name))
    assert found == dict.fromkeys(range(400), 1)
    # What was decided is not written again.
    everything = read_topic(name, "read_uncommitted")
    assert len(everything) == (400 if decided else 600)
    assert newest_decision(kafka, f"p-{name}").batch_id == 1


@pytest.mark.versions
def test_a_query_with_state_killed_before_spark_knows_of_the_commit_goes_on_with_its_state(
    kafka: AnyKafka, topic, read_topic, tmp_path: Path
) -> None:
    name = topic()
    job = settings(kafka, name, tmp_path, distinct=True)

    killed = run_job(**job, crash="before-return")
    assert killed.exitcode == -signal.SIGKILL, killed.log[-3000:]
    again = run_job(**{**job, "batches": 2})

    assert (again.exitcode, again.said) == (0, ""), again.log[-3000:]
    found = Counter(int(message.value()) for message in read_topic(name))
    assert found == dict.fromkeys(range(400), 1)


def test_a_task_that_fails_after_its_rows_is_tried_again_and_they_are_there_once(
    kafka: AnyKafka, topic, read_topic, tmp_path: Path
) -> None:
    name = topic()

    done = run_job(**settings(kafka, name, tmp_path), fail_first=True)

    assert (done.exitcode, done.said) == (0, ""), done.log[-3000:]
    assert "the first attempt fails after its last row" in done.log
    found = Counter(int(message.value()) for message in read_topic(name))
    assert found == dict.fromkeys(range(200), 1)


def test_speculation_is_refused_by_the_tasks_before_they_write(
    kafka: AnyKafka, topic, read_topic, tmp_path: Path
) -> None:
    name = topic()

    done = run_job(**settings(kafka, name, tmp_path), conf={"spark.speculation": "true"})

    assert "spark.speculation is true" in done.said, done.log[-3000:]
    assert read_topic(name, "read_uncommitted") == []
