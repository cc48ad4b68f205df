"""A batch in one transaction that is begun in one process and committed in another, where it differs from one
transaction per task: beside its own abort, beside a newer run, after a run of the other scope. Both transaction
versions.
"""

from __future__ import annotations

import signal
from collections import Counter
from typing import Any

import pytest

from kafka_core.errors import TransactionTooOld
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.requests.transactions import Transactions
from pyspark_kafka_eos.commit.handover import Handover
from pyspark_kafka_eos.model import ClientSettings, batch_transactional_id
from pyspark_kafka_eos.options import SinkOptions
from pyspark_kafka_eos.slot.plan import turns_key
from pyspark_kafka_eos.slot.turn_log import TurnLog
from pyspark_kafka_eos.slot.turns import TaskStarted, Wanted
from tests.pyspark_kafka_eos.commit.handover.test_handover import decided, settings_in, written
from tests.pyspark_kafka_eos.commit.held import held_at
from tests.pyspark_kafka_eos.commit.judge import EXPECTED, committed_offsets, read_all
from tests.pyspark_kafka_eos.commit.phases import finish, give_up, play, play_batch
from tests.pyspark_kafka_eos.commit.test_repair import abort_slot
from tests.support.brokers import AnyKafka

pytestmark = pytest.mark.kafka


def by_task(settings: dict[str, Any]) -> dict[str, Any]:
    """The same pipeline in the other scope."""
    return {**settings, "options": {**settings["options"], "transaction.scope": "task"}}


def batch_state(broker: AnyKafka, settings: dict[str, Any]) -> str:
    """What the coordinator says of the batch's transaction."""
    cluster = Cluster(ClientSettings((broker.bootstrap_servers,)))
    try:
        name = f"{settings['options']['pipeline']}:batch"
        return Transactions(cluster).describe([name])[name].state
    finally:
        cluster.close()


def finish_here(settings: dict[str, Any]) -> dict[str, Any]:
    """The commit, as `held_at` runs it."""
    report = finish(settings, settings["handover"], settings["seals"])
    return {"records": report.records}


@pytest.mark.parametrize("point", ["before-check", "decision-written"])
def test_an_abort_beside_the_commit_of_its_batch_leaves_it_whole_or_nothing(broker: AnyKafka, point: str) -> None:
    settings = settings_in(broker, "batch")
    handover, seals = written(settings)
    with held_at(point, {**settings, "handover": handover, "seals": seals}, finish_here) as commit:
        assert play(give_up, settings, handover, seals).value is True
        late = commit.release()

    assert "error" in late.report, late.report
    assert decided(broker, settings) is None
    assert read_all(broker, settings["options"]["topic"]) == Counter()
    assert play_batch(settings).records == 1200
    assert read_all(broker, settings["options"]["topic"]) == EXPECTED


@pytest.mark.parametrize("point", ["before-check", "decision-written"])
def test_a_newer_run_beside_an_old_commit_fences_it(broker: AnyKafka, point: str) -> None:
    settings = settings_in(broker, "batch")
    handover, seals = written(settings)
    with held_at(point, {**settings, "handover": handover, "seals": seals}, finish_here) as commit:
        newer, newer_seals = written(settings)
        late = commit.release()

    assert "error" in late.report, late.report
    assert play(give_up, settings, handover, seals).value is False
    done = play(finish, settings, newer, newer_seals)
    assert done.raised is None, done.raised
    assert done.value.records == 1200
    assert read_all(broker, settings["options"]["topic"]) == EXPECTED
    assert committed_offsets(broker, settings) == settings["offsets"]


def test_a_task_without_rows_of_which_another_start_has_a_turn_is_found_by_the_process_that_commits(
    broker: AnyKafka,
) -> None:
    settings = settings_in(broker, "batch")
    settings["rows"] = [settings["rows"][0], [], settings["rows"][2]]
    handover, seals = written(settings)
    lost = turns_of(settings, handover)
    lost.append_events([TaskStarted(1, "lost"), Wanted(1, "lost", TopicPartition(settings["options"]["topic"], 3))])

    refused = play(finish, settings, handover, seals).raised

    assert isinstance(refused, TransactionTooOld), refused
    assert "task 1 was sealed without rows" in refused.message
    assert play(give_up, settings, handover, seals).value is True
    assert play_batch(settings).records == 800
    assert read_all(broker, settings["options"]["topic"]) == Counter([*settings["rows"][0], *settings["rows"][2]])


def turns_of(settings: dict[str, Any], handover: Handover) -> TurnLog:
    """Where the tasks of a batch that was begun take turns."""
    options = SinkOptions.parse(settings["options"])
    cluster = Cluster.shared(options.client)
    assert handover.shared is not None and handover.turns is not None
    key = turns_key(batch_transactional_id(options.pipeline), handover.shared)
    return TurnLog(cluster, handover.turns, key)


def test_a_slot_of_scope_task_that_the_broker_aborted_after_the_decision_is_written_again(
    broker: AnyKafka,
) -> None:
    settings = settings_in(broker, "batch")
    handover, seals = written(by_task(settings))
    killed = play(finish, by_task(settings), handover, seals, crash_point="before-end")
    assert killed.exitcode == -signal.SIGKILL
    abort_slot(broker, settings, 1)

    report = play_batch(settings)

    assert (report.records, report.resumed, report.repaired) == (1200, True, 1)
    assert play_batch({**settings, "batch": 1}).records == 1200
    assert read_all(broker, settings["options"]["topic"]) == EXPECTED + EXPECTED


def test_the_other_scope_knows_what_was_decided_and_aborts_what_was_not(broker: AnyKafka) -> None:
    settings = settings_in(broker, "batch")
    play_batch(settings)
    written({**settings, "batch": 1})

    assert play_batch(by_task({**settings, "batch": 1})).records == 1200

    assert batch_state(broker, settings) != "Ongoing"
    assert read_all(broker, settings["options"]["topic"]) == EXPECTED + EXPECTED
