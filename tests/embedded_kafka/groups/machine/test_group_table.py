"""Every (state, event) pair of the group machine: which state it leads to, or that it is refused and nothing has
changed.
"""

from __future__ import annotations

import pytest

from embedded_kafka.groups.machine.moves import (
    MOVES,
    Answer,
    AnswerJoin,
    AnswerLeave,
    AnswerSync,
    Close,
    CommitOffsets,
    Delete,
    Effect,
    Event,
    Group,
    Heartbeat,
    Join,
    Leave,
    Loaded,
    NotStored,
    Refusal,
    State,
    Store,
    Sync,
    Tick,
    handle,
)
from tests.support.tables import CaseTests, Table

NOW = 1_000
SESSION, REBALANCE = 10_000, 60_000
RANGE = (("range", b"topics"),)


def join(
    ticket: int, *, member_id: str = "", new_id: str = "", instance_id: str | None = None, known: bool = False
) -> Join:
    return Join(
        NOW, ticket, member_id, new_id, instance_id, "client", "/127.0.0.1", SESSION, REBALANCE, "consumer",
        RANGE, require_known_member_id=known,
    )  # fmt: skip


def moved(group: Group, *events: Event) -> Group:
    for event in events:
        group, _ = handle(group, event)
    return group


EMPTY = Group("g")
COMPLETING = moved(EMPTY, join(1, new_id="a"))
STABLE = moved(COMPLETING, Sync(NOW, 2, 1, "a", assignments=(("a", b"all"),)))
PREPARING = moved(STABLE, join(3, new_id="b"))
DEAD = moved(EMPTY, Delete(NOW))
VALUES = {
    State.EMPTY: EMPTY,
    State.PREPARING_REBALANCE: PREPARING,
    State.COMPLETING_REBALANCE: COMPLETING,
    State.STABLE: STABLE,
    State.DEAD: DEAD,
}

LATER = NOW + SESSION
STRANGER = join(9, member_id="nobody")
EVENTS: dict[type, Event] = {
    Join: join(9, new_id="c"),
    Sync: Sync(NOW, 9, 1, "a", assignments=(("a", b"all"),)),
    Heartbeat: Heartbeat(NOW, 1, "a"),
    Leave: Leave(NOW, (("a", None),)),
    CommitOffsets: CommitOffsets(NOW, 1, "a"),
    Tick: Tick(LATER),
    Delete: Delete(NOW),
    Close: Close(),
    Loaded: Loaded(NOW),
    NotStored: NotStored(Sync(NOW, 9, 1, "a"), Refusal.NOT_COORDINATOR, NOW),
}

joined_a = AnswerJoin(9, "c", None, 1, "consumer", "range", "c", (("c", None, b"topics"),))
unknown = Refusal.UNKNOWN_MEMBER_ID
again = Refusal.REBALANCE_IN_PROGRESS

