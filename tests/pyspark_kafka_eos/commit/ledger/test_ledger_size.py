"""A decision that is larger than the ledger's records may be: it goes in parts, and a run that died among them leaves
nothing in the way.
"""

from __future__ import annotations

import signal
from collections import Counter

import pytest

from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.commit.ledger.topic import Ledger
from pyspark_kafka_eos.options import SinkOptions
from tests.conftest import MakeTopic
from tests.pyspark_kafka_eos.commit.child import run_child
from tests.pyspark_kafka_eos.commit.judge import EXPECTED, read_all, settings_for
from tests.pyspark_kafka_eos.commit.test_damage import with_options
from tests.pyspark_kafka_eos.slot.test_topic_rules import alter
from tests.support.brokers import AnyKafka

pytestmark = pytest.mark.kafka

SMALL_BYTES = "400"


def ledger_of(topic: MakeTopic, record_bytes: str) -> str:
    """A ledger of one partition whose records are that large at most."""
    return topic(partitions=1, **{"cleanup.policy": "compact", "max.message.bytes": record_bytes})


def test_a_decision_in_parts_is_taken_by_the_broker_and_read_by_the_next_run(kafka: AnyKafka, topic: MakeTopic) -> None:
    ledger = ledger_of(topic, SMALL_BYTES)
    settings = with_options(settings_for(kafka), ledger_topic=ledger)

    assert run_child(settings).report == {"batch": 0, "records": 1200, "resumed": False, "repaired": 0}

    # The batch is asked for again: the ledger has it.
    assert run_child(settings).report["resumed"] is True
    assert read_all(kafka, settings["options"]["topic"]) == EXPECTED
    options = SinkOptions.parse(settings["options"])
    newest = Ledger(Cluster.shared(options.client), ledger, str(options.pipeline)).newest(settle=True)
    assert newest is not None and newest.records == 1200
    # Each part and the record that stands for them.
    assert sum(read_all(kafka, ledger).values()) > 5


@pytest.mark.parametrize("point", ["decision-part-sent:2", "decision-written", "decision-answered"])
def test_killed_at_a_decision_in_parts_the_next_run_ends_the_batch(
    kafka: AnyKafka, topic: MakeTopic, point: str
) -> None:
    settings = with_options(settings_for(kafka), ledger_topic=ledger_of(topic, SMALL_BYTES))
    assert run_child(settings, point).exitcode == -signal.SIGKILL

    assert run_child(settings).report["records"] == 1200
    assert read_all(kafka, settings["options"]["topic"]) == EXPECTED


def test_a_ledger_without_room_for_any_part_is_named_and_nothing_of_the_batch_shows(
    kafka: AnyKafka, topic: MakeTopic
) -> None:
    settings = with_options(settings_for(kafka), ledger_topic=ledger_of(topic, "200"))

    error = run_child(settings).report["error"]

    assert error.startswith("OptionsError")
    assert "are too small for any decision" in error
    assert "raise max.message.bytes of that topic" in error
    assert "kafka.batch.size" not in error
    assert read_all(kafka, settings["options"]["topic"]) == Counter()
    # Nothing of it is in the way of the next run.
    alter(kafka, settings["options"]["ledger.topic"], **{"max.message.bytes": "1000000"})
    assert run_child(settings).report["records"] == EXPECTED.total()
