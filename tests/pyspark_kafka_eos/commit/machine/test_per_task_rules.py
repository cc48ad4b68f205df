"""The commit of a batch against random answers: what must never happen, whatever is answered in whatever order.

`Cluster` keeps what really became of every transaction, decided by chance and by the requests it is sent; the commit
machine hears of it only through answers, some of which are lost.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_core.errors import IllegalMove
from kafka_core.values import ProducerIdentity
from pyspark_kafka_eos.commit.machine import events as ev
from pyspark_kafka_eos.commit.machine.per_task import Commit, CommitState, ParticipantState, resume
from pyspark_kafka_eos.model import Seal

ENDS = (CommitState.DONE, CommitState.ABORTED, CommitState.BROKEN, CommitState.STOPPED)
BEFORE_DECISION = (CommitState.GATHERING, CommitState.CHECKING, CommitState.DECIDING, CommitState.DECISION_UNKNOWN)


def seal(slot: int, *, empty: bool = False) -> Seal:
    identity = None if empty else ProducerIdentity(100 + slot, 1)
    records = 0 if empty else 10 + slot
    return Seal(f"pipe:{slot}", slot, identity, 2, records=records, digest=records)


@dataclass
class Cluster:
    """What is true of the slots' and the driver's transactions."""

    chance: random.Random
    slots: dict[int, ev.Outcome]
    decided: bool = False
    ledger: dict[int, Seal] = field(default_factory=dict)
    recording: dict[int, Seal] = field(default_factory=dict)
    recorded: bool = False
    deterministic: bool = True
    split_otherwise: bool = False

    def maybe_time_out(self) -> None:
        for slot, verdict in self.slots.items():
            if verdict is ev.Outcome.OPEN and self.chance.random() < 0.05:
                self.slots[slot] = ev.Outcome.ABORTED


@dataclass
class Run:
    """One batch's commit with everything that it asked for and was told."""

    cluster: Cluster
    commit: Commit
    todo: list[ev.Effect] = field(default_factory=list)
    told: list[ev.Event] = field(default_factory=list)
    states: list[CommitState] = field(default_factory=list)
    durable_told: bool = False
    epoch: int = 1
    stops: list[ev.Effect] = field(default_factory=list)

    def tell(self, event: ev.Event) -> None:
        before = self.commit
        if before.over:
            # As the shells do: answers behind the end change nothing.
            return
        self.commit, effects = before.handle(event)
        self.durable_told |= isinstance(event, ev.DecisionDurable)
        self.told.append(event)
        self.states.append(self.commit.state)
        self.todo = [*([] if self.commit.over else self.todo), *effects]
        for effect in effects:
            self.check_effect(effect)
        self.check_value(before)

    def check_effect(self, effect: ev.Effect) -> None:
        if isinstance(effect, ev.EndSlots):
            assert self.durable_told, "EndTxn(commit) before the decision is durable"
            assert all(not each.empty for each in effect.seals), "EndTxn for a slot that opened no transaction"
            for each in effect.seals:
                assert each == self.cluster.ledger[each.slot], "EndTxn under a seal that is not in the ledger"
        elif isinstance(effect, ev.ProveSlots):
            assert self.durable_told
        elif isinstance(effect, ev.AbortSlots):
            assert not self.durable_told, "an abort after the decision"
            assert not self.cluster.decided, "an abort of a batch that is decided"
        elif isinstance(effect, ev.RewriteSlots):
            for each in effect.lost:
                assert self.cluster.slots[each.slot] is ev.Outcome.ABORTED, "a slot is rewritten that is not lost"
        elif isinstance(effect, ev.DropSlots):
            for each in effect.seals:
                assert each not in self.cluster.ledger.values(), "an abort of what the ledger names"
        elif isinstance(effect, ev.Stop):
            self.stops.append(effect)

    def check_value(self, before: Commit) -> None:
        now = self.commit
        if before.state is CommitState.FINISHING:
            assert now.state in (
                CommitState.FINISHING,
                CommitState.REWRITING,
                CommitState.DONE,
                CommitState.BROKEN,
                CommitState.STOPPED,
            )
            assert now.seals == before.seals
            assert set(now.open_slots) <= set(before.open_slots), "a finished slot was opened again"
        if now.state in BEFORE_DECISION:
            assert not now.open_slots
        if now.state is CommitState.DONE:
            assert not now.open_slots
            assert self.cluster.decided
        if now.state is CommitState.STOPPED and not self.durable_told:
            assert not now.open_slots
        if now.state is CommitState.BROKEN:
            assert set(now.open_slots.values()) <= {ParticipantState.LOST, ParticipantState.UNKNOWABLE}
            assert self.durable_told
            assert now.open_slots
        assert all(slot == each.slot for slot, each in now.seals.items())

    # ---- the shell, with a cluster that loses answers

    def carry_out(self, effect: ev.Effect) -> None:
        chance, cluster = self.cluster.chance, self.cluster
        cluster.maybe_time_out()
        if not isinstance(effect, ev.Stop | ev.DropSlots | ev.AbortSlots) and chance.random() < 0.01:
            self.tell(ev.StepFailed("the broker is away"))
            return
        if isinstance(effect, ev.CheckAlive):
            alive = all(cluster.slots[each.slot] is ev.Outcome.OPEN for each in effect.seals)
            self.tell(ev.AllAlive() if alive and chance.random() < 0.95 else ev.NotAlive("too old"))
        elif isinstance(effect, ev.RecordDecision):
            cluster.decided = chance.random() < 0.8
            cluster.recorded = cluster.decided
            if cluster.decided:
                cluster.ledger = {each.slot: each for each in effect.seals}
            self.tell_about_record()
        elif isinstance(effect, ev.AskDecision):
            self.tell_about_record()
        elif isinstance(effect, ev.RewriteSlots):
            self.rewrite(effect)
        elif isinstance(effect, ev.RecordRepair):
            cluster.recorded = chance.random() < 0.9
            if cluster.recorded:
                cluster.ledger = {each.slot: each for each in effect.seals}
            self.tell_about_record()
        elif isinstance(effect, ev.EndSlots):
            for each in effect.seals:
                self.end(each.slot)
        elif isinstance(effect, ev.ProveSlots):
            for each in effect.seals:
                verdict = cluster.slots[each.slot]
                self.tell(ev.SlotProven(each.slot, ev.Outcome.UNKNOWN if chance.random() < 0.05 else verdict))
        elif isinstance(effect, ev.AbortSlots):
            for each in effect.seals:
                if chance.random() < 0.8 and cluster.slots[each.slot] is ev.Outcome.OPEN:
                    cluster.slots[each.slot] = ev.Outcome.ABORTED
            self.tell(ev.AbortFinished())
        elif isinstance(effect, ev.DropSlots):
            for each in effect.seals:
                cluster.slots[each.slot] = ev.Outcome.ABORTED

    def tell_about_record(self) -> None:
        if self.cluster.chance.random() < 0.4:
            self.tell(ev.DecisionUnanswered("silence"))
        else:
            self.tell(ev.DecisionDurable() if self.cluster.recorded else ev.DecisionRefused("aborted"))

    def rewrite(self, effect: ev.RewriteSlots) -> None:
        chance = self.cluster.chance
        if chance.random() < 0.1:
            self.tell(ev.RewriteFailed("no executor"))
            return
        lost = {each.slot for each in effect.lost}
        decided = self.commit.seals
        all_lost = all(each.empty or each.slot in lost for each in decided.values())
        self.tell(ev.Rewritten(tuple(self.replayed(lost, all_lost=all_lost))))

    def replayed(self, lost: set[int], *, all_lost: bool) -> list[Seal]:
        """Every slot's seal of a replay: those that write are open under a new epoch, the others have measured."""
        cluster, decided = self.cluster, self.commit.seals
        split = [(slot, decided[slot].records, decided[slot].digest) for slot in sorted(decided)]
        if cluster.split_otherwise:
            # A digest is as many as there are records: the same ones, dealt out to one slot more.
            most = max(records for _, records, _ in split)
            shifted = [records - (records == most) for _, records, _ in split]
            ones = sum(records == most for _, records, _ in split)
            split = [(slot, records, records) for slot, records in enumerate([ones, *shifted])]
        self.epoch += 1
        again: list[Seal] = []
        for slot, records, digest in split:
            writes = records > 0 and (all_lost or slot in lost)
            if writes:
                cluster.slots[slot] = ev.Outcome.OPEN
            identity = ProducerIdentity(100 + slot, self.epoch) if writes else None
            wrong = 0 if cluster.deterministic else 1
            again.append(Seal(f"pipe:{slot}", slot, identity, 2, records=records, digest=digest + wrong))
        return again

    def end(self, slot: int) -> None:
        cluster = self.cluster
        arrives, answered = cluster.chance.random() < 0.8, cluster.chance.random() < 0.7
        if arrives and cluster.slots[slot] is ev.Outcome.OPEN:
            cluster.slots[slot] = ev.Outcome.COMMITTED
        if arrives and answered and cluster.slots[slot] is ev.Outcome.COMMITTED:
            self.tell(ev.SlotEnded(slot))
        else:
            self.tell(ev.SlotUnanswered(slot))

    def to_the_end(self) -> Run:
        for _ in range(10_000):
            if not self.todo:
                assert self.commit.state in ENDS, f"nothing left to do in {self.commit.state}"
                return self
            self.carry_out(self.todo.pop(self.cluster.chance.randrange(len(self.todo))))
        raise AssertionError("the commit never ends")


