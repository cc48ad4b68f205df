"""The shell of a commit on a cluster in memory: every effect, every answer, and which error a failed one raises."""

from __future__ import annotations

import logging
import typing
from collections.abc import Sequence
from dataclasses import replace

import pytest

from kafka_core.errors import (
    AuthorizationFailed,
    BrokerUnavailable,
    DecisionBroken,
    ExactlyOnceError,
    IllegalMove,
    NondeterministicPlan,
    OutcomeUnknown,
    ProducerFenced,
    TransactionTooOld,
)
from kafka_core.protocol.error_codes import Code
from kafka_core.protocol.messages import Message
from kafka_core.values import ProducerIdentity
from pyspark_kafka_eos import crash_points
from pyspark_kafka_eos.client.writing.producer import Producer
from pyspark_kafka_eos.commit.machine import events as ev
from pyspark_kafka_eos.commit.machine import per_task as cm
from pyspark_kafka_eos.commit.per_task import PerTask
from pyspark_kafka_eos.commit.proof import Fate
from pyspark_kafka_eos.commit.run import Run
from pyspark_kafka_eos.commit.shell import CommitShell
from pyspark_kafka_eos.model import Seal
from pyspark_kafka_eos.options import SinkOptions
from tests.pyspark_kafka_eos.commit.fakes import (
    DRIVER,
    GROUP,
    LEDGER,
    OUTPUT,
    PIPELINE,
    SOURCE,
    FakeRun,
    World,
    decision_of,
    send,
)

NO_RIGHT = Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def sealed(seals: Sequence[Seal]) -> cm.Commit:
    commit = cm.Commit()
    for seal in seals:
        commit, _ = commit.handle(ev.Sealed((seal,)))
    return commit


def commit_all(world: World, seals: Sequence[Seal], **shell: typing.Any) -> CommitShell:
    carried_out = world.shell(decision_of(seals), **shell)
    carried_out.run(sealed(seals).handle(ev.TasksFinished(len(seals))))
    return carried_out


def states(world: World, slots: int = 2) -> list[str]:
    return [world.state(f"{PIPELINE}:{slot}") for slot in range(slots)]


def newest(world: World) -> object:
    return world.ledger.look().newest


def of(name: str) -> typing.Callable[[Message], bool]:
    return lambda request: bool(request.transactional_id == name)


# ---- a commit that nothing disturbs


def test_a_batch_is_decided_and_then_every_slot_is_committed(world: World) -> None:
    seals = [world.slot(0), world.slot(1, {1: 1, 2: 2}), Seal("pipe:2", 2, None, 2)]
    run = FakeRun()

    commit_all(world, seals, run=run)

    assert states(world) == ["CompleteCommit"] * 2
    assert newest(world) == decision_of(seals)
    assert world.kafka.committed[GROUP] == {SOURCE: 5}
    assert [len(world.shown(where)) for where in OUTPUT] == [2, 1, 2, 0]
    assert run.cleaned == 0


def test_nothing_is_ended_before_the_decision_is_durable(world: World) -> None:
    seals = [world.slot(0), world.slot(1)]
    decided: list[bool] = []
    ends = world.kafka.fault(
        "EndTxn",
        lambda: decided.append(world.state(DRIVER) == "CompleteCommit"),
        times=9,
        matches=lambda request: request.transactional_id != DRIVER,
    )

    commit_all(world, seals)

    assert ends.fired == 2
    assert decided == [True, True]


def test_a_batch_without_records_needs_the_decision_alone(world: World) -> None:
    commit_all(world, [Seal("pipe:0", 0, None, 2)])

    assert newest(world) == decision_of([Seal("pipe:0", 0, None, 2)])
    assert world.kafka.committed[GROUP] == {SOURCE: 5}


