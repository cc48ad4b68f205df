"""A storm for campaigns: one to some twenty strikes, all of them while the job runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kafka_core import runtime
from tests.simulation import faults
from tests.simulation.play import Scene

JOB_S = 0.07
"""What a job of two batches takes in virtual time without faults. A first strike later than that strikes nothing."""

SLOW_FOR_S = 60.0


def brief(scene: Scene) -> None:
    """Strikes of every kind that loses no record; see `some_of`."""
    some_of(scene, faults.WILD)


def plain(scene: Scene) -> None:
    """Strikes of the kinds of `faults.storm`; see `some_of`."""
    some_of(scene, faults.STRIKES)


def some_of(scene: Scene, kinds: Mapping[str, Callable[[Scene], None]]) -> None:
    """Some strikes one after another, at random moments or where a process reaches a crash point, on a network that may
    be slow.

    `faults.storm` draws strikes for two minutes however long the job takes: about a third of its histories end before
    the first strike, and another third has hundreds of them.
    """
    world, net, chance = scene.world, scene.net, scene.world.random
    names = list(kinds)
    left = chance.choice((1, 2, 3, 5, 8, 13, 21))
    every_s = chance.choice((0.005, 0.03, 0.3, 2.0))
    aimed = chance.choice((0.0, 0.05, 0.15, 0.5))
    net.slow = chance.choice((0.0, 0.0, 0.01, 0.03))

    def one() -> None:
        nonlocal left
        left -= 1
        kinds[chance.choice(names)](scene)

    def strike() -> None:
        if left > 0 and not scene.job.over:
            one()
            if left > 0:
                world.schedule(chance.expovariate(1 / every_s), strike)

    def reached(_name: str) -> None:
        if left > 0 and not scene.job.over and chance.random() < aimed:
            world.fired["aimed"] += 1
            one()
            # A step of its own: a process that was killed does not pass it.
            runtime.sleep(0.0)

    def quiet() -> None:
        net.slow = 0.0
        # Nothing of what a strike has set up may last for ever.
        faults.calm(scene)

    world.schedule(chance.uniform(0.0, JOB_S), strike)
    world.schedule(SLOW_FOR_S, quiet)
    scene.at_crash_points(reached)
