"""Every (state, event) pair of the consumer protocol's machine: which state it leads to, or that it is refused and
nothing has changed.
"""

from __future__ import annotations

from embedded_kafka.groups.machine.consumer_events import (
    AnswerBeat,
    Beat,
    ClassicJoin,
    ConsumerEffect,
    Depart,
    Expel,
    ReadOffsets,
    WriteOffsets,
)
from embedded_kafka.groups.machine.consumer_moves import MOVES, ConsumerEvent, handle
from embedded_kafka.groups.machine.consumer_value import ConsumerGroup, ConsumerGroupState
from embedded_kafka.groups.machine.events import (
    AnswerCode,
    AnswerJoin,
    AnswerLeave,
    AnswerSync,
    Close,
    Delete,
    GroupRefusal,
    Heartbeat,
    Loaded,
    Sync,
    Tick,
)
from tests.embedded_kafka.groups.machine.consumer_tools import (
    NOW,
    SESSION,
    beat,
    classic_joining,
    joining,
    moved,
    shares,
)
from tests.support.tables import CaseTests, Table

EMPTY = ConsumerGroup("g")
STABLE = moved(EMPTY, joining("a"))
RECONCILING = moved(STABLE, joining("b"))
ASSIGNING = moved(RECONCILING, Depart(NOW, "b", None, -1))
VALUES = {
    ConsumerGroupState.EMPTY: EMPTY,
    ConsumerGroupState.ASSIGNING: ASSIGNING,
    ConsumerGroupState.RECONCILING: RECONCILING,
    ConsumerGroupState.STABLE: STABLE,
    ConsumerGroupState.DEAD: moved(EMPTY, Delete(NOW)),
}
EVENTS: dict[type, ConsumerEvent] = {
    Beat: beat("a", 2),
    Depart: Depart(NOW, "a", None, -1),
    Expel: Expel(NOW, (("a", None),)),
    ClassicJoin: classic_joining("c"),
    Sync: Sync(NOW, 7, 2, "a"),
    Heartbeat: Heartbeat(NOW, 2, "a"),
    WriteOffsets: WriteOffsets("a", 2),
    ReadOffsets: ReadOffsets("a", 2),
    Tick: Tick(NOW + SESSION),
    Delete: Delete(NOW),
    Close: Close(),
    Loaded: Loaded(NOW),
}
unknown, gone, full = (
    AnswerCode(GroupRefusal.UNKNOWN_MEMBER_ID),
    AnswerBeat("a", -1),
    AnswerCode(GroupRefusal.NON_EMPTY_GROUP),
)
done = AnswerCode()
left, never = AnswerLeave((None,)), AnswerLeave((GroupRefusal.UNKNOWN_MEMBER_ID,))
no_classic = AnswerSync(7, GroupRefusal.UNKNOWN_MEMBER_ID)


def joined(epoch: int) -> AnswerJoin:
    return AnswerJoin(7, "c", None, epoch, "consumer", "range")


