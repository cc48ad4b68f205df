"""An attempt of a task that is cut off from the driver, but not from Kafka, and begins to write when its batch is
over.
"""

from __future__ import annotations

import signal
import time
from dataclasses import replace
from typing import Any

import pytest

from kafka_core.errors import ProducerFenced
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.requests.transactions import Transactions
from pyspark_kafka_eos.commit.per_task import PerTask
from pyspark_kafka_eos.commit.run import Run
from pyspark_kafka_eos.model import ClientSettings, Seal
from pyspark_kafka_eos.options import SinkOptions
from pyspark_kafka_eos.slot.plan import WritePlan
from pyspark_kafka_eos.slot.writer import write_slot
from tests.pyspark_kafka_eos.commit.child import arrow_batches, run_child
from tests.pyspark_kafka_eos.commit.judge import EXPECTED, read_all, settings_for
from tests.pyspark_kafka_eos.commit.phases import begin, finish, play, tasks
from tests.support.brokers import AnyKafka

pytestmark = pytest.mark.kafka


def late(plan: WritePlan, ago_ms: int = 60_000) -> WritePlan:
    """The plan as a task sees it so long after it was made."""
    return replace(plan, planned_ms=int(time.time() * 1000) - ago_ms)


def state_of(broker: AnyKafka, name: str) -> str:
    cluster = Cluster(ClientSettings((broker.bootstrap_servers,)))
    try:
        return Transactions(cluster).describe([name])[name].state
    finally:
        cluster.close()


def write_one(settings: dict[str, Any], plan: WritePlan, slot: int) -> Seal:
    return write_slot(plan, slot, arrow_batches(settings["rows"][slot]))


def test_it_leaves_a_decided_slot_alone_and_nothing_has_to_be_repaired(broker: AnyKafka) -> None:
    settings = settings_for(broker)
    plan, handover = play(begin, settings).value
    seals = play(tasks, settings, plan).value
    assert play(finish, settings, handover, seals, crash_point="before-end").exitcode == -signal.SIGKILL

    with pytest.raises(ProducerFenced, match="after its batch is over"):
        write_one(settings, late(plan), 1)

    assert state_of(broker, plan.transactional_id(1)) == "Ongoing"
    assert run_child(settings).report == {"batch": 0, "records": 1200, "resumed": True, "repaired": 0}
    assert read_all(broker, settings["options"]["topic"], "read_uncommitted") == EXPECTED


def test_it_leaves_the_next_batch_of_the_same_run_alone(broker: AnyKafka) -> None:
    settings = settings_for(broker)
    options = SinkOptions.parse(settings["options"])
    cluster = Cluster(ClientSettings((broker.bootstrap_servers,)))
    driver = PerTask(Run(cluster, options, "query-1"))
    try:
        assert driver.start(0) is None
        plans: list[WritePlan] = []

        def write(batch_id: int) -> list[Seal]:
            plans.append(driver.plan(batch_id))
            return [write_one(settings, plans[-1], slot) for slot in range(3)]

        for batch_id in (0, 1):
            driver.commit(batch_id, write(batch_id), (), {})
        seals = write(2)

        with pytest.raises(ProducerFenced, match="after its batch is over"):
            write_one(settings, late(plans[1]), 1)

        driver.commit(2, seals, (), {})
    finally:
        cluster.close()


@pytest.mark.parametrize("batches", [0, 1, 2])
def test_a_slow_task_of_a_batch_that_is_not_over_writes(broker: AnyKafka, batches: int) -> None:
    settings = settings_for(broker)
    options = SinkOptions.parse(settings["options"])
    cluster = Cluster(ClientSettings((broker.bootstrap_servers,)))
    driver = PerTask(Run(cluster, options, "query-1"))
    try:
        assert driver.start(0) is None
        for batch_id in range(batches):
            driver.commit(batch_id, [write_one(settings, driver.plan(batch_id), 0)], (), {})
        plan = driver.plan(batches)

        # Also where the executor's clock is behind the driver's.
        seals = [write_one(settings, late(plan), 0), write_one(settings, late(plan, -60_000), 1)]

        assert driver.commit(batches, seals, (), {}).records == 800
    finally:
        cluster.close()


def test_a_slow_task_of_a_batch_begun_in_another_process_writes(broker: AnyKafka) -> None:
    settings = settings_for(broker)
    plan, handover = play(begin, settings).value

    seals = [write_one(settings, late(plan), slot) for slot in range(3)]

    done = play(finish, settings, handover, seals)
    assert done.raised is None, done.raised
    assert read_all(broker, settings["options"]["topic"]) == EXPECTED
