"""A decided batch is written again after partitions were added to its topics, or after they were recreated: the same
rows go to the same partitions.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from embedded_kafka.embedded import EmbeddedKafka
from pyspark_kafka_eos import crash_points
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.commit.drivers import pipeline_driver
from pyspark_kafka_eos.commit.handover import begin, finish
from pyspark_kafka_eos.commit.per_task import PerTask
from pyspark_kafka_eos.commit.reports import CommitReport
from pyspark_kafka_eos.commit.whole_batch.driver import WholeBatch
from pyspark_kafka_eos.model import Seal
from pyspark_kafka_eos.options import SinkOptions
from pyspark_kafka_eos.slot.plan import SharedPlan, WritePlan
from pyspark_kafka_eos.slot.shared_writer import write_shared
from pyspark_kafka_eos.slot.writer import write_slot
from tests.conftest import topics_of
from tests.pyspark_kafka_eos.commit.gone.test_topic_gone import create
from tests.pyspark_kafka_eos.commit.judge import read_in_order
from tests.pyspark_kafka_eos.commit.ledger.test_ledger_lost import delete

pytestmark = [pytest.mark.kafka, pytest.mark.embedded]

TIMEOUT_MS = 16 * 60 * 1000
"""Longer than any transaction may last: the longest that the connector asks for is 15 minutes."""

LINES = ("offsets",)


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(in_process=True, config={"auto.create.topics.enable": "false"}) as kafka:
        yield kafka


class Killed(BaseException):
    """Stops the run in the middle, as a kill would."""


def kill() -> None:
    raise Killed


@dataclass
class Query:
    """Two slots of keyed rows, rows without a key and rows for the dead letters; `scope` of its transactions."""

    broker: EmbeddedKafka
    scope: str
    clusters: list[Cluster] = field(default_factory=list)

    def __post_init__(self) -> None:
        make = topics_of(self.broker)
        self.topic, self.dead = make(2), make(2)
        self.options = SinkOptions.parse(
            {
                "kafka.bootstrap.servers": self.broker.bootstrap_servers,
                "pipeline": f"pipe-{self.topic}",
                "topic": self.topic,
                "dead.letter.topic": self.dead,
                "kafka.batch.size": "1024",
                "transaction.scope": self.scope,
            }
        )

    def driver(self) -> PerTask | WholeBatch:
        """Of a new process, as far as it matters here: nothing is known of the topics."""
        return pipeline_driver(self.cluster(), self.options, "query")

    def cluster(self) -> Cluster:
        self.clusters.append(Cluster(self.options.client))
        return self.clusters[-1]

    def close(self) -> None:
        for each in self.clusters:
            each.close()

    def rows(self, slot: int) -> Iterator[pa.RecordBatch]:
        count = 60
        yield pa.RecordBatch.from_pydict(
            {
                "key": pa.array([f"k{slot} {n}" if n % 2 else None for n in range(count)]),
                "value": pa.array([f"{slot} {n} " + "x" * 50 for n in range(count)]),
                "partition": pa.array([9 if n % 5 == 0 else None for n in range(count)], pa.int32()),
            }
        )

    def write(self, plan: WritePlan | SharedPlan) -> list[Seal]:
        def one(slot: int) -> Seal:
            rows = self.rows(slot)
            return write_shared(plan, slot, rows) if isinstance(plan, SharedPlan) else write_slot(plan, slot, rows)

        with ThreadPoolExecutor(2) as tasks:
            return list(tasks.map(one, range(2)))

    def process(self, driver: PerTask | WholeBatch) -> CommitReport:
        """Start, and the batch where it is not decided."""
        resumed = driver.start(0, lambda only: self.write(driver.plan(0, only)), LINES)
        return resumed or driver.process(0, lambda only: self.write(driver.plan(0, only)), LINES, {})

    def by_format(self) -> CommitReport:
        """Begin and end in two processes, as by format and by df.write."""
        plan, handover = begin(self.cluster(), self.options, "query", 0, LINES)
        seals = self.write(plan)
        return finish(self.cluster(), self.options, handover, seals, LINES, {})

    def add_partitions(self, count: int) -> None:
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap_servers})
        new = [NewPartitions(name, count) for name in (self.topic, self.dead)]
        for answer in admin.create_partitions(new).values():
            answer.result(30)

    def found(self) -> Mapping[str, list[list[str]]]:
        """What readers see of each topic, by partition, without those that have nothing."""
        return {
            name: [sorted(values) for values in read_in_order(self.broker, topic).values() if values]
            for name, topic in (("good", self.topic), ("dead", self.dead))
        }

    def killed_at(self, point: str) -> None:
        crash_points.arm(point, 1, kill)
        with pytest.raises(Killed):
            self.process(self.driver())


def values_of(found: Mapping[str, list[list[str]]]) -> dict[str, list[str]]:
    """The same without the partitions."""
    return {name: sorted(itertools.chain.from_iterable(parts)) for name, parts in found.items()}


@pytest.fixture
def make(broker: EmbeddedKafka) -> Iterator[Callable[[str], Query]]:
    made: list[Query] = []

    def query(scope: str) -> Query:
        made.append(Query(broker, scope))
        return made[-1]

    yield query
    crash_points.arm("")
    for each in made:
        each.close()


@pytest.fixture
def expected(make: Callable[[str], Query]) -> dict[str, list[list[str]]]:
    """What every query's topics have where nothing happens."""
    undisturbed = make("task")
    assert undisturbed.process(undisturbed.driver()).records == 120
    return dict(undisturbed.found())