def start(seed: int, slots: int) -> Run:
    chance = random.Random(seed)
    seals = [seal(slot, empty=chance.random() < 0.2) for slot in range(slots)]
    run = Run(Cluster(chance, {each.slot: ev.Outcome.OPEN for each in seals if not each.empty}), Commit())
    chance.shuffle(seals)
    for each in seals:
        run.tell(ev.Sealed((each,)))
        again = replace(each, records=99)
        with pytest.raises(IllegalMove):
            run.commit.handle(ev.Sealed((again,)))
        assert run.commit.seals[each.slot] == each
    return run


def play(seed: int, slots: int) -> Run:
    run = start(seed, slots)
    failed = run.cluster.chance.random() < 0.1
    run.tell(ev.TasksFailed("a task failed") if failed else ev.TasksFinished(slots))
    return run.to_the_end()


def assert_committed_once(run: Run) -> None:
    """Decided, and what is committed is what the ledger names, all of it."""
    assert run.cluster.decided
    named = {slot for slot, each in run.cluster.ledger.items() if not each.empty}
    assert {slot for slot, at in run.cluster.slots.items() if at is ev.Outcome.COMMITTED} == named
    assert run.cluster.ledger == run.commit.seals


SEEDS = given(seed=st.integers(0, 2**32), slots=st.integers(0, 6))
QUICK = settings(max_examples=400, derandomize=True)


