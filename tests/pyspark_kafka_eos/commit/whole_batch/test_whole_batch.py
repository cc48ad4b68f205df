"""A micro-batch in one transaction: all of it or nothing, whatever happens. Both transaction versions.

Kills at every named point, tasks that start twice, zombies, an end without an answer, a change of scope between runs.
"""

from __future__ import annotations

import signal
from collections import Counter
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from embedded_kafka.embedded import EmbeddedKafka
from kafka_core.errors import (
    AttemptRefused,
    ExactlyOnceError,
    OutcomeUnknown,
    PipelineConflict,
    ProducerFenced,
    TransactionTooOld,
)
from kafka_core.values import TopicPartition
from pyspark_kafka_eos import crash_points
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.requests.transactions import Transactions
from pyspark_kafka_eos.commit.ledger.topic import Ledger
from pyspark_kafka_eos.commit.whole_batch.driver import WholeBatch
from pyspark_kafka_eos.model import Decision
from pyspark_kafka_eos.options import parsing
from pyspark_kafka_eos.slot.plan import SharedPlan
from pyspark_kafka_eos.slot.shared_writer import write_shared
from pyspark_kafka_eos.slot.turn_log import TurnLog
from pyspark_kafka_eos.slot.turns import TaskStarted, Wanted
from tests.pyspark_kafka_eos.commit.batch_child import (
    driver_of,
    lines_of,
    process,
    run_batch,
    write,
    write_all,
    write_one,
)
from tests.pyspark_kafka_eos.commit.child import Finished, run_child
from tests.pyspark_kafka_eos.commit.held import held_at
from tests.pyspark_kafka_eos.commit.judge import EXPECTED, committed_offsets, read_all, settings_for
from tests.support.brokers import AnyKafka
from tests.support.forks import forks

pytestmark = pytest.mark.kafka

POINTS = list(
    dict.fromkeys([*crash_points.BATCH_DRIVER_POINTS[:2], *crash_points.BATCH_TASK_POINTS, *crash_points.BATCH_DRIVER_POINTS])
)  # fmt: skip
DONE = {"batch": 0, "records": 1200, "resumed": False, "repaired": 0, "redone": 0}
KEY_POINTS = (
    "after-init-producer-id",
    "after-turn",
    "mid-produce",
    "after-seal",
    "decision-written",
    "decision-sent",
    "after-decision",
)
"""One for each state of the commit; the others are played in `make chaos`."""
COMMITTED_FROM = POINTS.index("decision-answered")


def run_killed(settings: dict[str, Any], point: str) -> Finished:
    """A run in a child process that dies at the point."""
    child = forks().Process(target=_run_armed, args=(settings, point))
    child.start()
    child.join(120)
    assert child.exitcode is not None, "the run neither ended nor died"
    return Finished(child.exitcode, {})


def _run_armed(settings: dict[str, Any], point: str) -> None:
    crash_points.arm(point)
    run_batch(settings)


def newest(broker: AnyKafka, settings: dict[str, Any]) -> Decision | None:
    options = driver_of(settings).run.options
    return Ledger(Cluster.shared(options.client), options.ledger_topic, options.pipeline).newest(settle=True)


def read(broker: AnyKafka, settings: dict[str, Any], isolation: str = "read_committed") -> Counter[str]:
    return read_all(broker, settings["options"]["topic"], isolation)


def no_offsets(broker: AnyKafka, settings: dict[str, Any]) -> bool:
    return all(offset == -1001 for _, _, offset in committed_offsets(broker, settings))


@pytest.fixture(autouse=True)
def every_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    """These few rows go to all partitions, as those of a large batch do."""
    monkeypatch.setattr(parsing, "STICKY_BATCHES", 1)


# ---- the normal course


