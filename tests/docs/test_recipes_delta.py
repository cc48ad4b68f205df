"""The programs of docs/recipes.md with Delta tables: the driver dies in the middle of a batch, and every row is there
once.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from benchmarks.peer import PEER_PYTHON, PEER_SPARK
from embedded_kafka.real.java import require_java
from embedded_kafka.real.maven import Artifact, fetch
from tests.docs.recipes_delta import checkpoint_of, delta, table_of
from tests.pyspark_kafka_eos.commit.judge import messages_of
from tests.pyspark_kafka_eos.spark.sink.test_writer import newest_decision
from tests.support.brokers import AnyKafka, settle

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.long]

ROOT = Path(__file__).parents[2]
WITHIN_S = 400
"""An application takes 20 s, on a machine that does much else minutes."""
FIRST, SECOND, THIRD, FOURTH = (0, 100), (100, 200), (200, 300), (300, 400)
BYTEMAN = Artifact("org.jboss.byteman", "byteman", "4.0.24")
"""Ends a JVM where a rule says."""


class Application:
    """A program of the page with its places; started as often as a test wants."""

    def __init__(self, program: str, kafka: AnyKafka, topic: str, folder: Path) -> None:
        if not PEER_PYTHON.exists():
            pytest.skip(f"there is no environment with pyspark {PEER_SPARK}: make venv-bench")
        java = require_java()
        artifact = Artifact(*delta())
        jars = fetch(f"recipe-delta-{artifact.version}", [artifact], java)
        agent = fetch(f"byteman-{BYTEMAN.version}", [BYTEMAN], java)
        self.folder, self.log = folder, ""
        self._environ = {**java.environ(), "PYSPARK_PYTHON": str(PEER_PYTHON), "PYTHONPATH": str(ROOT)}
        self._settings: dict[str, Any] = {
            "program": program, "bootstrap": kafka.bootstrap_servers, "topic": topic, "folder": str(folder),
            "jars": ",".join(str(jar) for jar in sorted(jars.glob("*.jar"))), "agent": str(next(agent.glob("*.jar"))),
            "result": str(folder / "result"),
        }  # fmt: skip

    def dies(self, *rounds: tuple[int, ...], at: str) -> None:
        """Run the program after each of these rows; the driver is killed in the last of the runs, and that is
        proved.
        """
        proof = self.folder / "crash"
        proof.unlink(missing_ok=True)
        assert self._run(rounds=rounds, crash=at) == -signal.SIGKILL, self.log
        assert proof.read_text().strip() == "reached"
        assert not (self.folder / "result").exists()

    def ends(self, *rounds: tuple[int, ...]) -> list[Any]:
        """Run it after each of these rows, to its end. What Delta's own reader then finds in the table."""
        assert self._run(rounds=rounds) == 0, self.log
        return list(json.loads((self.folder / "result").read_text()))

    def _run(self, **settings: Any) -> int:
        log = self.folder / "log"
        command = [PEER_PYTHON, "-m", "tests.docs.recipes_delta", json.dumps({**self._settings, **settings})]
        with log.open("wb") as out:
            job = subprocess.Popen(
                command, cwd=ROOT, env=self._environ, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
            )  # fmt: skip
            try:
                job.wait(WITHIN_S)
            finally:
                job.kill()
                job.wait()
        self.log = log.read_text(errors="replace")[-6000:]
        return job.returncode

    def planned(self) -> set[str]:
        """The batches whose offsets Spark has logged."""
        return self._names("offsets")

    def known(self) -> set[str]:
        """The batches that Spark knows to be committed."""
        return self._names("commits")

    def _names(self, folder: str) -> set[str]:
        return {name for name in os.listdir(checkpoint_of(self.folder) / folder) if name.isdigit()}

    def versions(self) -> list[list[dict[str, Any]]]:
        """The actions of each version in the table's log, as the files have them."""
        files = sorted((table_of(self.folder) / "_delta_log").glob("*.json"))
        return [[json.loads(line) for line in file.read_text().splitlines()] for file in files]

    def table(self) -> Counter[str]:
        """The values in the table by its log and its files, read without Spark and without Delta."""
        found: Counter[str] = Counter()
        for action in (action for version in self.versions() for action in version):
            assert "remove" not in action
            if "add" in action:
                file = pq.ParquetFile(table_of(self.folder) / action["add"]["path"])
                found.update(file.read(["value"]).column("value").to_pylist())
        return found

    def strays(self) -> int:
        """Data files that no version of the table has."""
        has = {action["add"]["path"] for version in self.versions() for action in version if "add" in action}
        return len({file.name for file in table_of(self.folder).glob("*.parquet")} - has)


