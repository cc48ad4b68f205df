"""The main job from end to end: killed with SIGKILL in the middle of a batch, restarted, judged by an independent
client.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from embedded_kafka.real import NEWEST_KAFKA
from spark_jobs import demo, flights
from spark_jobs.demo import Outcome, Plan
from spark_jobs.demo_job import ROOT
from spark_jobs.proof import Look
from tests.conftest import MakeTopic
from tests.pyspark_kafka_eos.jobs.submit import submit
from tests.support.brokers import AnyKafka

FLIGHTS = 9_000

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.long]


# ---- one run of the demo with a part of the flights, and what it must show


@pytest.fixture(scope="module")
def lines() -> list[str]:
    """What the demo printed."""
    return []


@pytest.fixture(scope="module")
def outcome(request: pytest.FixtureRequest, lines: list[str]) -> Outcome:
    """The run's outcome."""
    kafka = NEWEST_KAFKA if request.config.getoption("--brokers") == "real" else None
    return demo.run(Plan(kills=1, flights=FLIGHTS, seed=1, kafka=kafka), lines.append)


def test_every_flight_is_in_the_output_exactly_once(outcome: Outcome) -> None:
    assert outcome.proof.problems == ()
    assert (outcome.proof.records_in, outcome.proof.records_out) == (FLIGHTS, FLIGHTS)


def test_the_group_has_committed_the_end_of_every_partition(outcome: Outcome) -> None:
    assert outcome.proof.group_offsets == outcome.proof.end_offsets
    assert sum(outcome.proof.group_offsets.values()) == FLIGHTS


def test_the_kill_fell_into_a_batch_that_had_written_and_not_finished(outcome: Outcome) -> None:
    (kill,) = outcome.kills

    assert kill.hidden > 0
    assert 0 < kill.batch < outcome.batches - 1
    assert 0 < kill.committed < FLIGHTS


def test_there_were_enough_batches_for_a_middle(outcome: Outcome) -> None:
    assert outcome.batches >= demo.BATCHES


def test_progress_is_told_while_it_runs(outcome: Outcome, lines: list[str]) -> None:
    assert len([line for line in lines if "flights committed" in line]) > 2
    assert any("SIGKILL number 1" in line for line in lines)


# ---- what the job refuses, under spark-submit (what it does: test_shapes.py)


@pytest.fixture
def config(kafka: AnyKafka, topic: MakeTopic, tmp_path: Path) -> dict[str, Any]:
    """A job's configuration with topics of its own, the first of which has a flight."""
    given, written = topic(partitions=2), topic(partitions=2)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for row in flights.flights(1).to_pylist():
        producer.produce(given, row["value"], row["key"])
    assert producer.flush(60) == 0
    return {
        "app_name": "test",
        "spark_defaults": str(ROOT / "conf" / "spark-defaults.conf"),
        "kafka": {"bootstrap.servers": kafka.bootstrap_servers},
        "source": {"subscribe": given, "startingOffsets": "earliest"},
        "sink": {"topic": written, "pipeline": f"pipeline-{os.getpid()}-{written}"},
        "checkpoint_location": (tmp_path / "checkpoint").as_uri(),
        "trigger": {"available_now": True},
    }


def test_speculation_asked_for_on_the_command_line_is_refused_and_nothing_is_written(
    kafka: AnyKafka, config: dict[str, Any], tmp_path: Path
) -> None:
    code, said = submit("enrich_flights", config, tmp_path / "job", "--conf", "spark.speculation=true")

    assert code == 2, said
    assert "spark.speculation is true" in said
    assert sum(Look(kafka.bootstrap_servers).end_offsets(config["sink"]["topic"]).values()) == 0


def test_a_wrong_field_is_named_with_exit_code_2_before_spark_starts(config: dict[str, Any], tmp_path: Path) -> None:
    del config["sink"]["pipeline"]

    code, said = submit("enrich_flights", config, tmp_path / "job")

    assert code == 2, said
    assert "sink: pipeline is missing" in said
    assert "Traceback" not in said
    assert "SparkContext" not in said
