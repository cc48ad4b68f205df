"""What strikes a history: at random moments, or once at a given step. Every fault is counted where it takes effect."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kafka_core import runtime
from tests.simulation.circumstances import CIRCUMSTANCES, LOSSES, calm
from tests.simulation.network import SimSocket
from tests.simulation.one_broker import ONE_BROKER, TAILS
from tests.simulation.play import Faults, Scene
from tests.simulation.requests import REQUEST_FAULTS, drawn
from tests.simulation.short import THIS_REQUEST, this_request

LONGEST_TROUBLE_S = 120.0
MOST_DRIVERS = 4


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


def at_point(point: str, strike: str | Strike, count: int = 1) -> Faults:
    """At the `count`-th time that a process reaches the crash point. `strike`: a name of `EVERY`, or one that is not
    drawn.
    """
    does = EVERY[strike] if isinstance(strike, str) else strike

    def schedule(scene: Scene) -> None:
        left = count

        def reached(name: str) -> None:
            nonlocal left
            if name == point and left > 0:
                left -= 1
                if left == 0:
                    does(scene)
                    # A step of its own: a process that was killed does not pass it.
                    runtime.sleep(0.0)

        scene.at_crash_points(reached)

    return schedule


def after_batch(batch: int, strike: Strike) -> Faults:
    """Between this batch and the next."""

    def schedule(scene: Scene) -> None:
        def look() -> None:
            if scene.job.done_batches > batch:
                scene.world.before_step = None
                strike(scene)

        scene.world.before_step = look

    return schedule


def random_strikes(kinds: Mapping[str, Strike], *, mixed: bool = False, one_of: Sequence[str] = ()) -> Faults:
    """Random strikes of these kinds for up to two minutes, on a network that may be slow; then it is quiet.

    `mixed`: each history has a few of the kinds, of which some strike before its first request. Kinds that strike often
    (a kill) would else hide those that need a request, a marker or a write to meet. `one_of`: each history has one of
    these.
    """

    def schedule(scene: Scene) -> None:
        world, net, chance = scene.world, scene.net, scene.world.random
        names = list(kinds)
        if mixed:
            names = chance.sample(names, chance.randint(1, 7))
            if one_of:
                names.append(chance.choice(one_of))
            for _ in range(chance.choice((0, 1, 4, 8))):
                kinds[chance.choice(names)](scene)
        net.slow = chance.choice((0.0, 0.0, 0.01, 0.03))
        over = world.now + chance.uniform(5, LONGEST_TROUBLE_S)
        every_s = chance.choice((0.05, 0.3, 2.0, 8.0))
        aimed = chance.choice((0.0, 0.05, 0.15))

        def strike() -> None:
            if world.now > over or scene.job.over:
                net.slow = 0.0
                if set(names) != set(STRIKES):
                    # A step of the broker: the histories of storms have none.
                    calm(scene)
                return
            kinds[chance.choice(names)](scene)
            world.schedule(chance.expovariate(1 / every_s), strike)

        def reached(_name: str) -> None:
            if world.now <= over and not scene.job.over and chance.random() < aimed:
                world.fired["aimed"] += 1
                kinds[chance.choice(names)](scene)
                runtime.sleep(0.0)

        world.schedule(chance.expovariate(1 / every_s), strike)
        scene.at_crash_points(reached)

    return schedule


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


def _few_zombies(scene: Scene) -> None:
    """The same, unless some go on already: a hundred drivers that all wait for one late marker would use up the steps
    of a history.
    """
    if sum(each.alive and each.name == scene.job.driver.name for each in scene.world.processes) < MOST_DRIVERS:
        _zombie(scene)


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


Strike = Callable[[Scene], None]

STRIKES: dict[str, Strike] = {
    "kill driver": _kill_driver,
    "kill executor": _kill_executor,
    "kill broker": _kill_broker,
    "zombie": _zombie,
    "freeze executor": _freeze_executor,
    "cut": _cut,
    "reset": _reset,
    "clock": _clock,
}
"""The kinds of `storm`. Another one here would give every seed another history."""

WILD: dict[str, Strike] = {
    # A kind has one name in all tables: a history that is recorded finds its strikes by it.
    **{kind: strike for kind, strike in STRIKES.items() if kind != "zombie"},
    "few zombies": _few_zombies,
    **{fault: drawn(fault) for fault in REQUEST_FAULTS},
    **CIRCUMSTANCES,
    **ONE_BROKER,
}
"""Every kind that loses no record."""

LOSSY: dict[str, Strike] = {**WILD, **LOSSES, **TAILS}

EVERY: dict[str, Strike] = {**STRIKES, **LOSSY, THIS_REQUEST: this_request}

storm = random_strikes(STRIKES)
wild = random_strikes(WILD, mixed=True)
lossy = random_strikes(LOSSY, mixed=True, one_of=(*LOSSES, *TAILS))

PROFILES: dict[str, Faults] = {"storm": storm, "wild": wild, "lossy": lossy}
"""Sets of kinds from which random strikes are drawn. `lossy` also deletes records of the output."""

__all__ = [
    "EVERY",
    "PROFILES",
    "STRIKES",
    "WILD",
    "at_point",
    "killed_at",
    "lossy",
    "random_strikes",
    "storm",
    "wild",
]
