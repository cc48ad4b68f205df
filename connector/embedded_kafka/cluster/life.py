"""The life of one broker of the cluster: a table of what may happen to it.

Owns: the states of a broker, and every move between them.
Does not know: sockets, elections, time.
Invariants: a broker that is frozen or cut off was up before, and is up or down afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from kafka_core import table
from kafka_core.table import Move


class BrokerState(Enum):
    """How a broker is."""

    DOWN = "down"
    UP = "up"
    FROZEN = "frozen"
    CUT_OFF = "cut off"


class Started:
    """Its process began, and listens."""


class Killed:
    """Its process ended."""


class Froze:
    """It was stopped as by SIGSTOP."""


class Thawed:
    """It goes on, as after SIGCONT."""


class CutOff:
    """The controller cannot reach it any more."""


class Rejoined:
    """The controller reaches it again."""


Event = Started | Killed | Froze | Thawed | CutOff | Rejoined


@dataclass(frozen=True)
class Life:
    """One broker's state."""

    state: BrokerState = BrokerState.DOWN

    def handle(self, event: Event) -> tuple[Life, tuple[Any, ...]]:
        """The next value. IllegalMove where this cannot happen to a broker in this state."""
        return table.step(MOVES, self, event, "broker")


def on_started(_life: Life, _event: Started) -> tuple[Life, tuple[Any, ...]]:
    """It answers, and knows the cluster as it is."""
    return Life(BrokerState.UP), ()


def on_killed(_life: Life, _event: Killed) -> tuple[Life, tuple[Any, ...]]:
    """Its connections break, and new ones are refused. Its coordinators' memory is gone."""
    return Life(BrokerState.DOWN), ()


def on_froze(_life: Life, _event: Froze) -> tuple[Life, tuple[Any, ...]]:
    """It accepts and keeps connections, and answers nothing."""
    return Life(BrokerState.FROZEN), ()


def on_thawed(_life: Life, _event: Thawed) -> tuple[Life, tuple[Any, ...]]:
    """It processes what has arrived, as the cluster is now."""
    return Life(BrokerState.UP), ()


def on_cut_off(_life: Life, _event: CutOff) -> tuple[Life, tuple[Any, ...]]:
    """It answers its clients, and knows the cluster as it was."""
    return Life(BrokerState.CUT_OFF), ()


def on_rejoined(_life: Life, _event: Rejoined) -> tuple[Life, tuple[Any, ...]]:
    """It learns what has changed, and drops what it did alone."""
    return Life(BrokerState.UP), ()


MOVES: table.Moves[BrokerState] = {
    (BrokerState.DOWN, Started): Move(on_started, BrokerState.UP),
    (BrokerState.UP, Killed): Move(on_killed, BrokerState.DOWN),
    (BrokerState.UP, Froze): Move(on_froze, BrokerState.FROZEN),
    (BrokerState.UP, CutOff): Move(on_cut_off, BrokerState.CUT_OFF),
    (BrokerState.FROZEN, Killed): Move(on_killed, BrokerState.DOWN),
    (BrokerState.FROZEN, Thawed): Move(on_thawed, BrokerState.UP),
    (BrokerState.CUT_OFF, Killed): Move(on_killed, BrokerState.DOWN),
    (BrokerState.CUT_OFF, Rejoined): Move(on_rejoined, BrokerState.UP),
}
"""(state, class of event) -> what happens."""
