"""Whether a run may go on: conflicts, a ledger that has lost decisions, the class of transactions, and what is said at
a stop.
"""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import pytest

from kafka_core.errors import (
    DecisionBroken,
    Fact,
    NondeterministicPlan,
    OptionsError,
    PipelineConflict,
    WrongClock,
)
from kafka_core.protocol.error_codes import Code
from kafka_core.values import ProducerIdentity, TopicPartition
from pyspark_kafka_eos.client.writing.appending import append_record
from pyspark_kafka_eos.commit.decision import kept_of, moved_rows
from pyspark_kafka_eos.commit.ladder import transaction_class
from pyspark_kafka_eos.commit.ledger.lost import unnamed_commits
from pyspark_kafka_eos.commit.ledger.notes import Mending
from pyspark_kafka_eos.commit.ledger.reader import LedgerView
from pyspark_kafka_eos.commit.machine import events as ev
from pyspark_kafka_eos.commit.start.admission import (
    judge_adopted,
    judge_earlier,
    refuse_conflict,
    refuse_lost_ledger,
    warn_of_another_topic,
)
from pyspark_kafka_eos.commit.stops import stop_error
from pyspark_kafka_eos.model import Decision, LoggedOffsets, Seal, SealedPartition
from pyspark_kafka_eos.options import LONGEST_TRANSACTION_MS, SinkOptions
from tests.pyspark_kafka_eos.commit.fakes import OUTPUT, PIPELINE, World, decision_of, places


def options(**more: Any) -> SinkOptions:
    given = {name.replace("__", "."): value for name, value in more.items()}
    return SinkOptions.parse({"kafka.bootstrap.servers": "memory:1", "pipeline": PIPELINE, "topic": "out", **given})


# ---- conflicts


def test_the_batch_after_the_newest_decision_may_begin() -> None:
    refuse_conflict(options(), "query", decision_of([], batch_id=3), 4, None)
    refuse_conflict(options(), "query", decision_of([], batch_id=3), 3, None)
    refuse_conflict(options(), "query", None, 7, None)


def test_a_checkpoint_older_than_the_output_is_refused() -> None:
    with pytest.raises(PipelineConflict, match="it begins batch 2, but batch 3 of this query is committed"):
        refuse_conflict(options(adopt__checkpoint="true"), "query", decision_of([], batch_id=3), 2, None)


def test_another_query_is_refused_until_its_checkpoint_is_adopted() -> None:
    newest = decision_of([], batch_id=3)

    with pytest.raises(PipelineConflict, match="belongs to another query") as refused:
        refuse_conflict(options(), "another", newest, 0, None)

    assert refused.value.facts["ledger_query"] == "query"
    refuse_conflict(options(adopt__checkpoint="true"), "another", newest, 0, None)


def test_a_decided_batch_with_other_source_offsets_is_refused() -> None:
    newest = decision_of([], batch_id=3, source_offsets=("a", "b"))

    refuse_conflict(options(), "query", newest, 3, ("a", "b"))
    refuse_conflict(options(), "query", newest, 3, None)
    refuse_conflict(options(), "query", newest, 4, ("c", "d"))
    with pytest.raises(PipelineConflict, match="for other source offsets"):
        refuse_conflict(options(), "query", newest, 3, ("a", "c"))


def test_a_decided_batch_without_source_offsets_is_refused_where_the_run_has_some() -> None:
    newest = decision_of([], batch_id=3)

    with pytest.raises(PipelineConflict, match="without source offsets, and the checkpoint has some") as refused:
        refuse_conflict(options(), "query", newest, 3, ("a",))

    assert (refused.value.facts["committed"], refused.value.facts["checkpoint"]) == ("none", "a")
    # Where nothing is known of them, nothing is compared: a DataFrame that is written once has none.
    refuse_conflict(options(), "query", newest, 3, None)
    refuse_conflict(options(), "query", newest, 4, ("a",))
    refuse_conflict(options(), "query", newest, 3, ())