EXPECTED: dict[tuple[State, type], tuple[State, tuple[Effect, ...]]] = {
    (State.EMPTY, Join): (State.COMPLETING_REBALANCE, (joined_a,)),
    (State.EMPTY, Sync): (State.EMPTY, (AnswerSync(9, unknown),)),
    (State.EMPTY, Heartbeat): (State.EMPTY, (Answer(unknown),)),
    (State.EMPTY, Leave): (State.EMPTY, (AnswerLeave((unknown,)),)),
    (State.EMPTY, CommitOffsets): (State.EMPTY, (Answer(unknown),)),
    (State.EMPTY, Tick): (State.EMPTY, ()),
    (State.EMPTY, Delete): (State.DEAD, (Answer(),)),
    (State.EMPTY, Close): (State.DEAD, ()),
    (State.EMPTY, Loaded): (State.EMPTY, ()),
    (State.PREPARING_REBALANCE, Join): (State.PREPARING_REBALANCE, ()),
    (State.PREPARING_REBALANCE, Sync): (State.PREPARING_REBALANCE, (AnswerSync(9, again),)),
    (State.PREPARING_REBALANCE, Heartbeat): (State.PREPARING_REBALANCE, (Answer(again),)),
    # The other member waits already, so the one that goes completes the rebalance.
    (State.PREPARING_REBALANCE, Leave): (
        State.COMPLETING_REBALANCE,
        (
            AnswerJoin(3, "b", None, 2, "consumer", "range", "b", (("b", None, b"topics"),)),
            AnswerLeave((None,)),
        ),
    ),
    (State.PREPARING_REBALANCE, CommitOffsets): (State.PREPARING_REBALANCE, (Answer(),)),
    (State.PREPARING_REBALANCE, Tick): (
        State.COMPLETING_REBALANCE,
        (AnswerJoin(3, "b", None, 2, "consumer", "range", "b", (("b", None, b"topics"),)),),
    ),
    (State.PREPARING_REBALANCE, Delete): (State.PREPARING_REBALANCE, (Answer(Refusal.NON_EMPTY_GROUP),)),
    (State.PREPARING_REBALANCE, Close): (State.DEAD, (AnswerJoin(3, "b", Refusal.NOT_COORDINATOR),)),
    (State.COMPLETING_REBALANCE, Join): (State.PREPARING_REBALANCE, ()),
    (State.COMPLETING_REBALANCE, Sync): (
        State.STABLE,
        (Store(required=True), AnswerSync(9, None, "consumer", "range", b"all")),
    ),
    (State.COMPLETING_REBALANCE, Heartbeat): (State.COMPLETING_REBALANCE, (Answer(),)),
    (State.COMPLETING_REBALANCE, Leave): (State.EMPTY, (Store(required=False), AnswerLeave((None,)))),
    (State.COMPLETING_REBALANCE, CommitOffsets): (State.COMPLETING_REBALANCE, (Answer(again),)),
    (State.COMPLETING_REBALANCE, Tick): (State.EMPTY, (Store(required=False),)),
    (State.COMPLETING_REBALANCE, Delete): (State.COMPLETING_REBALANCE, (Answer(Refusal.NON_EMPTY_GROUP),)),
    (State.COMPLETING_REBALANCE, Close): (State.DEAD, ()),
    (State.COMPLETING_REBALANCE, NotStored): (
        State.PREPARING_REBALANCE,
        (AnswerSync(9, Refusal.NOT_COORDINATOR),),
    ),
    (State.STABLE, Join): (State.PREPARING_REBALANCE, ()),
    (State.STABLE, Sync): (State.STABLE, (AnswerSync(9, None, "consumer", "range", b"all"),)),
    (State.STABLE, Heartbeat): (State.STABLE, (Answer(),)),
    (State.STABLE, Leave): (State.EMPTY, (Store(required=False), AnswerLeave((None,)))),
    (State.STABLE, CommitOffsets): (State.STABLE, (Answer(),)),
    (State.STABLE, Tick): (State.EMPTY, (Store(required=False),)),
    (State.STABLE, Delete): (State.STABLE, (Answer(Refusal.NON_EMPTY_GROUP),)),
    (State.STABLE, Close): (State.DEAD, ()),
    (State.STABLE, Loaded): (State.STABLE, ()),
    (State.STABLE, NotStored): (State.STABLE, (AnswerJoin(9, "", Refusal.NOT_COORDINATOR),)),
}

CHOSEN: dict[tuple[State, type], Event] = {
    (State.STABLE, NotStored): NotStored(join(9, new_id="x", instance_id="i"), Refusal.NOT_COORDINATOR, NOW)
}
"""Where the event of a pair is another one than everywhere."""


class TestTheTable(CaseTests):
    """Of a group."""

    table = Table(
        "group",
        MOVES,
        State,
        Event,
        EVENTS,
        VALUES,
        {pair: [(VALUES[pair[0]], CHOSEN.get(pair, EVENTS[pair[1]]), *leads)] for pair, leads in EXPECTED.items()},
        handle,
    )


@pytest.mark.parametrize("state", [state for state in State if state is not State.DEAD])
def test_a_member_that_the_group_does_not_know_is_refused_in_every_state_and_nothing_has_changed(
    state: State,
) -> None:
    value = VALUES[state]
    for event, answer in [
        (STRANGER, AnswerJoin(9, "nobody", unknown)),
        (Sync(NOW, 9, 1, "nobody"), AnswerSync(9, unknown)),
        (Heartbeat(NOW, 1, "nobody"), Answer(unknown)),
        (CommitOffsets(NOW, 1, "nobody"), Answer(unknown)),
        (Leave(NOW, (("nobody", None),)), AnswerLeave((unknown,))),
    ]:
        assert handle(value, event) == (value, (answer,))


def test_the_states_have_the_names_that_kafkas_tools_show() -> None:
    assert [state.kafka_name for state in State] == [
        "Empty",
        "PreparingRebalance",
        "CompletingRebalance",
        "Stable",
        "Dead",
    ]
