"""The three shapes of job under spark-submit, each on two executors in processes of their own, judged from outside."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from confluent_kafka import Producer

from pyspark_kafka_eos import crash_points
from spark_jobs import flights
from spark_jobs.demo_job import ROOT
from spark_jobs.proof import Look, read_all
from tests.conftest import MakeTopic
from tests.pyspark_kafka_eos.jobs.submit import TWO_EXECUTORS, start, submit
from tests.support.brokers import AnyKafka, settle

WITHIN_S = 600.0
"""For what a job is waited for to do; it takes some 10 s, on a very busy machine minutes."""

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]


def common(kafka: AnyKafka, directory: Path) -> dict[str, Any]:
    """What the configurations of all jobs have."""
    return {
        "app_name": "test",
        "spark_defaults": str(ROOT / "conf" / "spark-defaults.conf"),
        "kafka": {"bootstrap.servers": kafka.bootstrap_servers},
        "checkpoint_location": (directory / "checkpoint").as_uri(),
        "trigger": {"available_now": True},
    }


def ids(kafka: AnyKafka, topic: str) -> Counter[int]:
    """How often librdkafka shows each id to a reader of committed records."""
    found = read_all(kafka.bootstrap_servers, topic, "read_committed")
    return Counter(json.loads(value or b"")["id"] for _, value in found)


# ---- produce only


def orders(directory: Path, files: int, rows: int) -> None:
    """Files of JSON lines with ids counting from 0."""
    directory.mkdir()
    for number in range(files):
        lines = [
            json.dumps({"id": number * rows + row, "customer": f"c{row % 7}", "amount": row / 4}) for row in range(rows)
        ]
        Path(directory, f"{number}.json").write_text("\n".join(lines))


@pytest.mark.long
def test_files_to_kafka_killed_after_a_decision_and_started_again_every_line_is_there_once(
    kafka: AnyKafka, topic: MakeTopic, tmp_path: Path
) -> None:
    written = topic(partitions=2)
    orders(tmp_path / "input", files=4, rows=250)
    config = {
        **common(kafka, tmp_path),
        "source": {
            "format": "json",
            "schema": "id long, customer string, amount double",
            "path": str(tmp_path / "input"),
            "options": {"maxFilesPerTrigger": 1},
        },
        "columns": {"key": "customer", "value": "to_json(struct(*))", "timestamp": "timestamp '2024-05-06'"},
        "sink": {"topic": written, "pipeline": f"p-{os.getpid()}-{written}"},
    }

    killed, said = submit(
        "produce",
        config,
        tmp_path / "first",
        master=TWO_EXECUTORS,
        environ={crash_points.ENVIRONMENT: "after-decision:2"},
    )
    assert killed != 0, said
    assert sorted(ids(kafka, written)) == list(range(250)), "the second batch was decided, and not ended"
    assert Look(kafka.bootstrap_servers).open_offsets(written) > 0
    code, said = submit("produce", config, tmp_path / "second", master=TWO_EXECUTORS)

    assert code == 0, said
    assert ids(kafka, written) == Counter(range(1000))


# ---- consume, transform, produce


@pytest.mark.long
def test_flights_to_flights_with_airline_and_plane_every_one_is_there_once_and_the_group_has_the_end(
    kafka: AnyKafka, topic: MakeTopic, tmp_path: Path
) -> None:
    given, written = topic(partitions=2), topic(partitions=2)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for row in flights.flights(500).to_pylist():
        producer.produce(given, row["value"], row["key"])
    assert producer.flush(60) == 0
    pipeline = f"p-{os.getpid()}-{written}"
    config = {
        **common(kafka, tmp_path),
        "source": {"subscribe": given, "startingOffsets": "earliest"},
        "sink": {"topic": written, "pipeline": pipeline},
    }

    code, said = submit("enrich_flights", config, tmp_path / "first", master=TWO_EXECUTORS)

    assert code == 0, said
    assert ids(kafka, written) == Counter(range(500))
    values = [value or b"" for _, value in read_all(kafka.bootstrap_servers, written, "read_committed")]
    (first,) = [body for body in map(json.loads, values) if body["id"] == 0]
    assert (first["airline"], first["manufacturer"]) == ("United Air Lines Inc.", "BOEING")
    look = Look(kafka.bootstrap_servers)
    assert look.group_offsets(pipeline, given) == look.end_offsets(given)


# ---- consume only


def send(kafka: AnyKafka, topic: str, numbers: range, *, commit: bool) -> None:
    """A transaction of its own with one record for each number."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": f"t-{topic}"})
    producer.init_transactions(60)
    producer.begin_transaction()
    for number in numbers:
        producer.produce(topic, str(number).encode(), str(number % 7).encode())
    assert producer.flush(60) == 0
    if commit:
        producer.commit_transaction(60)
    else:
        producer.abort_transaction(60)
    settle(kafka.bootstrap_servers, topic)


