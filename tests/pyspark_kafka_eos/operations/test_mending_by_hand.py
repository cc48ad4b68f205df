"""What an operator's commands do beside a mending, and what a run does about markers that were missing when it
began.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from embedded_kafka.embedded import EmbeddedKafka
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.requests.transactions import Transactions
from pyspark_kafka_eos.commit.ledger.topic import Ledger
from pyspark_kafka_eos.operations import ending as operations
from pyspark_kafka_eos.options import SinkOptions
from tests.pyspark_kafka_eos.commit.child import run_child
from tests.pyspark_kafka_eos.commit.judge import EXPECTED, read_all, settings_for
from tests.pyspark_kafka_eos.commit.test_damage import (
    LEDGER,
    following,
    high_watermarks,
    last_stable_offsets,
    rows_of,
)

pytestmark = [pytest.mark.kafka, pytest.mark.embedded]


@pytest.fixture(params=["1", "2"], scope="module")
def broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(config={"transaction.version": request.param}) as broker:
        yield broker


def mending_is_open(broker: EmbeddedKafka) -> tuple[dict[str, Any], Cluster, Ledger, str]:
    """A decided batch of which one slot's marker was forgotten, and whose mending holds its partition open."""
    settings = settings_for(broker)
    slot = f"{settings['options']['pipeline']}:1"
    fault = broker.fault_at_marker(settings["options"]["topic"], None, "forget", transactional_id=slot, commit=True)
    assert run_child(settings, "mend-added").exitcode == -signal.SIGKILL
    assert fault.fired == 1
    options = SinkOptions.parse(settings["options"])
    cluster = Cluster.shared(options.client)
    assert Transactions(cluster).describe([slot])[slot].state == "Ongoing"
    return settings, cluster, Ledger(cluster, options.ledger_topic, options.pipeline), slot


@pytest.mark.parametrize("operation", [operations.abort, operations.fence])
def test_abort_and_fence_commit_a_mending_that_is_open(broker: EmbeddedKafka, operation: Any) -> None:
    settings, cluster, ledger, slot = mending_is_open(broker)

    operation(cluster, ledger, ledger.pipeline)

    assert Transactions(cluster).describe([slot])[slot].state in ("CompleteCommit", "Empty")
    assert read_all(broker, settings["options"]["topic"]) == EXPECTED


def test_commit_completes_a_mending_that_is_open(broker: EmbeddedKafka) -> None:
    settings, cluster, ledger, slot = mending_is_open(broker)

    operations.commit(cluster, ledger)

    assert Transactions(cluster).describe([slot])[slot].state == "CompleteCommit"
    assert read_all(broker, settings["options"]["topic"]) == EXPECTED


def test_the_first_batchs_decision_may_lack_its_marker_and_the_second_batch_goes_on(
    broker: EmbeddedKafka,
) -> None:
    settings = settings_for(broker)
    fault = broker.fault_at_marker(
        LEDGER, None, "forget", transactional_id=f"{settings['options']['pipeline']}:driver", commit=True
    )
    assert run_child(settings).report["resumed"] is False
    assert fault.fired == 1

    second = run_child(following(settings)).report

    assert (second.get("batch"), second.get("resumed")) == (1, False), second
    assert read_all(broker, settings["options"]["topic"]) == rows_of(settings, following(settings))
    assert last_stable_offsets(broker, LEDGER) == high_watermarks(broker, LEDGER)


def test_a_late_attempt_that_holds_a_decided_slots_id_is_shut_out_and_its_records_never_show(
    broker: EmbeddedKafka,
) -> None:
    settings, cluster, _, slot = mending_is_open(broker)
    # What a task does that Spark has given up: it initialises its slot's id, which aborts what the mending holds.
    Transactions(cluster).init_producer_id(slot, 60_000)

    again = run_child(settings).report

    assert again["repaired"] == 1, again
    assert read_all(broker, settings["options"]["topic"]) == EXPECTED
    assert last_stable_offsets(broker, settings["options"]["topic"]) == high_watermarks(
        broker, settings["options"]["topic"]
    )