def test_a_batch_is_there_once_with_its_offsets_and_its_ledger_record(broker: AnyKafka) -> None:
    settings = settings_for(broker)

    done = run_batch(settings)

    assert done == DONE
    assert read(broker, settings) == EXPECTED
    assert committed_offsets(broker, settings) == settings["offsets"]
    decision = newest(broker, settings)
    assert decision is not None and decision.in_one_transaction
    (seal,) = decision.seals
    assert seal.transactional_id == f"{settings['options']['pipeline']}:batch"
    assert {part.partition for part in seal.partitions} == {0, 1, 2, 3}
    assert sum(part.records for part in seal.partitions) == seal.records == 1200


def test_the_digest_of_a_batch_is_that_of_scope_task(broker: AnyKafka) -> None:
    settings = settings_for(broker)
    run_batch(settings)
    together = newest(broker, settings)
    apart = {
        **settings,
        "options": {**settings["options"], "pipeline": settings["options"]["pipeline"] + "-t"},
    }
    assert run_child(apart).report["records"] == 1200

    by_task = newest(broker, apart)

    assert together is not None and by_task is not None
    assert sum(seal.digest for seal in by_task.seals) % 2**64 == together.seals[0].digest


def test_every_batch_has_an_identity_of_its_own(broker: AnyKafka) -> None:
    settings = settings_for(broker)
    driver = driver_of(settings)
    assert driver.start(0) is None
    identities = []
    for batch in range(3):
        process(driver, {**settings, "batch": batch})
        decision = newest(broker, settings)
        assert decision is not None
        identities.append(decision.seals[0].identity)

    assert len(set(identities)) == 3
    assert set(read(broker, settings).values()) == {3}


def test_a_batch_without_rows_is_decided_too(broker: AnyKafka) -> None:
    settings = {**settings_for(broker), "rows": [[], []]}

    assert run_batch(settings)["records"] == 0

    assert committed_offsets(broker, settings) == settings["offsets"]
    assert run_batch(settings)["resumed"] is True


# ---- somebody else in the ledger


def test_a_batch_is_written_though_a_forged_decision_says_that_it_was(broker: AnyKafka) -> None:
    """In a transaction of another program's own id, by librdkafka."""
    settings = settings_for(broker)
    run_batch(settings)
    last = newest(broker, settings)
    assert last is not None
    following = {**settings, "batch": 1}
    forged = replace(last, batch_id=1, source_offsets=tuple(lines_of(following)), number=last.number + 1)
    options = driver_of(settings).run.options
    ledger = Ledger(Cluster.shared(options.client), options.ledger_topic, last.pipeline)
    his = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": f"evil-{last.pipeline}"})
    his.init_transactions(30)
    his.begin_transaction()
    his.produce(options.ledger_topic, forged.to_bytes(), last.pipeline, partition=ledger.partition.partition)
    his.commit_transaction(30)

    assert run_batch(following)["resumed"] is False

    assert set(read(broker, settings).values()) == {2}


# ---- kills


@pytest.mark.parametrize(
    "point",
    [point if point in KEY_POINTS else pytest.param(point, marks=pytest.mark.chaos) for point in POINTS],
)
def test_killed_at_any_point_all_or_nothing_shows_and_the_next_run_completes_it(broker: AnyKafka, point: str) -> None:
    settings = settings_for(broker)

    assert run_killed(settings, point).exitcode == -signal.SIGKILL

    # At decision-sent either may be: the request was on its way.
    committed = POINTS.index(point) >= COMMITTED_FROM
    seen = read(broker, settings)
    assert seen in ([EXPECTED] if committed else [Counter(), EXPECTED] if point == "decision-sent" else [Counter()])
    again = run_batch(settings)
    assert again == DONE | {"resumed": seen == EXPECTED or again["resumed"]}
    assert again["resumed"] is committed or point == "decision-sent"
    assert read(broker, settings) == EXPECTED
    assert committed_offsets(broker, settings) == settings["offsets"]


# ---- tasks that start twice


def plan_of(driver: WholeBatch) -> SharedPlan:
    plan = driver.plan(0)
    assert isinstance(plan, SharedPlan)
    return plan


