"""The README says what is so: its tables are the options', its ten lines run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_jobs.proof import read_all
from tests.brokers import AnyKafka
from tests.conftest import MakeTopic
from tests.jobs.readme_tables import README, current, tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def snippets() -> tuple[str, str]:
    """The ten lines, and the test with a broker of its own."""
    lines, test = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    return lines, test


def test_the_tables_of_options_are_up_to_date() -> None:
    assert current(README.read_text()) == tables(), "run: python -m tests.jobs.readme_tables"


def test_every_make_target_and_every_file_that_is_named_exists() -> None:
    text = README.read_text()
    targets = re.findall(r"^([a-z-]+):", README.with_name("Makefile").read_text(), re.MULTILINE)

    assert set(re.findall(r"`make ([a-z-]+)`", text)) <= set(targets)
    for name in re.findall(r"\]\(([A-Za-z_/.-]+)\)|`((?:conf|spark_jobs)/[a-z_./-]+)`", text):
        assert (README.parent / "".join(name)).exists(), name


@pytest.mark.kafka
@pytest.mark.spark
def test_the_ten_lines_run(
    spark: SparkSession, kafka: AnyKafka, topic: MakeTopic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from confluent_kafka import Producer

    given, written = topic(), topic()
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    producer.produce(given, b"hello", b"key")
    assert producer.flush(60) == 0
    code, _ = snippets()
    changes = {
        "127.0.0.1:9092": kafka.bootstrap_servers,
        '"orders"': f'"{given}"',
        '"orders.clean"': f'"{written}"',
        '"clean-orders"': f'"{written}"',
        "/tmp/clean-orders": (tmp_path / "checkpoint").as_uri(),
        "query.awaitTermination()": "query.processAllAvailable(); query.stop()",
    }
    for old, new in changes.items():
        assert code.count(old) == 1, old
        code = code.replace(old, new)
    assert len(code.strip().splitlines()) <= 10

    exec(compile(code, "README.md", "exec"), {})

    assert list(read_all(kafka.bootstrap_servers, written, "read_committed")) == [(b"key", b"HELLO")]


@pytest.mark.kafka
@pytest.mark.embedded
def test_the_test_with_a_broker_of_its_own_passes() -> None:
    from confluent_kafka import Producer

    ran = []

    def run_my_job(bootstrap_servers: str) -> None:
        writer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": "x", "log_level": 0})
        writer.init_transactions(60)
        writer.begin_transaction()
        writer.produce("t", b"value")
        writer.commit_transaction(60)
        ran.append(bootstrap_servers)

    names: dict[str, object] = {"run_my_job": run_my_job}
    exec(compile(snippets()[1] + "\ntest_my_job()", "README.md", "exec"), names)

    assert len(ran) == 2
