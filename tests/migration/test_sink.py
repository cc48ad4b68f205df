"""A job of Spark's Kafka sink, with the format's name changed and a pipeline: the same records, the same refusals.

Spark 4.0.0's JVM sink and ours run in one application (`sink_job`), each into topics of its own; librdkafka reads what
is committed. What differs on purpose stands in `sink_cases` with its reason; a line there that is no difference any
more fails too.
"""

from __future__ import annotations

import json
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.peer import PEER_PYTHON, jvm_sink_jars
from tests.migration.sink_cases import (
    DIFFERENCES,
    JOBS,
    MISTAKES,
    PARTITIONS,
    REFUSED_HERE,
    ROW_TIME_MS,
    ROWS,
    TAKEN_HERE,
    WHY_REFUSED,
    SinkCase,
)
from tests.migration.test_source import class_of
from tests.parity.brokers import Broker
from tests.support.peer import peer_environ

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.parity, pytest.mark.slow]
JOB = Path(__file__).with_name("sink_job.py")
ENDS_WITHIN_S = 1_500
"""It takes two minutes on two cores that do nothing else."""

_WAIT_S = 60

FORMATS = ("kafka", "kafka_eos")
ROLES = ("topic", "other")

SAME_CLASSES = {
    "AnalysisException": "OptionsError",
    "IllegalArgumentException": "OptionsError",
    "ConfigException": "OptionsError",
    "NullPointerException": "InvalidRow",
    "TimeoutException": "UnknownTopic",
    "RecordTooLargeException": "RecordTooLarge",
}
"""What the JVM's classes are called here: by who has to act."""

Rows = list[list[Any]]
Topics = dict[str, dict[str, dict[str, str]]]
"""Case -> format -> role -> name."""


@dataclass(frozen=True)
class Comparison:
    """How each case went, and the records that are committed: case -> format -> role of the topic."""

    outcomes: Mapping[str, Mapping[str, str]]
    records: Mapping[str, Mapping[str, Mapping[str, Rows]]]

    def of(self, case: SinkCase, name: str) -> dict[str, Any]:
        """What is compared: records by topic, the partitions of those that tell where they go, whose time they have."""
        found = self.records[case.name][name]
        every = [row for rows in found.values() for row in rows]
        return {
            "records": {role: sorted((row[:3] for row in rows), key=repr) for role, rows in found.items()},
            "partitions": {
                role: sorted((row[:4] for row in rows), key=repr) if case.placed else None
                for role, rows in found.items()
            },
            "times": {"the row's" if row[4] == ROW_TIME_MS else "the write's" for row in every},
        }


