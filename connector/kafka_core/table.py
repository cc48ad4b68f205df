"""What every state machine here shares: its table's rows, the lookup of a move, the refusal of a missing one.

Owns: the refusal of an illegal move, and of an effect that no shell carries out.
Does not know: any particular machine.
Invariants:
- Machines are immutable values, so a refused move has changed nothing.
- A move leads to one of the states that its row names, and to a value whose own invariants hold. The tests hold every
  machine to that, wherever it runs (`checked`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Generic, NoReturn, Protocol, TypeVar

from kafka_core.errors import IllegalMove, InternalError

StateT = TypeVar("StateT", bound=Enum)


class Machine(Protocol):
    """A value with a state."""

    @property
    def state(self) -> Any:
        """Where it is."""


class Validated(Protocol):
    """A value that can check its own invariants."""

    def broken_invariant(self) -> str:
        """What is wrong with it, in words; empty for a valid value."""


class Handles(Machine, Protocol):
    """A machine as its shell uses it."""

    def handle(self, event: Any) -> tuple[Any, tuple[Any, ...]]:
        """The next value and what the shell has to do."""


class Ends(Handles, Protocol):
    """A machine that comes to an end."""

    @property
    def over(self) -> bool:
        """Whether no event leads on."""


MachineT = TypeVar("MachineT", bound=Machine)
HandlesT = TypeVar("HandlesT", bound=Handles)

LONGEST_STORY = 200
"""Moves of one story, repeated ones counted once. A commit of a thousand slots with trouble makes some thirty; half
would still show the end of any story, double only costs memory.
"""


class Move(Generic[StateT]):
    """One row: `handler(machine, event) -> (new machine, effects)`, and every state that it can lead to."""

    __slots__ = ("handler", "next")

    def __init__(self, handler: Callable[..., Any], *following: StateT) -> None:
        self.handler = handler
        self.next = following


Moves = Mapping[tuple[StateT, type[Any]], Move[StateT]]
"""(state, class of event) -> what happens. Ignoring an event is a row too."""


def ends_of(states: type[StateT], moves: Moves[StateT]) -> frozenset[StateT]:
    """The states out of which no row leads."""
    return frozenset(states) - {state for state, _ in moves}


checked = False
"""Whether a move to a state that its row does not name, or to an invalid value, is an error. True in the tests. In
production the row is only a description, and a machine that was right so far is not stopped for a mismatch.
"""


def step(moves: Moves[StateT], machine: MachineT, event: object, name: str) -> tuple[MachineT, tuple[Any, ...]]:
    """The machine after an event, and what its shell has to do; IllegalMove, naming both, where the table has no such
    row.
    """
    state: StateT = machine.state
    try:
        move = moves[state, type(event)]
    except KeyError:
        raise IllegalMove(
            f"{name}: {type(event).__name__} is not allowed in {state.name}; nothing has changed",
            {"machine": name, "state": state.name, "event": type(event).__name__},
        ) from None
    done: tuple[MachineT, tuple[Any, ...]] = move.handler(machine, event)
    if checked:
        _check(done[0], move.next, f"{name}: {type(event).__name__} in {state.name}")
    return done


def _check(machine: Machine, following: tuple[Enum, ...], what: str) -> None:
    if machine.state not in following:
        raise InternalError(f"{what} led to {machine.state.name}, which its row does not name")
    # `isinstance` would read the members of the protocol anew for every move.
    judge: Callable[[], str] | None = getattr(machine, "broken_invariant", None)
    if judge is not None:
        broken = judge()
        if broken:
            raise InternalError(f"{what}: {broken}", {"machine": repr(machine)})


class Story:
    """The moves that one machine made, in order: how a run came to where it failed. The newest `LONGEST_STORY` are
    kept.
    """

    def __init__(self) -> None:
        self._moves: deque[list[Any]] = deque(maxlen=LONGEST_STORY)

    def step(self, machine: HandlesT, event: object) -> tuple[HandlesT, tuple[Any, ...]]:
        """The machine's own `handle`, noted. A refused event is noted, too: it is what the story ends with."""
        try:
            after, effects = machine.handle(event)
        except InternalError:
            self._note(machine.state, event, "refused")
            raise
        self._note(machine.state, event, after.state.name)
        return after, effects

    def _note(self, before: Enum, event: object, after: str) -> None:
        move = [before.name, type(event).__name__, after]
        if self._moves and self._moves[-1][:3] == move:
            self._moves[-1][3] += 1
        else:
            self._moves.append([*move, 1])

    def __str__(self) -> str:
        lines = (
            f"{before} -{event}-> {after}" + (f" ({count} times)" if count > 1 else "")
            for before, event, after, count in self._moves
        )
        return "; ".join(lines) or "no move was made"


def unhandled(effect: NoReturn) -> InternalError:
    """For the end of a chain of `isinstance` over all effects: mypy refuses the call while one of them can reach it."""
    return InternalError(f"nothing carries out {type(effect).__name__}", {"effect": repr(effect)})
