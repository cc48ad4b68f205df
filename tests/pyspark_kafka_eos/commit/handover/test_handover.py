"""A batch begun in one process and committed in another: killed, late, twice, beside a newer run. Both transaction
versions.
"""

from __future__ import annotations

import signal
import time
from collections import Counter
from typing import Any

import pytest

from kafka_core.errors import NondeterministicPlan, PipelineConflict, ProducerFenced, RetriableError
from kafka_core.values import ProducerIdentity
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.requests.transactions import Transactions
from pyspark_kafka_eos.commit import handover as ho
from pyspark_kafka_eos.commit.ledger.topic import Ledger
from pyspark_kafka_eos.model import ClientSettings
from pyspark_kafka_eos.options import SinkOptions
from tests.pyspark_kafka_eos.commit.judge import EXPECTED, committed_offsets, read_all, settings_for
from tests.pyspark_kafka_eos.commit.phases import begin, finish, give_up, play, play_batch, tasks
from tests.pyspark_kafka_eos.commit.test_repair import abort_slot
from tests.support.brokers import AnyKafka

pytestmark = pytest.mark.kafka

CHAOS = pytest.mark.chaos
SCOPES = pytest.mark.parametrize("scope", ["task", "batch"])


def settings_in(broker: AnyKafka, scope: str) -> dict[str, Any]:
    """A run's settings, with the scope of its transactions."""
    settings = settings_for(broker)
    settings["options"]["transaction.scope"] = scope
    return settings


def decided(broker: AnyKafka, settings: dict[str, Any]) -> int | None:
    """The batch that the ledger has as the newest, None for none."""
    cluster = Cluster(ClientSettings((broker.bootstrap_servers,)))
    try:
        newest = Ledger(cluster, "exactly-once-ledger", settings["options"]["pipeline"]).newest(settle=False)
        return newest.batch_id if newest else None
    finally:
        cluster.close()


def slot_states(broker: AnyKafka, settings: dict[str, Any]) -> set[str]:
    """What the coordinator says of the slots' transactions and of the batch's."""
    cluster = Cluster(ClientSettings((broker.bootstrap_servers,)))
    try:
        names = [f"{settings['options']['pipeline']}:{last}" for last in (0, 1, 2, "batch")]
        return {view.state for view in Transactions(cluster).describe(names).values()}
    finally:
        cluster.close()


def written(settings: dict[str, Any]):
    """A batch whose tasks have ended: (hand-over, seals)."""
    plan, handover = play(begin, settings).value
    return handover, play(tasks, settings, plan).value


@SCOPES
def test_a_batch_of_several_processes_is_there_once_with_its_offsets(broker: AnyKafka, scope: str) -> None:
    settings = settings_in(broker, scope)

    report = play_batch(settings)

    assert (report.batch_id, report.records, report.resumed) == (0, 1200, False)
    assert report.left_ms > 0
    assert read_all(broker, settings["options"]["topic"]) == EXPECTED
    assert committed_offsets(broker, settings) == settings["offsets"]


@SCOPES
def test_the_next_batch_goes_on_where_the_last_one_ended(broker: AnyKafka, scope: str) -> None:
    settings = settings_in(broker, scope)
    play_batch(settings)

    report = play_batch({**settings, "batch": 1, "offsets": [[name, at, 99] for name, at, _ in settings["offsets"]]})

    assert (report.batch_id, report.records) == (1, 1200)
    assert read_all(broker, settings["options"]["topic"]) == EXPECTED + EXPECTED
    assert [at for _, _, at in committed_offsets(broker, settings)] == [99, 99]


@SCOPES
def test_a_batch_without_rows_is_decided_all_the_same(broker: AnyKafka, scope: str) -> None:
    settings = {**settings_in(broker, scope), "rows": [[]]}

    report = play_batch(settings)

    assert (report.records, report.slots) == (0, 1)
    assert decided(broker, settings) == 0
    assert committed_offsets(broker, settings) == settings["offsets"]


@SCOPES
@pytest.mark.parametrize("point", [pytest.param("before-check", marks=CHAOS), "decision-written"])
def test_a_commit_killed_before_the_decision_is_aborted_and_the_batch_done_again(
    broker: AnyKafka, scope: str, point: str
) -> None:
    settings = settings_in(broker, scope)
    handover, seals = written(settings)
    assert play(finish, settings, handover, seals, crash_point=point).exitcode == -signal.SIGKILL
    assert read_all(broker, settings["options"]["topic"]) == Counter()

    aborted = play(give_up, settings, handover, seals)

    assert aborted.value is True, aborted.raised
    assert "Ongoing" not in slot_states(broker, settings)
    assert decided(broker, settings) is None
    assert play_batch(settings).records == 1200
    assert read_all(broker, settings["options"]["topic"]) == EXPECTED
    assert committed_offsets(broker, settings) == settings["offsets"]


