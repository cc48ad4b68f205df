"""A query that is idle for longer than the coordinator keeps its transactional ids: the next batch is written all the
same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from embedded_kafka.embedded import EmbeddedKafka
from kafka_core.errors import ExactlyOnceError, ProducerFenced
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.requests.transactions import Transactions
from pyspark_kafka_eos.commit.per_task import PerTask
from pyspark_kafka_eos.commit.reports import CommitReport
from pyspark_kafka_eos.commit.run import Run
from pyspark_kafka_eos.commit.whole_batch import driver as batch_scope
from pyspark_kafka_eos.commit.whole_batch.driver import WholeBatch
from pyspark_kafka_eos.model import Seal
from pyspark_kafka_eos.options import SinkOptions
from pyspark_kafka_eos.slot.writer import write_slot
from tests.pyspark_kafka_eos.commit import batch_child
from tests.pyspark_kafka_eos.commit.child import arrow_batches, run
from tests.pyspark_kafka_eos.commit.judge import EXPECTED, committed_offsets, read_all, settings_for

pytestmark = [pytest.mark.kafka, pytest.mark.embedded]

EIGHT_DAYS_MS = 8 * 24 * 60 * 60 * 1000


@pytest.fixture(params=["2", "1"])
def broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(in_process=True, config={"transaction.version": request.param}) as kafka:
        yield kafka


@pytest.fixture(params=["task", "batch"])
def scope(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def driver_of(settings: dict[str, Any], scope: str) -> PerTask | WholeBatch:
    if scope == "batch":
        return batch_child.driver_of(settings)
    options = SinkOptions.parse(settings["options"])
    return PerTask(Run(Cluster.shared(options.client), options, settings["query"]))


def process(driver: PerTask | WholeBatch, settings: dict[str, Any]) -> CommitReport:
    """One batch as the writer of foreachBatch does it."""
    if isinstance(driver, WholeBatch):
        return batch_child.process(driver, settings)

    def write(only: frozenset[int] | None) -> list[Seal]:
        plan = driver.plan(settings["batch"], only)
        return [write_slot(plan, slot, arrow_batches(values)) for slot, values in enumerate(settings["rows"])]

    offsets = {TopicPartition(topic, number): at for topic, number, at in settings["offsets"]}
    return driver.process(settings["batch"], write, batch_child.lines_of(settings), offsets)


def rest(broker: EmbeddedKafka, driver: PerTask | WholeBatch) -> None:
    """Until the coordinator has forgotten the driver."""
    # Markers of the last batch may be on their way; an id is forgotten only after its end.
    broker.advance(EIGHT_DAYS_MS)
    assert driver.run.transactions.describe([driver.run.driver_id])[driver.run.driver_id].state == "NotFound"


def test_after_a_rest_longer_than_the_ids_expiry_the_next_batch_is_written_once(
    broker: EmbeddedKafka, scope: str
) -> None:
    settings = settings_for(broker)
    driver = driver_of(settings, scope)
    assert driver.start(0) is None
    process(driver, settings)
    rest(broker, driver)

    report = process(driver, {**settings, "batch": 1})

    # No time has passed here: without the clock's word the tasks of a shared transaction find it out.
    assert (report.records, report.redone) == (
        1200,
        int(scope == "batch" and driver.run.cluster.transaction_version == 2),
    )
    assert read_all(broker, settings["options"]["topic"]) == EXPECTED + EXPECTED
    assert read_all(broker, settings["options"]["topic"], "read_uncommitted") == EXPECTED + EXPECTED
    assert committed_offsets(broker, settings) == settings["offsets"]
    rest(broker, driver)
    assert process(driver, {**settings, "batch": 2}).records == 1200
    newest = driver.run.ledger.newest(settle=True)
    assert newest is not None and newest.batch_id == 2


def test_an_identity_that_rested_is_renewed_before_the_tasks_begin(
    broker: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_scope, "RESTED_S", 0.0)
    settings = settings_for(broker)
    driver = driver_of(settings, "batch")
    assert driver.start(0) is None
    process(driver, settings)
    rest(broker, driver)

    report = process(driver, {**settings, "batch": 1})

    assert (report.records, report.redone) == (1200, 0)
    assert read_all(broker, settings["options"]["topic"]) == EXPECTED + EXPECTED


def test_a_newer_run_still_fences_one_that_has_rested(broker: EmbeddedKafka, scope: str) -> None:
    settings = settings_for(broker)
    driver = driver_of(settings, scope)
    assert driver.start(0) is None
    process(driver, settings)
    rest(broker, driver)
    newer = driver_of(settings, scope)
    assert newer.start(1) is None

    with pytest.raises(ProducerFenced):
        process(driver, {**settings, "batch": 1})

    assert read_all(broker, settings["options"]["topic"]) == EXPECTED
    assert process(newer, {**settings, "batch": 1}).records == 1200
    assert read_all(broker, settings["options"]["topic"]) == EXPECTED + EXPECTED


def test_a_newer_run_that_was_forgotten_too_is_seen_in_the_ledger(broker: EmbeddedKafka, scope: str) -> None:
    """Both runs' ids have expired, so no coordinator can tell them apart; the newer one has decided a batch."""
    settings = settings_for(broker)
    driver = driver_of(settings, scope)
    assert driver.start(0) is None
    process(driver, settings)
    newer = driver_of(settings, scope)
    assert newer.start(1) is None
    process(newer, {**settings, "batch": 1})
    rest(broker, driver)

    with pytest.raises(ProducerFenced, match="has decided"):
        process(driver, {**settings, "batch": 1})

    assert read_all(broker, settings["options"]["topic"]) == EXPECTED + EXPECTED
    assert run({**settings, "batch": 1})["resumed"] is True


def test_an_identity_under_which_something_may_have_been_written_is_not_renewed(
    broker: EmbeddedKafka,
) -> None:
    settings = settings_for(broker)
    driver = driver_of(settings, "task")
    assert driver.start(0) is None
    process(driver, settings)
    before = driver.run.transactions.describe([driver.run.driver_id])[driver.run.driver_id]
    lost = broker.fault("Produce", "drop-answer", transactional_id=driver.run.driver_id)
    refused = broker.fault(
        "Produce", "error", code="INVALID_PRODUCER_ID_MAPPING", transactional_id=driver.run.driver_id
    )

    with pytest.raises(ExactlyOnceError, match="INVALID_PRODUCER_ID_MAPPING"):
        process(driver, {**settings, "batch": 1})

    assert (lost.fired, refused.fired) == (1, 1)
    after = Transactions(driver.run.cluster).describe([driver.run.driver_id])[driver.run.driver_id]
    assert after.identity.producer_id == before.identity.producer_id
    assert "Abort" in after.state
    assert read_all(broker, settings["options"]["topic"]) == EXPECTED
    assert Counter(run({**settings, "batch": 1})) == Counter(
        {"batch": 1, "records": 1200, "resumed": False, "repaired": 0}
    )
