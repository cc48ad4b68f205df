"""Every (state, event) pair of the group machine: which state it leads to, or that it is refused and nothing has
changed.
"""

from __future__ import annotations

import pytest

from embedded_kafka.groups.machine.moves import (
    MOVES,
    AnswerCode,
    AnswerJoin,
    AnswerLeave,
    AnswerSync,
    Close,
    CommitOffsets,
    Delete,
    Effect,
    Event,
    Group,
    GroupRefusal,
    GroupState,
    Heartbeat,
    Join,
    Leave,
    Loaded,
    NotStored,
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
    GroupState.EMPTY: EMPTY,
    GroupState.PREPARING_REBALANCE: PREPARING,
    GroupState.COMPLETING_REBALANCE: COMPLETING,
    GroupState.STABLE: STABLE,
    GroupState.DEAD: DEAD,
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
    NotStored: NotStored(Sync(NOW, 9, 1, "a"), GroupRefusal.NOT_COORDINATOR, NOW),
}

joined_a = AnswerJoin(9, "c", None, 1, "consumer", "range", "c", (("c", None, b"topics"),))
unknown = GroupRefusal.UNKNOWN_MEMBER_ID
again = GroupRefusal.REBALANCE_IN_PROGRESS

EXPECTED: dict[tuple[GroupState, type], tuple[GroupState, tuple[Effect, ...]]] = {
    (GroupState.EMPTY, Join): (GroupState.COMPLETING_REBALANCE, (joined_a,)),
    (GroupState.EMPTY, Sync): (GroupState.EMPTY, (AnswerSync(9, unknown),)),
    (GroupState.EMPTY, Heartbeat): (GroupState.EMPTY, (AnswerCode(unknown),)),
    (GroupState.EMPTY, Leave): (GroupState.EMPTY, (AnswerLeave((unknown,)),)),
    (GroupState.EMPTY, CommitOffsets): (GroupState.EMPTY, (AnswerCode(unknown),)),
    (GroupState.EMPTY, Tick): (GroupState.EMPTY, ()),
    (GroupState.EMPTY, Delete): (GroupState.DEAD, (AnswerCode(),)),
    (GroupState.EMPTY, Close): (GroupState.DEAD, ()),
    (GroupState.EMPTY, Loaded): (GroupState.EMPTY, ()),
    (GroupState.PREPARING_REBALANCE, Join): (GroupState.PREPARING_REBALANCE, ()),
    (GroupState.PREPARING_REBALANCE, Sync): (GroupState.PREPARING_REBALANCE, (AnswerSync(9, again),)),
    (GroupState.PREPARING_REBALANCE, Heartbeat): (GroupState.PREPARING_REBALANCE, (AnswerCode(again),)),
    # The other member waits already, so the one that goes completes the rebalance.
    (GroupState.PREPARING_REBALANCE, Leave): (
        GroupState.COMPLETING_REBALANCE,
        (
            AnswerJoin(3, "b", None, 2, "consumer", "range", "b", (("b", None, b"topics"),)),
            AnswerLeave((None,)),
        ),
    ),
    (GroupState.PREPARING_REBALANCE, CommitOffsets): (GroupState.PREPARING_REBALANCE, (AnswerCode(),)),
    (GroupState.PREPARING_REBALANCE, Tick): (
        GroupState.COMPLETING_REBALANCE,
        (AnswerJoin(3, "b", None, 2, "consumer", "range", "b", (("b", None, b"topics"),)),),
    ),
    (GroupState.PREPARING_REBALANCE, Delete): (
        GroupState.PREPARING_REBALANCE,
        (AnswerCode(GroupRefusal.NON_EMPTY_GROUP),),
    ),
    (GroupState.PREPARING_REBALANCE, Close): (GroupState.DEAD, (AnswerJoin(3, "b", GroupRefusal.NOT_COORDINATOR),)),
    (GroupState.COMPLETING_REBALANCE, Join): (GroupState.PREPARING_REBALANCE, ()),
    (GroupState.COMPLETING_REBALANCE, Sync): (
        GroupState.STABLE,
        (Store(required=True), AnswerSync(9, None, "consumer", "range", b"all")),
    ),
    (GroupState.COMPLETING_REBALANCE, Heartbeat): (GroupState.COMPLETING_REBALANCE, (AnswerCode(),)),
    (GroupState.COMPLETING_REBALANCE, Leave): (GroupState.EMPTY, (Store(required=False), AnswerLeave((None,)))),
    (GroupState.COMPLETING_REBALANCE, CommitOffsets): (GroupState.COMPLETING_REBALANCE, (AnswerCode(again),)),
    (GroupState.COMPLETING_REBALANCE, Tick): (GroupState.EMPTY, (Store(required=False),)),
    (GroupState.COMPLETING_REBALANCE, Delete): (
        GroupState.COMPLETING_REBALANCE,
        (AnswerCode(GroupRefusal.NON_EMPTY_GROUP),),
    ),
    (GroupState.COMPLETING_REBALANCE, Close): (GroupState.DEAD, ()),
    (GroupState.COMPLETING_REBALANCE, NotStored): (
        GroupState.PREPARING_REBALANCE,
        (AnswerSync(9, GroupRefusal.NOT_COORDINATOR),),
    ),
    (GroupState.STABLE, Join): (GroupState.PREPARING_REBALANCE, ()),
    (GroupState.STABLE, Sync): (GroupState.STABLE, (AnswerSync(9, None, "consumer", "range", b"all"),)),
    (GroupState.STABLE, Heartbeat): (GroupState.STABLE, (AnswerCode(),)),
    (GroupState.STABLE, Leave): (GroupState.EMPTY, (Store(required=False), AnswerLeave((None,)))),
    (GroupState.STABLE, CommitOffsets): (GroupState.STABLE, (AnswerCode(),)),
    (GroupState.STABLE, Tick): (GroupState.EMPTY, (Store(required=False),)),
    (GroupState.STABLE, Delete): (GroupState.STABLE, (AnswerCode(GroupRefusal.NON_EMPTY_GROUP),)),
    (GroupState.STABLE, Close): (GroupState.DEAD, ()),
    (GroupState.STABLE, Loaded): (GroupState.STABLE, ()),
    (GroupState.STABLE, NotStored): (GroupState.STABLE, (AnswerJoin(9, "", GroupRefusal.NOT_COORDINATOR),)),
}

