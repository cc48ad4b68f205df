"""Slots that the broker aborted after the decision: written again, compared, ended. Real Kafka, both versions."""

from __future__ import annotations

import signal
from collections import Counter

import pytest

from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.requests.transactions import Transactions
from pyspark_kafka_eos.model import ClientSettings
from tests.pyspark_kafka_eos.commit.child import run_child
from tests.pyspark_kafka_eos.commit.judge import EXPECTED, committed_offsets, read_all, settings_for
from tests.support.brokers import AnyKafka

pytestmark = pytest.mark.kafka


def abort_slot(broker: AnyKafka, settings: dict, slot: int) -> None:
    """What a zombie attempt does: initialise the slot's id, which aborts what is open under it."""
    cluster = Cluster(ClientSettings((broker.bootstrap_servers,)))
    try:
        name = f"{settings['options']['pipeline']}:{slot}"
        transactions = Transactions(cluster)
        assert transactions.describe([name])[name].state == "Ongoing"
        transactions.init_producer_id(name, 60_000)
        assert transactions.describe([name])[name].state in ("Empty", "CompleteAbort")
    finally:
        cluster.close()


def decided_but_lost(broker: AnyKafka, lost: tuple[int, ...]) -> dict:
    """A batch that was decided, whose driver was killed, and of which the broker has aborted some slots."""
    settings = settings_for(broker)
    assert run_child(settings, "before-end").exitcode == -signal.SIGKILL
    for slot in lost:
        abort_slot(broker, settings, slot)
    return settings


@pytest.mark.parametrize("lost", [(1,), (0, 1, 2)])
def test_lost_slots_are_written_again_and_each_record_is_there_once(broker: AnyKafka, lost: tuple[int, ...]) -> None:
    settings = decided_but_lost(broker, lost)
    topic = settings["options"]["topic"]

    again = run_child(settings)

    assert again.report == {"batch": 0, "records": 1200, "resumed": True, "repaired": 1}
    assert read_all(broker, topic) == EXPECTED
    assert committed_offsets(broker, settings) == settings["offsets"]
    # Only the lost slots were written twice; their first writing is aborted.
    twice = Counter(value for slot in lost for value in settings["rows"][slot])
    assert read_all(broker, topic, "read_uncommitted") == EXPECTED + twice


def test_a_replay_with_other_rows_is_refused_and_the_same_rows_finish_it(broker: AnyKafka) -> None:
    settings = decided_but_lost(broker, (1,))
    topic = settings["options"]["topic"]
    changed = {**settings, "rows": [*settings["rows"][:1], ["other"] * 400, settings["rows"][2]]}

    refused = run_child(changed)

    assert refused.report["error"].startswith("NondeterministicPlan")
    assert "slot=1" in refused.report["error"]
    assert "other" not in read_all(broker, topic)
    assert run_child(settings).report["repaired"] == 1
    assert read_all(broker, topic) == EXPECTED


@pytest.mark.parametrize(
    "point",
    [
        "before-rewrite",
        "mid-produce",
        "after-rewrite",
        "decision-written",
        "decision-answered",
        "before-end",
        "after-end",
    ],
)
def test_killed_during_the_repair_the_next_run_finishes_it(broker: AnyKafka, point: str) -> None:
    settings = decided_but_lost(broker, (0, 2))

    killed = run_child(settings, point)
    assert killed.exitcode == -signal.SIGKILL, f"the crash point did not fire: {killed.report}"
    again = run_child(settings)

    assert again.report.get("resumed") is True, again.report
    assert read_all(broker, settings["options"]["topic"]) == EXPECTED
    assert committed_offsets(broker, settings) == settings["offsets"]
