"""What a commit's report and the ledger count beside records: what was sent again, and who was shut out."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark import TaskContext

from embedded_kafka.embedded import EmbeddedKafka
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.commit.ledger.topic import Ledger
from pyspark_kafka_eos.commit.per_task import PerTask
from pyspark_kafka_eos.commit.reports import CommitReport
from pyspark_kafka_eos.commit.run import Run
from pyspark_kafka_eos.model import Decision, Seal
from pyspark_kafka_eos.options import SinkOptions
from pyspark_kafka_eos.records import BATCH_OVERHEAD_BYTES
from pyspark_kafka_eos.slot.writer import SlotWriter, write_slot
from pyspark_kafka_eos.spark.sink.tasks import read_results, slot_task
from tests.pyspark_kafka_eos.commit.child import arrow_batches
from tests.pyspark_kafka_eos.commit.judge import EXPECTED, read_all, settings_for
from tests.support.brokers import AnyKafka

pytestmark = pytest.mark.kafka


class Pipeline:
    """One run of a pipeline in this process."""

    def __init__(self, broker: AnyKafka) -> None:
        self.settings = settings_for(broker)
        self.options = SinkOptions.parse(self.settings["options"])
        self.cluster = Cluster(self.options.client)
        self.driver = PerTask(Run(self.cluster, self.options, "query-1"))

    def slots(self, only: frozenset[int] | None = None) -> list[Seal]:
        plan = self.driver.plan(0, only)
        return [write_slot(plan, slot, arrow_batches(rows)) for slot, rows in enumerate(self.settings["rows"])]

    def run(self) -> CommitReport:
        assert self.driver.start(0, self.slots) is None
        return self.driver.process(0, self.slots, ("-",), {})

    def decision(self) -> Decision:
        found = Ledger(self.cluster, self.options.ledger_topic, self.options.pipeline).newest(settle=True)
        assert found is not None
        return found


@pytest.fixture
def pipeline(broker: AnyKafka) -> Iterator[Pipeline]:
    made = Pipeline(broker)
    yield made
    made.cluster.close()


def test_a_batch_without_trouble_has_nothing_to_count(broker: AnyKafka, pipeline: Pipeline) -> None:
    report = pipeline.run()

    assert (report.retries, report.fences) == (0, 0)
    assert read_all(broker, pipeline.settings["options"]["topic"]) == EXPECTED


def test_what_sending_took_is_in_report_and_ledger(pipeline: Pipeline) -> None:
    report = pipeline.run()

    sent = report.traffic
    assert sent is not None
    assert sent.record_batches >= sent.requests >= len(pipeline.settings["rows"])
    assert sent.sent_bytes == report.bytes + BATCH_OVERHEAD_BYTES * sent.record_batches
    assert sent.waited_us >= sent.longest_us > 0
    assert sent.connections >= 1
    assert pipeline.decision().traffic == sent


@pytest.mark.embedded
def test_record_batches_that_were_sent_again_are_counted_in_report_and_ledger(
    broker: EmbeddedKafka, pipeline: Pipeline
) -> None:
    # The first two are notes of the first start: that it began, and its producer ids.
    fault = broker.fault("Produce", "cut", after_bytes=3, skip=2)

    report = pipeline.run()

    assert fault.fired == 1
    assert report.retries >= 1
    assert sum(seal.retries for seal in pipeline.decision().seals) == report.retries
    assert read_all(broker, pipeline.settings["options"]["topic"]) == EXPECTED


def test_a_transaction_that_an_earlier_run_left_open_counts_as_fenced_once(
    broker: AnyKafka, pipeline: Pipeline
) -> None:
    assert pipeline.driver.start(0, None) is None
    # A slot above those of this run, so that nobody but the driver's start ends it.
    left = SlotWriter(pipeline.driver.plan(0), 7)
    for batch in arrow_batches(["left open"]):
        left.write(batch)
    left.seal()

    first = pipeline.run()
    second = pipeline.driver.process(1, lambda _: pipeline.slots(), ("-",), {})

    assert (first.fences, second.fences) == (1, 0)
    assert read_all(broker, pipeline.settings["options"]["topic"]) == EXPECTED + EXPECTED


def test_an_attempt_of_a_task_counts_the_earlier_ones_as_fenced(
    broker: AnyKafka, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What Spark tells a task that runs for the third time.
    context = object.__new__(TaskContext)  # its constructor would keep it for the whole process
    context._attemptNumber, context._partitionId = 2, 0
    context._localProperties, context._stageId, context._taskAttemptId = {}, 4, 17
    monkeypatch.setattr(TaskContext, "_taskContext", context)
    assert pipeline.driver.start(0) is None

    rows = next(slot_task(pipeline.driver.plan(0))(arrow_batches(["one"]))).to_pylist()
    seals, _ = read_results((row["slot"], row["seal"], row["failure"]) for row in rows)
    report = pipeline.driver.commit(0, seals, ("-",), {})

    assert [seal.attempt for seal in seals] == [2]
    assert (report.records, report.fences) == (1, 2)