def test_a_second_start_of_a_task_writes_nothing_and_the_batch_is_done_again(broker: AnyKafka) -> None:
    settings = settings_for(broker)
    driver = driver_of(settings)
    assert driver.start(0) is None
    refused: list[AttemptRefused] = []

    def twice_at_first(only: frozenset[int] | None) -> Any:
        if refused:
            return write(driver, settings, only)
        plan = plan_of(driver)
        # Task 0 is done when its executor is lost and its result with it: Spark starts it again.
        write_one(plan, settings, 0)
        before = read(broker, settings, "read_uncommitted")
        with pytest.raises(AttemptRefused, match="task 0 was started again") as refusal:
            write_one(plan, settings, 0)
        assert read(broker, settings, "read_uncommitted") == before
        # Nobody else writes into a batch that will be aborted.
        with pytest.raises(AttemptRefused, match="task 0 was started again"):
            write_one(plan, settings, 1)
        assert read(broker, settings, "read_uncommitted") == before
        refused.append(refusal.value)
        driver.abandon(0, (), "refused")
        raise refusal.value

    report = driver.process(0, twice_at_first, lines_of(settings), {})

    assert (report.redone, report.records) == (1, 1200)
    assert read(broker, settings) == EXPECTED


@pytest.mark.parametrize("asked", [False, True])
def test_a_start_that_was_lost_before_it_wrote_costs_nothing_unless_it_was_granted_a_turn(
    broker: AnyKafka, asked: bool
) -> None:
    settings = settings_for(broker)
    driver = driver_of(settings)
    assert driver.start(0) is None
    plan = plan_of(driver)
    lost = TurnLog(driver.run.cluster, plan.turns, plan.key)
    lost.append_events([TaskStarted(0, "lost")])
    if asked:
        # It was granted, so it may have written: whether it did nobody can say.
        lost.append_events([Wanted(0, "lost", TopicPartition(settings["options"]["topic"], 0))])
        with pytest.raises(AttemptRefused, match="task 0 was started again"):
            write_one(plan, settings, 0)
        assert read(broker, settings, "read_uncommitted") == Counter()
        return

    seals = write_all(plan, settings)

    assert driver.commit(0, seals, (), {}).records == 1200
    assert read(broker, settings) == EXPECTED


def test_a_task_that_is_always_refused_ends_the_query_after_three_tries_and_nothing_shows(
    broker: AnyKafka,
) -> None:
    settings = settings_for(broker)
    driver = driver_of(settings)
    assert driver.start(0) is None
    tries = []

    def refused(only: frozenset[int] | None) -> Any:
        plan = plan_of(driver)
        tries.append(plan.identity)
        write_one(plan, settings, 0)
        try:
            write_one(plan, settings, 0)
        finally:
            driver.abandon(0, (), "refused")

    with pytest.raises(AttemptRefused):
        driver.process(0, refused, lines_of(settings), {})

    assert len(tries) == len(set(tries)) == 3
    assert read(broker, settings) == Counter()
    assert len(read(broker, settings, "read_uncommitted")) > 0
    assert newest(broker, settings) is None


def test_a_task_whose_result_was_lost_and_that_has_no_rows_the_second_time_is_noticed(
    broker: AnyKafka,
) -> None:
    settings = settings_for(broker)
    driver = driver_of(settings)
    assert driver.start(0) is None
    tries = []

    def lost_at_first(only: frozenset[int] | None) -> Any:
        tries.append(1)
        if len(tries) > 1:
            return write(driver, settings, only)
        plan = plan_of(driver)
        first, _ = write_one(plan, settings, 0), write_one(plan, settings, 1)
        return [first, write_one(plan, {**settings, "rows": [[], [], []]}, 1)]

    report = driver.process(0, lost_at_first, lines_of(settings), {})

    assert (report.redone, report.records) == (1, 1200)
    assert read(broker, settings) == EXPECTED


def placed(value: str, partition: int) -> list[pa.RecordBatch]:
    """One row for one partition."""
    columns = {"value": pa.array([value], pa.string()), "partition": pa.array([partition], pa.int32())}
    return [pa.RecordBatch.from_pydict(columns)]


