"""What holds of every machine's table: rows name where they lead, no state is out of reach, and a machine is held to
its rows.
"""

from __future__ import annotations

import dataclasses
import re
from enum import Enum
from types import ModuleType

import pytest

from embedded_kafka.cluster import life
from embedded_kafka.groups.machine import moves as group
from embedded_kafka.security import login
from embedded_kafka.transactions.machine import moves as transaction
from kafka_core import table
from kafka_core.errors import IllegalMove, InternalError
from kafka_core.table import LONGEST_STORY, Move, Moves, Story, step
from kafka_core.values import ProducerIdentity
from pyspark_kafka_eos.client.writing import sequences, session
from pyspark_kafka_eos.commit.machine import per_task, whole_batch
from pyspark_kafka_eos.model import Seal, SealedPartition
from pyspark_kafka_eos.slot import turns
from tools.draw_machines import states

MACHINES = {
    "commit": per_task,
    "batch commit": whole_batch,
    "turns": turns,
    "producer": session,
    "sequences": sequences,
    "transaction": transaction,
    "group": group,
    "login": login,
    "broker": life,
}
ENDS = {
    "commit": {"DONE", "ABORTED", "BROKEN", "DEFERRED", "STOPPED"},
    "batch commit": {"DONE", "ABORTED", "STOPPED"},
    "group": {"DEAD"},
    "login": {"CLOSED"},
    # Nothing but a new start of the task's batch follows; late events are ignored there.
    "turns": {"BROKEN"},
    "producer": {"FENCED", "FATAL"},
    "sequences": {"REJECTED"},
    "transaction": set(),
    "broker": set(),
}
OUTSIDE = {"transaction": {"DEAD", "PREPARE_EPOCH_FENCE"}}
"""States that no move enters or leaves: of an id that has expired, and a name of Kafka's that is never logged."""


@pytest.mark.parametrize("name", MACHINES)
def test_every_row_names_its_handler_and_every_state_it_can_lead_to(name: str) -> None:
    module = MACHINES[name]
    for (state, event), move in module.MOVES.items():
        assert move.next, (state, event)
        assert len(set(move.next)) == len(move.next), (state, event)
        assert all(isinstance(each, states(module)) for each in move.next), (state, event)
        assert move.handler.__doc__, (state, event)


@pytest.mark.parametrize("name", MACHINES)
def test_no_state_is_out_of_reach_and_only_an_end_has_no_way_out(name: str) -> None:
    module = MACHINES[name]
    reached: set[Enum] = set()
    leaving: set[str] = set()
    for (state, _), move in module.MOVES.items():
        reached.update(each for each in move.next if each is not state)
        if any(each is not state for each in move.next):
            leaving.add(state.name)
    those = [state for state in states(module) if state.name not in OUTSIDE.get(name, set())]
    assert {state.name for state in those} - leaving == ENDS[name]
    assert [state.name for state in those if state not in reached] == first(module)
    assert all(state in those for state in reached)


def first(module: ModuleType) -> list[str]:
    """Where a machine begins, if no move leads back there."""
    beginning: Enum = next(iter(states(module)))
    back = any(beginning in move.next for (state, _), move in module.MOVES.items() if state is not beginning)
    return [] if back else [beginning.name]


class State(Enum):
    ON = "it is on"
    OFF = "it is off"


@dataclasses.dataclass(frozen=True)
class Lamp:
    state: State = State.ON


class Switch:
    """Somebody presses it."""


def test_a_machine_is_held_to_its_row_in_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    def turn(lamp: Lamp, _event: Switch) -> tuple[Lamp, tuple[str, ...]]:
        return dataclasses.replace(lamp, state=State.OFF), ("dark",)

    right: Moves[State] = {(State.ON, Switch): Move(turn, State.OFF)}
    wrong: Moves[State] = {(State.ON, Switch): Move(turn, State.ON)}

    assert table.checked, "tests/conftest.py sets it"
    assert step(right, Lamp(), Switch(), "lamp") == (Lamp(State.OFF), ("dark",))
    with pytest.raises(InternalError, match="Switch in ON led to OFF, which its row does not name"):
        step(wrong, Lamp(), Switch(), "lamp")
    with pytest.raises(IllegalMove, match="Switch is not allowed in OFF; nothing has changed"):
        step(right, Lamp(State.OFF), Switch(), "lamp")
    monkeypatch.setattr(table, "checked", False)
    assert step(wrong, Lamp(), Switch(), "lamp") == (Lamp(State.OFF), ("dark",))


def test_a_value_that_makes_no_sense_is_caught_where_it_is_made() -> None:
    seal = Seal(0, "p:0", ProducerIdentity(4, 2), (SealedPartition("out", 0, 17, 2, 3),))

    def forget(value: per_task.Commit, _event: Switch) -> tuple[per_task.Commit, tuple[object, ...]]:
        return dataclasses.replace(value, open_slots={}), ()

    finishing = per_task.Commit(per_task.CommitState.FINISHING, {0: seal}, {0: per_task.ParticipantState.ENDING})
    moves = {(per_task.CommitState.FINISHING, Switch): Move(forget, per_task.CommitState.FINISHING)}
    with pytest.raises(InternalError, match="Switch in FINISHING: it goes on although no slot is open"):
        step(moves, finishing, Switch(), "commit")


@pytest.mark.parametrize(
    ("value", "broken"),
    [
        (
            per_task.Commit(per_task.CommitState.FINISHING, {}, {3: per_task.ParticipantState.LOST}),
            r"slots \[3\] are open and were never",
        ),
        (session.Session(2, session.SessionState.IN_TRANSACTION), "goes on without an identity"),
        (
            session.Session(2, session.SessionState.READY, ProducerIdentity(4, 2), groups=frozenset({"g"})),
            "not used yet has partitions",
        ),
        (session.Session(2), "^$"),
        (per_task.Commit(), "^$"),
    ],
)
def test_the_invariants_of_a_value(value: table.Validated, broken: str) -> None:
    assert re.search(broken, value.broken_invariant())


def test_a_story_has_every_move_in_order_and_repeated_ones_once() -> None:
    story = Story()
    assert str(story) == "no move was made"
    lamp = session.Session(2)
    lamp, _ = story.step(lamp, session.Initialize())
    lamp, _ = story.step(lamp, session.Initialized(ProducerIdentity(4, 2)))
    lamp, _ = story.step(lamp, session.Begin())
    for _ in range(3):
        lamp, _ = story.step(lamp, session.NeedOffsets("g"))
    with pytest.raises(IllegalMove):
        story.step(lamp, session.Begin())
    assert str(story) == (
        "UNINITIALIZED -Initialize-> INITIALIZING; INITIALIZING -Initialized-> READY; READY -Begin-> IN_TRANSACTION; "
        "IN_TRANSACTION -NeedOffsets-> IN_TRANSACTION (3 times); IN_TRANSACTION -Begin-> refused"
    )


def test_a_story_has_an_end() -> None:
    story = Story()
    value = session.Session(2, session.SessionState.READY, ProducerIdentity(4, 2))
    for number in range(2 * LONGEST_STORY):
        story.step(value, session.Begin() if number % 2 else session.Initialize())
    assert str(story).count(";") == LONGEST_STORY - 1
