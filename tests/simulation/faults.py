"""What strikes a history: at random moments, or once at a given step. Every fault is counted where it takes effect."""

from __future__ import annotations

from collections.abc import Callable

from connector import runtime
from tests.simulation.network import SimSocket
from tests.simulation.play import Faults, Scene

LONGEST_TROUBLE_S = 120.0


def killed_at(step: int, victim: str) -> Faults:
    """`victim` ("driver", "executor0", "broker") is killed once, at that step of the job."""

    def schedule(scene: Scene) -> None:
        world = scene.world
        last = world.steps + step

        def strike() -> None:
            if world.steps >= last:
                world.before_step = None
                STRIKES[f"kill {victim.rstrip('01')}"](scene)

        world.before_step = strike

    return schedule


def at_point(point: str, strike: str, count: int = 1) -> Faults:
    """At the `count`-th time that a process reaches the crash point."""

    def schedule(scene: Scene) -> None:
        left = count

        def reached(name: str) -> None:
            nonlocal left
            if name == point and left > 0:
                left -= 1
                if left == 0:
                    STRIKES[strike](scene)
                    # A step of its own: a process that was killed does not pass it.
                    runtime.sleep(0.0)

        scene.at_crash_points(reached)

    return schedule


def storm(scene: Scene) -> None:
    """Random strikes for up to two minutes, on a network that may be slow; then it is quiet."""
    world, net, chance = scene.world, scene.net, scene.world.random
    net.slow = chance.choice((0.0, 0.0, 0.01, 0.03))
    over = world.now + chance.uniform(5, LONGEST_TROUBLE_S)
    every_s = chance.choice((0.05, 0.3, 2.0, 8.0))
    aimed = chance.choice((0.0, 0.05, 0.15))

    def strike() -> None:
        if world.now > over or scene.job.over:
            net.slow = 0.0
            return
        STRIKES[chance.choice(list(STRIKES))](scene)
        world.schedule(chance.expovariate(1 / every_s), strike)

    def reached(_name: str) -> None:
        if world.now <= over and not scene.job.over and chance.random() < aimed:
            world.fired["aimed"] += 1
            STRIKES[chance.choice(list(STRIKES))](scene)
            runtime.sleep(0.0)

    world.schedule(chance.expovariate(1 / every_s), strike)
    scene.at_crash_points(reached)


# ---- single strikes


def _kill_driver(scene: Scene) -> None:
    scene.world.kill(scene.job.driver)


def _kill_executor(scene: Scene) -> None:
    scene.world.kill(scene.world.random.choice(scene.job.executors))


def _kill_broker(scene: Scene) -> None:
    if scene.broker.up:
        scene.broker.kill()
        scene.world.schedule(scene.world.random.choice((0.05, 1.0, 30.0)), scene.broker.start)


def _zombie(scene: Scene) -> None:
    """The driver freezes, another one is started, and the first goes on."""
    if scene.job.driver.alive:
        scene.world.fired["zombie"] += 1
        scene.job.abandon_driver(scene.world.random.choice((0.1, 1.0, 5.0, 30.0, 70.0)))


def _freeze_executor(scene: Scene) -> None:
    executor = scene.world.random.choice(scene.job.executors)
    if executor.alive:
        scene.world.freeze(executor, scene.world.random.choice((0.1, 1.0, 5.0, 30.0)))


def _cut(scene: Scene) -> None:
    chance = scene.world.random
    side = chance.choice(("driver", "executor0", "executor1", "*"))
    seconds = chance.choice((0.5, 3.0, 40.0, 75.0))
    way = chance.choice(("both", "to", "from"))
    if way in ("both", "to"):
        scene.net.cut(side, "broker", seconds)
    if way in ("both", "from"):
        scene.net.cut("broker", side, seconds)


def _reset(scene: Scene) -> None:
    """A box in between drops every connection of the driver."""
    ends = [each for each in scene.net.sockets.values() if isinstance(each, SimSocket)]
    for each in [each for each in ends if each.process is scene.job.driver]:
        scene.world.fired["reset"] += 1
        each.reset()


def _clock(scene: Scene) -> None:
    """The clock of the driver's machine jumps."""
    scene.world.fired["clock"] += 1
    scene.job.driver.clock_offset_ns += scene.world.random.choice((-3600, -5, 5, 3600)) * 10**9


STRIKES: dict[str, Callable[[Scene], None]] = {
    "kill driver": _kill_driver,
    "kill executor": _kill_executor,
    "kill broker": _kill_broker,
    "zombie": _zombie,
    "freeze executor": _freeze_executor,
    "cut": _cut,
    "reset": _reset,
    "clock": _clock,
}

__all__ = ["STRIKES", "at_point", "killed_at", "storm"]