@pytest.mark.parametrize(
    ("scope", "point"),
    [
        ("task", "ends-arrived:1"),
        pytest.param("task", "decision-answered", marks=CHAOS),
        pytest.param("task", "after-decision", marks=CHAOS),
        ("batch", "decision-answered"),
        pytest.param("batch", "after-decision", marks=CHAOS),
    ],
)
def test_an_abort_after_the_decision_undoes_nothing_and_the_next_run_finishes(
    broker: AnyKafka, scope: str, point: str
) -> None:
    settings = settings_in(broker, scope)
    handover, seals = written(settings)
    assert play(finish, settings, handover, seals, crash_point=point).exitcode == -signal.SIGKILL
    if scope == "batch":
        # Decided is visible.
        assert read_all(broker, settings["options"]["topic"]) == EXPECTED

    assert play(give_up, settings, handover, seals).value is False

    report = play_batch(settings)
    assert (report.records, report.resumed, report.repaired) == (1200, True, 0)
    assert read_all(broker, settings["options"]["topic"], "read_uncommitted") == EXPECTED
    assert read_all(broker, settings["options"]["topic"]) == EXPECTED
    assert committed_offsets(broker, settings) == settings["offsets"]


@pytest.mark.parametrize(
    ("scope", "point"),
    [
        pytest.param("task", "begun", marks=CHAOS),
        ("task", "gone-on"),
        ("task", "wrested"),
        pytest.param("batch", "begun", marks=CHAOS),
        ("batch", "gone-on"),
        pytest.param("batch", "wrested", marks=CHAOS),
    ],
)
def test_killed_between_two_processes_of_a_batch_nothing_shows_and_it_is_done_again(
    kafka: AnyKafka, scope: str, point: str
) -> None:
    settings = settings_in(kafka, scope)
    if point == "begun":
        assert play(begin, settings, crash_point=point).exitcode == -signal.SIGKILL
    else:
        handover, seals = written(settings)
        phase = finish if point == "gone-on" else give_up
        assert play(phase, settings, handover, seals, crash_point=point).exitcode == -signal.SIGKILL
    assert read_all(kafka, settings["options"]["topic"]) == Counter()

    report = play_batch(settings)

    assert (report.records, report.resumed) == (1200, False)
    assert read_all(kafka, settings["options"]["topic"]) == EXPECTED
    assert committed_offsets(kafka, settings) == settings["offsets"]


@pytest.mark.parametrize(
    "point",
    [pytest.param("before-begin", marks=CHAOS), pytest.param("begun", marks=CHAOS), "gone-on"],
)
def test_killed_between_two_processes_of_a_repair_it_is_repaired_by_the_next_run(kafka: AnyKafka, point: str) -> None:
    settings = settings_for(kafka)
    handover, seals = written(settings)
    assert play(finish, settings, handover, seals, crash_point="before-end").exitcode == -signal.SIGKILL
    abort_slot(kafka, settings, 1)
    if point == "gone-on":
        handover, seals = written(settings)
        assert play(finish, settings, handover, seals, crash_point=point).exitcode == -signal.SIGKILL
    else:
        assert play(begin, settings, crash_point=point).exitcode == -signal.SIGKILL

    report = play_batch(settings)

    assert (report.records, report.resumed, report.repaired) == (1200, True, 1)
    assert read_all(kafka, settings["options"]["topic"]) == EXPECTED


@pytest.mark.parametrize("lost", [(1,), pytest.param((0, 1, 2), marks=CHAOS)])
def test_decided_slots_that_the_broker_aborted_are_the_only_ones_written_again(
    broker: AnyKafka, lost: tuple[int, ...]
) -> None:
    settings = settings_for(broker)
    handover, seals = written(settings)
    assert play(finish, settings, handover, seals, crash_point="before-end").exitcode == -signal.SIGKILL
    for slot in lost:
        abort_slot(broker, settings, slot)

    report = play_batch(settings)

    assert (report.records, report.resumed, report.repaired) == (1200, True, 1)
    assert read_all(broker, settings["options"]["topic"]) == EXPECTED
    twice = Counter(value for slot in lost for value in settings["rows"][slot])
    assert read_all(broker, settings["options"]["topic"], "read_uncommitted") == EXPECTED + twice
    assert committed_offsets(broker, settings) == settings["offsets"]


def test_an_abort_of_a_repair_ends_what_it_wrote_in_vain_and_nothing_that_is_decided(kafka: AnyKafka) -> None:
    settings = settings_for(kafka)
    handover, seals = written(settings)
    assert play(finish, settings, handover, seals, crash_point="before-end").exitcode == -signal.SIGKILL
    abort_slot(kafka, settings, 1)
    handover, seals = written(settings)
    assert "Ongoing" in slot_states(kafka, settings)

    assert play(give_up, settings, handover, seals).value is False

    assert "Ongoing" not in slot_states(kafka, settings)
    first_and_last = Counter([*settings["rows"][0], *settings["rows"][2]])
    assert read_all(kafka, settings["options"]["topic"]) == first_and_last
    assert play_batch(settings).repaired == 1
    assert read_all(kafka, settings["options"]["topic"]) == EXPECTED


