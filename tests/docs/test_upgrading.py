"""What docs/upgrading.md says of a change of versions in the middle of a batch is played, and what it says of formats
is read from the code.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from embedded_kafka import storage
from embedded_kafka.embedded import EmbeddedKafka
from embedded_kafka.real import LocalKafka
from kafka_core.errors import LedgerUnreadable
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.commit.ledger import notes
from pyspark_kafka_eos.commit.ledger.topic import Ledger
from pyspark_kafka_eos.commit.per_task import PerTask
from pyspark_kafka_eos.commit.run import Run
from pyspark_kafka_eos.model import ClientSettings, Decision, Seal, group_offset
from pyspark_kafka_eos.model import decision as decisions
from pyspark_kafka_eos.options import SinkOptions
from pyspark_kafka_eos.slot import turn_log
from pyspark_kafka_eos.slot.writer import write_slot
from pyspark_kafka_eos.spark import offset_json, offset_log
from tests.conftest import topics_of
from tests.docs import figures
from tests.pyspark_kafka_eos.cli.cli_tools import Settings, killed, name_of
from tests.pyspark_kafka_eos.commit.child import arrow_batches, run_child
from tests.pyspark_kafka_eos.commit.judge import EXPECTED, read_all, settings_for
from tests.pyspark_kafka_eos.commit.test_damage import following, rows_of
from tests.pyspark_kafka_eos.commit.test_repair import abort_slot
from tests.support.brokers import AnyKafka

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "upgrading.md"

# ---- Kafka's transaction versions


class Changing:
    """A broker whose transaction version is changed between two runs, as `kafka-features.sh` does; its records stay."""

    def __init__(self, directory: Path, version: str) -> None:
        self._directory, self._version = directory, version
        self.kafka = self._start(0)

    def _start(self, port: int) -> EmbeddedKafka:
        started = EmbeddedKafka(data_dir=self._directory, port=port, config={"transaction.version": self._version})
        return started.__enter__()

    def change(self, version: str) -> None:
        port = int(self.kafka.bootstrap_servers.rpartition(":")[2])
        self.close()
        self._version = version
        self.kafka = self._start(port)

    def close(self) -> None:
        self.kafka.__exit__(None, None, None)


@pytest.fixture(params=[("1", "2"), ("2", "1")], ids=["raised", "lowered"])
def changing(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Changing, str]]:
    before, after = request.param
    broker = Changing(tmp_path / "data", before)
    try:
        yield broker, after
    finally:
        broker.close()


def versions_of(kafka: EmbeddedKafka, settings: Settings) -> set[int]:
    """The transaction versions of the newest decision's seals, of those with records."""
    cluster = Cluster(ClientSettings((kafka.bootstrap_servers,)))
    try:
        newest = Ledger(cluster, "exactly-once-ledger", name_of(settings)).newest(settle=True)
        assert newest is not None
        return {seal.transaction_version for seal in newest.seals if not seal.empty}
    finally:
        cluster.close()


def goes_on(kafka: EmbeddedKafka, settings: Settings, after: str) -> None:
    """The next batch is written under the version that the cluster has now, and every record is there once."""
    coming = following(settings)
    assert run_child(coming).report["batch"] == 1
    assert versions_of(kafka, settings) == {int(after)}
    assert read_all(kafka, str(settings["options"]["topic"])) == EXPECTED + rows_of(coming)


def finished(broker: Changing, settings: Settings, after: str) -> dict[str, Any]:
    """The report of the next run, under another version. Every record is there once, and the next batch goes on."""
    broker.change(after)
    report = run_child(settings).report
    assert read_all(broker.kafka, str(settings["options"]["topic"])) == EXPECTED
    goes_on(broker.kafka, settings, after)
    return report


@pytest.mark.kafka
@pytest.mark.embedded
def test_a_decided_batch_is_finished_under_another_transaction_version(
    changing: tuple[Changing, str],
) -> None:
    broker, after = changing
    settings = killed(broker.kafka, "ends-arrived:1", settings_for(broker.kafka))
    before = versions_of(broker.kafka, settings)

    assert before == {3 - int(after)}
    assert finished(broker, settings, after)["resumed"] is True


@pytest.mark.kafka
@pytest.mark.embedded
def test_a_decided_batch_is_written_again_under_another_transaction_version(
    changing: tuple[Changing, str],
) -> None:
    broker, after = changing
    settings = killed(broker.kafka, "before-end", settings_for(broker.kafka))
    abort_slot(broker.kafka, settings, 1)

    assert finished(broker, settings, after)["repaired"] == 1


@pytest.mark.kafka
@pytest.mark.embedded
def test_an_undecided_batch_is_written_anew_under_another_transaction_version(
    changing: tuple[Changing, str],
) -> None:
    broker, after = changing
    settings = killed(broker.kafka, "before-decision", settings_for(broker.kafka))

    assert finished(broker, settings, after)["resumed"] is False


