"""Which task may write to which partition under a shared identity: tasks take turns, partition by partition.

Owns: the order of turns, the sequence at which each begins, whether a task that was started again may write.
Does not know: how the events travel (all tasks read them in one order, from one log), what is written, Spark, time.
Invariants:
- A partition has at most one holder.
- A turn begins at the sequence that the one before ended with.
- Of a task's starts, at most one is ever granted a turn. Where a second start comes after that, no turn is granted any
  more.

Why turns: sequences are counted per (producer id, epoch, partition), and the broker accepts them only without
a gap, so two tasks cannot write to one partition side by side. Why starts are tracked: if two starts of a
task wrote under the same sequences, the broker would take the batches of one for duplicates of the other's.
It would then acknowledge records that it does not have.
Sources: KIP-98, the idempotent producer's sections 5.2 and 6.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from kafka_core.table import Move, Moves, step
from kafka_core.values import TopicPartition


class TurnsState(Enum):
    """Whether the try of the batch can still succeed."""

    OPEN = "tasks take turns"
    BROKEN = "a task that may have written has failed or was started again: the batch has to be repeated"


# ---- events: what the starts of tasks have logged, in the order in which all tasks read it


@dataclass(frozen=True)
class TaskStarted:
    """A start of a task begins. `start` is unique, the task's number is Spark's partition id."""

    task: int
    start: str


@dataclass(frozen=True)
class Wanted:
    """The start has batches for a partition."""

    task: int
    start: str
    where: TopicPartition


@dataclass(frozen=True)
class Passed:
    """Everything that the start sent to a partition is acknowledged; the next turn begins at `next_sequence`."""

    task: int
    start: str
    where: TopicPartition
    next_sequence: int


@dataclass(frozen=True)
class Stopped:
    """The start failed and writes nothing more."""

    task: int
    start: str
    reason: str


Event = TaskStarted | Wanted | Passed | Stopped

# ---- effects: what a start has to act on


@dataclass(frozen=True)
class Granted:
    """This start has the turn."""

    start: str
    where: TopicPartition
    next_sequence: int


@dataclass(frozen=True)
class TurnAsked:
    """Another start waits for the turn that this one has."""

    start: str
    where: TopicPartition


@dataclass(frozen=True)
class Dismissed:
    """The task was started again before this start was granted anything; it never will be."""

    start: str


@dataclass(frozen=True)
class Broke:
    """No start may write any more."""

    reason: str


Effect = Granted | TurnAsked | Dismissed | Broke


@dataclass(frozen=True)
class Turn:
    """One partition: the start that writes (None where there is none), the sequence at which the next turn
    begins, and the starts that wait, in order."""

    holder: str | None = None
    next_sequence: int = 0
    waiting: tuple[str, ...] = ()


@dataclass(frozen=True)
class Turns:
    """One try of one batch. `starts`: each task's valid start; `granted`: those that were ever granted a turn."""

    state: TurnsState = TurnsState.OPEN
    starts: Mapping[int, str] = field(default_factory=dict)
    granted: frozenset[str] = frozenset()
    turns: Mapping[TopicPartition, Turn] = field(default_factory=dict)
    reason: str = ""

    def handle(self, event: Event) -> tuple[Turns, tuple[Effect, ...]]:
        """The next value and the effects for the starts; every event is possible in every state."""
        return step(MOVES, self, event, "turns")


Step = tuple[Turns, tuple[Effect, ...]]


def _valid(value: Turns, event: Event) -> bool:
    return value.starts.get(event.task) == event.start


def on_begun(value: Turns, event: TaskStarted) -> Step:
    """The first start of a task, or one that replaces a start that was never granted anything."""
    earlier = value.starts.get(event.task)
    if earlier == event.start:
        return value, ()
    if earlier in value.granted:
        return _break(value, f"task {event.task} was started again after its earlier start may have written")
    starts = {**value.starts, event.task: event.start}
    if earlier is None:
        return replace(value, starts=starts), ()
    turns = {
        where: replace(turn, waiting=tuple(each for each in turn.waiting if each != earlier))
        for where, turn in value.turns.items()
    }
    return replace(value, starts=starts, turns=turns), (Dismissed(earlier),)


def on_wanted(value: Turns, event: Wanted) -> Step:
    """Grant a free turn, else queue; a start that is not its task's valid one is ignored."""
    turn = value.turns.get(event.where, Turn())
    if not _valid(value, event) or event.start == turn.holder or event.start in turn.waiting:
        return value, ()
    if turn.holder is None:
        return _grant(value, event.where, replace(turn, holder=event.start))
    queued = replace(turn, waiting=(*turn.waiting, event.start))
    return replace(value, turns={**value.turns, event.where: queued}), (TurnAsked(turn.holder, event.where),)


def on_passed(value: Turns, event: Passed) -> Step:
    """The next start in the queue continues where this one ended."""
    turn = value.turns.get(event.where, Turn())
    if turn.holder != event.start:
        return value, ()
    if not turn.waiting:
        free = Turn(None, event.next_sequence)
        return replace(value, turns={**value.turns, event.where: free}), ()
    following, *others = turn.waiting
    return _grant(value, event.where, Turn(following, event.next_sequence, tuple(others)))


def _grant(value: Turns, where: TopicPartition, turn: Turn) -> Step:
    assert turn.holder is not None
    after = replace(value, granted=value.granted | {turn.holder}, turns={**value.turns, where: turn})
    effects: tuple[Effect, ...] = (Granted(turn.holder, where, turn.next_sequence),)
    return after, (*effects, TurnAsked(turn.holder, where)) if turn.waiting else effects


def on_stopped(value: Turns, event: Stopped) -> Step:
    """A task that failed ends the try for all: the batch cannot be whole without it."""
    return _break(value, event.reason) if _valid(value, event) else (value, ())


def _break(value: Turns, reason: str) -> Step:
    return replace(value, state=TurnsState.BROKEN, reason=reason), (Broke(reason),)


def ignore(value: Turns, event: Event) -> Step:
    """Nothing is granted any more, whatever the event."""
    return value, ()


MOVES: Moves[TurnsState] = {
    (TurnsState.OPEN, TaskStarted): Move(on_begun, TurnsState.OPEN, TurnsState.BROKEN),
    (TurnsState.OPEN, Wanted): Move(on_wanted, TurnsState.OPEN),
    (TurnsState.OPEN, Passed): Move(on_passed, TurnsState.OPEN),
    (TurnsState.OPEN, Stopped): Move(on_stopped, TurnsState.OPEN, TurnsState.BROKEN),
    (TurnsState.BROKEN, TaskStarted): Move(ignore, TurnsState.BROKEN),
    (TurnsState.BROKEN, Wanted): Move(ignore, TurnsState.BROKEN),
    (TurnsState.BROKEN, Passed): Move(ignore, TurnsState.BROKEN),
    (TurnsState.BROKEN, Stopped): Move(ignore, TurnsState.BROKEN),
}
