"""Every (state, event) pair of the turns: where it leads, and what a whole batch's turns may never do."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from kafka_core.values import TopicPartition
from pyspark_kafka_eos.slot.turns import (
    MOVES,
    Broke,
    Dismissed,
    Effect,
    Event,
    Granted,
    Passed,
    Stopped,
    TaskStarted,
    Turn,
    TurnAsked,
    Turns,
    TurnsState,
    Wanted,
)
from tests.support.tables import CaseTests, Table

AGAIN = "task 0 was started again after its earlier start may have written"
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)

BEGUN = Turns(starts={0: "a", 1: "b", 2: "c"})
A_WRITES = replace(BEGUN, granted=frozenset("a"), turns={P0: Turn("a", 0, ("b",))})
FREE = replace(BEGUN, granted=frozenset("a"), turns={P0: Turn(None, 7)})
BROKEN = replace(A_WRITES, state=TurnsState.BROKEN, reason="boom")

Case = tuple[Turns, Event, Turns, tuple[Effect, ...]]

EXPECTED: dict[tuple[TurnsState, type], list[Case]] = {
    (TurnsState.OPEN, TaskStarted): [
        (Turns(), TaskStarted(3, "d"), Turns(starts={3: "d"}), ()),
        (BEGUN, TaskStarted(0, "a"), BEGUN, ()),
        # A second start in place of one that waits, in place of one that was granted, and of one that had its turn
        # before.
        (
            A_WRITES,
            TaskStarted(1, "b2"),
            replace(A_WRITES, starts={0: "a", 1: "b2", 2: "c"}, turns={P0: Turn("a", 0)}),
            (Dismissed("b"),),
        ),
        (
            A_WRITES,
            TaskStarted(0, "a2"),
            replace(
                A_WRITES,
                state=TurnsState.BROKEN,
                reason=AGAIN,
            ),
            (Broke(AGAIN),),
        ),
        (
            FREE,
            TaskStarted(0, "a2"),
            replace(
                FREE,
                state=TurnsState.BROKEN,
                reason=AGAIN,
            ),
            (Broke(AGAIN),),
        ),
    ],
    (TurnsState.OPEN, Wanted): [
        (
            BEGUN,
            Wanted(0, "a", P0),
            replace(BEGUN, granted=frozenset("a"), turns={P0: Turn("a")}),
            (Granted("a", P0, 0),),
        ),
        (
            FREE,
            Wanted(2, "c", P0),
            replace(FREE, granted=frozenset("ac"), turns={P0: Turn("c", 7)}),
            (Granted("c", P0, 7),),
        ),
        (
            A_WRITES,
            Wanted(2, "c", P0),
            replace(A_WRITES, turns={P0: Turn("a", 0, ("b", "c"))}),
            (TurnAsked("a", P0),),
        ),
        (
            A_WRITES,
            Wanted(2, "c", P1),
            replace(A_WRITES, granted=frozenset("ac"), turns={**A_WRITES.turns, P1: Turn("c")}),
            (Granted("c", P1, 0),),
        ),
        (A_WRITES, Wanted(0, "a", P0), A_WRITES, ()),
        (A_WRITES, Wanted(1, "b", P0), A_WRITES, ()),
        # Of a start that was dismissed, and of a task that nobody knows.
        (A_WRITES, Wanted(2, "c0", P0), A_WRITES, ()),
        (A_WRITES, Wanted(9, "z", P1), A_WRITES, ()),
    ],
    (TurnsState.OPEN, Passed): [
        (
            A_WRITES,
            Passed(0, "a", P0, 12),
            replace(A_WRITES, granted=frozenset("ab"), turns={P0: Turn("b", 12)}),
            (Granted("b", P0, 12),),
        ),
        (
            replace(A_WRITES, turns={P0: Turn("a", 0, ("b", "c"))}),
            Passed(0, "a", P0, 12),
            replace(A_WRITES, granted=frozenset("ab"), turns={P0: Turn("b", 12, ("c",))}),
            (Granted("b", P0, 12), TurnAsked("b", P0)),
        ),
        (
            replace(A_WRITES, turns={P0: Turn("a")}),
            Passed(0, "a", P0, 7),
            FREE,
            (),
        ),
        (A_WRITES, Passed(1, "b", P0, 99), A_WRITES, ()),
        (A_WRITES, Passed(0, "a", P1, 99), A_WRITES, ()),
    ],
    (TurnsState.OPEN, Stopped): [
        (BEGUN, Stopped(2, "c", "boom"), replace(BEGUN, state=TurnsState.BROKEN, reason="boom"), (Broke("boom"),)),
        (A_WRITES, Stopped(2, "c0", "long dismissed"), A_WRITES, ()),
    ],
    (TurnsState.BROKEN, TaskStarted): [(BROKEN, TaskStarted(4, "d"), BROKEN, ())],
    (TurnsState.BROKEN, Wanted): [(BROKEN, Wanted(2, "c", P1), BROKEN, ())],
    (TurnsState.BROKEN, Passed): [(BROKEN, Passed(0, "a", P0, 12), BROKEN, ())],
    (TurnsState.BROKEN, Stopped): [(BROKEN, Stopped(1, "b", "again"), BROKEN, ())],
}
EVENTS: dict[type, Event] = {type(case[1]): case[1] for cases in EXPECTED.values() for case in cases}


class TestTheTable(CaseTests):
    """Of the turns of a shared batch."""

    table = Table(
        "turns", MOVES, TurnsState, Event, EVENTS, {TurnsState.OPEN: Turns(), TurnsState.BROKEN: BROKEN}, EXPECTED
    )


class Task:
    """One start that follows the rules: asks, writes when granted, passes on when asked; dies now and then."""

    def __init__(self, number: int, start: str, wants: dict[TopicPartition, int]) -> None:
        self.number, self.start, self.wants = number, start, wants
        self.asked: set[TopicPartition] = set()
        self.held: dict[TopicPartition, int] = {}
        self.stopped = False

    def says(self, log: dict[TopicPartition, list[tuple[str, int]]], chance: random.Random) -> list[Event]:
        """What it does next; `log` is what the broker has: (start, sequence) per record."""
        for where in [where for where in self.held if chance.random() < 0.7]:
            following = self.held[where]
            count = chance.randint(1, self.wants[where])
            for sequence in range(following, following + count):
                # The broker takes nothing else.
                assert sequence == len(log.setdefault(where, []))
                log[where].append((self.start, sequence))
            self.wants[where] -= count
            self.held[where] = following + count
        passed = [where for where in self.held if not self.wants[where] or chance.random() < 0.3]
        events: list[Event] = [Passed(self.number, self.start, where, self.held.pop(where)) for where in passed]
        for where, left in self.wants.items():
            if left and where not in self.held and where not in self.asked:
                self.asked.add(where)
                events.append(Wanted(self.number, self.start, where))
        return events

    def hears(self, effect: Effect) -> None:
        """What the log has told it."""
        if isinstance(effect, Broke) or (isinstance(effect, Dismissed) and effect.start == self.start):
            self.stopped = True
        elif isinstance(effect, Granted) and effect.start == self.start and not self.stopped:
            self.asked.discard(effect.where)
            self.held[effect.where] = effect.next_sequence


@given(st.integers(), st.booleans())
def test_whatever_the_order_sequences_have_no_gap_and_all_is_written_once_or_nobody_goes_on(
    seed: int, started_again: bool
) -> None:
    chance = random.Random(seed)
    partitions = [TopicPartition("t", number) for number in range(chance.randint(1, 4))]

    def start(number: int, name: str) -> Task:
        return Task(number, name, {where: chance.randint(0, 9) for where in partitions})

    tasks = [start(number, f"{number}") for number in range(chance.randint(1, 5))]
    amounts = {task.start: dict(task.wants) for task in tasks}
    turns, log = Turns(), dict[TopicPartition, list[tuple[str, int]]]()
    queue: list[Event] = [TaskStarted(task.number, task.start) for task in tasks]
    granted_of: dict[int, set[str]] = {}
    again_at = chance.randint(1, 30) if started_again else -1
    for step in range(2_000):
        if step == again_at:
            victim = chance.choice(tasks)
            twin = start(victim.number, f"{victim.number} again")
            amounts[twin.start] = dict(twin.wants)
            # The first start may go on for a while: it is the log that stops it.
            tasks.append(twin)
            queue.append(TaskStarted(twin.number, twin.start))
        for task in chance.sample(tasks, len(tasks)):
            if not task.stopped:
                queue.extend(task.says(log, chance))
        # The log takes what comes in any order between tasks; all read it in that one.
        while queue and chance.random() < 0.8:
            event = queue.pop(0)
            turns, effects = turns.handle(event)
            for effect in effects:
                if isinstance(effect, Granted):
                    number = next(task.number for task in tasks if task.start == effect.start)
                    granted_of.setdefault(number, set()).add(effect.start)
                for task in tasks:
                    task.hears(effect)
        if not queue and all(task.stopped or not any(task.wants.values()) for task in tasks):
            break
    else:
        raise AssertionError("somebody waits for ever")
    assert all(len(starts) == 1 for starts in granted_of.values())
    if turns.state is TurnsState.OPEN:
        written = {(start, where): 0 for start, wanted in amounts.items() for where in wanted}
        for where, records in log.items():
            assert [sequence for _, sequence in records] == list(range(len(records)))
            for name, _ in records:
                written[name, where] += 1
        for task in tasks:
            for where, amount in amounts[task.start].items():
                assert written[task.start, where] == (0 if task.stopped else amount)
    else:
        assert started_again
