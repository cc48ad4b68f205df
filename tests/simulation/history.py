"""A history as data: a seed and a list of what strikes, which can be played again, shortened and varied.

Owns: recording what a storm does, playing a list of strikes without any storm.
Does not know: what a strike does; any that is registered in `faults.STRIKES` can be recorded and played.
Invariants:
- A strike draws its arguments from its own number (`Strike.draw`), and the storm from a source of its own, so both
  leave the latencies as they are. The list that was recorded plays the same trace as the storm, and a list that lacks a
  strike differs by what that strike did. A storm that is recorded takes `scene.world.random` once, when it is called.
- A strike that another strike carries out is a part of that one, and is not in the list.
"""

from __future__ import annotations

import itertools
import json
import random
import shlex
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kafka_core import runtime
from tests.simulation import faults
from tests.simulation.network import SLOW_S
from tests.simulation.play import Faults, Outcome, Scene, play

SLOW = "slow message"
"""The one kind that is no strike of `faults.STRIKES`: the network draws it for each message."""

CALM = "calm"
"""What heals everything when a storm is over, where `faults` has such a thing."""

TIME, STEP, MESSAGE, REQUEST = "time", "step", "message", "request"
"""When a strike happens, if not at a crash point: at a second of the world, at the n-th step of the job, to the n-th
message, where the n-th request is sent to the broker.
"""


@dataclass(frozen=True)
class Strike:
    """One fault. `at`: TIME, STEP, MESSAGE, or the name of a crash point, which is reached for the `number`-th time by
    any process. `draw`: where its arguments come from. `told`: what it did where it was recorded, in words.
    """

    kind: str
    at: str
    number: float
    draw: int = 0
    told: str = field(default="", compare=False)

    def __str__(self) -> str:
        when = {
            TIME: f"{self.number:.6f} s",
            STEP: f"step {self.number:.0f}",
            MESSAGE: f"message {self.number:.0f}",
            REQUEST: f"request {self.number:.0f}",
        }
        told = f": {self.told}" if self.told else ""
        return f"{when.get(self.at, f'{self.at} ({self.number:.0f}.)')}  {self.kind}{told}"


@dataclass(frozen=True)
class History:
    """What is played: the seed of the latencies, the job's settings, and what strikes. `job`: a name of `SHAPES`."""

    seed: int
    scope: str
    transaction_version: int
    strikes: tuple[Strike, ...] = ()
    batches: int = 2
    job: str = ""

    def text(self) -> str:
        """As JSON, in one line. `parse` reads it."""
        return json.dumps(
            {
                "seed": self.seed,
                "scope": self.scope,
                "version": self.transaction_version,
                "batches": self.batches,
                **({"job": self.job} if self.job else {}),
                "strikes": [[each.kind, each.at, each.number, each.draw] for each in self.strikes],
            }
        )

    @staticmethod
    def parse(text: str) -> History:
        """From `text`'s JSON. ValueError, KeyError or TypeError where it is none."""
        read = json.loads(text)
        strikes = tuple(Strike(*each) for each in read["strikes"])
        return History(read["seed"], read["scope"], read["version"], strikes, read["batches"], read.get("job", ""))

    @property
    def command(self) -> str:
        """What plays it again and shows its story."""
        return f"python -m tests.simulation --history {shlex.quote(self.text())}"

    def with_strikes(self, strikes: Iterable[Strike]) -> History:
        """The same with other strikes."""
        return replace(self, strikes=tuple(strikes))


def play_history(history: History, **more: Any) -> Outcome:
    """Play the list. `more`: see `play`."""
    return play(
        history.seed,
        scripted(history.strikes),
        scope=history.scope,
        transaction_version=history.transaction_version,
        batches=history.batches,
        job=history.job,
        **more,
    )


def play_recorded(
    seed: int, storm: Faults, *, scope: str, transaction_version: int, batches: int = 2, job: str = ""
) -> tuple[Outcome, History]:
    """Play a storm. Its history plays the same trace again."""
    strikes: list[Strike] = []
    outcome = play(
        seed,
        recorded(storm, strikes),
        scope=scope,
        transaction_version=transaction_version,
        batches=batches,
        job=job,
    )
    return outcome, History(seed, scope, transaction_version, tuple(strikes), batches, job)


# ---- recording


def recorded(storm: Faults, strikes: list[Strike]) -> Faults:
    """`storm`, and every strike that it makes is appended to `strikes`. For a world whose latencies are drawn apart."""

    def schedule(scene: Scene) -> None:
        scene.job.patient = True
        known = _known()
        chance = random.Random(scene.world.seed ^ 0x57041)
        points: dict[object, tuple[str, int]] = {}
        striking = False

        def noted(kind: str, strike: Callable[[Scene], None]) -> Callable[[Scene], None]:
            def carry_out(at: Scene) -> None:
                nonlocal striking
                if striking:
                    strike(at)
                    return
                striking = True
                draw = chance.getrandbits(32)
                where, number = points.get(at.world.thread, (TIME, at.world.now))
                try:
                    told = _carried_out(at, strike, draw)
                finally:
                    striking = False
                strikes.append(Strike(kind, where, number, draw, told))

            return carry_out

        for table in registries():
            scene.stack.callback(table.update, dict(table))
            table.update({kind: noted(kind, strike) for kind, strike in table.items()})
        if CALM in known:
            scene.stack.callback(setattr, faults, "calm", known[CALM])
            faults.calm = noted(CALM, known[CALM])
        messages = 0

        def delay(drawn: float) -> float:
            nonlocal messages
            messages += 1
            if drawn >= scene.net.slow:
                return 0.0
            choice = scene.net.how_slow(drawn / scene.net.slow)
            strikes.append(Strike(SLOW, MESSAGE, messages, choice, f"{SLOW_S[choice]} s"))
            return SLOW_S[choice]

        scene.net.delay = delay
        before, scene.world.random = scene.world.random, chance
        storm(_Recorded(scene, points))
        scene.world.random = before

    return schedule


