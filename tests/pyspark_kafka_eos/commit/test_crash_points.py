"""What a run leaves visible, unharmed, killed before the decision and killed after it. Real Kafka, both transaction
versions.

Every point is played in tests/chaos.
"""

from __future__ import annotations

import signal
from collections import Counter

import pytest

from tests.pyspark_kafka_eos.commit.child import run_child
from tests.pyspark_kafka_eos.commit.judge import EXPECTED, committed_offsets, read_all, settings_for
from tests.support.brokers import AnyKafka

pytestmark = pytest.mark.kafka


def test_a_run_that_is_not_killed_writes_each_record_once(broker: AnyKafka) -> None:
    settings = settings_for(broker)

    done = run_child(settings)

    assert done.report == {"batch": 0, "records": 1200, "resumed": False, "repaired": 0}
    assert read_all(broker, settings["options"]["topic"]) == EXPECTED
    assert committed_offsets(broker, settings) == settings["offsets"]


def test_killed_before_the_decision_nothing_of_the_batch_is_visible_meanwhile(broker: AnyKafka) -> None:
    settings = settings_for(broker)

    assert run_child(settings, "decision-written").exitcode == -signal.SIGKILL

    assert read_all(broker, settings["options"]["topic"]) == Counter()
    assert [offset for _, _, offset in committed_offsets(broker, settings)] == [-1001, -1001]
    # Left open, the decision would hold its ledger partition, which other tests' pipelines share, for a minute.
    assert run_child(settings).report["records"] == 1200


def test_a_batch_that_was_decided_is_resumed_and_not_written_again(broker: AnyKafka) -> None:
    settings = settings_for(broker)
    assert run_child(settings, "ends-arrived:1").exitcode == -signal.SIGKILL
    written = read_all(broker, settings["options"]["topic"], "read_uncommitted")

    again = run_child(settings)

    assert again.report["resumed"] is True
    assert read_all(broker, settings["options"]["topic"], "read_uncommitted") == written == EXPECTED
