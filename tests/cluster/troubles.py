"""What happens to the cluster: one table, a function for each trouble.

Owns: the order of steps of each trouble, which nodes it strikes.
Does not know: who writes meanwhile, what is measured.
Invariants: a trouble draws everything from the chance that it is given, so a seed plays it again; it may leave nodes
down, frozen and cut, because the stage heals the cluster behind it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from tests.cluster.brokers import BROKERS, INTERNAL, Cluster

Hold = Callable[[float], None]
"""Let seconds pass."""

_BETWEEN_NODES_S = 3.0
"""Between two nodes of a roll, for batches to come through; an operator waits until replicas are in sync, too."""


@dataclass(frozen=True)
class Scene:
    """What a trouble has in its hands. `drivers`: kills the driver of a query, any of them."""

    cluster: Cluster
    chance: random.Random
    seconds: float
    hold: Hold
    drivers: Callable[[], None]
    other: str
    """The version to which an upgrade leads, or from which it leads back."""

    def one(self) -> int:
        """A broker."""
        return self.chance.randrange(BROKERS)


@dataclass(frozen=True)
class Trouble:
    """A row of the table. `seconds`: how long the bad time is that it brings, one or several; none where it takes as
    long as it takes.
    """

    text: str
    play: Callable[[Scene], None]
    seconds: tuple[float, ...] = (0.0,)


def _kill(scene: Scene) -> None:
    scene.cluster.kill(scene.one())
    scene.hold(scene.seconds)


def _kill_controller(scene: Scene) -> None:
    scene.cluster.kill(scene.cluster.controller)
    scene.hold(scene.seconds)


def _kill_all(scene: Scene) -> None:
    for broker in range(BROKERS):
        scene.cluster.kill(broker)
    scene.hold(scene.seconds)


def _freeze(scene: Scene) -> None:
    scene.cluster.freeze(scene.one())
    scene.hold(scene.seconds)


def _freeze_all(scene: Scene) -> None:
    for broker in range(BROKERS):
        scene.cluster.freeze(broker)
    scene.hold(scene.seconds)


def _cut(scene: Scene) -> None:
    scene.cluster.to_broker[scene.one()].cut()
    scene.hold(scene.seconds)


def _cut_controller(scene: Scene) -> None:
    scene.cluster.to_controller[scene.one()].cut()
    scene.hold(scene.seconds)


def _roll(scene: Scene) -> None:
    order = list(range(BROKERS))
    scene.chance.shuffle(order)
    _roll_over(scene, order, None)


def _upgrade(scene: Scene) -> None:
    _roll_over(scene, [scene.cluster.controller, *range(BROKERS)], scene.other)


def _downgrade(scene: Scene) -> None:
    _roll_over(scene, [*range(BROKERS), scene.cluster.controller], scene.other)


def _roll_over(scene: Scene, nodes: list[int], version: str | None) -> None:
    for node in nodes:
        scene.cluster.start(node, version)
        scene.cluster.await_in_sync()
        scene.hold(_BETWEEN_NODES_S)


def _move(scene: Scene) -> None:
    scene.cluster.move_leaders([topic for topic in scene.cluster.topics() if not topic.startswith("__")])
    scene.hold(scene.seconds)


def _move_internal(scene: Scene) -> None:
    scene.cluster.move_leaders([topic for topic in scene.cluster.topics() if topic in INTERNAL])
    scene.hold(scene.seconds)


def _too_few_in_sync(scene: Scene) -> None:
    topic, name = INTERNAL[0], "min.insync.replicas"
    scene.cluster.set(topic, name, str(BROKERS))
    try:
        scene.cluster.kill(scene.one())
        scene.hold(scene.seconds)
    finally:
        scene.cluster.set(topic, name, str(BROKERS - 1))


def _driver(scene: Scene) -> None:
    scene.drivers()
    scene.hold(scene.seconds)


def _nothing(scene: Scene) -> None:
    scene.hold(scene.seconds)


TROUBLES: dict[str, Trouble] = {
    "nothing": Trouble("nothing, to compare with", _nothing, (20.0,)),
    "kill": Trouble("SIGKILL of a broker, back after {0:.0f} s", _kill, (20.0,)),
    "kill-controller": Trouble("SIGKILL of the controller, back after {0:.0f} s", _kill_controller, (20.0,)),
    "roll": Trouble("rolling restart of all three", _roll),
    "move": Trouble("leaders of source, outputs and ledger moved", _move, (5.0,)),
    "move-internal": Trouble("leaders of the internal topics moved", _move_internal, (5.0,)),
    "cut": Trouble("one broker cut from all clients for {0:.0f} s", _cut, (38.0,)),
    "cut-controller": Trouble("the controller cut from one broker, a stale leader, for {0:.0f} s", _cut_controller, (38.0,)),
    "freeze": Trouble("one broker frozen for {0:.0f} s", _freeze, (12.0, 38.0, 60.0)),
    "freeze-all": Trouble("all three frozen for {0:.0f} s", _freeze_all, (45.0,)),
    "kill-all": Trouble("all three killed, back after {0:.0f} s", _kill_all, (30.0,)),
    "too-few-in-sync": Trouble("`__transaction_state` below min.insync.replicas for {0:.0f} s", _too_few_in_sync, (60.0,)),
    "driver": Trouble("SIGKILL of a driver", _driver, (10.0,)),
    "upgrade": Trouble("rolling upgrade from {1} to {2}", _upgrade),
    "downgrade": Trouble("rolled back from {1} to {2}", _downgrade),
}  # fmt: skip

OF_VERSIONS = ("upgrade", "downgrade")
"""Played where the cluster begins with an older version."""

AT_RANDOM = ("kill", "kill-controller", "roll", "move", "move-internal", "cut", "cut-controller", "freeze")
"""After which the rest of the cluster can elect: no query may end by one of these."""

RANDOM_S = (4.0, 60.0)
"""How long a trouble drawn at random lasts: from less than a broker is missed after to twice a request's time."""