@pytest.mark.parametrize("others", [["from task 0"], []], ids=["another-task-writes", "nobody-else-writes"])
def test_records_in_a_partition_that_no_seal_names_are_noticed_before_the_decision(
    broker: AnyKafka, others: list[str]
) -> None:
    """The first start of task 1 wrote to a partition of its own and its result was lost; the second one has no rows."""
    settings = settings_for(broker)
    driver = driver_of(settings)
    assert driver.start(0) is None
    tries = []

    def lost_at_first(only: frozenset[int] | None) -> Any:
        plan = plan_of(driver)
        seals = [write_shared(plan, 0, batches) for batches in [placed(value, 0) for value in others] or [[]]]
        tries.append(plan.identity)
        if len(tries) == 1:
            write_shared(plan, 1, placed("from the lost start", 3))
        return [*seals, write_shared(plan, 1, [])]

    report = driver.process(0, lost_at_first, lines_of(settings), {})

    assert (report.redone, report.records, len(set(tries))) == (1, len(others), 2)
    assert read(broker, settings) == Counter(others)
    assert read(broker, settings, "read_uncommitted")["from the lost start"] == 1
    decision = newest(broker, settings)
    assert decision is not None and decision.records == len(others)


def late_rows(plan: SharedPlan) -> Any:
    """What a start of task 1 that is late writes, its task's second start having had no rows."""
    return write_shared(plan, 1, placed("from the late start", 3))


@pytest.mark.parametrize("others", [["from task 0"], []], ids=["another-task-writes", "nobody-else-writes"])
def test_a_start_that_asks_for_its_first_turn_while_the_batch_is_committed_gets_none(
    broker: AnyKafka, others: list[str]
) -> None:
    """It was held up since before it said anything, so nobody knew of it when its task's second start had no rows."""
    settings = settings_for(broker)
    driver = driver_of(settings)
    assert driver.start(0) is None
    plan = plan_of(driver)
    seals = [write_shared(plan, 0, batches) for batches in [placed(value, 0) for value in others] or [[]]]
    late: list[Any] = []

    def come_late() -> None:
        try:
            late.append(late_rows(plan))
        except ExactlyOnceError as error:
            late.append(error)

    crash_points.arm("before-decision", 1, come_late)
    report = driver.commit(0, [*seals, write_shared(plan, 1, [])], lines_of(settings), {})

    (refused,) = late
    assert isinstance(refused, AttemptRefused), refused
    assert "its batch is being committed" in refused.message
    assert report.records == len(others)
    assert read(broker, settings, "read_uncommitted") == Counter(others)


def test_a_start_that_has_a_turn_and_whose_task_is_sealed_without_rows_makes_the_batch_be_done_again(
    broker: AnyKafka,
) -> None:
    settings = settings_for(broker)
    driver = driver_of(settings)
    assert driver.start(0) is None
    tries: list[SharedPlan] = []

    def lost_at_first(only: frozenset[int] | None) -> Any:
        plan = plan_of(driver)
        tries.append(plan)
        if len(tries) == 1:
            # It has written nothing so far, so neither coordinator nor leaders know of it.
            lost = TurnLog(driver.run.cluster, plan.turns, plan.key)
            lost.append_events(
                [TaskStarted(1, "lost"), Wanted(1, "lost", TopicPartition(settings["options"]["topic"], 3))]
            )
        return [write_shared(plan, 0, placed("from task 0", 0)), write_shared(plan, 1, [])]

    report = driver.process(0, lost_at_first, lines_of(settings), {})

    assert (report.redone, report.records) == (1, 1)
    assert read(broker, settings) == Counter(["from task 0"])


def test_seals_that_count_a_task_twice_are_found_and_nothing_shows(broker: AnyKafka) -> None:
    settings = settings_for(broker)
    driver = driver_of(settings)
    assert driver.start(0) is None
    seal = write_one(plan_of(driver), settings, 0)
    seals = [seal, replace(seal, slot=1)]

    with pytest.raises(AttemptRefused, match="count a different number of records"):
        driver.commit(0, seals, (), {})

    assert read(broker, settings) == Counter()