def listed(directory: Path) -> list[Path]:
    """The files that Spark's file sink says are in the directory: few batches, so its list was not compacted."""
    lists = [path for path in Path(directory, "_spark_metadata").glob("*") if path.name.isdigit()]
    entries = [json.loads(line) for path in lists for line in path.read_text().splitlines()[1:]]
    return [Path(entry["path"].removeprefix("file://")) for entry in entries]


@pytest.fixture
def to_files(kafka: AnyKafka, topic: MakeTopic, tmp_path: Path) -> dict[str, Any]:
    """A job that reads a topic with 300 committed records, 0 to 299, and 100 aborted ones, into tmp_path / "files"."""
    given = topic(partitions=2)
    send(kafka, given, range(300), commit=True)
    send(kafka, given, range(1000, 1100), commit=False)
    return {
        **common(kafka, tmp_path),
        "source": {"subscribe": given, "startingOffsets": "earliest", "maxOffsetsPerTrigger": 150},
        "columns": {"number": "cast(cast(value AS string) AS long)", "partition": "partition"},
        "files": {"path": str(tmp_path / "files"), "options": {"compression": "gzip"}},
    }


def rows_of(directory: Path) -> list[dict[str, Any]]:
    """The rows of the files that count, read without Spark."""
    return [row for path in listed(directory) for row in pyarrow.parquet.ParquetFile(path).read().to_pylist()]


@pytest.mark.long
def test_kafka_to_files_every_committed_record_is_in_them_once_and_no_aborted_one(
    to_files: dict[str, Any], tmp_path: Path
) -> None:
    code, said = submit("consume", to_files, tmp_path / "first", master=TWO_EXECUTORS)

    assert code == 0, said
    rows = rows_of(tmp_path / "files")
    assert Counter(row["number"] for row in rows) == Counter(range(300))
    assert {row["partition"] for row in rows} == {0, 1}


@pytest.mark.chaos
def test_kafka_to_files_killed_and_started_again_every_committed_record_is_in_them_once(
    kafka: AnyKafka, to_files: dict[str, Any], tmp_path: Path
) -> None:
    endless = {**to_files, "trigger": {"processing_time": "0 seconds"}}

    first = start("consume", endless, tmp_path / "first", master=TWO_EXECUTORS)
    deadline = time.monotonic() + WITHIN_S
    while not Path(tmp_path, "files", "_spark_metadata", "0").exists():
        said = Path(tmp_path, "first", "job.log").read_text()
        assert first.poll() is None and time.monotonic() < deadline, said
        time.sleep(0.01)
    first.kill_tree()
    send(kafka, to_files["source"]["subscribe"], range(300, 500), commit=True)
    code, said = submit("consume", to_files, tmp_path / "second", master=TWO_EXECUTORS)

    assert code == 0, said
    assert Counter(row["number"] for row in rows_of(tmp_path / "files")) == Counter(range(500))