@pytest.fixture(scope="module")
def compared(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """All cases through both sinks, once."""
    if not PEER_PYTHON.exists():
        pytest.skip("there is no environment with pyspark 4.0.0: make venv-bench")
    return compare(broker, (*JOBS, *MISTAKES, *REFUSED_HERE, *TAKEN_HERE), tmp_path_factory.mktemp("migration"))


def compare(broker: Broker, cases: Sequence[SinkCase], directory: Path) -> Comparison:
    """Run the job over the cases, then read what is committed."""
    prefix = f"migration-{uuid.uuid4().hex[:8]}"
    topics: Topics = {
        case.name: {name: {role: f"{prefix}-{case.name}-{name}-{role}" for role in ROLES} for name in FORMATS}
        for case in cases
    }
    _make(broker, _names(topics))
    asked = {"rows": ROWS, "cases": [case.as_json(topics[case.name]) for case in cases]}
    answer = subprocess.run(
        [PEER_PYTHON, JOB, broker.bootstrap_servers, jvm_sink_jars(), directory],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        cwd=directory,
        env=peer_environ(),
        timeout=ENDS_WITHIN_S,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout[-3000:] + answer.stderr[-6000:]
    outcomes = json.loads(answer.stdout.splitlines()[-1])
    found = _committed(broker, _names(topics))
    records = {
        case: {name: {role: found[topic] for role, topic in roles.items()} for name, roles in each.items()}
        for case, each in topics.items()
    }
    return Comparison(outcomes, records)


@pytest.mark.parametrize("case", JOBS, ids=lambda case: case.name)
def test_a_job_writes_what_it_writes_through_sparks_sink(compared: Comparison, case: SinkCase) -> None:
    for name in FORMATS:
        assert compared.outcomes[case.name][name] == ""
    theirs, ours = compared.of(case, "kafka"), compared.of(case, "kafka_eos")

    differing = {part for part in theirs if theirs[part] != ours[part]}

    listed = set(DIFFERENCES.get(case.name, {}))
    assert differing <= listed, {part: (theirs[part], ours[part]) for part in differing - listed}
    assert listed <= differing, f"no difference any more: {listed - differing}"
    count = 0 if case.name == "no-rows" else case.runs * ROWS
    assert sum(map(len, theirs["records"].values())) == count


@pytest.mark.parametrize("case", MISTAKES, ids=lambda case: case.name)
def test_a_mistake_is_refused_as_sparks_sink_refuses_it_and_nothing_shows(compared: Comparison, case: SinkCase) -> None:
    theirs, ours = (compared.outcomes[case.name][name] for name in FORMATS)
    assert theirs, "Spark's sink takes it"
    assert ours, "our sink takes it"
    assert case.says in theirs, theirs[-3000:]

    differing = set() if SAME_CLASSES.get(class_of(theirs)) == class_of(ours) else {"class"}

    assert differing == set(DIFFERENCES.get(case.name, {})), (theirs[-3000:], ours[-3000:])
    assert list(compared.records[case.name]["kafka_eos"].values()) == [[], []]


@pytest.mark.parametrize("case", REFUSED_HERE, ids=lambda case: case.name)
def test_what_only_our_sink_refuses_has_a_reason_and_nothing_shows(compared: Comparison, case: SinkCase) -> None:
    said, _ = WHY_REFUSED[case.name]
    theirs, ours = (compared.outcomes[case.name][name] for name in FORMATS)

    assert theirs == ""
    assert said in ours, ours[-3000:] or "no difference any more"
    assert list(compared.records[case.name]["kafka_eos"].values()) == [[], []]
    if case.options.get("topic") == "{topic}":
        assert len(compared.records[case.name]["kafka"]["topic"]) == ROWS


@pytest.mark.parametrize("case", TAKEN_HERE, ids=lambda case: case.name)
def test_what_only_our_sink_takes_is_written(compared: Comparison, case: SinkCase) -> None:
    theirs, ours = (compared.outcomes[case.name][name] for name in FORMATS)

    assert theirs, "no difference any more"
    assert ours == ""
    assert len(compared.records[case.name]["kafka_eos"]["topic"]) == ROWS


def _names(topics: Topics) -> list[str]:
    return [topic for formats in topics.values() for roles in formats.values() for topic in roles.values()]


def _make(broker: Broker, topics: list[str]) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    # The times of a timestamp column are long past: a broker would delete those records within a minute.
    new = [NewTopic(topic, PARTITIONS, 1, config={"retention.ms": "-1"}) for topic in topics]
    for answer in admin.create_topics(new, operation_timeout=_WAIT_S).values():
        answer.result(_WAIT_S)


def _committed(broker: Broker, topics: list[str]) -> dict[str, Rows]:
    """Key, value, headers, partition, time of each record that is committed, by topic."""
    consumer = Consumer({
        "bootstrap.servers": broker.bootstrap_servers, "group.id": "judge", "isolation.level": "read_committed",
        "enable.auto.commit": False, "enable.partition.eof": True})  # fmt: skip
    places = [(topic, number) for topic in topics for number in range(PARTITIONS)]
    rows: dict[str, Rows] = {topic: [] for topic in topics}
    ended: set[tuple[str, int]] = set()
    try:
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for topic, number in places])
        deadline = time.monotonic() + _WAIT_S
        while len(ended) < len(places):
            assert time.monotonic() < deadline, set(places) - ended
            for message in consumer.consume(500, timeout=0.2):
                error = message.error()
                if error is None:
                    rows[message.topic()].append([
                        message.key(), message.value(), message.headers() or [], message.partition(),
                        message.timestamp()[1]])  # fmt: skip
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    ended.add((message.topic(), message.partition()))
    finally:
        consumer.close()
    return rows