# ---- zombies


def test_a_zombie_driver_is_fenced_and_adds_nothing(broker: AnyKafka) -> None:
    settings = settings_for(broker)
    with held_at("before-decision", settings, run_batch) as zombie:
        assert run_batch(settings) == DONE
        late = zombie.release()

    assert late.report["error"].startswith("ProducerFenced")
    assert read(broker, settings) == EXPECTED
    assert committed_offsets(broker, settings) == settings["offsets"]


def test_a_zombie_driver_that_has_yet_to_begin_its_batch_does_not_take_the_id_back(broker: AnyKafka) -> None:
    settings = settings_for(broker)
    zombie = driver_of(settings)
    assert zombie.start(0) is None
    assert run_batch(settings) == DONE

    with pytest.raises(ProducerFenced):
        process(zombie, settings)

    assert read(broker, settings) == EXPECTED
    assert run_batch(settings)["resumed"] is True


def test_a_zombie_task_is_fenced_by_the_next_try(broker: AnyKafka) -> None:
    settings = settings_for(broker)
    driver = driver_of(settings)
    assert driver.start(0) is None
    old = driver.plan(0)
    assert isinstance(old, SharedPlan)
    driver.abandon(0, (), "the job failed, but this task goes on")

    with pytest.raises(ExactlyOnceError):
        write_one(old, settings, 0)

    assert process(driver, settings).records == 1200
    assert read(broker, settings) == EXPECTED
    assert read(broker, settings, "read_uncommitted") == EXPECTED


def test_a_run_of_scope_task_fences_a_zombie_of_scope_batch(broker: AnyKafka) -> None:
    settings = settings_for(broker)
    with held_at("before-decision", settings, run_batch) as zombie:
        assert run_child(settings).report["records"] == 1200
        late = zombie.release()

    assert late.report["error"].startswith("ProducerFenced")
    assert read(broker, settings) == EXPECTED


def test_a_run_of_scope_batch_fences_a_zombie_of_scope_task(broker: AnyKafka) -> None:
    settings = settings_for(broker)
    with held_at("before-decision", settings) as zombie:
        assert run_batch(settings) == DONE
        late = zombie.release()

    assert late.report["error"].startswith("ProducerFenced")
    assert read(broker, settings) == EXPECTED


# ---- a change of scope between two runs


def test_what_scope_task_decided_and_did_not_end_is_finished_by_scope_batch(broker: AnyKafka) -> None:
    settings = settings_for(broker)
    assert run_child(settings, "ends-arrived:1").exitcode == -signal.SIGKILL

    assert run_batch(settings)["resumed"] is True
    assert run_batch({**settings, "batch": 1})["resumed"] is False

    assert read(broker, settings) == EXPECTED + EXPECTED


def test_what_scope_batch_decided_is_known_to_scope_task(broker: AnyKafka) -> None:
    settings = settings_for(broker)
    assert run_killed(settings, "after-decision").exitcode == -signal.SIGKILL

    assert run_child(settings).report["resumed"] is True
    assert run_child({**settings, "batch": 1}).report["resumed"] is False

    assert read(broker, settings) == EXPECTED + EXPECTED


def test_what_scope_batch_left_open_is_aborted_by_scope_task(broker: AnyKafka) -> None:
    settings = settings_for(broker)
    assert run_killed(settings, "decision-written").exitcode == -signal.SIGKILL

    assert run_child(settings).report == {"batch": 0, "records": 1200, "resumed": False, "repaired": 0}

    assert read(broker, settings) == EXPECTED
    assert committed_offsets(broker, settings) == settings["offsets"]


# ---- refusals, shared with scope=task


def test_a_checkpoint_that_is_older_than_the_output_is_refused_and_nothing_is_written(
    broker: AnyKafka,
) -> None:
    settings = settings_for(broker)
    driver = driver_of(settings)
    driver.start(0)
    process(driver, settings)
    process(driver, {**settings, "batch": 1})
    before = read(broker, settings, "read_uncommitted")

    with pytest.raises(PipelineConflict, match="older than the output"):
        run_batch(settings)

    assert read(broker, settings, "read_uncommitted") == before