@CHAOS
@pytest.mark.parametrize("point", ["after-rewrite", "decision-written", "decision-answered", "after-end"])
def test_killed_during_the_repair_the_next_run_finishes_it(broker: AnyKafka, point: str) -> None:
    settings = settings_for(broker)
    handover, seals = written(settings)
    assert play(finish, settings, handover, seals, crash_point="before-end").exitcode == -signal.SIGKILL
    abort_slot(broker, settings, 1)
    handover, seals = written(settings)
    assert play(finish, settings, handover, seals, crash_point=point).exitcode == -signal.SIGKILL
    assert play(give_up, settings, handover, seals).value is False

    report = play_batch(settings)

    assert report.resumed
    assert read_all(broker, settings["options"]["topic"]) == EXPECTED
    assert committed_offsets(broker, settings) == settings["offsets"]


@CHAOS
def test_a_replay_with_other_rows_is_refused_and_the_same_rows_finish_it(broker: AnyKafka) -> None:
    settings = settings_for(broker)
    handover, seals = written(settings)
    assert play(finish, settings, handover, seals, crash_point="before-end").exitcode == -signal.SIGKILL
    abort_slot(broker, settings, 1)
    changed = {**settings, "rows": [settings["rows"][0], ["other"] * 400, settings["rows"][2]]}
    handover, seals = written(changed)

    refused = play(finish, changed, handover, seals)

    assert isinstance(refused.raised, NondeterministicPlan)
    assert play(give_up, changed, handover, seals).value is False
    assert "other" not in read_all(broker, settings["options"]["topic"])
    assert play_batch(settings).repaired == 1
    assert read_all(broker, settings["options"]["topic"]) == EXPECTED


@CHAOS
def test_a_repair_that_is_aborted_in_turn_stops_and_the_next_run_finishes_it(broker: AnyKafka) -> None:
    settings = settings_for(broker)
    handover, seals = written(settings)
    assert play(finish, settings, handover, seals, crash_point="before-end").exitcode == -signal.SIGKILL
    abort_slot(broker, settings, 1)
    handover, seals = written(settings)
    abort_slot(broker, settings, 1)

    stopped = play(finish, settings, handover, seals)

    # The repair is looked at before it is recorded, so it only has to be done again.
    assert isinstance(stopped.raised, RetriableError)
    assert play_batch(settings).resumed
    assert read_all(broker, settings["options"]["topic"]) == EXPECTED


@SCOPES
def test_a_commit_that_comes_after_a_newer_run_has_begun_changes_nothing(broker: AnyKafka, scope: str) -> None:
    settings = settings_in(broker, scope)
    handover, seals = written(settings)
    newer_plan, newer = play(begin, settings).value
    newer_seals = play(tasks, settings, newer_plan).value

    late = play(finish, settings, handover, seals)

    assert isinstance(late.raised, ProducerFenced)
    assert play(give_up, settings, handover, seals).value is False
    assert play(finish, settings, newer, newer_seals).value.records == 1200
    assert read_all(broker, settings["options"]["topic"]) == EXPECTED


@SCOPES
def test_a_commit_that_comes_after_the_abort_of_its_batch_is_refused(broker: AnyKafka, scope: str) -> None:
    settings = settings_in(broker, scope)
    handover, seals = written(settings)
    assert play(give_up, settings, handover, seals).value is True

    late = play(finish, settings, handover, seals)

    assert isinstance(late.raised, ProducerFenced)
    assert decided(broker, settings) is None
    assert read_all(broker, settings["options"]["topic"]) == Counter()


@SCOPES
def test_an_abort_that_comes_after_the_commit_of_its_batch_changes_nothing(broker: AnyKafka, scope: str) -> None:
    settings = settings_in(broker, scope)
    handover, seals = written(settings)
    assert play(finish, settings, handover, seals).value.records == 1200

    assert play(give_up, settings, handover, seals).value is False

    assert read_all(broker, settings["options"]["topic"]) == EXPECTED
    assert decided(broker, settings) == 0


def test_a_batch_older_than_the_output_is_refused_before_any_task(broker: AnyKafka) -> None:
    settings = settings_for(broker)
    play_batch(settings)
    play_batch({**settings, "batch": 1})

    refused = play(begin, settings)

    assert isinstance(refused.raised, PipelineConflict)
    assert "older than the output" in str(refused.raised)
    assert read_all(broker, settings["options"]["topic"]) == EXPECTED + EXPECTED


def test_another_query_under_the_pipelines_name_is_refused_and_fences_nobody(broker: AnyKafka) -> None:
    settings = settings_for(broker)
    play_batch(settings)
    second = {**settings, "batch": 1}
    handover, seals = written(second)

    refused = play(begin, {**settings, "query": "query-2"})

    assert isinstance(refused.raised, PipelineConflict)
    assert play(finish, second, handover, seals).value.records == 1200


def test_an_abort_that_finds_no_broker_hides_no_error(caplog: pytest.LogCaptureFixture) -> None:
    nobody = SinkOptions.parse(
        {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", "pipeline": "p", "kafka.max.block.ms": "300"}
    )
    handover = ho.Handover("query", 7, ProducerIdentity(1, 0), time.monotonic())

    assert ho.give_up(nobody, handover, [], "a task failed") is False

    assert "batch 7 is not aborted now, the next run ends it" in caplog.text