def test_a_batch_that_spark_has_planned_anew_is_not_the_committed_one() -> None:
    """A number of files says nothing of which: only the time at which Spark planned them does."""
    offsets = ('{"logOffset":1}',)
    newest = decision_of([], batch_id=3, source_offsets=offsets, planned_ms=1_700_000_000_000)
    newest = Decision.from_bytes(newest.to_bytes())

    with pytest.raises(PipelineConflict, match="has another batch 3: Spark planned it at") as refused:
        refuse_conflict(options(), "query", newest, 3, LoggedOffsets(offsets, 1_700_000_060_000))
    assert "1700000060000 ms" in refused.value.message and "1700000000000 ms" in refused.value.message
    for same in (LoggedOffsets(offsets, 1_700_000_000_000), LoggedOffsets(offsets), offsets, None):
        refuse_conflict(options(), "query", newest, 3, same)
    untold = decision_of([], batch_id=3, source_offsets=offsets)
    refuse_conflict(options(), "query", untold, 3, LoggedOffsets(offsets, 1_700_000_060_000))


def test_what_was_logged_of_a_batch_crosses_processes_with_its_time() -> None:
    again = pickle.loads(pickle.dumps(LoggedOffsets(("a", "b"), 7)))

    assert (again, again.planned_ms) == (("a", "b"), 7)


# ---- a checkpoint that is adopted


def test_an_adopted_checkpoint_begins_where_the_last_batch_ended(caplog: pytest.LogCaptureFixture) -> None:
    newest = decision_of([], batch_id=3, source_offsets=('0:{"t":{"0":20}}',))
    asked: list[object] = []

    def elsewhere(*given: object) -> list[str]:
        asked.append(given)
        return ["t-0 at offset 0 instead of 20"]

    adopts = options(adopt__checkpoint="true")
    with pytest.raises(
        PipelineConflict, match="batch 0 of this checkpoint begins elsewhere than batch 3 ended"
    ) as refused:
        judge_adopted(adopts, "another", newest, 0, ("x",), {-1: ("never",)}.get, elsewhere)
    with pytest.raises(PipelineConflict):
        judge_adopted(adopts, "another", newest, 5, ("x",), {4: ("y",)}.get, elsewhere)

    assert "t-0 at offset 0 instead of 20" in refused.value.message
    assert 'or startingOffsets={"t":{"0":20}}' in refused.value.message
    assert asked == [(newest.source_offsets, ("x",), None), (newest.source_offsets, ("x",), ("y",))]
    named = options(adopt__checkpoint="true", adopt__without__batch="3")
    (warning,) = judge_adopted(named, "another", newest, 0, ("x",), None, elsewhere)
    assert "t-0 at offset 0 instead of 20" in warning and warning in caplog.text
    # Its own query, no decision, nothing that can be compared, and no difference.
    assert judge_adopted(adopts, "query", newest, 4, ("x",), None, elsewhere) == ()
    assert judge_adopted(adopts, "another", None, 0, ("x",), None, elsewhere) == ()
    assert judge_adopted(adopts, "another", newest, 0, None, None, elsewhere) == ()
    assert judge_adopted(adopts, "another", newest, 0, ("x",), None, None) == ()
    assert judge_adopted(adopts, "another", newest, 0, ("x",), None, lambda *_: ()) == ()
    assert judge_adopted(adopts, "another", newest, 5, ("x",), {}.get, elsewhere) == ()


# ---- what the checkpoint has for the batch before


def test_a_checkpoint_that_ends_the_newest_decision_elsewhere_is_refused_and_both_ends_are_named() -> None:
    newest = decision_of([], batch_id=3, source_offsets=("a 10",))

    # Batch 4 was left out by the function of foreachBatch: what is compared is the newest decision's.
    for batch_id in (4, 5):
        with pytest.raises(PipelineConflict, match="other source offsets for batch 3") as refused:
            judge_earlier(options(), "query", newest, batch_id, {3: ("a 9",), 4: ("a 12",)}.get)
        assert (refused.value.facts["committed"], refused.value.facts["checkpoint"]) == ("a 10", "a 9")
        assert "has a 9, the ledger has a 10" in refused.value.message
        assert pickle.loads(pickle.dumps(refused.value)).facts == refused.value.facts
    (warning,) = judge_earlier(options(adopt__checkpoint="true"), "query", newest, 4, lambda batch_id: ("a 9",))
    assert "up to the source offsets a 10" in warning and "has a 9 for it now" in warning


