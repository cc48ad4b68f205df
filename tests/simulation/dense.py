"""A storm in which every message and every request may be struck, and yet the job goes on.

Owns: how often a message or a request is struck, and what strikes on top.
Does not know: what a fault does (`short`, `faults`).

A fault that keeps a process waiting for a minute costs as much to play as a hundred that last for some milliseconds. So
nearly all faults here are short, and there are many of them in each batch: an answer is lost while another one is late
and a third request is refused. Kills, freezes, cuts and the circumstances of `faults.WILD` strike on top, a few in each
history.
"""

from __future__ import annotations

from kafka_core import runtime
from tests.simulation import faults
from tests.simulation.play import Scene
from tests.simulation.short import THIS_REQUEST

BATCHES = 12
"""Of each history: starting the broker and the first driver costs as much as three batches."""

OVER_S = 240.0
"""When the storm is over at the latest."""

SLOW_SHARES = (0.93, 0.99, 0.998, 1.0)
"""Of the slow messages most take 0.02 s, one of 500 takes 5 s."""


def dense(scene: Scene) -> None:
    """Short faults of most messages and requests, and a few strikes of `faults.WILD`."""
    world, net, chance = scene.world, scene.net, scene.world.random
    net.slow, net.slow_shares = chance.choice((0.05, 0.1, 0.2)), SLOW_SHARES
    struck = chance.choice((0.4, 0.7, 0.9))
    kinds = list(faults.WILD)
    left = chance.choice((0, 2, 4, 8, 16))
    aimed = chance.choice((0.002, 0.01))
    every_s = chance.choice((0.05, 0.3, 2.0))

    def one() -> None:
        nonlocal left
        left -= 1
        faults.WILD[chance.choice(kinds)](scene)

    def strike() -> None:
        if left > 0 and world.now < OVER_S and not scene.job.over:
            one()
            world.schedule(chance.expovariate(1 / every_s), strike)

    def reached(_name: str) -> None:
        if left > 0 and not scene.job.over and chance.random() < aimed:
            world.fired["aimed"] += 1
            one()
            # A step of its own: a process that was killed does not pass it.
            runtime.sleep(0.0)

    def sent() -> None:
        if struck and not scene.job.over and chance.random() < struck:
            faults.EVERY[THIS_REQUEST](scene)

    def quiet() -> None:
        nonlocal struck
        net.slow = struck = 0.0
        # Nothing of what a strike has set up may last for ever.
        faults.calm(scene)

    world.schedule(chance.expovariate(1 / every_s), strike)
    world.schedule(OVER_S, quiet)
    scene.at_crash_points(reached)
    scene.at_requests(sent)
