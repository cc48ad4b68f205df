"""A batch write's begin and commit around killed processes, newer runs and lost slots. No Spark; librdkafka reads."""

from __future__ import annotations

import pickle
import signal
from collections import Counter
from multiprocessing.connection import Connection
from typing import Any

import pytest

from kafka_core.errors import (
    DecisionBroken,
    InvalidRow,
    NondeterministicPlan,
    PipelineConflict,
    ProducerFenced,
    RepairPending,
)
from pyspark_kafka_eos import crash_points
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.requests.admin import list_transactions
from pyspark_kafka_eos.client.requests.transactions import Transactions
from pyspark_kafka_eos.commit.dataframe_write import Begun, Rows, abort, begin, commit, compare, named
from pyspark_kafka_eos.model import ClientSettings, Seal
from pyspark_kafka_eos.options import SinkOptions
from pyspark_kafka_eos.slot.plan import SharedPlan
from pyspark_kafka_eos.slot.writer import write_slot
from tests.pyspark_kafka_eos.commit import ends_arrived
from tests.pyspark_kafka_eos.commit.batch_child import write_all
from tests.pyspark_kafka_eos.commit.child import arrow_batches, run
from tests.pyspark_kafka_eos.commit.judge import EXPECTED, ROWS, read_all, settings_for
from tests.support.brokers import AnyKafka
from tests.support.forks import forks

pytestmark = pytest.mark.kafka

UNWRITTEN: Counter[str] = Counter()


def options_for(broker: AnyKafka, **more: Any) -> dict[str, Any]:
    return {**settings_for(broker)["options"], **more}


def begun_with(options: dict[str, Any]) -> Begun:
    """What the tasks and the committing process get: it crosses processes."""
    found: Begun = pickle.loads(pickle.dumps(begin(named(SinkOptions.parse(options, "batch")))))
    return found


def seals_of(begun: Begun, rows: list[list[str]] = ROWS) -> list[Seal]:
    assert begun.plan is not None
    return [write_slot(begun.plan, slot, arrow_batches(values)) for slot, values in enumerate(rows)]


def write(options: dict[str, Any], rows: list[list[str]] = ROWS) -> dict[str, Any]:
    begun = begun_with(options)
    report = commit(begun, seals_of(begun, rows)) if begun.plan is not None else None
    return {} if report is None else {"records": report.records, "repaired": report.repaired}


def killed_at(point: str, options: dict[str, Any]) -> None:
    """The same in a process of its own, which dies at the point."""
    context = forks()
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_write_armed, args=(options, point, theirs))
    child.start()
    theirs.close()
    child.join(120)
    said = ours.recv() if ours.poll() and child.exitcode == 0 else None
    assert child.exitcode == -signal.SIGKILL, f"not killed at {point}: {said}"


def _write_armed(options: dict[str, Any], point: str, answer: Connection) -> None:
    ends_arrived.arm(point, options)
    answer.send(write(options))


def abort_slot(broker: AnyKafka, options: dict[str, Any], slot: int) -> None:
    """What the broker does with a transaction that is too old."""
    cluster = Cluster(ClientSettings((broker.bootstrap_servers,)))
    try:
        name = f"{options['pipeline']}:{slot}"
        assert Transactions(cluster).describe([name])[name].state == "Ongoing"
        Transactions(cluster).init_producer_id(name, 60_000)
    finally:
        cluster.close()


def open_transactions(broker: AnyKafka, pipeline: str) -> list[str]:
    cluster = Cluster(ClientSettings((broker.bootstrap_servers,)))
    try:
        return [name for name in list_transactions(cluster, ["Ongoing"]) if name.startswith(pipeline + ":")]
    finally:
        cluster.close()


def test_a_write_under_a_batch_id_is_done_once(broker: AnyKafka) -> None:
    options = options_for(broker, **{"batch.id": 20261121})

    assert write(options) == {"records": 1200, "repaired": 0}
    assert write(options) == {}

    assert read_all(broker, options["topic"], "read_uncommitted") == EXPECTED
    assert write({**options, "batch.id": 20261122}) == {"records": 1200, "repaired": 0}
    assert read_all(broker, options["topic"]) == EXPECTED + EXPECTED


def test_without_a_batch_id_every_write_is_one_of_its_own(kafka: AnyKafka) -> None:
    options = options_for(kafka)

    assert write(options) == write(options) == {"records": 1200, "repaired": 0}

    assert read_all(kafka, options["topic"]) == EXPECTED + EXPECTED