CHOSEN: dict[tuple[GroupState, type], Event] = {
    (GroupState.STABLE, NotStored): NotStored(join(9, new_id="x", instance_id="i"), GroupRefusal.NOT_COORDINATOR, NOW)
}
"""Where the event of a pair is another one than everywhere."""


class TestTheTable(CaseTests):
    """Of a group."""

    table = Table(
        "group",
        MOVES,
        GroupState,
        Event,
        EVENTS,
        VALUES,
        {pair: [(VALUES[pair[0]], CHOSEN.get(pair, EVENTS[pair[1]]), *leads)] for pair, leads in EXPECTED.items()},
        handle,
    )


@pytest.mark.parametrize("state", [state for state in GroupState if state is not GroupState.DEAD])
def test_a_member_that_the_group_does_not_know_is_refused_in_every_state_and_nothing_has_changed(
    state: GroupState,
) -> None:
    value = VALUES[state]
    for event, answer in [
        (STRANGER, AnswerJoin(9, "nobody", unknown)),
        (Sync(NOW, 9, 1, "nobody"), AnswerSync(9, unknown)),
        (Heartbeat(NOW, 1, "nobody"), AnswerCode(unknown)),
        (CommitOffsets(NOW, 1, "nobody"), AnswerCode(unknown)),
        (Leave(NOW, (("nobody", None),)), AnswerLeave((unknown,))),
    ]:
        assert handle(value, event) == (value, (answer,))


def test_the_states_have_the_names_that_kafkas_tools_show() -> None:
    assert [state.kafka_name for state in GroupState] == [
        "Empty",
        "PreparingRebalance",
        "CompletingRebalance",
        "Stable",
        "Dead",
    ]
