"""On Spark Connect: the sink by format and the writer for foreachBatch, with a restart and with SIGKILL in between.

The server runs in the application, on a free port; its Python workers are those of these tests.
"""

from __future__ import annotations

import json
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.pyspark_kafka_eos.commit.ends_arrived import end_first
from tests.pyspark_kafka_eos.spark.sink.sink_job import run_job
from tests.pyspark_kafka_eos.spark.sink.test_writer import newest_decision
from tests.support.brokers import AnyKafka

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]


def settings(kafka: AnyKafka, name: str, folder: Path, **more: Any) -> dict[str, Any]:
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": name, "pipeline": f"p-{name}"}
    return {"folder": str(folder), "options": options, "batches": 2, "rows": 100, "connect": True, **more}


@pytest.mark.chaos
@pytest.mark.parametrize("way", ["format", "foreachBatch"])
@pytest.mark.parametrize("scope", ["task", "batch"])
def test_every_row_is_there_once_also_after_a_restart(
    kafka: AnyKafka, topic, read_topic, tmp_path: Path, way: str, scope: str
) -> None:
    name = topic()
    job = settings(kafka, name, tmp_path, way=way)
    job["options"]["transaction.scope"] = scope

    first = run_job(**job)
    assert (first.exitcode, first.said) == (0, ""), first.log[-3000:]
    again = run_job(**{**job, "batches": 3})

    assert (again.exitcode, again.said) == (0, ""), again.log[-3000:]
    found = Counter(int(message.value()) for message in read_topic(name))
    assert found == dict.fromkeys(range(300), 1)
    assert newest_decision(kafka, f"p-{name}").batch_id == 2


@pytest.mark.versions
@pytest.mark.long
def test_the_sink_killed_after_the_decision_finishes_the_batch_in_the_next_run(
    kafka: AnyKafka, topic, read_topic, tmp_path: Path
) -> None:
    name = topic()
    job = settings(kafka, name, tmp_path, batches=1)

    killed = run_job(**job, crash="before-end")
    assert killed.exitcode == -signal.SIGKILL, killed.log[-3000:]
    assert (tmp_path / "crash").read_text() == "reached"
    end_first(job["options"], 1)
    again = run_job(**{**job, "batches": 2})

    assert (again.exitcode, again.said) == (0, ""), again.log[-3000:]
    found = Counter(int(message.value()) for message in read_topic(name))
    assert found == dict.fromkeys(range(200), 1)
    # What was decided is not written again.
    assert len(read_topic(name, "read_uncommitted")) == 200


@pytest.mark.chaos
@pytest.mark.parametrize("way", ["format", "foreachBatch"])
def test_a_refused_option_reaches_the_user(kafka: AnyKafka, topic, read_topic, tmp_path: Path, way: str) -> None:
    name = topic()
    job = settings(kafka, name, tmp_path, way=way)
    job["options"]["topic"] = "never-created"

    done = run_job(**job)

    assert "never-created" in done.said, done.log[-3000:]
    assert read_topic(name, "read_uncommitted") == []


@pytest.mark.chaos
def test_a_writer_that_is_given_another_querys_checkpoint_is_refused_before_it_writes(
    kafka: AnyKafka, topic, read_topic, tmp_path: Path
) -> None:
    name, other = topic(), topic()
    for folder in ("one", "another"):
        (tmp_path / folder).mkdir()
    first = run_job(**settings(kafka, other, tmp_path / "another", way="foreachBatch", batches=1))
    assert (first.exitcode, first.said) == (0, ""), first.log[-3000:]
    another = tmp_path / "another" / "checkpoint"
    job = settings(kafka, name, tmp_path / "one", way="foreachBatch", batches=1)
    job["options"]["checkpointLocation"] = str(another)

    refused = run_job(**job)

    query = json.loads((another / "metadata").read_text())["id"]
    for part in (
        "PipelineConflict",
        f"{another}, the checkpoint of query {query}",
        "has finished batch 0 already",
    ):
        assert part in refused.said, refused.said[:3000]
    assert read_topic(name, "read_uncommitted") == []