@QUICK
@SEEDS
def test_every_commit_ends_and_says_what_is_true(seed: int, slots: int) -> None:
    """Rule: seed 004 (How Transactions Work): once the intent is durable the batch is bound to be finished; before
    that, to be undone. Done means that every participant is committed, aborted that none is."""
    run = play(seed, slots)
    truth = run.cluster.slots
    if run.commit.state is CommitState.DONE:
        assert_committed_once(run)
    elif run.commit.state is CommitState.ABORTED:
        assert not run.cluster.decided
        assert all(verdict is not ev.Outcome.COMMITTED for verdict in truth.values())
    elif run.commit.state is CommitState.STOPPED:
        # The next run asks: nothing that the ledger names is aborted, and without a decision nothing is committed.
        assert run.cluster.decided or all(verdict is not ev.Outcome.COMMITTED for verdict in truth.values())
        assert CommitState.ABORTING not in run.states
    else:
        assert run.cluster.decided
        (stop,) = run.stops
        assert not isinstance(stop, ev.StopNondeterministic)
        open_slots = run.commit.open_slots
        assert all(verdict is ev.Outcome.COMMITTED for slot, verdict in truth.items() if slot not in open_slots)
        if isinstance(stop, ev.StopBroken):
            assert {each.slot for each in stop.unknown} <= set(open_slots)


@QUICK
@SEEDS
def test_a_batch_that_is_decided_is_never_aborted_by_the_commit(seed: int, slots: int) -> None:
    """Rule: seed 003 (compared with two-phase commit): after the prepared commit no other end is possible."""
    run = play(seed, slots)
    aborting = [index for index, state in enumerate(run.states) if state in (CommitState.ABORTING, CommitState.ABORTED)]
    finishing = [index for index, state in enumerate(run.states) if state in (CommitState.FINISHING, CommitState.DONE)]
    assert not (aborting and finishing)
    assert not (run.cluster.decided and aborting)


@QUICK
@SEEDS
def test_a_resumed_batch_ends_as_the_first_run_would_have_ended_it(seed: int, slots: int) -> None:
    """Rule: seed 003 (high availability: the prepared commit is finished after a restart)."""
    first = start(seed, slots)
    cluster = first.cluster
    cluster.decided = True
    cluster.ledger = dict(first.commit.seals)
    for slot in cluster.slots:
        cluster.slots[slot] = cluster.chance.choice((ev.Outcome.OPEN, ev.Outcome.COMMITTED, ev.Outcome.ABORTED))
    commit, effects = resume(tuple(first.commit.seals.values()))
    run = Run(cluster, commit, list(effects), durable_told=True)
    for effect in effects:
        run.check_effect(effect)
    run.to_the_end()
    assert run.commit.state in (CommitState.DONE, CommitState.BROKEN, CommitState.STOPPED)
    if run.commit.state is CommitState.DONE:
        assert_committed_once(run)