def test_where_either_side_has_no_offsets_nothing_is_concluded() -> None:
    newest = decision_of([], batch_id=3, source_offsets=("a 10",))
    decided_elsewhere = decision_of([], batch_id=3)

    assert judge_earlier(options(), "query", newest, 4, lambda batch_id: ("a 10",)) == ()
    assert judge_earlier(options(), "query", newest, 4, lambda batch_id: None) == ()
    assert judge_earlier(options(), "query", newest, 4, None) == ()
    assert judge_earlier(options(), "query", decided_elsewhere, 4, lambda batch_id: ("a 9",)) == ()
    assert judge_earlier(options(), "another", newest, 4, lambda batch_id: ("a 9",)) == ()
    # Of the batch that runs, the offsets are compared as its own.
    assert judge_earlier(options(), "query", newest, 3, lambda batch_id: ("a 9",)) == ()
    assert judge_earlier(options(), "query", None, 4, lambda batch_id: ("a 9",)) == ()


# ---- a ledger that has lost decisions


def shown(world: World, slots: int = 2) -> dict[str, ProducerIdentity]:
    views = world.transactions.describe([f"{PIPELINE}:{slot}" for slot in range(slots)])
    return {name: view.identity for name, view in views.items() if view.state == "CompleteCommit"}


def two_batches(world: World) -> tuple[Decision, Decision]:
    """Batch 0 by slots 0 and 1, batch 1 by slot 0 alone, both committed."""
    first = decision_of([world.slot(0), world.slot(1)])
    world.decide(first)
    for seal in first.seals:
        world.end(seal, commit=True)
    seal = world.slot(0)
    second = decision_of([seal], batch_id=1, earlier=((f"{PIPELINE}:1", shown(world)[f"{PIPELINE}:1"]),))
    world.decide(second)
    world.end(seal, commit=True)
    return first, second


def test_a_whole_ledger_accounts_for_every_commit(world: World) -> None:
    _, second = two_batches(world)

    view = world.ledger.look()

    assert view.newest == second
    assert unnamed_commits(view, shown(world)) == []
    refuse_lost_ledger(options(), view, 2, shown(world))


def test_a_lost_tail_of_the_ledger_is_noticed(world: World) -> None:
    first, _ = two_batches(world)
    world.kafka.log(world.where).lose_tail(2)

    view = world.ledger.look()

    assert view.newest == first
    assert unnamed_commits(view, shown(world)) == [f"{PIPELINE}:0"]
    with pytest.raises(PipelineConflict, match="the ledger has lost a later decision") as lost:
        refuse_lost_ledger(options(), view, 1, shown(world))
    assert lost.value.facts["transactional_ids"] == (f"{PIPELINE}:0",)
    assert "adopt.checkpoint=true" in lost.value.message
    refuse_lost_ledger(options(adopt__checkpoint="true"), view, 1, shown(world))


def test_a_commit_of_an_id_that_no_decision_names_is_noticed(world: World) -> None:
    two_batches(world)
    world.end(world.slot(2), commit=True)

    assert unnamed_commits(world.ledger.look(), shown(world, 3)) == [f"{PIPELINE}:2"]


def test_a_mending_accounts_for_what_it_committed(world: World) -> None:
    seal = world.slot(0, {0: 1, 1: 1})
    world.decide(decision_of([seal]))
    world.kafka.forget_marker(OUTPUT[1])
    world.end(seal, commit=True)
    world.mender.await_markers([seal], commit=True)
    assert shown(world, 1)[seal.transactional_id] != seal.end_identity

    assert unnamed_commits(world.ledger.look(), shown(world, 1)) == []


def test_an_older_mending_does_not_account_for_a_later_commit() -> None:
    who = ProducerIdentity(1, 4)
    view = LedgerView(newest=decision_of([]), mendings={"pipe:0": Mending("pipe:0", ProducerIdentity(1, 3), ())})

    assert unnamed_commits(view, {"pipe:0": who}) == ["pipe:0"]


@pytest.mark.parametrize(("epoch", "accused"), [(32_759, True), (32_760, False), (32_766, False)])
def test_an_epoch_that_rolled_over_accuses_nobody(epoch: int, accused: bool) -> None:
    newest = decision_of([Seal("pipe:0", 0, ProducerIdentity(1, epoch), 1)])

    found = unnamed_commits(LedgerView(newest=newest), {"pipe:0": ProducerIdentity(2, 0)})

    assert found == (["pipe:0"] if accused else [])