def test_every_effect_of_the_machine_is_carried_out_and_every_answer_is_an_event_of_it(world: World) -> None:
    """An effect that the shell does not know would be taken for one that stops the batch."""
    seal = world.slot(0)
    seals = (seal,)
    made: dict[type, typing.Any] = {
        ev.StopNondeterministic: ev.StopNondeterministic(seal, None),
        ev.StopSplit: ev.StopSplit(seals, seals),
        ev.StopForNow: ev.StopForNow("no replay"),
        ev.StopUnknown: ev.StopUnknown("silence"),
        ev.StopUnanswered: ev.StopUnanswered(seal, 6, "silence"),
        ev.StopDenied: ev.StopDenied(seal, "denied", "grant it"),
        ev.AbortSlots: ev.AbortSlots(seals, "a test"),
        ev.AskDecision: ev.AskDecision(),
    }
    answered: set[type] = set()
    for kind in typing.get_args(ev.Effect):
        world.fresh_process()
        world.kafka.advance(1)
        here = replace(world.slot(0), slot=0)
        effect = made.get(kind) or kind((here,))
        producer = world.decide(decision_of([here]), commit=False)
        if kind in (ev.CheckAlive, ev.RecordDecision, ev.RecordRepair):
            producer.abort()
            producer.initialize()
        shell = world.shell(decision_of([here]), producer)
        if kind is ev.AskDecision:
            world.kafka.fault("EndTxn", "drop-answer", times=9_999, matches=of(DRIVER))
            with pytest.raises(OutcomeUnknown):
                producer.commit()
            world.kafka.clear_faults()
        events = shell._carry_out(effect)
        if kind in typing.get_args(ev.Stop):
            assert not events
            assert isinstance(
                shell._deciding.failure,
                DecisionBroken | NondeterministicPlan | OutcomeUnknown | AuthorizationFailed,
            )
        assert all(isinstance(event, typing.get_args(ev.Event)) for event in events), kind
        assert events or kind in (ev.DropSlots, *typing.get_args(ev.Stop)), kind
        answered |= {type(event) for event in events}

    known = {event for _, event in cm.MOVES}
    assert answered <= known
    assert answered >= {
        ev.AllAlive,
        ev.DecisionDurable,
        ev.SlotEnded,
        ev.SlotProven,
        ev.AbortFinished,
        ev.RewriteFailed,
    }


@pytest.mark.parametrize("point", crash_points.DRIVER_POINTS)
def test_with_a_crash_point_armed_the_same_requests_are_sent_together(world: World, point: str) -> None:
    def played() -> list[list[str]]:
        seals = [world.slot(0), world.slot(1)]
        producer = world.driver()
        sent = world.cluster.calls.together
        sent.clear()
        commit_all(world, seals, producer=producer)
        # The check asks coordinators and leaders at the same time, in whatever order.
        return [*sorted(sent[:3]), *sent[3:]]

    played()
    unarmed = played()
    fired: list[str] = []
    crash_points.arm(point, 1, lambda: fired.append(point))

    assert played() == unarmed
    assert fired == ([] if point == "before-return" else [point])
    assert ["EndTxn", "EndTxn"] in unarmed


# ---- before the decision


def test_a_slot_that_timed_out_stops_the_decision_and_everything_is_aborted(world: World) -> None:
    seals = [world.slot(0), world.slot(1)]
    world.kafka.advance(60_001)
    run = FakeRun()

    with pytest.raises(TransactionTooOld, match="slot 0 is no longer open") as old:
        commit_all(world, seals, run=run)

    assert old.value.facts["state"] == "CompleteAbort"
    # The abort by which another run begins looks like that of a timeout: look for the former first.
    said = old.value.message
    assert "took it over, or it timed out" in said
    assert said.index("another df.write of the same batch.id") < said.index("raise kafka.transaction.timeout.ms")
    assert (newest(world), run.cleaned) == (None, 1)
    assert [world.shown(where) for where in OUTPUT] == [[], [], [], []]


def test_a_slot_that_a_newer_attempt_has_taken_over_stops_the_decision(world: World) -> None:
    seal = world.slot(0)
    world.slot(0)

    with pytest.raises(TransactionTooOld, match="its coordinator has Ongoing under") as taken:
        commit_all(world, [seal])

    assert newest(world) is None
    # Nothing had timed out, so no timeout is to be raised.
    assert "another df.write of the same batch.id" in taken.value.message
    assert "timeout.ms" not in taken.value.message and "timed out" not in taken.value.message


def test_too_little_time_left_stops_the_decision_and_everything_is_aborted(world: World) -> None:
    seals = [world.slot(0), world.slot(1)]

    with pytest.raises(TransactionTooOld, match="too close to their timeout") as old:
        commit_all(world, seals, left_ms=499.4)

    assert old.value.facts == {"left_ms": 499, "margin_ms": 500, "timeout_ms": 60_000}
    assert states(world) == ["CompleteAbort"] * 2
    assert newest(world) is None