@QUICK
@SEEDS
def test_a_replay_with_other_rows_is_never_committed(seed: int, slots: int) -> None:
    """Design section 3 (repair): other count or digest: the plan is not deterministic, stop loudly."""
    run = start(seed, slots)
    run.cluster.deterministic = False
    run.tell(ev.TasksFinished(slots))
    run.to_the_end()
    rewritten = [event for event in run.told if isinstance(event, ev.Rewritten)]
    if rewritten:
        assert run.commit.state is CommitState.BROKEN
        assert any(isinstance(stop, ev.StopNondeterministic) for stop in run.stops)
        assert run.cluster.ledger == dict(run.commit.seals)


def play_split(seed: int, slots: int) -> Run:
    run = start(seed, slots)
    run.cluster.split_otherwise = True
    run.tell(ev.TasksFinished(slots))
    return run.to_the_end()


@QUICK
@SEEDS
def test_a_replay_with_the_same_rows_in_other_slots_is_committed_wholly_or_stops_by_that_name(
    seed: int, slots: int
) -> None:
    run = start(seed, slots)
    rows = sum(each.records for each in run.commit.seals.values())
    run.cluster.split_otherwise = True
    run.tell(ev.TasksFinished(slots))
    run.to_the_end()
    assert not any(isinstance(stop, ev.StopNondeterministic) for stop in run.stops)
    if run.commit.state is CommitState.DONE:
        assert_committed_once(run)
        assert sum(each.records for each in run.commit.seals.values()) == rows
    for stop in run.stops:
        if isinstance(stop, ev.StopSplit):
            assert run.commit.state is CommitState.BROKEN
            committed = [slot for slot, at in run.cluster.slots.items() if at is ev.Outcome.COMMITTED]
            assert committed, "nothing of the batch was committed, so every slot could be replaced"
            assert set(committed) == {
                slot
                for slot, each in run.cluster.ledger.items()
                if not each.empty and slot not in run.commit.open_slots
            }


def test_both_ends_of_a_replay_in_other_slots_are_reached() -> None:
    runs = [play_split(seed, 3) for seed in range(600)]
    assert any(isinstance(stop, ev.StopSplit) for run in runs for stop in run.stops)
    finished = [run for run in runs if run.commit.state is CommitState.DONE]
    assert any(len(run.commit.seals) > 3 for run in finished)


def test_the_random_histories_reach_every_end_and_lose_answers() -> None:
    """The faults above happen: a property that never meets one proves nothing."""
    runs = [play(seed, 4) for seed in range(300)]
    assert {run.commit.state for run in runs} == set(ENDS)
    assert any(isinstance(event, ev.SlotUnanswered) for run in runs for event in run.told)
    assert any(CommitState.REWRITING in run.states and run.commit.state is CommitState.DONE for run in runs)
    assert any(CommitState.RECORD_UNKNOWN in run.states and run.commit.state is CommitState.DONE for run in runs)
    kinds = {type(stop) for run in runs for stop in run.stops}
    assert kinds == {ev.StopBroken, ev.StopForNow, ev.StopUnknown}
    assert any(isinstance(event, ev.StepFailed) for run in runs for event in run.told)
    assert any(CommitState.DECISION_UNKNOWN in run.states and run.commit.state is CommitState.DONE for run in runs)
    assert any(CommitState.DECISION_UNKNOWN in run.states and run.commit.state is CommitState.ABORTED for run in runs)


def test_the_checker_rejects_an_end_before_the_decision() -> None:
    """The checker is itself checked."""
    run = start(1, 2)
    with pytest.raises(AssertionError, match="before the decision is durable"):
        run.check_effect(ev.EndSlots((seal(0),)))
    run.durable_told = True
    run.cluster.ledger = {0: replace(seal(0), identity=ProducerIdentity(100, 9))}
    with pytest.raises(AssertionError, match="not in the ledger"):
        run.check_effect(ev.EndSlots((seal(0),)))
    with pytest.raises(AssertionError, match="what the ledger names"):
        run.check_effect(ev.DropSlots((run.cluster.ledger[0],)))
    with pytest.raises(AssertionError, match="not lost"):
        run.check_effect(ev.RewriteSlots(tuple(run.commit.seals.values())))
    with pytest.raises(AssertionError, match="after the decision"):
        run.check_effect(ev.AbortSlots((seal(0),), "no"))
