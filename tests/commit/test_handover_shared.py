"""A batch in one transaction that is begun in one process and committed in another: killed, late, beside its own abort, beside a
newer run, after a run of the other scope. Both transaction versions."""

from __future__ import annotations

import signal
from collections import Counter
from typing import Any

import pytest

from connector.client.cluster import Cluster
from connector.client.transactions import Transactions
from connector.errors import ProducerFenced
from connector.model import ClientSettings
from tests.brokers import AnyKafka
from tests.commit.held import held_at
from tests.commit.judge import EXPECTED, committed_offsets, read_all, settings_for
from tests.commit.phases import begin, finish, give_up, play, play_batch, tasks
from tests.commit.test_handover import decided
from tests.commit.test_repair import abort_slot

pytestmark = pytest.mark.kafka

CHAOS = pytest.mark.chaos


def shared_settings(broker: AnyKafka) -> dict[str, Any]:
    settings = settings_for(broker)
    settings["options"]["transaction.scope"] = "batch"
    return settings


def by_task(settings: dict[str, Any]) -> dict[str, Any]:
    """The same pipeline in the other scope."""
    return {**settings, "options": {**settings["options"], "transaction.scope": "task"}}


def written(settings: dict[str, Any]) -> tuple[Any, Any]:
    """A batch whose tasks have ended: (hand-over, seals)."""
    plan, handover = play(begin, settings).value
    seals = play(tasks, settings, plan)
    assert seals.raised is None, seals.raised
    return handover, seals.value


def batch_state(broker: AnyKafka, settings: dict[str, Any]) -> str:
    """What the coordinator says of the batch's transaction."""
    cluster = Cluster(ClientSettings((broker.bootstrap_servers,)))
    try:
        name = f"{settings['options']['pipeline']}.batch"
        return Transactions(cluster).describe([name])[name].state
    finally:
        cluster.close()


def test_batches_of_several_processes_are_there_once_with_their_offsets(broker: AnyKafka) -> None:
    settings = shared_settings(broker)

    report = play_batch(settings)

    assert (report.batch_id, report.records, report.resumed) == (0, 1200, False)
    assert report.left_ms > 0
    assert read_all(broker, settings["options"]["topic"]) == EXPECTED
    assert committed_offsets(broker, settings) == settings["offsets"]

    later = {**settings, "batch": 1, "offsets": [[name, at, 99] for name, at, _ in settings["offsets"]]}
    assert play_batch(later).records == 1200
    assert read_all(broker, settings["options"]["topic"]) == EXPECTED + EXPECTED
    assert [at for _, _, at in committed_offsets(broker, settings)] == [99, 99]


def test_a_batch_without_rows_is_decided_all_the_same(broker: AnyKafka) -> None:
    settings = {**shared_settings(broker), "rows": [[]]}

    assert play_batch(settings).records == 0

    assert decided(broker, settings) == 0
    assert committed_offsets(broker, settings) == settings["offsets"]


@pytest.mark.parametrize("point", [pytest.param("before-check", marks=CHAOS), "decision-written"])
def test_a_commit_killed_before_the_decision_is_aborted_and_the_batch_done_again(
    broker: AnyKafka, point: str
) -> None:
    settings = shared_settings(broker)
    handover, seals = written(settings)
    assert play(finish, settings, handover, seals, crash_point=point).exitcode == -signal.SIGKILL
    assert read_all(broker, settings["options"]["topic"]) == Counter()

    aborted = play(give_up, settings, handover, seals)

    assert aborted.value is True, aborted.raised
    assert batch_state(broker, settings) != "Ongoing"
    assert decided(broker, settings) is None
    assert play_batch(settings).records == 1200
    assert read_all(broker, settings["options"]["topic"]) == EXPECTED
    assert committed_offsets(broker, settings) == settings["offsets"]


@pytest.mark.parametrize("point", ["decision-answered", pytest.param("after-decision", marks=CHAOS)])
def test_an_abort_after_the_decision_undoes_nothing_and_the_next_run_knows_it(
    broker: AnyKafka, point: str
) -> None:
    settings = shared_settings(broker)
    handover, seals = written(settings)
    assert play(finish, settings, handover, seals, crash_point=point).exitcode == -signal.SIGKILL
    # Decided is visible.
    assert read_all(broker, settings["options"]["topic"]) == EXPECTED

    assert play(give_up, settings, handover, seals).value is False

    report = play_batch(settings)
    assert (report.records, report.resumed, report.repaired) == (1200, True, 0)
    assert read_all(broker, settings["options"]["topic"], "read_uncommitted") == EXPECTED
    assert committed_offsets(broker, settings) == settings["offsets"]


def finish_here(settings: dict[str, Any]) -> dict[str, Any]:
    """The commit, as `held_at` runs it."""
    report = finish(settings, settings["handover"], settings["seals"])
    return {"records": report.records}


@pytest.mark.parametrize("point", ["before-check", "decision-written"])
def test_an_abort_beside_the_commit_of_its_batch_leaves_it_whole_or_nothing(
    broker: AnyKafka, point: str
) -> None:
    settings = shared_settings(broker)
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
    settings = shared_settings(broker)
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


def test_a_commit_that_comes_after_a_newer_run_has_begun_changes_nothing(broker: AnyKafka) -> None:
    settings = shared_settings(broker)
    handover, seals = written(settings)
    newer, newer_seals = written(settings)

    late = play(finish, settings, handover, seals)

    assert isinstance(late.raised, ProducerFenced)
    assert play(give_up, settings, handover, seals).value is False
    assert play(finish, settings, newer, newer_seals).value.records == 1200
    assert read_all(broker, settings["options"]["topic"]) == EXPECTED


def test_an_abort_that_comes_after_the_commit_of_its_batch_changes_nothing(broker: AnyKafka) -> None:
    settings = shared_settings(broker)
    handover, seals = written(settings)
    assert play(finish, settings, handover, seals).value.records == 1200

    assert play(give_up, settings, handover, seals).value is False

    assert read_all(broker, settings["options"]["topic"]) == EXPECTED
    assert decided(broker, settings) == 0


def test_a_slot_of_scope_task_that_the_broker_aborted_after_the_decision_is_written_again(
    broker: AnyKafka,
) -> None:
    settings = shared_settings(broker)
    handover, seals = written(by_task(settings))
    killed = play(finish, by_task(settings), handover, seals, crash_point="before-end")
    assert killed.exitcode == -signal.SIGKILL
    abort_slot(broker, settings, 1)

    report = play_batch(settings)

    assert (report.records, report.resumed, report.repaired) == (1200, True, 1)
    assert play_batch({**settings, "batch": 1}).records == 1200
    assert read_all(broker, settings["options"]["topic"]) == EXPECTED + EXPECTED


def test_the_other_scope_knows_what_was_decided_and_aborts_what_was_not(broker: AnyKafka) -> None:
    settings = shared_settings(broker)
    play_batch(settings)
    written({**settings, "batch": 1})

    assert play_batch(by_task({**settings, "batch": 1})).records == 1200

    assert batch_state(broker, settings) != "Ongoing"
    assert read_all(broker, settings["options"]["topic"]) == EXPECTED + EXPECTED