def once(*rounds: tuple[int, int], prefix: str = "item ") -> dict[str, int]:
    return {f"{prefix}{number}": 1 for first, last in rounds for number in range(first, last)}


def items(kafka: AnyKafka, topic: str, isolation: str = "read_committed") -> Counter[str]:
    """What librdkafka finds in the topic that the program writes."""
    found: Counter[str] = Counter()
    for message in messages_of(kafka, topic, isolation):
        row = json.loads(message.value())
        assert message.key() == str(row["id"]).encode()
        found[row["item"]] += 1
    return found


def test_every_row_of_a_delta_table_is_in_kafka_once_though_the_driver_dies_before_and_after_a_decision(
    kafka: AnyKafka, topic, tmp_path: Path
) -> None:
    name = topic()
    program = Application("delta-to-kafka", kafka, name, tmp_path)

    program.dies(FIRST, SECOND, at="decision-written")
    # Before the decision: no reader of committed records sees any of the batch.
    assert (program.planned(), program.known()) == ({"0", "1"}, {"0"})
    assert items(kafka, name) == once(FIRST)
    assert items(kafka, name, "read_uncommitted") == once(FIRST, SECOND)

    # Without new rows first: the batch is repeated from Spark's offset log.
    program.dies((), THIRD, at="after-decision")
    assert (program.planned(), program.known()) == ({"0", "1", "2"}, {"0", "1"})
    assert sum(items(kafka, name, "read_uncommitted").values()) == 400, "batch 1 twice, batch 2 once"

    table = program.ends((), FOURTH)
    assert sorted(table) == list(range(400))
    assert program.known() == {"0", "1", "2", "3"}
    settle(kafka.bootstrap_servers, name)
    assert items(kafka, name) == once(FIRST, SECOND, THIRD, FOURTH)
    assert sum(items(kafka, name, "read_uncommitted").values()) == 500, "what was decided is not written again"
    assert newest_decision(kafka, name).batch_id == 3
    assert group_offsets(kafka, name) == []


def group_offsets(kafka: AnyKafka, group: str) -> list[Any]:
    """What a group has committed."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    answer = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group]
    return list(answer.result(30).topic_partitions)


@pytest.mark.parametrize("way", ["kafka-to-delta", "kafka-to-delta-foreachBatch"])
def test_every_committed_record_is_in_a_delta_table_once_though_the_driver_dies_before_and_after_deltas_commit(
    kafka: AnyKafka, topic, tmp_path: Path, way: str
) -> None:
    name = topic()
    program = Application(way, kafka, name, tmp_path)

    program.dies(FIRST, SECOND, at="ENTRY:1")
    # The batch's files lie there, and the table has no version with them.
    assert (program.planned(), program.known()) == ({"0", "1"}, {"0"})
    assert len(program.versions()) == 1 and program.strays() > 0
    assert program.table() == once(FIRST)

    # Without new records first: the batch is written again.
    program.dies((), THIRD, at="EXIT:2")
    # Delta knows of the batch, and Spark does not.
    assert (program.planned(), program.known()) == ({"0", "1", "2"}, {"0", "1"})
    assert len(program.versions()) == 3
    assert program.table() == once(FIRST, SECOND, THIRD)

    table = program.ends((), FOURTH)
    assert Counter(table) == once(FIRST, SECOND, THIRD, FOURTH)
    assert program.table() == Counter(table)
    assert program.known() == {"0", "1", "2", "3"}
    transactions = [action["txn"] for version in program.versions() for action in version if "txn" in action]
    assert [txn["version"] for txn in transactions] == [0, 1, 2, 3], "a repeated batch makes no version"
    assert len({txn["appId"] for txn in transactions}) == 1
    # The aborted records were in the topic all the time.
    sent = Counter(message.value().decode() for message in messages_of(kafka, name, "read_uncommitted"))
    assert sum(count for value, count in sent.items() if value.startswith("aborted ")) == 800
    assert sum(sent.values()) == 1200
