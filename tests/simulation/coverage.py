"""Which rows of the machines' tables a history reaches, noted where every machine steps.

Owns: the rows of all tables that take part in a commit, and the counting.
Does not know: what a history is.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from embedded_kafka.transactions.machine import moves as transaction
from kafka_core import table
from pyspark_kafka_eos.client.writing import sequences, session
from pyspark_kafka_eos.commit.machine import per_task, whole_batch
from pyspark_kafka_eos.slot import turns
from tests.simulation.system import in_place_of
from tests.simulation.world import World

MACHINES: dict[str, Any] = {
    "commit": per_task,
    "batch commit": whole_batch,
    "turns": turns,
    "producer": session,
    "sequences": sequences,
    "transaction": transaction,
}
"""By the name that the machine steps with. The table of consumer groups is left out: a commit only writes offsets into
a group without members, which is no move of it.
"""


class Row(NamedTuple):
    """One row of a table."""

    machine: str
    state: str
    event: str


class Lead(NamedTuple):
    """A row and where it led: a row may lead to several states."""

    row: Row
    after: str


def all_rows() -> list[Row]:
    """Every row of every table, in the tables' order."""
    return [Row(name, state.name, event.__name__) for name, module in MACHINES.items() for state, event in module.MOVES]


def all_leads() -> list[Lead]:
    """Every state that a row can lead to."""
    return [
        Lead(Row(name, state.name, event.__name__), after.name)
        for name, module in MACHINES.items()
        for (state, event), move in module.MOVES.items()
        for after in move.next
    ]


def rows_of(leads: Counter[Lead]) -> Counter[Row]:
    """The rows, with how often each was reached."""
    found: Counter[Row] = Counter()
    for lead, times in leads.items():
        found[lead.row] += times
    return found


@contextlib.contextmanager
def noted() -> Iterator[Counter[Lead]]:
    """Counts every move that a machine of this process makes, for the time of the context. The caller may clear the
    counter. A refused event is no move, and what a killed process would do when its threads are unwound is none.
    """
    found: Counter[Lead] = Counter()

    def step(moves: Any, machine: Any, event: object, name: str) -> tuple[Any, tuple[Any, ...]]:
        before = machine.state
        after, effects = table.step(moves, machine, event, name)
        if World.unwinding:
            return after, effects
        found[Lead(Row(name, before.name, type(event).__name__), after.state.name)] += 1
        return after, effects

    with in_place_of(list(MACHINES.values()), {"step": (table.step, step)}):
        yield found