def test_a_ledger_that_lost_a_batch_in_one_transaction_is_noticed(broker: AnyKafka) -> None:
    settings = settings_for(broker)
    run_batch(settings)
    elsewhere = {
        **settings,
        "options": {**settings["options"], "ledger.topic": f"l-{settings['options']['topic']}"},
    }

    with pytest.raises(PipelineConflict, match="no decision"):
        run_batch(elsewhere)

    assert read(broker, settings) == EXPECTED


# ---- time


def test_with_too_little_time_left_the_batch_is_done_again_once_and_then_given_up(broker: AnyKafka) -> None:
    settings = settings_for(broker)
    settings["options"] |= {"kafka.transaction.timeout.ms": "30000", "transaction.margin.ms": "29999"}
    driver = driver_of(settings)
    assert driver.start(0) is None

    with pytest.raises(TransactionTooOld, match="too close to"):
        process(driver, settings)

    assert read(broker, settings) == Counter()
    assert set(read(broker, settings, "read_uncommitted").values()) == {2}


def test_a_transaction_that_the_coordinator_ended_is_done_again(broker: AnyKafka) -> None:
    settings = settings_for(broker)
    driver = driver_of(settings)
    assert driver.start(0) is None
    tries = []

    def write_and_lose(only: frozenset[int] | None) -> Any:
        seals = write(driver, settings, only)
        if not tries:
            # As its timeout would: the coordinator raises the epoch and aborts.
            Transactions(driver.run.cluster).init_producer_id(driver.batch_id, 60_000)
        tries.append(1)
        return seals

    report = driver.process(0, write_and_lose, lines_of(settings), {})

    assert report.redone == 1
    assert read(broker, settings) == EXPECTED


# ---- an end without an answer


@pytest.fixture(params=["2", "1"])
def own_broker(request: pytest.FixtureRequest) -> Any:
    with EmbeddedKafka(in_process=True, config={"transaction.version": request.param}) as kafka:
        yield kafka


@pytest.mark.embedded
@pytest.mark.parametrize("action", ["drop-answer", "drop-request"])
def test_an_end_without_an_answer_is_asked_again_and_proven(own_broker: EmbeddedKafka, action: str) -> None:
    settings = settings_for(own_broker)
    driver = driver_of(settings)
    assert driver.start(0) is None
    fault = own_broker.fault("EndTxn", action)

    report = process(driver, settings)

    assert fault.fired == 1
    assert (report.records, report.redone) == (1200, 0)
    assert read(own_broker, settings) == EXPECTED
    assert process(driver, {**settings, "batch": 1}).records == 1200


@pytest.mark.embedded
@pytest.mark.parametrize(("action", "committed"), [("drop-answer", True), ("error", False)])
def test_an_end_that_the_coordinator_cannot_say_is_read_from_the_log(
    own_broker: EmbeddedKafka, action: str, committed: bool
) -> None:
    """The coordinator's word is lost (its answers prove nothing), so the marker in the ledger's log is the witness."""
    settings = settings_for(own_broker)
    driver = driver_of(settings)
    assert driver.start(0) is None
    codes = {"code": "PRODUCER_FENCED"}
    first = own_broker.fault("EndTxn", action, **({} if action == "drop-answer" else codes))
    later = own_broker.fault("EndTxn", "error", times=50, **codes)

    if committed:
        report = process(driver, settings)
        assert (report.redone, first.fired) == (0, 1)
        assert later.fired >= 1
        assert read(own_broker, settings) == EXPECTED
    else:
        # Neither the coordinator nor the log says anything: the transaction is open.
        with pytest.raises(OutcomeUnknown, match="either fully committed or not committed at all"):
            process(driver, settings)
        assert read(own_broker, settings) == Counter()
        assert no_offsets(own_broker, settings)
        assert first.fired == 1
        own_broker.clear_faults()
        assert run_batch(settings) == DONE
        assert read(own_broker, settings) == EXPECTED
