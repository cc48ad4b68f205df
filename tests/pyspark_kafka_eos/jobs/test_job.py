"""The frame of every job: how it ends, and what its exit code says."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from kafka_core.errors import BrokerUnavailable, ExactlyOnceError, OptionsError
from pyspark_kafka_eos.jobs.config import JobConfig
from pyspark_kafka_eos.jobs.job import CannotStart, main, run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

pytestmark = pytest.mark.spark


@pytest.fixture
def conf_file(tmp_path: Path) -> Path:
    """A file with what every job has, and nothing else."""
    body = {"app_name": "a job", "checkpoint_location": (tmp_path / "checkpoint").as_uri()}
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(body))
    return path


def counting(spark: SparkSession) -> DataFrame:
    """A stream that has no end."""
    return spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()


def test_sigterm_stops_the_query_and_the_next_start_goes_on_behind_its_last_batch(
    spark: SparkSession, conf_file: Path, tmp_path: Path
) -> None:
    batches: list[int] = []
    handler = signal.getsignal(signal.SIGTERM)
    config = JobConfig.model_validate(yaml.safe_load(conf_file.read_text()))

    def prepare(spark: SparkSession, _: JobConfig) -> DataStreamWriter:
        def write(frame: DataFrame, batch_id: int) -> None:
            batches.append(batch_id)
            if batch_id == 1:
                os.kill(os.getpid(), signal.SIGTERM)
            if batch_id > 1:
                assert frame.count() == 5

        return counting(spark).writeStream.foreachBatch(write)

    run(prepare, config)

    assert 1 in batches
    assert spark.streams.active == []
    assert signal.getsignal(signal.SIGTERM) is handler
    done = int(max(Path(tmp_path, "checkpoint", "commits").glob("[0-9]*"), key=lambda path: int(path.name)).name)

    batches.clear()

    def prepare_again(spark: SparkSession, _: JobConfig) -> DataStreamWriter:
        def write(_: DataFrame, batch_id: int) -> None:
            batches.append(batch_id)
            os.kill(os.getpid(), signal.SIGTERM)

        return counting(spark).writeStream.foreachBatch(write)

    run(prepare_again, config)

    assert batches[0] == done + 1


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (OptionsError("topic is missing"), 2, "topic is missing"),
        (CannotStart("a package is missing"), 2, "a package is missing"),
        (BrokerUnavailable("nobody answers"), 1, "BrokerUnavailable: nobody answers\nwho acts: "),
    ],
)
def test_what_is_raised_before_the_query_starts_becomes_an_exit_code_and_a_message(
    spark: SparkSession,
    conf_file: Path,
    capsys: pytest.CaptureFixture[str],
    error: ExactlyOnceError | CannotStart,
    code: int,
    said: str,
) -> None:
    def prepare(*_: Any) -> DataStreamWriter:
        raise error

    assert main(prepare, JobConfig, "A job.", ["--conf-file", str(conf_file)]) == code
    assert said in capsys.readouterr().err


def test_a_query_that_fails_is_exit_code_1_with_what_stopped_it(
    spark: SparkSession, conf_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def write(_: DataFrame, batch_id: int) -> None:
        raise RuntimeError(f"no luck with batch {batch_id}")

    code = main(
        lambda spark, _: counting(spark).writeStream.foreachBatch(write),
        JobConfig,
        "A job.",
        ["--conf-file", str(conf_file)],
    )

    assert code == 1
    assert "no luck with batch 0" in capsys.readouterr().err


def test_a_wrong_file_is_exit_code_2_and_nothing_is_prepared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def prepare(*_: Any) -> DataStreamWriter:
        raise AssertionError("this is not to be reached")

    assert main(prepare, JobConfig, "A job.", ["--conf-file", str(tmp_path / "absent.yaml")]) == 2
    assert "absent.yaml cannot be read" in capsys.readouterr().err