def test_a_driven_out_epoch_gets_a_new_producer_id_and_nobody_is_accused(world: World) -> None:
    """The coordinator itself exchanges the producer id with the end (version 2) or at the next start (version 1)."""
    world.transactions.init_producer_id(f"{PIPELINE}:0", 60_000)
    world.kafka.set_epoch(f"{PIPELINE}:0", 32_764)
    seal = world.slot(0)
    world.decide(decision_of([seal]))
    world.end(seal, commit=True)
    later = world.slot(0)
    world.end(later, commit=True)
    assert seal.identity is not None and seal.identity.epoch == 32_765

    assert unnamed_commits(world.ledger.look(), shown(world, 1)) == []


@pytest.mark.parametrize("batch_id", [0, 5])
def test_an_empty_ledger_of_a_pipeline_that_has_committed_is_refused(batch_id: int) -> None:
    commits = {"pipe:0": ProducerIdentity(1, 0)}

    with pytest.raises(
        PipelineConflict, match=r"has decided batches: pipe:0 is committed under producer 1 epoch 0"
    ) as lost:
        refuse_lost_ledger(options(), LedgerView(), batch_id, commits)

    assert lost.value.facts["transactional_ids"] == ("pipe:0",)
    refuse_lost_ledger(options(adopt__checkpoint="true"), LedgerView(), batch_id, commits)


def test_a_new_pipeline_with_an_empty_ledger_may_begin() -> None:
    refuse_lost_ledger(options(), LedgerView(), 0, {})
    assert unnamed_commits(LedgerView(), {"pipe:0": ProducerIdentity(1, 0)}) == []


def test_a_pipeline_that_goes_on_into_another_topic_is_warned(world: World) -> None:
    last = decision_of([world.slot(0)], batch_id=6)

    (warning,) = warn_of_another_topic(options(topic="elsewhere"), last)

    assert warning == f"up to batch 6 pipeline '{PIPELINE}' wrote to out; from now on it writes to elsewhere"
    assert warn_of_another_topic(options(), last) == ()
    assert warn_of_another_topic(options(topic="elsewhere"), None) == ()


# ---- the ladder


@pytest.mark.parametrize(
    ("cap", "asked", "timeout_ms"),
    [
        (None, None, LONGEST_TRANSACTION_MS),
        (None, "30000", 30_000),
        ("50000", None, 50_000),
        ("50000", "30000", 30_000),
        ("50000", "50000", 50_000),
        ("99999999", None, LONGEST_TRANSACTION_MS),
    ],
)
def test_the_timeout_is_what_was_asked_or_as_long_as_the_broker_allows(
    world: World, cap: str | None, asked: str | None, timeout_ms: int
) -> None:
    if cap is not None:
        world.kafka.restart(transaction_max_timeout_ms=int(cap))
    given = {} if asked is None else {"kafka__transaction__timeout__ms": asked}

    assert transaction_class(world.cluster, options(**given)) == (timeout_ms, False)


def test_a_timeout_above_the_brokers_is_refused_before_anything_is_written(world: World) -> None:
    world.kafka.restart(transaction_max_timeout_ms=50_000)

    with pytest.raises(OptionsError, match=r"=50001 is above the broker's transaction.max.timeout.ms=50000"):
        transaction_class(world.cluster, options(kafka__transaction__timeout__ms="50001"))


def test_two_phases_are_taken_where_cluster_and_user_allow_them(world: World) -> None:
    world.kafka.restart(two_phase_commit=True)
    world.fresh_process()
    version2 = world.cluster.transaction_version == 2

    assert transaction_class(world.cluster, options()) == (LONGEST_TRANSACTION_MS, version2)
    refused = replace(options(), two_phase_commit=False)
    assert transaction_class(world.cluster, refused) == (LONGEST_TRANSACTION_MS, False)


def test_a_right_that_is_missing_leaves_the_lower_rung(world: World) -> None:
    world.kafka.restart(two_phase_commit=True)
    world.fresh_process()
    denied = world.kafka.fault("DescribeConfigs", Code.CLUSTER_AUTHORIZATION_FAILED)

    assert transaction_class(world.cluster, options()) == (LONGEST_TRANSACTION_MS, False)
    assert denied.fired == 1


# ---- the stops