def test_a_lower_batch_id_is_refused_and_nothing_changes(kafka: AnyKafka) -> None:
    options = options_for(kafka, **{"batch.id": 7})
    write(options)

    with pytest.raises(PipelineConflict, match=r"batch.id=6 is lower than 7"):
        write({**options, "batch.id": 6})

    assert read_all(kafka, options["topic"], "read_uncommitted") == EXPECTED
    assert write(options) == {}


@pytest.mark.parametrize("point", ["mid-produce:20", "after-seal:2", "decision-written"])
def test_killed_before_the_decision_nothing_shows_and_the_job_run_again_writes_all(
    broker: AnyKafka, point: str
) -> None:
    options = options_for(broker, **{"batch.id": 1})
    killed_at(point, options)
    assert read_all(broker, options["topic"], "read_uncommitted") != UNWRITTEN

    assert write(options) == {"records": 1200, "repaired": 0}

    assert read_all(broker, options["topic"]) == EXPECTED
    assert open_transactions(broker, options["pipeline"]) == []


@pytest.mark.parametrize("point", ["decision-answered", "before-end", "ends-arrived:2"])
def test_killed_after_the_decision_the_job_run_again_ends_it_and_writes_nothing(broker: AnyKafka, point: str) -> None:
    options = options_for(broker, **{"batch.id": 1})
    killed_at(point, options)

    assert write(options) == {}

    assert read_all(broker, options["topic"]) == EXPECTED
    assert read_all(broker, options["topic"], "read_uncommitted") == EXPECTED


def test_a_write_that_follows_a_killed_one_ends_that_first(kafka: AnyKafka) -> None:
    options = options_for(kafka, **{"batch.id": 1})
    killed_at("ends-arrived:1", options)

    assert write({**options, "batch.id": 2}, [["one more"]]) == {"records": 1, "repaired": 0}

    assert read_all(kafka, options["topic"]) == EXPECTED + Counter(["one more"])


def test_what_the_broker_aborted_after_the_decision_is_written_by_the_same_job_run_again(
    broker: AnyKafka,
) -> None:
    options = options_for(broker, **{"batch.id": 1})
    killed_at("before-end", options)
    abort_slot(broker, options, 1)

    with pytest.raises(DecisionBroken, match=r"batch.id=1"):
        write({**options, "batch.id": 2})
    with pytest.raises(NondeterministicPlan):
        write(options, [ROWS[0], [*ROWS[1][:-1], "another row"], ROWS[2]])
    begun = begun_with(options)
    assert begun.handover is not None
    assert begun.handover.repair == {1}
    report = commit(begun, seals_of(begun))

    assert report is not None
    assert (report.records, report.repaired) == (1200, 1)
    assert read_all(broker, options["topic"]) == EXPECTED
    assert write(options) == {}


def test_a_newer_run_fences_a_write_that_has_not_committed(broker: AnyKafka) -> None:
    options = options_for(broker, **{"batch.id": 1})
    older = begun_with(options)
    seals = seals_of(older)
    newer = begun_with(options)

    with pytest.raises(ProducerFenced):
        commit(older, seals)
    abort(older, seals, "a test")
    assert read_all(broker, options["topic"]) == UNWRITTEN
    report = commit(newer, seals_of(newer))

    assert report is not None
    assert report.records == 1200
    assert read_all(broker, options["topic"]) == EXPECTED


def test_an_abort_ends_what_the_tasks_left_open(broker: AnyKafka) -> None:
    options = options_for(broker)
    begun = begun_with(options)
    seals = seals_of(begun)
    assert len(open_transactions(broker, options["pipeline"])) == 3

    # The third task's message never came.
    abort(begun, seals[:2], "a test")

    assert open_transactions(broker, options["pipeline"]) == []
    assert read_all(broker, options["topic"]) == UNWRITTEN


def test_an_abort_after_the_commit_undoes_nothing(kafka: AnyKafka) -> None:
    options = options_for(kafka)
    begun = begun_with(options)
    seals = seals_of(begun)
    commit(begun, seals)

    abort(begun, seals, "Spark calls abort where a commit raised")

    assert read_all(kafka, options["topic"]) == EXPECTED


