"""Who may go on with a batch that another process began, who is fenced, what a repair may give. On a cluster in
memory.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kafka_core.errors import (
    BrokerUnavailable,
    DecisionBroken,
    OptionsError,
    OutcomeUnknown,
    PipelineConflict,
    ProducerFenced,
    RepairPending,
)
from pyspark_kafka_eos import crash_points
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.commit import handover as ho
from pyspark_kafka_eos.commit.decision import write_decision
from pyspark_kafka_eos.commit.drivers import pipeline_driver
from pyspark_kafka_eos.commit.handover import phases
from pyspark_kafka_eos.commit.reports import CommitReport
from pyspark_kafka_eos.commit.start.admission import OffsetLog
from pyspark_kafka_eos.commit.whole_batch.driver import WholeBatch
from pyspark_kafka_eos.model import RowOptions, Seal
from pyspark_kafka_eos.options import SinkOptions
from pyspark_kafka_eos.slot.plan import ALL_OTHERS, SharedPlan, WritePlan
from tests.pyspark_kafka_eos.commit.fakes import DRIVER, GROUP, LEDGER, OUTPUT, PIPELINE, SOURCE, World

LINES = ("an offset line",)


@pytest.fixture
def options(world: World, monkeypatch: pytest.MonkeyPatch) -> SinkOptions:
    """Options of the pipeline, whose cluster every process finds in memory."""
    monkeypatch.setattr(Cluster, "shared", staticmethod(lambda *_: world.cluster))
    return options_of()


def options_of(**more: Any) -> SinkOptions:
    given = {
        "kafka.bootstrap.servers": "memory:1",
        "pipeline": PIPELINE,
        "topic": "out",
        "ledger.topic": LEDGER,
        "offsets.group": GROUP,
    }
    return SinkOptions.parse(given | more)


def begin(
    world: World, options: SinkOptions, batch_id: int = 0, query_id: str = "query"
) -> tuple[WritePlan | SharedPlan, ho.Handover]:
    world.fresh_process()
    return ho.begin(world.cluster, options, query_id, batch_id, LINES)


def finish(world: World, options: SinkOptions, handover: ho.Handover, seals: list[Seal]) -> CommitReport:
    world.fresh_process()
    return ho.finish(world.cluster, options, handover, seals, LINES, {SOURCE: 5})


def give_up(world: World, options: SinkOptions, handover: ho.Handover, seals: list[Seal]) -> bool:
    world.fresh_process()
    return ho.give_up(options, handover, seals, "a test")


def written(world: World) -> list[Seal]:
    return [world.slot(0), world.slot(1)]


def shown(world: World) -> list[int]:
    return [len(world.shown(where)) for where in OUTPUT[:2]]


def states(world: World) -> list[str]:
    return [world.state(f"{PIPELINE}:{slot}") for slot in range(2)]


# ---- who may go on


def test_a_batch_that_one_process_began_is_committed_by_another(world: World, options: SinkOptions) -> None:
    plan, handover = begin(world, options)
    assert isinstance(plan, WritePlan)
    assert (handover.repair, handover.shared) == (None, None)

    report = finish(world, options, handover, written(world))

    assert (report.records, report.resumed, report.repaired) == (4, False, 0)
    assert shown(world) == [2, 2]
    view = world.ledger.look()
    assert view.newest is not None and view.newest.source_offsets == LINES
    assert view.ended


def log_with(lines: tuple[str, ...]) -> OffsetLog:
    """A checkpoint that has these for every earlier batch."""
    return OffsetLog(lambda batch_id: lines, lambda *_: ())


def test_a_batch_that_begins_where_no_batch_has_ended_is_refused_before_anyone_is_fenced(
    world: World, options: SinkOptions
) -> None:
    finish(world, options, begin(world, options)[1], written(world))
    owner = world.transactions.describe([DRIVER])[DRIVER]

    world.fresh_process()
    with pytest.raises(PipelineConflict, match="other source offsets for batch 0"):
        ho.begin(world.cluster, options, "query", 1, ("a later line",), log_with(("an edited line",)))

    assert world.transactions.describe([DRIVER])[DRIVER] == owner
    assert shown(world) == [2, 2]
    assert ho.begin(world.cluster, options, "query", 1, ("a later line",), log_with(LINES))


def test_on_purpose_it_begins_there_and_its_decision_says_so(world: World, options: SinkOptions) -> None:
    finish(world, options, begin(world, options)[1], written(world))

    world.fresh_process()
    adopting = options_of(**{"adopt.checkpoint": "true"})
    _, handover = ho.begin(world.cluster, adopting, "query", 1, ("a line",), log_with(("edited",)))

    assert [("an offset line" in each, "edited" in each) for each in handover.warnings] == [(True, True)]


def test_of_two_beginnings_only_the_newer_goes_on(world: World, options: SinkOptions) -> None:
    _, older = begin(world, options)
    early = written(world)
    _, newer = begin(world, options)
    late = written(world)

    with pytest.raises(ProducerFenced):
        finish(world, options, older, early)

    assert world.ledger.look().newest is None
    assert states(world) == ["Ongoing"] * 2
    assert finish(world, options, newer, late).records == 4
    assert shown(world) == [2, 2]


def test_a_batch_is_committed_once_however_often_it_is_finished(world: World, options: SinkOptions) -> None:
    _, handover = begin(world, options)
    seals = written(world)
    finish(world, options, handover, seals)

    if world.cluster.transaction_version == 2:
        # The decision's end has raised the driver's epoch.
        with pytest.raises(ProducerFenced):
            finish(world, options, handover, seals)
    else:
        # The coordinator repeats its answer to who asks with the same identity; the ledger says that it is decided.
        assert finish(world, options, handover, seals).resumed

    assert shown(world) == [2, 2]
    assert states(world) == ["CompleteCommit"] * 2


def test_a_beginning_after_the_decision_finishes_the_batch_and_plans_no_slot(
    world: World, options: SinkOptions
) -> None:
    _, handover = begin(world, options)
    seals = written(world)
    world.kafka.fault(
        "EndTxn",
        "drop-request",
        times=99_999,
        matches=lambda each: each.transactional_id == f"{PIPELINE}:1",
    )
    with pytest.raises(OutcomeUnknown):
        finish(world, options, handover, seals)
    world.kafka.clear_faults()

    plan, again = begin(world, options)

    assert isinstance(plan, WritePlan)
    assert plan.only_slots == again.repair == frozenset()
    assert shown(world) == [2, 2]
    report = finish(world, options, again, [Seal(f"{PIPELINE}:{slot}", slot, None, 2) for slot in range(2)])
    assert (report.resumed, report.records) == (True, 4)


def test_an_older_batch_may_not_begin_and_nobody_is_fenced_by_the_try(world: World, options: SinkOptions) -> None:
    _, handover = begin(world, options, batch_id=0)
    finish(world, options, handover, written(world))
    _, running = begin(world, options, batch_id=1)

    with pytest.raises(PipelineConflict):
        begin(world, options, batch_id=0, query_id="another")

    assert world.identity(DRIVER) == running.identity
    assert finish(world, options, running, written(world)).records == 4


# ---- giving up


def test_what_is_given_up_is_aborted(world: World, options: SinkOptions) -> None:
    _, handover = begin(world, options)
    seals = written(world)
    world.slot(2)

    assert give_up(world, options, handover, seals)

    # Also what a task left open of which nobody has a seal.
    assert [*states(world), world.state(f"{PIPELINE}:2") == "Ongoing"] == ["CompleteAbort"] * 2 + [False]
    with pytest.raises(ProducerFenced):
        finish(world, options, handover, seals)
    assert shown(world) == [0, 0]


def test_giving_up_beside_a_newer_run_leaves_that_one_alone(world: World, options: SinkOptions) -> None:
    _, older = begin(world, options)
    early = written(world)
    _, newer = begin(world, options)
    late = written(world)

    assert not give_up(world, options, older, early)

    assert states(world) == ["Ongoing"] * 2
    assert finish(world, options, newer, late).records == 4


def test_a_decided_batch_is_not_given_up(world: World, options: SinkOptions) -> None:
    _, handover = begin(world, options)
    seals = written(world)
    world.kafka.fault("EndTxn", "drop-request", times=99_999, matches=lambda each: each.transactional_id != DRIVER)
    with pytest.raises(OutcomeUnknown):
        finish(world, options, handover, seals)
    world.kafka.clear_faults()

    assert not give_up(world, options, handover, seals)

    assert states(world) == ["Ongoing"] * 2
    begin(world, options)
    assert shown(world) == [2, 2]


def test_giving_up_ends_a_decision_that_the_same_run_has_open(world: World, options: SinkOptions) -> None:
    _, handover = begin(world, options)
    seals = written(world)
    driver = pipeline_driver(world.cluster, options, "query")
    driver.resume(handover)
    write_decision(driver.run.producer, driver.run.ledger, driver.run.decision(0, seals, LINES), GROUP, {SOURCE: 5})

    assert give_up(world, options, handover, seals)

    view = world.ledger.look()
    assert (view.newest, view.open) == (None, None)
    assert states(world) == ["CompleteAbort"] * 2
    with pytest.raises(OutcomeUnknown):
        driver.run.producer.commit()
    assert world.ledger.look().newest is None


def test_where_nobody_can_be_asked_giving_up_raises_nothing(
    world: World, options: SinkOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, handover = begin(world, options)
    seals = written(world)

    def no_broker(*_: object) -> Cluster:
        raise BrokerUnavailable("nobody there")

    monkeypatch.setattr(Cluster, "shared", staticmethod(no_broker))

    assert not give_up(world, options, handover, seals)
    assert states(world) == ["Ongoing"] * 2


# ---- repairs


def decided_and_lost(world: World, options: SinkOptions) -> tuple[WritePlan | SharedPlan, ho.Handover]:
    """A decided batch of which the broker has aborted slot 1, begun again."""
    _, handover = begin(world, options)
    seals = written(world)
    world.kafka.fault(
        "EndTxn",
        "drop-request",
        times=99_999,
        matches=lambda each: each.transactional_id == f"{PIPELINE}:1",
    )
    with pytest.raises(OutcomeUnknown):
        finish(world, options, handover, seals)
    world.kafka.clear_faults()
    world.kafka.advance(16 * 60_000)
    assert states(world) == ["CompleteCommit", "CompleteAbort"]
    return begin(world, options)


def test_a_decided_batch_is_planned_with_only_the_lost_slots_writing(world: World, options: SinkOptions) -> None:
    plan, handover = decided_and_lost(world, options)

    assert isinstance(plan, WritePlan)
    assert plan.only_slots == handover.repair == frozenset({1})


def test_a_lost_slot_is_planned_with_the_options_that_its_batch_was_decided_with(
    world: World, options: SinkOptions, caplog: pytest.LogCaptureFixture
) -> None:
    decided_and_lost(world, options)
    more = {"kafka.compression.type": "gzip", "kafka.max.request.size": "5000"}

    plan, _ = begin(world, options_of(**more))

    assert isinstance(plan, WritePlan) and plan.only_slots == frozenset({1})
    assert RowOptions.from_settings(plan) == RowOptions.from_settings(options)
    told = "batch 0 is written again as it was decided: compression=none (now gzip), max_request_bytes=None (now 5000)"
    assert told in caplog.text


def test_rows_that_have_lost_their_topics_since_are_refused_and_nothing_is_changed(
    world: World, options: SinkOptions
) -> None:
    rows_name_topics = replace(options, topic=None)
    decided_and_lost(world, rows_name_topics)
    before = states(world), shown(world), world.ledger.look().newest

    with pytest.raises(OptionsError, match=r"batch 0 .* the option topic is 'out' now.* nothing was written"):
        begin(world, options)

    assert (states(world), shown(world), world.ledger.look().newest) == before
    plan, _ = begin(world, rows_name_topics)
    assert isinstance(plan, WritePlan) and plan.topic is None


def test_a_repair_is_recorded_and_ended_by_the_process_that_finishes(world: World, options: SinkOptions) -> None:
    _, handover = decided_and_lost(world, options)
    kept = Seal(f"{PIPELINE}:0", 0, None, 2, records=2, digest=7)

    report = finish(world, options, handover, [kept, world.slot(1)])

    assert (report.repaired, report.resumed) == (1, True)
    assert shown(world) == [2, 2]


def test_a_repair_that_is_given_up_leaves_the_decision_and_the_next_run_repairs(
    world: World, options: SinkOptions
) -> None:
    _, handover = decided_and_lost(world, options)
    seals = [Seal(f"{PIPELINE}:0", 0, None, 2, records=2, digest=7), world.slot(1)]

    assert not give_up(world, options, handover, seals)

    assert world.state(f"{PIPELINE}:1") == "CompleteAbort"
    assert shown(world) == [2, 0]
    _, again = begin(world, options)
    assert again.repair == frozenset({1})


def test_a_repair_is_given_once() -> None:
    handover = ho.Handover("query", 4, None, 0.0, repair=frozenset({1, 2}))
    seals = [Seal("pipe:1", 1, None, 2)]
    replay = phases._Written(handover, seals, "start again")

    assert replay(frozenset({1})) == seals
    with pytest.raises(RepairPending, match=r"slots \[1\] of batch 4 were aborted .* start again"):
        replay(frozenset({1}))


@pytest.mark.parametrize(
    ("repair", "asked"),
    [(None, {1}), (frozenset({1}), {1, 2}), (frozenset({1}), {1, ALL_OTHERS}), (frozenset[int](), {1})],
)
def test_what_the_tasks_did_not_write_for_a_repair_is_not_given(repair: frozenset[int] | None, asked: set[int]) -> None:
    handover = ho.Handover("query", 4, None, 0.0, repair=repair)

    with pytest.raises(RepairPending, match="nothing is skipped"):
        phases._Written(handover, [], "start again")(frozenset(asked))


# ---- what travels


def test_a_handover_of_scope_batch_names_what_all_tasks_write_under(world: World, options: SinkOptions) -> None:
    world.kafka.configure(LEDGER, {"cleanup.policy": "compact"})
    shared = options_of(**{"transaction.scope": "batch"})
    plan, handover = begin(world, shared)

    assert isinstance(plan, SharedPlan)
    assert handover.shared is not None
    assert handover.shared == world.identity(f"{PIPELINE}:batch")
    assert isinstance(pipeline_driver(world.cluster, shared, "query"), WholeBatch)
    assert replace(handover, shared=None).shared is None


# ---- what is over


def test_an_ended_batch_is_never_proven_again(world: World, options: SinkOptions) -> None:
    """Its ids may have expired and its records may be gone: what was proven once stays so."""
    _, handover = begin(world, options)
    finish(world, options, handover, written(world))
    for name in (f"{PIPELINE}:0", f"{PIPELINE}:1", DRIVER, f"{PIPELINE}:batch"):
        world.kafka.expire(name)
    for where in OUTPUT:
        world.kafka.log(where).lose_beginning(world.kafka.log(where).end)
    read_again = world.kafka.fault("Fetch", lambda: None, times=99, matches=lambda each: each.topics[0].topic == "out")

    plan, again = begin(world, options)

    assert isinstance(plan, WritePlan)
    assert again.repair == plan.only_slots == frozenset()
    assert read_again.fired == 0


def test_without_the_note_the_same_batch_cannot_be_known_and_stops(world: World, options: SinkOptions) -> None:
    """What the note is for."""
    _, handover = begin(world, options)
    crash_points.arm("before-note-ended", 1, _stop)
    with pytest.raises(KeyboardInterrupt):
        finish(world, options, handover, written(world))
    for slot in range(2):
        world.kafka.expire(f"{PIPELINE}:{slot}")
    for where in OUTPUT:
        world.kafka.log(where).lose_beginning(world.kafka.log(where).end)

    with pytest.raises(DecisionBroken, match="the outcome of decided slots is unknown"):
        begin(world, options)


def _stop() -> None:
    raise KeyboardInterrupt