class Running:
    """A query's process that goes on while its cluster changes."""

    def __init__(self, kafka: AnyKafka, topic: str) -> None:
        self._settings = settings_for(kafka)
        self._settings["options"] |= {"pipeline": f"running-{topic}", "topic": topic}
        options = SinkOptions.parse(self._settings["options"])
        self._run = PerTask(Run(Cluster.shared(options.client), options, "query-1"))
        self._begun = False

    def batch(self, number: int) -> set[int]:
        """Write and commit a batch; gives the transaction versions of its slots."""
        seals: list[Seal] = []

        def write(only: frozenset[int] | None = None) -> list[Seal]:
            plan = self._run.plan(number, only)
            seals[:] = [write_slot(plan, slot, arrow_batches(self.rows(number, slot))) for slot in range(2)]
            return list(seals)

        if not self._begun:
            assert self._run.start(number, write) is None
            self._begun = True
        report = self._run.commit(number, write(), (json.dumps(number),), {}, write)
        assert (report.records, report.repaired) == (10, 0)
        return {seal.transaction_version for seal in seals}

    def rows(self, number: int, slot: int) -> list[str]:
        return [f"{number} {slot} {row}" for row in range(5)]

    def close(self) -> None:
        """The process ends: its connections, the tasks' too, are not used again."""
        self._run.run.cluster.close()


@pytest.mark.kafka
@pytest.mark.embedded
def test_a_query_that_runs_keeps_its_transaction_version_and_the_next_run_takes_the_clusters(
    changing: tuple[Changing, str],
) -> None:
    broker, after = changing
    topic = topics_of(broker.kafka)()
    _runs_through(broker.kafka, topic, 3 - int(after), int(after), lambda: broker.change(after))


@pytest.mark.kafka
@pytest.mark.real
def test_kafka_lowers_the_transaction_version_under_a_query_that_runs_and_under_a_decided_batch() -> None:
    with LocalKafka(transaction_version=2, fast_start=True) as kafka:
        settings = killed(kafka, "ends-arrived:1", settings_for(kafka))

        def lower() -> None:
            feature = ("downgrade", "--feature", "transaction.version=1")
            tool = "org.apache.kafka.tools.FeatureCommand"
            answer = kafka.tool(tool, "--bootstrap-server", kafka.bootstrap_servers, *feature)
            assert answer.returncode == 0, answer.stdout + answer.stderr

        _runs_through(kafka, topics_of(kafka)(), 2, 1, lower)
        assert run_child(settings).report["resumed"] is True
        coming = following(settings)
        assert run_child(coming).report["batch"] == 1
        assert read_all(kafka, str(settings["options"]["topic"])) == EXPECTED + rows_of(coming)


def _runs_through(kafka: AnyKafka, topic: str, before: int, after: int, change: Callable[[], None]) -> None:
    query = Running(kafka, topic)
    assert query.batch(0) == {before}

    change()

    assert [query.batch(1), query.batch(2)] == [{before}, {before}]
    query.close()
    next_run = Running(kafka, topic)
    assert next_run.batch(3) == {after}
    next_run.close()
    expected = Counter(row for number in range(4) for slot in range(2) for row in query.rows(number, slot))
    assert read_all(kafka, topic) == expected


# ---- the formats


def formats() -> dict[str, str]:
    """What is kept -> its version, of the page's table."""
    found = re.findall(r"^\| ([^|]+?) \| (v?\d+(?:, v?\d+)*) \| ", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return dict(found)


def test_the_page_names_the_versions_of_the_formats_that_the_code_has() -> None:
    assert formats() == {
        "decision in the ledger, in one record or several": str(decisions.LEDGER_FORMAT_VERSION),
        "note in the ledger": str(notes.NOTE_VERSION),
        "turns of the tasks of `transaction.scope=batch`": str(turn_log.TURN_FORMAT_VERSION),
        "the source's offsets in the checkpoint": str(offset_json.OFFSETS_VERSION),
        "what the consumer group's offsets stand on": str(group_offset._VERSION),
        "Spark's offset log in the checkpoint": ", ".join(offset_log._KNOWN_VERSIONS),
        "data directory of the embedded broker": str(storage.FORMAT_VERSION),
    }


def test_fields_that_a_newer_version_adds_to_a_decision_are_passed_over() -> None:
    made = figures.decision(2, 2)
    body = json.loads(made.to_bytes())
    body["of_a_newer_version"] = {"any": 1}
    for seal in body["seals"]:
        seal["of_a_newer_version"] = "any"

    assert Decision.from_bytes(json.dumps(body).encode()) == made


@pytest.mark.parametrize("by", [1, -1], ids=["newer", "older"])
def test_a_decision_of_another_format_is_refused_with_the_words_of_the_page(by: int) -> None:
    body: dict[str, Any] = json.loads(figures.decision(2, 2).to_bytes())
    body["version"] += by

    with pytest.raises(LedgerUnreadable) as refused:
        Decision.from_bytes(json.dumps(body).encode())

    assert refused.value.message in PAGE.read_text(encoding="utf-8")
