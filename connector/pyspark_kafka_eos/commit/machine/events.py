"""What can happen to a commit and what it asks its shell to do: the events and effects of `machine.per_task`.

Owns: the values only.
Does not know: states and moves.
Invariants: frozen values, equal where their fields are.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from pyspark_kafka_eos.model import Seal


class Outcome(Enum):
    """The outcome of a participant's transaction."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "open"
    UNKNOWN = "unknown"
    GONE = "gone"


# ---- events


@dataclass(frozen=True)
class Sealed:
    """Tasks handed over their slots' transactions."""

    seals: tuple[Seal, ...]


@dataclass(frozen=True)
class TasksFinished:
    """Spark's job is over; `slots` slots have run."""

    slots: int


@dataclass(frozen=True)
class TasksFailed:
    """Spark's job failed: some slot has no seal."""

    reason: str


@dataclass(frozen=True)
class AllAlive:
    """Every transaction is ongoing under its sealed identity, with more time left than the margin."""


@dataclass(frozen=True)
class NotAlive:
    """A transaction is gone, or too old to be decided safely."""

    reason: str


@dataclass(frozen=True)
class DecisionDurable:
    """The driver's transaction (decision and source offsets) is committed."""


@dataclass(frozen=True)
class DecisionUnanswered:
    """No definite answer about the driver's transaction."""

    reason: str


@dataclass(frozen=True)
class DecisionRefused:
    """The driver's transaction is definitely not committed."""

    reason: str


@dataclass(frozen=True)
class SlotEnded:
    """EndTxn(commit) of a slot answered success."""

    slot: int


@dataclass(frozen=True)
class SlotUnanswered:
    """EndTxn(commit) of a slot got no definite answer. `reason`: the last one that is known."""

    slot: int
    reason: str = ""


@dataclass(frozen=True)
class SlotDenied:
    """The right to end a slot's transaction is missing. `remedy`: what restores it."""

    slot: int
    reason: str
    remedy: str


@dataclass(frozen=True)
class SlotUnsure:
    """EndTxn(commit) of a slot was answered, but markers had to be written: only the log shows the outcome."""

    slot: int


@dataclass(frozen=True)
class SlotProven:
    """The coordinator or the log shows the outcome of a slot."""

    slot: int
    verdict: Outcome


@dataclass(frozen=True)
class Rewritten:
    """The batch has run again: every slot's seal, without an identity where the slot only measured what it would write.

    `narrowed`: slots wrote to some partitions only, so one that had rows may have written none.
    """

    seals: tuple[Seal, ...]
    narrowed: bool = False


@dataclass(frozen=True)
class RewriteFailed:
    """The lost slots could not be written again now; what is decided stays decided."""

    reason: str


@dataclass(frozen=True)
class RewriteDeferred:
    """The lost slots are written again by tasks that another process starts and commits."""


@dataclass(frozen=True)
class StepFailed:
    """A question or a request failed, and nothing follows from that: what is decided stays decided, and nothing else
    is.
    """

    reason: str


@dataclass(frozen=True)
class AbortFinished:
    """Every participant that could be reached is aborted; the rest end by the next epoch or by their timeout."""


Event = (
    Sealed
    | TasksFinished
    | TasksFailed
    | AllAlive
    | NotAlive
    | DecisionDurable
    | DecisionUnanswered
    | DecisionRefused
    | SlotEnded
    | SlotUnanswered
    | SlotDenied
    | SlotUnsure
    | SlotProven
    | Rewritten
    | RewriteFailed
    | RewriteDeferred
    | StepFailed
    | AbortFinished
)

# ---- effects


@dataclass(frozen=True)
class CheckAlive:
    """Ask the coordinators about these transactions."""

    seals: tuple[Seal, ...]


@dataclass(frozen=True)
class RecordDecision:
    """Write decision and source offsets in one driver transaction and commit it."""

    seals: tuple[Seal, ...]


@dataclass(frozen=True)
class AskDecision:
    """Ask about the driver's transaction until the answer is definite."""


@dataclass(frozen=True)
class EndSlots:
    """Send EndTxn(commit) to these participants."""

    seals: tuple[Seal, ...]


@dataclass(frozen=True)
class ProveSlots:
    """Determine the outcome of these participants: ask the coordinator first, then read the log."""

    seals: tuple[Seal, ...]


@dataclass(frozen=True)
class AbortSlots:
    """Abort these participants, as far as they can be reached."""

    seals: tuple[Seal, ...]
    reason: str


@dataclass(frozen=True)
class RewriteSlots:
    """Write these slots again from the same batch while the others measure. Where all that was written is
    lost, every slot writes, because the batch may be split differently by now."""

    lost: tuple[Seal, ...]


@dataclass(frozen=True)
class DropSlots:
    """Abort what a repair has written in vain, as far as it can be reached. Nothing waits for it."""

    seals: tuple[Seal, ...]


@dataclass(frozen=True)
class RecordRepair:
    """Write the decision again with the new seals in one driver transaction and commit it."""

    seals: tuple[Seal, ...]


@dataclass(frozen=True)
class StopBroken:
    """Stop the query: the operator has to look at these slots."""

    unknown: tuple[Seal, ...]


@dataclass(frozen=True)
class StopNondeterministic:
    """Stop the query: the replay of a lost slot differs from the decision."""

    decided: Seal
    replayed: Seal | None


@dataclass(frozen=True)
class StopSplit:
    """Stop the query: the replay has the rows that were decided, but in other slots, and some of the decided ones are
    committed."""

    decided: tuple[Seal, ...]
    replayed: tuple[Seal, ...]


@dataclass(frozen=True)
class StopForNow:
    """Stop the query: the batch is decided and can be finished, but not now; the next run tries again."""

    reason: str


@dataclass(frozen=True)
class StopUnknown:
    """End this process's part: nobody can tell now whether the decision is made. The next run asks first."""

    reason: str


@dataclass(frozen=True)
class StopUnanswered:
    """End this process's part: a decided slot got no definite answer, however often it was ended. The next run goes
    on.
    """

    unanswered: Seal
    tries: int
    reason: str


@dataclass(frozen=True)
class StopDenied:
    """End this process's part: the right to end a decided slot is gone."""

    denied: Seal
    reason: str
    remedy: str


Stop = StopBroken | StopNondeterministic | StopSplit | StopForNow | StopUnknown | StopUnanswered | StopDenied
"""Nothing is carried out for these: the shell's owner raises an error."""

Effect = (
    CheckAlive
    | RecordDecision
    | AskDecision
    | EndSlots
    | ProveSlots
    | AbortSlots
    | RewriteSlots
    | DropSlots
    | RecordRepair
    | Stop
)
