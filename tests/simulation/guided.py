"""A history that follows a trace of the model: drivers wait at their crash points for their turn, faults strike where
it has them.

Owns: the turns, and how much of a plan was followed.
Does not know: TLC; what a plan means in the model (`traces`).

What is exact: the order in which drivers go on behind their crash points, and which fault is set before which step.
What is not: steps of the model between two crash points, and a driver that takes another way than the model's run waits
for its turn for `_PATIENCE_S` at most and then goes on.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence

from kafka_core import runtime
from tests.simulation.circumstances import LEDGER, calm, forget_marker, long_rest
from tests.simulation.play import OUTPUT, Outcome, Scene, play
from tests.simulation.requests import REQUEST_FAULTS, USUAL
from tests.simulation.traces import kept
from tests.simulation.world import Process
from tools.model import configuration_of

_PATIENCE_S = 3.0
"""Shorter than the job's transactions may be open, even when a driver waits at several points."""

_TICK_S = 0.2
"""How long a step has before the fault behind it strikes."""

_TIMEOUT_DAYS = 0.001
"""86 s: longer than any transaction of the job may be open, shorter than anything expires."""


_BEFORE_THE_MODEL = frozenset({"before-note-began", "after-note-began"})
"""The model's drivers begin behind a pipeline's first start."""


class Guide:
    """One plan, and how far it was followed."""

    def __init__(self, plan: Sequence[Sequence[str]]) -> None:
        self.plan = [list(event) for event in plan]
        self.at = 0
        self.followed = 0
        self._drivers: list[Process] = []

    def __call__(self, scene: Scene) -> None:
        """Follow the plan in this history."""
        self._scene = scene
        self._drivers.append(scene.job.driver)
        scene.at_crash_points(self._reached)
        scene.world.schedule(_TICK_S, self._tick)

    def _tick(self) -> None:
        self._strike()
        if self.at < len(self.plan) and not self._scene.job.over:
            self._scene.world.schedule(_TICK_S, self._tick)
        else:
            self._scene.world.schedule(_PATIENCE_S, lambda: calm(self._scene))

    def _reached(self, point: str) -> None:
        me = self._scene.world.running().process
        if me.name != "driver" or point in _BEFORE_THE_MODEL:
            return
        if me not in self._drivers:
            self._drivers.append(me)
        mine = ["pass", str(self._drivers.index(me)), point]
        # What the model has behind the step that this driver has just made.
        self._strike()
        until = self._scene.world.now + _PATIENCE_S
        while mine in self.plan[self.at :] and self._scene.world.now < until:
            self._strike()
            if self.plan[self.at : self.at + 1] == [mine]:
                self.at += 1
                self.followed += 1
                self._scene.world.fired["model: pass"] += 1
                return
            runtime.sleep(_TICK_S / 4)
        if mine in self.plan[self.at :]:
            self.plan.remove(mine)
        # A step of its own: a process that was killed does not pass it.
        runtime.sleep(0.0)

    def _strike(self) -> None:
        """Carry out the events up to the next one that is a driver's."""
        while self.at < len(self.plan):
            kind, *rest = self.plan[self.at]
            if kind == "pass":
                run = int(rest[0])
                if run >= len(self._drivers) or self._drivers[run].alive:
                    return
            elif self._does(kind, rest):
                self.followed += 1
                self._scene.world.fired[f"model: {kind}"] += 1
            self.at += 1

    def _does(self, kind: str, rest: Sequence[str]) -> bool:
        scene = self._scene
        if kind == "new":
            if scene.job.driver.alive and not scene.job.over:
                scene.job.start()
                self._drivers.append(scene.job.driver)
                return True
            return False
        if kind == "crash":
            run = int(rest[0])
            alive = run < len(self._drivers) and self._drivers[run].alive
            if alive:
                scene.world.kill(self._drivers[run])
            return alive
        if kind == "timeout":
            long_rest(scene, _TIMEOUT_DAYS)
        elif kind == "forget":
            forget_marker(scene, LEDGER if rest[0] == "ledger" else OUTPUT)
        elif kind == "lose answer":
            REQUEST_FAULTS["lost answer"][0](scene, "EndTxn", 1, USUAL)
        else:
            assert kind == "late", kind
            REQUEST_FAULTS["late request"][0](scene, "EndTxn", 1, USUAL)
        return True


def follow(name: str, plan: Sequence[Sequence[str]], seed: int = 0) -> tuple[Outcome, int]:
    """Play a plan with the slots and the version of its configuration. Returns the outcome and how many events were
    followed.
    """
    guide = Guide(plan)
    many = any(part in name for part in ("-full-", "-slots-"))
    version = configuration_of(name).bound["TV"]
    outcome = play(seed, guide, transaction_version=version, slots=2 if many else 1)
    return outcome, guide.followed


def main() -> int:
    """Play every plan in the repository; fails where the judge has anything against one."""
    total = followed = 0
    wrong = []
    for name, plans in kept().items():
        for number, plan in enumerate(plans):
            outcome, events = follow(name, plan)
            total, followed = total + len(plan), followed + events
            if outcome.problems:
                wrong.append(f"{name} {number}: {outcome.problems}")
    for line in wrong:
        sys.stdout.write(f"{line}\n")
    sys.stdout.write(f"{followed} of {total} events were followed, {len(wrong)} plans were refused\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    sys.exit(main())