SEAL = Seal(
    "pipe:1",
    1,
    ProducerIdentity(4, 2),
    2,
    records=3,
    digest=5,
    partitions=(SealedPartition("out", 0, 17, 2, 3),),
)
FACTS: dict[str, Fact] = {"pipeline": PIPELINE, "batch": 9}
STOPS: list[tuple[ev.Effect, type[Exception], list[str]]] = [
    (ev.StopNondeterministic(SEAL, None), NondeterministicPlan, ["slot 1", "make the plan deterministic"]),
    (ev.StopSplit((SEAL, SEAL), (SEAL,)), DecisionBroken, ["had 2 slots, the replay has 1", "local[2]"]),
    (ev.StopForNow("rows have moved"), DecisionBroken, ["rows have moved", "then start the query again"]),
    (ev.StopBroken((SEAL,)), DecisionBroken, ["slot 1: pipe:1, producer 4 epoch 2, out-0 from offset 17"]),
]


@pytest.mark.parametrize(("effect", "error", "said"), STOPS, ids=lambda value: type(value).__name__)
def test_a_stop_says_what_is_known_and_what_to_do_and_never_that_the_batch_is_lost(
    effect: ev.Effect, error: type[Exception], said: list[str]
) -> None:
    stopped = stop_error(effect, FACTS)

    assert type(stopped) is error
    assert all(text in stopped.message for text in said)
    assert stopped.facts.items() >= FACTS.items()
    assert any(word in stopped.message for word in ("nothing is skipped", "stay committed", "Nothing is lost"))
    assert str(pickle.loads(pickle.dumps(stopped))) == str(stopped)


# ---- torn


def test_of_a_torn_slot_everything_but_the_lost_is_kept(world: World) -> None:
    seal = world.slot(0, {0: 1, 1: 1, 2: 1})

    kept = kept_of(seal, [OUTPUT[1]])

    assert [each.part for each in kept] == [seal.partitions[0], seal.partitions[2]]
    assert {each.identity for each in kept} == {seal.identity}
    assert places(seal, [OUTPUT[1]]) == [OUTPUT[0], OUTPUT[2]]


def part(number: int, records: int, digest: int | None) -> SealedPartition:
    return SealedPartition("out", number, 0, 0, records, digest)


def slot(*parts: SealedPartition, measured: tuple[SealedPartition, ...] = ()) -> Seal:
    return Seal("pipe:0", 0, ProducerIdentity(1, 0), 2, partitions=parts, measured=measured)


DECIDED = slot(part(0, 2, 5), part(1, 3, 2**64 - 1))


@pytest.mark.parametrize(
    ("replayed", "moved"),
    [
        ([slot(part(0, 2, 5), part(1, 3, 2**64 - 1))], []),
        ([slot(part(1, 3, 2**64 - 1), measured=(part(0, 2, 5),))], []),
        ([slot(part(0, 1, 2**64 - 1), part(1, 3, 2**64 - 1)), slot(part(0, 1, 6))], []),
        ([slot(part(0, 2, 5), part(1, 1, 7)), slot(part(1, 2, 2**64 - 8))], []),
        ([slot(part(0, 2, 6), part(1, 3, 2**64 - 1))], [0]),
        ([slot(part(0, 3, 5), part(1, 3, 2**64 - 1))], [0]),
        ([slot(part(0, 2, 5))], [1]),
        ([slot(part(0, 2, 5), part(1, 3, 2**64 - 1), part(3, 1, 0))], [3]),
        ([slot(part(0, 2, None), part(1, 3, 2**64 - 1))], [0]),
        ([], [0, 1]),
    ],
)
def test_a_replay_fits_only_where_every_partition_gets_what_was_decided_for_it(
    replayed: list[Seal], moved: list[int]
) -> None:
    assert moved_rows(DECIDED, replayed) == [TopicPartition("out", number) for number in moved]


def test_what_an_older_decision_did_not_measure_cannot_be_compared_and_does_not_fit() -> None:
    unknown = slot(part(0, 2, None), part(1, 3, None))

    assert moved_rows(unknown, [unknown]) == OUTPUT[:2]


# ---- a clock that is wrong


def test_a_turn_that_is_refused_for_its_time_names_the_clock_of_its_machine(world: World) -> None:
    early = world.kafka.fault("Produce", Code.INVALID_TIMESTAMP)

    with pytest.raises(WrongClock, match="the clock of the machine that wrote a turn shows 20"):
        append_record(world.cluster, OUTPUT[0], b"key", b"value", what="a turn", grant="")

    assert early.fired == 1
    assert world.shown(OUTPUT[0]) == []