def test_a_slot_lost_between_decision_and_end_is_said_and_repaired_by_the_next_run(broker: AnyKafka) -> None:
    options = options_for(broker, **{"batch.id": 1})
    begun = begun_with(options)
    seals = seals_of(begun)
    crash_points.arm("before-end", 1, lambda: abort_slot(broker, options, 2))

    with pytest.raises(RepairPending, match=r"batch.id=1"):
        commit(begun, seals)
    abort(begun, seals, "Spark calls abort where a commit raised")

    assert read_all(broker, options["topic"]) == Counter([*ROWS[0], *ROWS[1]])
    assert write(options) == {"records": 1200, "repaired": 1}
    assert read_all(broker, options["topic"]) == EXPECTED


def test_a_write_without_pipeline_gets_a_name_of_its_own_and_transactions_that_end_by_themselves(
    kafka: AnyKafka,
) -> None:
    options = options_for(kafka)
    del options["pipeline"]

    first, second = begun_with(options), begun_with(options)

    assert first.options.pipeline != second.options.pipeline
    assert first.plan is not None
    assert not first.plan.two_phase
    commit(first, seals_of(first))
    assert read_all(kafka, options["topic"]) == EXPECTED


def test_a_streams_pipeline_is_not_for_batch_writes(kafka: AnyKafka) -> None:
    settings = settings_for(kafka)
    run(settings)

    with pytest.raises(PipelineConflict, match="belongs to a streaming query"):
        write(settings["options"])

    assert read_all(kafka, settings["options"]["topic"], "read_uncommitted") == EXPECTED


# ---- the same number again


def compared(options: dict[str, Any], rows: list[list[str]]) -> None:
    """The tasks and the end of a write whose batch is committed already."""
    begun = begun_with(options)
    assert begun.handover is None
    seals = seals_of(begun, rows)
    assert all(seal.identity is None for seal in seals)
    compare(begun, seals, [], len(seals))


@pytest.mark.parametrize("scope", ["task", "batch"])
@pytest.mark.parametrize(
    ("rows", "other"),
    [
        ([["a", "b", "c"], ["d"]], False),
        ([["c", "d"], [], ["b", "a"]], False),
        ([["a", "b", "c"]], True),
        ([["a", "b", "c"], ["x"]], True),
        ([[]], True),
    ],
)
def test_other_rows_under_a_number_that_is_committed_are_said(
    kafka: AnyKafka, rows: list[list[str]], other: bool, scope: str, caplog: pytest.LogCaptureFixture
) -> None:
    options = options_for(kafka, **{"batch.id": 7, "transaction.scope": scope})
    begun = begun_with(options)
    given = [["a", "b"], ["c", "d"]]
    if isinstance(begun.plan, SharedPlan):
        commit(begun, write_all(begun.plan, {"rows": given}))
    else:
        commit(begun, seals_of(begun, given))
    caplog.clear()

    compared(options, rows)

    assert ("these are other rows, and none of them was written" in caplog.text) is other
    failing = {**options, "batch.rows.differ": "fail"}
    if other:
        with pytest.raises(PipelineConflict, match="is committed already with 4 records") as refused:
            compared(failing, rows)
        assert (refused.value.facts["committed_records"], refused.value.facts["records"]) == (
            4,
            sum(map(len, rows)),
        )
    else:
        compared(failing, rows)
    assert read_all(kafka, options["topic"], "read_uncommitted") == Counter("abcd")


def test_rows_that_cannot_be_measured_are_said_to_be_unknown_and_fail_nothing(
    kafka: AnyKafka, caplog: pytest.LogCaptureFixture
) -> None:
    options = options_for(kafka, **{"batch.id": 7})
    assert write(options, [["a"]]) == {"records": 1, "repaired": 0}
    begun = begun_with(options)

    compare(begun, [], [InvalidRow("row 3 has no topic")], 1)
    compare(begun, [], [], 1)

    assert "cannot be measured (row 3 has no topic)" in caplog.text
    assert "cannot be measured (1 tasks gave no answer)" in caplog.text


def test_with_ignore_nothing_is_computed_for_a_number_that_is_committed(kafka: AnyKafka) -> None:
    options = options_for(kafka, **{"batch.id": 7, "batch.rows.differ": "ignore"})
    assert write(options, [["a"]]) == {"records": 1, "repaired": 0}

    again = begun_with(options)

    assert (again.plan, again.decided) == (None, None)


def test_dead_letters_are_compared_by_their_number_alone() -> None:
    decided = Rows(3, 17, dead_letters=1)

    assert not decided.differ(Rows(3, 18, dead_letters=1))
    assert not decided.differ(Rows(3, 18, dead_letters=0))
    assert decided.differ(Rows(4, 17, dead_letters=1))
    assert Rows(3, 17, 0).differ(Rows(3, 18, 0))
