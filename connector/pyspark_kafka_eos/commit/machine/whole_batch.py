"""Commit of one micro-batch that is one transaction: every state it can be in and every move between them.

Owns: whether everything is acknowledged, whether the transaction's end is known.
Does not know: sockets, the ledger's form, Spark, the time of day.
Invariants:
- EndTxn(commit) is sent only after everything is acknowledged and the transaction was found whole.
- An EndTxn without an answer is UNKNOWN, which only a definite answer leaves.
- No event leaves DONE, ABORTED or STOPPED, so one try of a batch has one end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from kafka_core.table import Move, Moves, ends_of, step
from pyspark_kafka_eos.commit.machine import events as ev
from pyspark_kafka_eos.model import Seal


class BatchCommitState(Enum):
    """How far the commit is."""

    WRITING = "the tasks write under the identity that they share"
    CHECKING = "all is acknowledged; is the transaction whole, with time left?"
    DECIDING = "ledger record, source offsets and EndTxn are on their way"
    UNKNOWN = "EndTxn got no definite answer"
    SHOWING = "decided and committed, which is one step here; markers may be on their way"
    DONE = "every partition has its marker"
    ABORTING = "undecided and given up: the identity is being replaced, which aborts what it wrote"
    ABORTED = "nothing of this try is or will be visible"
    STOPPED = "this process cannot go on; the next run asks, proves and finishes"


# ---- events of this machine alone


@dataclass(frozen=True)
class Written:
    """Every task is done and every record acknowledged; the seal is of the whole batch."""

    seal: Seal


@dataclass(frozen=True)
class Shown:
    """Every partition has its marker."""


Event = (
    Written
    | ev.TasksFailed
    | ev.AllAlive
    | ev.NotAlive
    | ev.DecisionDurable
    | ev.DecisionUnanswered
    | ev.DecisionRefused
    | Shown
    | ev.AbortFinished
    | ev.StepFailed
)

# ---- effects of this machine alone


@dataclass(frozen=True)
class AbortBatch:
    """Fence every producer that still writes under the identity; the coordinator aborts what is open."""

    reason: str


@dataclass(frozen=True)
class AwaitVisible:
    """Wait until every partition has its marker."""

    seal: Seal


Effect = ev.CheckAlive | ev.RecordDecision | ev.AskDecision | AbortBatch | AwaitVisible | ev.StopUnknown


@dataclass(frozen=True)
class BatchCommit:
    """One try of one batch."""

    state: BatchCommitState = BatchCommitState.WRITING
    seal: Seal | None = None
    reason: str = ""

    def handle(self, event: Event) -> tuple[BatchCommit, tuple[Effect, ...]]:
        """The next value and what the shell has to do; IllegalMove, with nothing changed, for an impossible event."""
        return step(MOVES, self, event, "batch commit")

    @property
    def over(self) -> bool:
        """See `table.Ends`."""
        return self.state in ENDS


Step = tuple[BatchCommit, tuple[Effect, ...]]


def on_written(value: BatchCommit, event: Written) -> Step:
    """Check before the end: a transaction that lost a part must not be committed."""
    return replace(value, state=BatchCommitState.CHECKING, seal=event.seal), (ev.CheckAlive((event.seal,)),)


def on_given_up(value: BatchCommit, event: ev.TasksFailed | ev.NotAlive | ev.DecisionRefused) -> Step:
    """Nothing is decided, so everything may be aborted."""
    return replace(value, state=BatchCommitState.ABORTING, reason=event.reason), (AbortBatch(event.reason),)


def on_all_alive(value: BatchCommit, event: ev.AllAlive) -> Step:
    """Decide: the end of the transaction is the decision."""
    assert value.seal is not None
    return replace(value, state=BatchCommitState.DECIDING), (ev.RecordDecision((value.seal,)),)


def on_durable(value: BatchCommit, event: ev.DecisionDurable) -> Step:
    """Records, ledger record and offsets became visible together; markers may still be on their way."""
    assert value.seal is not None
    return replace(value, state=BatchCommitState.SHOWING), (AwaitVisible(value.seal),)


def on_shown(value: BatchCommit, event: Shown) -> Step:
    """Every reader of committed records gets the batch."""
    return replace(value, state=BatchCommitState.DONE), ()


def on_unanswered(value: BatchCommit, event: ev.DecisionUnanswered) -> Step:
    """The batch may or may not be committed: ask, and touch nothing meanwhile."""
    return replace(value, state=BatchCommitState.UNKNOWN, reason=event.reason), (ev.AskDecision(),)


def on_still_unanswered(value: BatchCommit, event: ev.DecisionUnanswered) -> Step:
    """The question was asked until its deadline: the next run asks it before anything else."""
    return replace(value, state=BatchCommitState.STOPPED, reason=event.reason), (ev.StopUnknown(event.reason),)


def on_step_failed(value: BatchCommit, event: ev.StepFailed) -> Step:
    """Nothing follows from a question that failed, neither an abort nor an end."""
    return replace(value, state=BatchCommitState.STOPPED, reason=event.reason), ()


def on_abort_finished(value: BatchCommit, event: ev.AbortFinished) -> Step:
    """Nothing of this try is or will be visible."""
    return replace(value, state=BatchCommitState.ABORTED), ()


MOVES: Moves[BatchCommitState] = {
    (BatchCommitState.WRITING, Written): Move(on_written, BatchCommitState.CHECKING),
    (BatchCommitState.WRITING, ev.TasksFailed): Move(on_given_up, BatchCommitState.ABORTING),
    (BatchCommitState.CHECKING, ev.AllAlive): Move(on_all_alive, BatchCommitState.DECIDING),
    (BatchCommitState.CHECKING, ev.NotAlive): Move(on_given_up, BatchCommitState.ABORTING),
    (BatchCommitState.DECIDING, ev.DecisionDurable): Move(on_durable, BatchCommitState.SHOWING),
    (BatchCommitState.DECIDING, ev.DecisionUnanswered): Move(on_unanswered, BatchCommitState.UNKNOWN),
    (BatchCommitState.DECIDING, ev.DecisionRefused): Move(on_given_up, BatchCommitState.ABORTING),
    (BatchCommitState.UNKNOWN, ev.DecisionDurable): Move(on_durable, BatchCommitState.SHOWING),
    (BatchCommitState.UNKNOWN, ev.DecisionUnanswered): Move(on_still_unanswered, BatchCommitState.STOPPED),
    (BatchCommitState.UNKNOWN, ev.DecisionRefused): Move(on_given_up, BatchCommitState.ABORTING),
    (BatchCommitState.SHOWING, Shown): Move(on_shown, BatchCommitState.DONE),
    (BatchCommitState.ABORTING, ev.AbortFinished): Move(on_abort_finished, BatchCommitState.ABORTED),
    (BatchCommitState.CHECKING, ev.StepFailed): Move(on_step_failed, BatchCommitState.STOPPED),
    (BatchCommitState.DECIDING, ev.StepFailed): Move(on_step_failed, BatchCommitState.STOPPED),
    (BatchCommitState.UNKNOWN, ev.StepFailed): Move(on_step_failed, BatchCommitState.STOPPED),
    (BatchCommitState.SHOWING, ev.StepFailed): Move(on_step_failed, BatchCommitState.STOPPED),
    (BatchCommitState.ABORTING, ev.StepFailed): Move(on_step_failed, BatchCommitState.STOPPED),
}

ENDS = ends_of(BatchCommitState, MOVES)