def test_records_that_are_gone_from_their_partition_stop_the_decision(world: World) -> None:
    seal = world.slot(0, {0: 2, 1: 2})
    world.kafka.log(OUTPUT[1]).lose_tail(0)

    with pytest.raises(TransactionTooOld, match="slot 0 wrote to out-1 from offset 0 on, but its leader reports None"):
        commit_all(world, [seal])

    assert newest(world) is None
    assert world.shown(OUTPUT[0]) == []


def test_an_earlier_transaction_without_its_end_in_a_partition_stops_the_decision(world: World) -> None:
    """The commit would end, and show, that one too."""
    earlier = world.slot(0, {0: 1})
    world.kafka.forget_marker(OUTPUT[0])
    world.end(earlier, commit=False)
    seal = world.slot(0, {0: 1})

    with pytest.raises(TransactionTooOld, match="an earlier transaction was left without its markers"):
        commit_all(world, [seal])

    assert world.shown(OUTPUT[0]) == []


@pytest.mark.parametrize("fails", ["the ends", "the cleaning", "both"])
def test_an_error_while_aborting_does_not_hide_the_first(world: World, fails: str) -> None:
    seals = [world.slot(0), world.slot(1)]
    run = FakeRun(cleaning_fails=None if fails == "the ends" else BrokerUnavailable("nobody there"))
    if fails != "the cleaning":
        refused = world.kafka.fault("EndTxn", NO_RIGHT, times=99)

    with pytest.raises(TransactionTooOld, match="too close to"):
        commit_all(world, seals, run=run, left_ms=0)

    if fails != "the cleaning":
        assert refused.fired == 2
    assert run.cleaned == 1
    assert newest(world) is None


def test_a_lost_job_is_aborted_and_raises_nothing_of_its_own(world: World) -> None:
    seals = [world.slot(0), world.slot(1)]
    run = FakeRun()

    world.shell(decision_of(seals), run=run).run(sealed(seals).handle(ev.TasksFailed("the job failed")))

    assert states(world) == ["CompleteAbort"] * 2
    assert (run.cleaned, newest(world)) == (1, None)


# ---- the decision


def test_a_decision_whose_answer_was_lost_is_asked_for_and_finished(world: World) -> None:
    seals = [world.slot(0), world.slot(1)]
    lost = world.kafka.fault("EndTxn", "drop-answer", matches=of(DRIVER))

    commit_all(world, seals)

    assert lost.fired == 1
    assert states(world) == ["CompleteCommit"] * 2


@pytest.mark.parametrize("asking", ["EndTxn", "FindCoordinator"])
def test_an_end_that_may_have_been_sent_is_never_a_refusal(world: World, asking: str) -> None:
    seals = [world.slot(0), world.slot(1)]
    producer = world.driver()
    lost = world.kafka.fault("EndTxn", "drop-answer", matches=of(DRIVER))
    refused = world.kafka.fault(
        asking, NO_RIGHT, times=9_999, matches=lambda request: lost.fired > 0 and "driver" in str(request)
    )

    commit_all(world, seals, producer=producer)

    assert lost.fired == 1
    assert refused.fired >= 1
    world.kafka.clear_faults()
    # The ledger's own log was the witness.
    assert newest(world) == decision_of(seals)
    assert states(world) == ["CompleteCommit"] * 2


