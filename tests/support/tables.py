"""How every machine's table is tested: each (state, event) pair leads where its test file lists it, or is refused.

Owns: playing the listed cases, and every pair that is not listed.
Does not know: any particular machine.
Invariants:
- A pair that is in the machine and not in the list fails, and the other way round.
- Neither a move nor a refusal changes the value it began with.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, get_args

import pytest

from kafka_core.errors import IllegalMove
from kafka_core.table import Handles, Moves

Pair = tuple[Enum, type]
Case = tuple[Any, Any, Any, tuple[Any, ...]]
"""Before, event, after, effects. `after` is the whole value, or its state alone where the value's own tests judge the
rest.
"""


class Stranger:
    """An event that no machine has."""


def handle(value: Handles, event: object) -> tuple[Any, tuple[Any, ...]]:
    """How a machine takes an event, unless its module says otherwise."""
    return value.handle(event)


@dataclass(frozen=True)
class Table:
    """A machine with all that its table is to do. `events`: one of each class; `values`: one in each state, to be
    refused;
    `expected`: the cases of each pair, none where the pair's own tests judge them.
    """

    name: str
    moves: Moves[Any]
    states: type[Enum]
    event_type: object
    events: Mapping[type, Any]
    values: Mapping[Any, Any]
    expected: Mapping[Any, Sequence[Case]]
    handle: Callable[[Any, Any], tuple[Any, tuple[Any, ...]]] = handle

    @property
    def allowed(self) -> list[tuple[Pair, Case]]:
        """Every case with its pair."""
        return [(pair, case) for pair, cases in self.expected.items() for case in cases]

    @property
    def refused(self) -> list[tuple[Enum, object]]:
        """A value's state and an event for each pair that is not listed."""
        events = {**self.events, Stranger: Stranger()}
        pairs = [(state, kind) for state in self.states for kind in events]
        return [(state, events[kind]) for state, kind in pairs if (state, kind) not in self.expected]


class TableTests:
    """To be inherited by one class for each machine, which sets `table`; of these where `expected` has no cases."""

    table: ClassVar[Table]

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """A test for each case, and one for each pair that is refused."""
        if "case" in metafunc.fixturenames:
            allowed = self.table.allowed
            names = [f"{state.name}-{kind.__name__}" for (state, kind), _ in allowed]
            metafunc.parametrize(("pair", "case"), allowed, ids=names)
        if "refused" in metafunc.fixturenames:
            names = [f"{state.name}-{type(event).__name__}" for state, event in self.table.refused]
            metafunc.parametrize(("state", "refused"), self.table.refused, ids=names)

    def test_the_table_has_exactly_the_moves_that_are_listed_here(self) -> None:
        assert set(self.table.moves) == set(self.table.expected)
        assert set(self.table.events) == set(get_args(self.table.event_type))
        assert {state: value.state for state, value in self.table.values.items()} == {
            state: state for state in self.table.states
        }

    def test_any_other_event_is_refused_and_nothing_has_changed(self, state: Enum, refused: object) -> None:
        value = self.table.values[state]
        untouched = copy.deepcopy(value)

        with pytest.raises(IllegalMove) as refusal:
            self.table.handle(value, refused)

        assert refusal.value.facts == {
            "machine": self.table.name,
            "state": state.name,
            "event": type(refused).__name__,
        }
        assert value == untouched


class CaseTests(TableTests):
    """The same for a table that lists its cases."""

    def test_an_allowed_event_leads_to_the_listed_state_and_effects(self, pair: Pair, case: Case) -> None:
        before, event, expected, effects = case
        assert (before.state, type(event)) == pair
        untouched = copy.deepcopy(before)

        after, done = self.table.handle(before, event)

        assert (after.state if isinstance(expected, Enum) else after, done) == (expected, effects)
        assert before == untouched
