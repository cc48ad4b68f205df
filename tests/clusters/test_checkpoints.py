"""Checkpoints on HDFS and on S3, by format and by foreachBatch: the application is killed between decision and end."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from embedded_kafka.embedded import EmbeddedKafka
from tests.clusters.hdfs import Hdfs, arrow_reads_hdfs
from tests.clusters.s3 import S3
from tests.pyspark_kafka_eos.commit.judge import messages_of
from tests.pyspark_kafka_eos.spark.sink.sink_job import run_job

pytestmark = [pytest.mark.clusters, pytest.mark.slow]

TOPIC, ROWS = "numbers", 200


class Place(Protocol):
    """Where a checkpoint lies: what paths there begin with, what Spark and what Python on the driver need for it."""

    uri: str
    of_spark: dict[str, str]

    @property
    def of_python(self) -> dict[str, str]: ...

    def batches(self, checkpoint: str) -> set[str]:
        """The names of the batches in Spark's commit log, found without Spark and without the connector."""


class OnHdfs:
    def __init__(self, servers: Hdfs) -> None:
        self.uri, self._servers = servers.uri, servers
        self.of_spark: dict[str, str] = {}

    @property
    def of_python(self) -> dict[str, str]:
        return arrow_reads_hdfs()

    def batches(self, checkpoint: str) -> set[str]:
        return {name for name in self._servers.names(f"/{checkpoint}/commits") if name.isdigit()}


class OnS3:
    def __init__(self, server: S3) -> None:
        self.uri, self._server = server.uri, server
        self.of_spark = server.of_spark

    @property
    def of_python(self) -> dict[str, str]:
        return self._server.of_python

    def batches(self, checkpoint: str) -> set[str]:
        names = {key.rpartition("/")[2] for key in self._server.keys(f"{checkpoint}/commits/")}
        return {name for name in names if name.isdigit()}


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    servers = Hdfs(tmp_path_factory.mktemp("hdfs"))
    yield servers
    servers.close()


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    server = S3(tmp_path_factory.mktemp("s3"))
    yield server
    server.close()


@pytest.fixture(params=["hdfs", "s3"])
def place(request: pytest.FixtureRequest) -> Place:
    if request.param == "hdfs":
        return OnHdfs(request.getfixturevalue("hdfs"))
    return OnS3(request.getfixturevalue("s3"))


@pytest.fixture
def kafka() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(config={"transaction.version": "2"}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic(TOPIC, 3, 1)])[TOPIC].result(30)
        yield broker


def job(kafka: EmbeddedKafka, folder: Path, place: Place, way: str) -> dict[str, Any]:
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "topic": TOPIC,
        "pipeline": f"numbers-{way}",
    }
    return {
        "folder": str(folder), "options": options, "rows": ROWS, "way": way, "location": f"{place.uri}/{way}",
        "conf": place.of_spark, "environ": place.of_python,
    }  # fmt: skip


@pytest.mark.parametrize("way", ["format", "foreachBatch"])
def test_killed_between_the_decision_and_the_end_every_row_is_there_once(
    kafka: EmbeddedKafka, place: Place, tmp_path: Path, way: str
) -> None:
    settings = job(kafka, tmp_path, place, way)

    killed = run_job(**settings, batches=1, crash="after-decision")
    assert killed.exitcode == -signal.SIGKILL, killed.said + killed.log[-3000:]
    assert (tmp_path / "crash").read_text() == "reached"
    assert place.batches(way) == set(), "Spark does not know of the commit"
    again = run_job(**settings, batches=2)

    assert (again.exitcode, again.said) == (0, ""), again.log[-3000:]
    assert place.batches(way) == {"0", "1"}
    found = Counter(int(message.value()) for message in messages_of(kafka, TOPIC))
    assert found == dict.fromkeys(range(2 * ROWS), 1)
    # What was decided is not written again.
    assert len(messages_of(kafka, TOPIC, "read_uncommitted")) == 2 * ROWS
    assert not (tmp_path / "checkpoint").exists()


def test_by_format_a_checkpoint_that_only_java_can_read_stops_the_query_before_anything_is_written(
    kafka: EmbeddedKafka, hdfs: Hdfs, tmp_path: Path
) -> None:
    place = OnHdfs(hdfs)
    settings = {**job(kafka, tmp_path, place, "format"), "location": f"{hdfs.uri}/only-java", "environ": {}}

    ended = run_job(**settings, batches=1)

    assert ended.exitcode == 0
    assert "cannot be read from Spark's Python on the driver" in ended.said
    assert "nothing was written" in ended.said and "foreachBatch(ExactlyOnceWriter(options))" in ended.said
    assert messages_of(kafka, TOPIC, "read_uncommitted") == []