@pytest.mark.parametrize(
    ("scope", "by_format", "torn"),
    [
        ("task", False, "good"),
        ("task", True, "good"),
        ("batch", False, "good"),
        ("batch", True, "good"),
        ("task", False, "dead"),
    ],
)
def test_a_torn_batch_is_made_whole_after_partitions_were_added(
    broker: EmbeddedKafka,
    make: Callable[[str], Query],
    scope: str,
    torn: str,
    by_format: bool,
    expected: dict[str, list[list[str]]],
) -> None:
    query = make(scope)
    whose = f"{query.options.pipeline}:{'batch' if query.scope == 'batch' else '0'}"
    topic = query.topic if torn == "good" else query.dead
    forgotten = broker.fault_at_marker(topic, 1, "forget", transactional_id=whose, commit=True)
    query.killed_at("mend-added")
    # The transaction that was to write the marker times out, and with it what it was to commit.
    broker.advance(TIMEOUT_MS)
    assert forgotten.fired == 1
    query.add_partitions(5)
    before = query.found()
    assert before != expected, "nothing is torn"

    report = query.by_format() if by_format else query.process(query.driver())

    assert (report.resumed, report.repaired) == (True, 1)
    if query.scope == "task":
        assert query.found() == expected
    # In one transaction the tasks' rows without a key go together, as their turns come.
    assert values_of(query.found()) == values_of(expected)


def aborted(query: Query) -> None:
    """The batch is decided, and the broker has aborted all of it for its timeout."""
    query.killed_at("before-end")
    query.broker.advance(TIMEOUT_MS)


def test_a_batch_that_was_aborted_whole_is_written_to_the_partitions_that_it_had(
    make: Callable[[str], Query], expected: dict[str, list[list[str]]]
) -> None:
    query = make("task")
    aborted(query)
    query.add_partitions(5)

    assert query.process(query.driver()).repaired == 1

    assert query.found() == expected


def test_a_batch_that_was_aborted_whole_is_written_into_a_topic_that_was_recreated_with_words(
    broker: EmbeddedKafka,
    make: Callable[[str], Query],
    expected: dict[str, list[list[str]]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    query = make("task")
    aborted(query)
    for topic in (query.topic, query.dead):
        delete(broker, topic)
        create(broker, topic, 1)

    with caplog.at_level(logging.WARNING):
        assert query.process(query.driver()).repaired == 1

    for topic in (query.topic, query.dead):
        assert f"topic {topic} was deleted and recreated since batch 0 was decided" in caplog.text
    assert {name: len(parts) for name, parts in query.found().items()} == {"good": 1, "dead": 1}
    assert values_of(query.found()) == values_of(expected)