def registries() -> list[dict[str, Callable[[Scene], None]]]:
    """Every table of strikes that `faults` has: a storm may draw from any."""
    return [each for each in vars(faults).values() if isinstance(each, dict) and "kill driver" in each]


def drawn_kinds() -> dict[str, Callable[[Scene], None]]:
    """The strikes that a campaign draws: all that lose no record."""
    return getattr(faults, "WILD", faults.STRIKES)


def _known() -> dict[str, Callable[[Scene], None]]:
    healing = {CALM: faults.calm} if hasattr(faults, "calm") else {}
    return {kind: strike for table in registries() for kind, strike in table.items()} | healing


class _Recorded(Scene):
    """The scene of a storm that is recorded: it notes which point a thread has reached or which request it sends, and
    how many there were.
    """

    def __init__(self, scene: Scene, points: dict[object, tuple[str, int]]) -> None:
        super().__init__(**vars(scene))
        self._points = points
        self._times: Counter[str] = Counter()

    def at_crash_points(self, reached: Callable[[str], None]) -> None:
        """See `Scene`."""

        def counted(name: str) -> None:
            self._times[name] += 1
            thread = self.world.thread
            self._points[thread] = (name, self._times[name])
            try:
                reached(name)
            finally:
                self._points.pop(thread, None)

        super().at_crash_points(counted)

    def at_requests(self, sent: Callable[[], None]) -> None:
        """See `Scene`."""

        def counted() -> None:
            self._times[REQUEST] += 1
            thread = self.world.thread
            before = self._points.get(thread)
            self._points[thread] = (REQUEST, self._times[REQUEST])
            try:
                sent()
            finally:
                self._points.pop(thread)
                if before is not None:
                    self._points[thread] = before

        super().at_requests(counted)


def _carried_out(scene: Scene, strike: Callable[[Scene], None], draw: int) -> str:
    """Strike with arguments drawn from `draw`; what it did, in words, empty where nothing was noted."""
    world = scene.world
    known, before = len(world.story), world.random
    world.random = random.Random(draw)
    try:
        strike(scene)
    finally:
        world.random = before
    return ", ".join(" ".join(map(str, what)) for _, what in world.story[known:])


# ---- playing


def scripted(strikes: Iterable[Strike]) -> Faults:
    """Exactly these strikes. KeyError where one is of a kind that is not registered."""
    listed = list(strikes)

    def schedule(scene: Scene) -> None:
        scene.job.patient = True
        known = _known()

        def now(strike: Strike) -> None:
            _carried_out(scene, known[strike.kind], strike.draw)

        for strike in listed:
            if strike.at == TIME:
                scene.world.at(max(scene.world.now, strike.number), lambda strike=strike: now(strike))  # type: ignore[misc]
        _at_steps(scene, [each for each in listed if each.at == STEP], now)
        _at_points(scene, [each for each in listed if each.at not in (TIME, STEP, MESSAGE, REQUEST)], now)
        _at_requests(scene, {int(each.number): each for each in listed if each.at == REQUEST}, now)
        _to_messages(scene, {int(each.number): SLOW_S[each.draw] for each in listed if each.at == MESSAGE})

    return schedule


def _at_steps(scene: Scene, strikes: list[Strike], now: Callable[[Strike], None]) -> None:
    world = scene.world
    left = sorted(strikes, key=lambda each: each.number)
    first, beside = world.steps, world.before_step
    if not left:
        return

    def before() -> None:
        if beside is not None:
            beside()
        while left and world.steps >= first + left[0].number:
            now(left.pop(0))
        if not left:
            world.before_step = beside

    world.before_step = before


def _at_points(scene: Scene, strikes: list[Strike], now: Callable[[Strike], None]) -> None:
    wanted: defaultdict[tuple[str, int], list[Strike]] = defaultdict(list)
    for strike in strikes:
        wanted[strike.at, int(strike.number)].append(strike)
    times: Counter[str] = Counter()

    def reached(name: str) -> None:
        times[name] += 1
        for strike in wanted.get((name, times[name]), ()):
            now(strike)
            # A step of its own: a process that was killed does not pass it.
            runtime.sleep(0.0)

    if wanted:
        scene.at_crash_points(reached)


def _at_requests(scene: Scene, strikes: Mapping[int, Strike], now: Callable[[Strike], None]) -> None:
    requests = itertools.count(1)

    def sent() -> None:
        strike = strikes.get(next(requests))
        if strike is not None:
            now(strike)

    if strikes:
        scene.at_requests(sent)


def _to_messages(scene: Scene, slow_s: Mapping[int, float]) -> None:
    messages = 0

    def delay(_drawn: float) -> float:
        nonlocal messages
        messages += 1
        # While the judge looks, the network is as usual.
        return 0.0 if scene.job.over else slow_s.get(messages, 0.0)

    scene.net.delay = delay