def test_a_decision_that_nobody_can_know_of_ends_and_aborts_nothing(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pyspark_kafka_eos.commit.decision")
    seals = [world.slot(0), world.slot(1)]
    run = FakeRun()
    lost = world.kafka.fault("EndTxn", "drop-answer", times=99_999, matches=of(DRIVER))
    blind = world.kafka.fault("Fetch", Code.TOPIC_AUTHORIZATION_FAILED, times=99_999)

    with pytest.raises(OutcomeUnknown, match="whether the batch is decided is unknown"):
        commit_all(world, seals, run=run)

    assert lost.fired > 1
    assert blind.fired == 1
    assert states(world) == ["Ongoing"] * 2
    assert run.cleaned == 0
    # How it came there stands in the log.
    assert "stopped in STOPPED after: " in caplog.text
    assert (
        "CHECKING -AllAlive-> DECIDING; DECIDING -DecisionUnanswered-> DECISION_UNKNOWN; DECISION_UNKNOWN -DecisionUnanswered-> STOPPED"
        in caplog.text
    )
    world.kafka.clear_faults()
    assert newest(world) == decision_of(seals)


def test_a_decision_that_the_broker_aborted_is_proven_so_and_everything_is_aborted(world: World) -> None:
    seals = [world.slot(0), world.slot(1)]

    def time_out() -> None:
        world.kafka.advance(60_001)

    crash_points.arm("decision-written", 1, time_out)
    late = world.kafka.fault("EndTxn", "drop-request", matches=of(DRIVER))
    run = FakeRun()

    with pytest.raises(TransactionTooOld, match="the decision's transaction was aborted by the broker"):
        commit_all(world, seals, run=run)

    assert late.fired == 1
    assert (newest(world), run.cleaned) == (None, 1)
    assert "CompleteCommit" not in states(world)


def test_a_decision_that_was_not_sent_is_refused_and_everything_is_aborted(world: World) -> None:
    seals = [world.slot(0), world.slot(1)]
    full = world.kafka.fault("TxnOffsetCommit", Code.GROUP_AUTHORIZATION_FAILED)

    with pytest.raises(AuthorizationFailed):
        commit_all(world, seals)

    assert full.fired == 1
    assert states(world) == ["CompleteAbort"] * 2
    # Left open, its record would hold the ledger's readers.
    view = world.ledger.look()
    assert (view.newest, view.open) == (None, None)
    assert world.state(DRIVER) == "CompleteAbort"


@pytest.mark.parametrize(
    ("timed_out", "error"), [(True, TransactionTooOld), (False, ProducerFenced)], ids=["timeout", "newer run"]
)
def test_a_driver_fenced_by_its_own_timeout_is_told_from_a_newer_run(
    world: World, timed_out: bool, error: type[ExactlyOnceError]
) -> None:
    seals = [world.slot(0)]
    older = world.driver()
    world.driver()

    with pytest.raises(error) as raised:
        commit_all(world, seals, producer=older, run=FakeRun(timed_out=timed_out))

    held_up = "held up for longer than its own transaction may take" in raised.value.message
    assert held_up is timed_out
    assert newest(world) is None
    assert states(world, 1) == ["CompleteAbort"]


# ---- the ends


def test_an_end_without_an_answer_is_asked_for_again(world: World) -> None:
    seals = [world.slot(0), world.slot(1)]
    lost = world.kafka.fault("EndTxn", "drop-answer", matches=of("pipe:1"))

    commit_all(world, seals)

    assert lost.fired == 1
    assert states(world) == ["CompleteCommit"] * 2


def test_an_end_that_proves_nothing_is_proven_by_the_log(world: World) -> None:
    seals = [world.slot(0), world.slot(1)]
    # Ended by whoever else, and the answer says no more than that it is over.
    refused = world.kafka.fault(
        "EndTxn", Code.INVALID_TXN_STATE, matches=lambda each: each.transactional_id == "pipe:1"
    )

    commit_all(world, seals)

    assert refused.fired == 1
    assert states(world) == ["CompleteCommit"] * 2


def test_a_slot_that_refuses_its_end_for_ever_is_an_unknown_outcome_of_a_decided_batch(world: World) -> None:
    seals = [world.slot(0), world.slot(1)]
    refused = world.kafka.fault("EndTxn", Code.INVALID_TXN_STATE, times=99, matches=of("pipe:1"))

    with pytest.raises(
        OutcomeUnknown, match=r"the batch is decided, but ending 'pipe:1' got no definite answer 6 times"
    ):
        commit_all(world, seals)

    assert refused.fired == 6
    assert states(world) == ["CompleteCommit", "Ongoing"]
    assert newest(world) == decision_of(seals)


def test_a_right_that_is_gone_after_the_decision_says_that_the_batch_is_decided(world: World) -> None:
    seals = [world.slot(0), world.slot(1)]
    world.kafka.fault("EndTxn", NO_RIGHT, times=99, matches=of("pipe:1"))

    with pytest.raises(AuthorizationFailed, match=r"the batch is decided, but the right to end 'pipe:1' is gone") as no:
        commit_all(world, seals)

    assert "grant WRITE on the transactional id prefix" in no.value.message
    assert (no.value.facts["batch"], no.value.facts["slot"]) == (0, 1)
    assert states(world) == ["CompleteCommit", "Ongoing"]


def test_an_error_while_proving_says_nothing_of_the_batch_but_that_it_is_decided(world: World) -> None:
    seals = [world.slot(0)]
    world.kafka.fault("EndTxn", Code.INVALID_TXN_STATE, matches=of("pipe:0"))
    blind = world.kafka.fault(
        "DescribeTransactions", NO_RIGHT, times=99, matches=lambda each: each.transactional_ids == ["pipe:0"], skip=1
    )

    with pytest.raises(OutcomeUnknown, match="the batch is decided, but its outcome is not fully known"):
        commit_all(world, seals)

    assert blind.fired == 1
    world.kafka.clear_faults()
    assert states(world, 1) == ["Ongoing"]


def test_a_forgotten_marker_is_written_before_the_batch_counts_as_ended(world: World) -> None:
    seals = [world.slot(0, {0: 1, 1: 1}), world.slot(1)]
    forgotten = world.kafka.forget_marker(OUTPUT[1], "pipe:0")

    commit_all(world, seals)

    assert forgotten.fired == 1
    assert world.fates(seals[0]) == [Fate.COMMITTED, Fate.COMMITTED]


def test_a_late_attempt_between_an_end_and_its_missing_marker_is_found(world: World) -> None:
    """The marker was forgotten; then a late attempt took the id and wrote there: its abort ends the decided records
    too.
    """
    seal = world.slot(0, {0: 1, 1: 1})
    forgotten = world.kafka.forget_marker(OUTPUT[1])

    def late_attempt() -> None:
        stranger = Producer(world.cluster, "pipe:0")
        stranger.initialize()
        stranger.begin()
        send(stranger, OUTPUT[1], b"late")
        stranger.flush()

    crash_points.arm("after-end", 1, late_attempt)

    with pytest.raises(DecisionBroken, match=r"slots \[0\] were aborted, and this run cannot replay"):
        commit_all(world, [seal])

    assert forgotten.fired == 1
    assert newest(world) == decision_of([seal])
    assert world.fates(seal) == [Fate.COMMITTED, Fate.ABORTED]


def test_an_event_that_the_machine_does_not_expect_changes_nothing(world: World) -> None:
    commit = sealed([world.slot(0)])

    with pytest.raises(IllegalMove):
        commit.handle(ev.SlotEnded(0))

    assert commit.state is cm.CommitState.GATHERING


def test_what_is_dropped_in_vain_and_cannot_be_is_left_to_the_next_run(world: World) -> None:
    seal = world.slot(0)
    shell = world.shell(decision_of([seal]))
    refused = world.kafka.fault("EndTxn", NO_RIGHT)

    assert shell._carry_out(ev.DropSlots((seal,))) == []

    assert refused.fired == 1
    assert world.state("pipe:0") == "Ongoing"


def test_an_identity_that_only_looks_alike_is_not_alive(world: World) -> None:
    seal = world.slot(0)
    assert seal.identity is not None
    other = replace(seal, identity=ProducerIdentity(seal.identity.producer_id, seal.identity.epoch + 1))

    with pytest.raises(TransactionTooOld, match="is no longer open under"):
        commit_all(world, [other])


# ---- the abort by which a newer run begins


@pytest.mark.parametrize("newer", [False, True])
def test_the_abort_by_which_a_newer_run_begins_is_no_timeout(world: World, newer: bool) -> None:
    """Found by the simulation: a driver that was frozen took it for its own timeout, began anew and fenced its
    successor.
    """
    options = SinkOptions.parse(
        {"kafka.bootstrap.servers": "memory:1", "pipeline": PIPELINE, "topic": "out", "ledger.topic": LEDGER}
    )
    driver = PerTask(Run(world.cluster, options, "query"))
    driver.start(0)
    world.decide(decision_of([]), driver.run.producer, commit=False)
    # What a coordinator does first for a newer run and for a timeout.
    world.kafka.advance(60_001)
    assert world.state(DRIVER) == "CompleteAbort"
    if newer:
        world.kafka.at_pause(lambda: world.driver() and None)

    assert driver.run.fenced_by_timeout() is not newer
