"""The files of the shipped jobs with every command: what each command does with a job that writes, and with one that
only reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from embedded_kafka.embedded import EmbeddedKafka
from tests.pyspark_kafka_eos.cli.cli_tools import committed
from tests.pyspark_kafka_eos.cli.processes import Ended, in_process, kafka_eos
from tests.support.brokers import AnyKafka

pytestmark = [pytest.mark.kafka, pytest.mark.embedded]

CONF = Path(__file__).parents[3] / "conf"
FILES = sorted(path.name for path in CONF.glob("*.yaml"))
TOPICS = ("flights", "flights.enriched", "orders", "orders.clean")

LOOKS = (["ledger"], ["verify"], ["transactions", "list"], ["transactions", "explain"])
CHANGES = (["transactions", "commit"], ["transactions", "abort"], ["transactions", "fence"])


@pytest.fixture(scope="module")
def shipped() -> Iterator[EmbeddedKafka]:
    """A broker with the topics that the shipped files name, and a ledger that no other test has written to."""
    with EmbeddedKafka(in_process=True) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        for done in admin.create_topics([NewTopic(name, 2) for name in TOPICS], operation_timeout=30).values():
            done.result(30)
        committed(kafka)
        yield kafka


def answers(broker: AnyKafka, capsys: pytest.CaptureFixture[str], file: str) -> dict[str, Ended]:
    """Each command's answer for a job's file, by the command's last word: the doctor's as a process of its own, the
    others' by the same words in this one.
    """
    given = ["-c", str(CONF / file), "--json"]
    found = {"doctor": kafka_eos(broker, "doctor", *given)}
    for words in (*LOOKS, *([*each, "--yes"] for each in CHANGES)):
        found[words[:2][-1]] = in_process(capsys, broker, *words, *given)
    return found


def test_these_are_the_files_that_are_shipped() -> None:
    assert FILES == ["consume.yaml", "enrich_flights.yaml", "produce.yaml", "transform.yaml"]


@pytest.mark.parametrize("file", ["enrich_flights.yaml", "produce.yaml", "transform.yaml"])
def test_every_command_takes_the_file_of_a_job_that_writes(
    shipped: AnyKafka, capsys: pytest.CaptureFixture[str], file: str
) -> None:
    pipeline, read = {
        "enrich_flights.yaml": ("enrich-flights", ["flights"]),
        "produce.yaml": ("produce-orders", []),
        "transform.yaml": ("clean-orders", ["orders"]),
    }[file]

    found = answers(shipped, capsys, file)

    assert found["doctor"].document["pipeline"] == pipeline
    assert found["doctor"].code == 0, found["doctor"].out
    sources = [each["about"] for each in found["doctor"].document["checks"] if each["name"] == "source"]
    # Files are no topics.
    assert sources == read
    # It has never run, so nobody knows its name: every other command says so, and creates nothing under it.
    for name in ("ledger", "verify", "list", "explain", "commit", "abort", "fence"):
        error = found[name].document["error"]
        assert (found[name].code, error["class"]) == (1, "UnknownPipeline")
        assert repr(pipeline) in error["message"]


def test_every_command_takes_the_file_of_a_job_that_only_reads(
    shipped: AnyKafka, capsys: pytest.CaptureFixture[str]
) -> None:
    found = answers(shipped, capsys, "consume.yaml")

    doctor = found["doctor"].document
    assert (found["doctor"].code, doctor["pipeline"]) == (0, None)
    assert {"brokers", "source"} <= {each["name"] for each in doctor["checks"]}
    assert {each["name"] for each in doctor["checks"]} <= {"addresses", "brokers", "versions", "source"}
    # It writes nothing, so these show what is there of all pipelines.
    assert "pipelines" in found["ledger"].document
    assert "batches" in found["verify"].document
    assert "transactions" in found["list"].document
    assert "transactions" in found["explain"].document
    for name in ("commit", "abort", "fence"):
        error = found[name].document["error"]
        assert (found[name].code, error["class"]) == (2, "OptionsError")
        assert "name the pipeline" in error["message"]
