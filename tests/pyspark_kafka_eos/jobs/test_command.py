"""`kafka-eos job`: the files that it writes, and the shapes that it runs, without spark-submit and without an activated
environment.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer

from embedded_kafka.real.java import require_java
from pyspark_kafka_eos.cli import main
from pyspark_kafka_eos.jobs import config
from pyspark_kafka_eos.jobs.__main__ import SCRIPT, SHAPES, SPARK_DEFAULTS, template
from pyspark_kafka_eos.jobs.config import load_config
from spark_jobs.proof import read_all
from tests.conftest import MakeTopic
from tests.support.brokers import AnyKafka

ROOT = Path(__file__).parents[3]
WITHIN_S = 900
"""A job takes some 20 s; with ten others at work on the same two cores it took more than 300."""


@pytest.mark.parametrize("name", [*(f"{shape}.yaml" for shape in SHAPES), SPARK_DEFAULTS])
def test_the_files_of_the_package_are_those_of_the_repository(name: str) -> None:
    assert template(name) == (ROOT / "conf" / name).read_text(), (
        f"copy conf/{name} to connector/pyspark_kafka_eos/jobs/templates"
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_init_writes_a_file_that_its_shape_takes_and_the_settings_that_it_names(
    shape: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["job", "init", shape, "--directory", str(tmp_path / "new")])

    written = tmp_path / "new" / f"{shape}.yaml"
    assert (code, capsys.readouterr().out.strip()) == (0, str(written))
    read = load_config(written, getattr(config, SHAPES[shape][0]), environ={})
    assert read.spark_defaults == tmp_path / "new" / SPARK_DEFAULTS and read.spark_defaults.is_file()


def test_init_overwrites_no_file_and_then_writes_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = tmp_path / "consume.yaml"
    mine.write_text("mine")

    code = main(["job", "init", "consume", "--directory", str(tmp_path)])

    assert code == 1 and str(mine) in capsys.readouterr().err
    assert mine.read_text() == "mine" and os.listdir(tmp_path) == ["consume.yaml"]


def test_a_second_shape_shares_the_settings_of_the_first(tmp_path: Path) -> None:
    codes = [main(["job", "init", shape, "--directory", str(tmp_path)]) for shape in SHAPES]

    assert codes == [0] * len(SHAPES)
    assert sorted(os.listdir(tmp_path)) == sorted([*(f"{shape}.yaml" for shape in SHAPES), SPARK_DEFAULTS, SCRIPT])


def test_a_file_with_a_mistake_is_named_before_spark_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(template("transform.yaml").replace("pipeline:", "pipline:"))

    code = main(["job", "transform", "--conf-file", str(path)])

    said = capsys.readouterr().err
    assert code == 2
    assert said.startswith("kafka-eos job transform: ") and "did you mean pipeline?" in said


@pytest.mark.processes
def test_without_pyspark_it_says_what_to_install() -> None:
    code = "import sys; sys.modules['pyspark'] = None; from pyspark_kafka_eos.cli import main; sys.exit(main(sys.argv[1:]))"

    ended = subprocess.run(
        [sys.executable, "-c", code, "job", "produce", "--conf-file", "x"], capture_output=True, text=True, check=False
    )  # fmt: skip

    assert ended.returncode == 2
    assert "pip install 'pyspark-kafka-eos[spark]'" in ended.stderr and "Traceback" not in ended.stderr


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.slow
def test_the_file_of_transform_runs_as_init_writes_it(kafka: AnyKafka, topic: MakeTopic, tmp_path: Path) -> None:
    given, written = topic(partitions=2), topic(partitions=2)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in range(50):
        producer.produce(given, f"order {number}", str(number % 5))
    assert producer.flush(60) == 0
    assert main(["job", "init", "transform", "--directory", str(tmp_path)]) == 0
    path = tmp_path / "transform.yaml"
    text = path.read_text()
    for old, new in {
        "subscribe: orders": f"subscribe: {given}",
        "topic: orders.clean": f"topic: {written}",
        "pipeline: clean-orders": f"pipeline: p-{os.getpid()}-{written}",
        "processing_time: ${TRIGGER:-0 seconds}": "available_now: true",
    }.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    path.write_text(text)

    # As cron starts it: no environment is activated, so the python3 of the path is another one.
    ended = subprocess.run(
        [sys.executable, "-m", "pyspark_kafka_eos.cli", "job", "transform", "--conf-file", path], cwd=tmp_path, capture_output=True,
        text=True, timeout=WITHIN_S, check=False,
        env={
            "PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1",
            "JAVA_HOME": str(require_java().home), "KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
            "CHECKPOINT_LOCATION": (tmp_path / "checkpoint").as_uri(), "XDG_CACHE_HOME": str(Path.home() / ".cache"),
            "JDK_JAVA_OPTIONS": os.environ.get("JDK_JAVA_OPTIONS", ""),
        },
    )  # fmt: skip

    assert ended.returncode == 0, ended.stderr[-3000:]
    found = [value.decode() for _, value in read_all(kafka.bootstrap_servers, written, "read_committed") if value]
    assert sorted(found) == sorted(f"ORDER {number}" for number in range(50)), json.dumps(found[:5])