EXPECTED: dict[tuple[ConsumerGroupState, type], tuple[ConsumerGroupState, tuple[ConsumerEffect, ...]]] = {
    (ConsumerGroupState.EMPTY, Beat): (ConsumerGroupState.EMPTY, (unknown,)),
    (ConsumerGroupState.EMPTY, Depart): (ConsumerGroupState.EMPTY, (unknown,)),
    (ConsumerGroupState.EMPTY, Expel): (ConsumerGroupState.EMPTY, (never,)),
    (ConsumerGroupState.EMPTY, Sync): (ConsumerGroupState.EMPTY, (no_classic,)),
    (ConsumerGroupState.EMPTY, Heartbeat): (ConsumerGroupState.EMPTY, (unknown,)),
    (ConsumerGroupState.EMPTY, WriteOffsets): (ConsumerGroupState.EMPTY, (unknown,)),
    (ConsumerGroupState.EMPTY, ReadOffsets): (ConsumerGroupState.EMPTY, (unknown,)),
    (ConsumerGroupState.EMPTY, Tick): (ConsumerGroupState.EMPTY, ()),
    (ConsumerGroupState.EMPTY, Delete): (ConsumerGroupState.DEAD, (done,)),
    (ConsumerGroupState.EMPTY, Close): (ConsumerGroupState.DEAD, ()),
    (ConsumerGroupState.EMPTY, Loaded): (ConsumerGroupState.EMPTY, ()),
    # The member that is left has all of its target already.
    (ConsumerGroupState.ASSIGNING, Beat): (ConsumerGroupState.STABLE, (AnswerBeat("a", 4),)),
    (ConsumerGroupState.ASSIGNING, Depart): (ConsumerGroupState.EMPTY, (gone,)),
    (ConsumerGroupState.ASSIGNING, Expel): (ConsumerGroupState.EMPTY, (left,)),
    (ConsumerGroupState.ASSIGNING, ClassicJoin): (ConsumerGroupState.RECONCILING, (joined(5),)),
    (ConsumerGroupState.ASSIGNING, Sync): (ConsumerGroupState.ASSIGNING, (no_classic,)),
    (ConsumerGroupState.ASSIGNING, Heartbeat): (ConsumerGroupState.ASSIGNING, (unknown,)),
    (ConsumerGroupState.ASSIGNING, WriteOffsets): (ConsumerGroupState.ASSIGNING, (done,)),
    (ConsumerGroupState.ASSIGNING, ReadOffsets): (ConsumerGroupState.ASSIGNING, (done,)),
    (ConsumerGroupState.ASSIGNING, Tick): (ConsumerGroupState.EMPTY, ()),
    (ConsumerGroupState.ASSIGNING, Delete): (ConsumerGroupState.ASSIGNING, (full,)),
    (ConsumerGroupState.ASSIGNING, Close): (ConsumerGroupState.DEAD, ()),
    # It has to give two partitions back first.
    (ConsumerGroupState.RECONCILING, Beat): (ConsumerGroupState.RECONCILING, (AnswerBeat("a", 2, shares(0, 1)),)),
    (ConsumerGroupState.RECONCILING, Depart): (ConsumerGroupState.ASSIGNING, (gone,)),
    (ConsumerGroupState.RECONCILING, Expel): (ConsumerGroupState.ASSIGNING, (left,)),
    (ConsumerGroupState.RECONCILING, ClassicJoin): (ConsumerGroupState.RECONCILING, (joined(4),)),
    (ConsumerGroupState.RECONCILING, Sync): (ConsumerGroupState.RECONCILING, (no_classic,)),
    (ConsumerGroupState.RECONCILING, Heartbeat): (ConsumerGroupState.RECONCILING, (unknown,)),
    (ConsumerGroupState.RECONCILING, WriteOffsets): (ConsumerGroupState.RECONCILING, (done,)),
    (ConsumerGroupState.RECONCILING, ReadOffsets): (ConsumerGroupState.RECONCILING, (done,)),
    (ConsumerGroupState.RECONCILING, Tick): (ConsumerGroupState.EMPTY, ()),
    (ConsumerGroupState.RECONCILING, Delete): (ConsumerGroupState.RECONCILING, (full,)),
    (ConsumerGroupState.RECONCILING, Close): (ConsumerGroupState.DEAD, ()),
    (ConsumerGroupState.STABLE, Beat): (ConsumerGroupState.STABLE, (AnswerBeat("a", 2),)),
    (ConsumerGroupState.STABLE, Depart): (ConsumerGroupState.EMPTY, (gone,)),
    (ConsumerGroupState.STABLE, Expel): (ConsumerGroupState.EMPTY, (left,)),
    (ConsumerGroupState.STABLE, ClassicJoin): (ConsumerGroupState.RECONCILING, (joined(3),)),
    (ConsumerGroupState.STABLE, Sync): (ConsumerGroupState.STABLE, (no_classic,)),
    (ConsumerGroupState.STABLE, Heartbeat): (ConsumerGroupState.STABLE, (unknown,)),
    (ConsumerGroupState.STABLE, WriteOffsets): (ConsumerGroupState.STABLE, (done,)),
    (ConsumerGroupState.STABLE, ReadOffsets): (ConsumerGroupState.STABLE, (done,)),
    (ConsumerGroupState.STABLE, Tick): (ConsumerGroupState.EMPTY, ()),
    (ConsumerGroupState.STABLE, Delete): (ConsumerGroupState.STABLE, (full,)),
    (ConsumerGroupState.STABLE, Close): (ConsumerGroupState.DEAD, ()),
}


class TestTheTable(CaseTests):
    """Of a group of the consumer protocol."""

    table = Table(
        "consumer group",
        MOVES,
        ConsumerGroupState,
        ConsumerEvent,
        EVENTS,
        VALUES,
        {pair: [(VALUES[pair[0]], EVENTS[pair[1]], *leads)] for pair, leads in EXPECTED.items()},
        handle,
    )


def test_the_states_have_the_names_that_kafkas_tools_show() -> None:
    assert [state.kafka_name for state in ConsumerGroupState] == ["Empty", "Assigning", "Reconciling", "Stable", "Dead"]
