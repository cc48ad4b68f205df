"""What a campaign plays: at random, at crash points, at steps, in pairs, and varied from what reached something new.

Owns: the plans of each campaign, the corpus.
Does not know: who plays them, and how a history is judged.
Invariant: a campaign's plans depend on its arguments and on what it learns alone.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from pyspark_kafka_eos import crash_points
from tests.simulation import faults
from tests.simulation.aimed import AIM, AIMED
from tests.simulation.brief import brief, plain
from tests.simulation.coverage import Lead
from tests.simulation.dense import BATCHES, dense
from tests.simulation.history import STEP, TIME, History, Strike, drawn_kinds
from tests.simulation.play import play

WORKERS = " with workers"
"""End of the name of a storm over a job whose batches begin in one process and are committed in another, and both are
kept.
"""

SMALL_LEDGER = " with a small ledger"
"""End of the name of a storm over a job whose decisions are larger than a record of the ledger."""

VICTIMS = ("kill driver", "kill executor", "kill broker")
ROUND_DECISION = crash_points.DRIVER_POINTS
ROUND_MENDING = (
    crash_points.REPAIR_POINTS + crash_points.MENDING_POINTS + crash_points.SETTLING_POINTS + crash_points.END_POINTS
)
ALL_POINTS = tuple(
    dict.fromkeys(
        crash_points.TASK_POINTS
        + crash_points.BATCH_TASK_POINTS
        + crash_points.BATCH_DRIVER_POINTS
        + crash_points.HANDOVER_POINTS
        + ROUND_DECISION
        + ROUND_MENDING
    )
)


def varied(seed: int) -> tuple[str, int]:
    """Scope and transaction version of a seed: every pair in turn."""
    return ("task", "batch")[seed % 2], (2, 1)[seed // 2 % 2]


@dataclass(frozen=True)
class Plan:
    """What one process plays: a list of strikes, or with `storm`, a name of `storms()`, what that draws."""

    history: History
    storm: str = ""


def storms() -> dict[str, faults.Faults]:
    """Every way to draw strikes at random, by name."""
    return {
        "brief": brief,
        "plain": plain,
        "dense": dense,
        "brief" + WORKERS: brief,
        "dense" + WORKERS: dense,
        "brief" + SMALL_LEDGER: brief,
        "dense" + SMALL_LEDGER: dense,
        **faults.PROFILES,
        **{AIM + name: aimed.faults for name, aimed in AIMED.items()},
    }


def job_of(storm: str) -> tuple[int, str]:
    """How many batches a job has under that storm, and its name in `SHAPES`."""
    aimed = AIMED.get(storm.removeprefix(AIM))
    if aimed is not None:
        return aimed.batches, aimed.job
    job = "workers kept" if storm.endswith(WORKERS) else "small ledger" if storm.endswith(SMALL_LEDGER) else ""
    batches = BATCHES if storm.startswith("dense") else 5 if job else 2
    return batches, job


class Campaign:
    """Plans, one after another, which may depend on what the earlier ones reached."""

    name = ""
    about = ""

    def __init__(self, seeds: int, first: int, storm: str = "brief") -> None:
        """`seeds`: how many histories; `first`: the first seed, from which everything is drawn."""
        self.seeds, self.first, self.storm = seeds, first, storm

    def plans(self) -> Iterator[Plan]:
        """What to play."""
        raise NotImplementedError

    def learn(self, history: History, new: set[Lead]) -> None:
        """`new`: what was reached for the first time in this campaign."""

    def _storm(self, seed: int) -> Plan:
        batches, job = job_of(self.storm)
        return Plan(History(seed, *varied(seed), batches=batches, job=job), self.storm)


class AtRandom(Campaign):
    """One storm for each seed."""

    name = "random"
    about = "a storm for each seed"

    def plans(self) -> Iterator[Plan]:
        """See `Campaign`."""
        return map(self._storm, range(self.first, self.first + self.seeds))


class AtPoints(Campaign):
    """Single faults where a process reaches a crash point, every kind at every point, for the first to the third
    time.
    """

    name = "points"
    about = "one fault of every kind at every crash point"

    def plans(self) -> Iterator[Plan]:
        """See `Campaign`."""
        chance = random.Random(self.first)
        every = list(itertools.product(ALL_POINTS, list(drawn_kinds()), (1, 2, 3), range(4)))
        chance.shuffle(every)
        # More seeds than pairs: the same pairs again with other arguments.
        for number, (point, kind, count, vary) in enumerate(itertools.islice(itertools.cycle(every), self.seeds)):
            strike = Strike(kind, point, count, chance.getrandbits(32))
            yield Plan(History(self.first + number, *varied(vary), (strike,)))


class AtSteps(Campaign):
    """Driver, task and broker killed at every n-th step of one batch."""

    name = "steps"
    about = "driver, task or broker killed once, at every n-th step of one batch"

    def plans(self) -> Iterator[Plan]:
        """See `Campaign`. The n is what makes `seeds` histories of it, 1 at the least."""
        lengths = {vary: _steps_of_a_batch(*varied(vary)) for vary in range(4)}
        every = max(1, -(-sum(lengths.values()) * len(VICTIMS) // self.seeds))
        chance = random.Random(self.first)
        for step in range(1 + self.first % every, max(lengths.values()) + 1, every):
            for vary, victim in itertools.product(lengths, VICTIMS):
                if step <= lengths[vary]:
                    strike = Strike(victim, STEP, step, chance.getrandbits(32))
                    yield Plan(History(0, *varied(vary), (strike,), batches=1))


class InPairs(Campaign):
    """Two faults: one around the decision, and one after it, around the decision of the next run or around mending."""

    name = "pairs"
    about = "two faults around the decision and around mending"

    def plans(self) -> Iterator[Plan]:
        """See `Campaign`."""
        chance = random.Random(self.first)
        kinds = list(drawn_kinds())
        for number in range(self.seeds):
            pair = [Strike(chance.choice(kinds), chance.choice(ROUND_DECISION), 1, chance.getrandbits(32))]
            if chance.random() < 0.5:
                # What waits out a time-out makes mending necessary, and then there is something to strike at.
                pair.append(_struck(chance, kinds, ROUND_MENDING, (1, 2)))
            else:
                pair.append(_struck(chance, kinds, ROUND_DECISION, (1, 2, 3)))
            if chance.random() < 0.3:
                # A broker that is down, or a link that is cut, is often the only way to mending.
                pair.append(_struck(chance, kinds, ROUND_DECISION + ROUND_MENDING, (1, 2)))
            yield Plan(History(self.first + number, *varied(number), tuple(pair)))


def _struck(chance: random.Random, kinds: list[str], points: tuple[str, ...], counts: tuple[int, ...]) -> Strike:
    return Strike(chance.choice(kinds), chance.choice(points), chance.choice(counts), chance.getrandbits(32))


class Varied(Campaign):
    """Histories that reached something new are kept, and varied: strikes left out, moved, doubled, taken from another
    one.
    """

    name = "corpus"
    about = "histories that reached a new row, varied"

    def __init__(self, seeds: int, first: int, storm: str = "brief") -> None:
        super().__init__(seeds, first, storm)
        self.corpus: list[History] = []
        self._chance = random.Random(first)

    def plans(self) -> Iterator[Plan]:
        """See `Campaign`. The first quarter is storms."""
        for number in range(self.seeds):
            if number < self.seeds // 4 or not self.corpus:
                yield self._storm(self.first + number)
            else:
                yield Plan(self._another(self.first + number))

    def learn(self, history: History, new: set[Lead]) -> None:
        """See `Campaign`."""
        if new:
            self.corpus.append(history)

    def _another(self, seed: int) -> History:
        chance = self._chance
        # The newest know the rarest rows, so every second draw is of them.
        base = chance.choice(self.corpus[-8:] if chance.random() < 0.5 else self.corpus)
        strikes = list(base.strikes)
        for _ in range(chance.choice((1, 1, 2, 4))):
            strikes = self._varied(strikes)
        # What was played before is no variation: other latencies at least.
        same = tuple(strikes) == base.strikes or chance.random() < 0.3
        return replace(base, seed=seed if same else base.seed, strikes=tuple(strikes))

    def _varied(self, strikes: list[Strike]) -> list[Strike]:
        chance, kinds = self._chance, list(drawn_kinds())
        how = chance.choice(("fewer", "moved", "other", "pointed", "joined"))
        at = chance.randrange(len(strikes)) if strikes else 0
        if how == "fewer" and len(strikes) > 1:
            size = chance.randint(1, max(1, len(strikes) // 2))
            return strikes[:at] + strikes[at + size :]
        if how == "moved" and strikes:
            moved = strikes[at]
            by = chance.expovariate(1.0) * chance.choice((-1, 1)) if moved.at == TIME else chance.choice((-1, 1))
            return [
                *strikes[:at],
                replace(moved, number=max(1 if moved.at != TIME else 0.0, moved.number + by)),
                *strikes[at + 1 :],
            ]
        if how == "other" and strikes and strikes[at].kind in drawn_kinds():
            other = replace(strikes[at], kind=chance.choice(kinds), draw=chance.getrandbits(32))
            return [*strikes[:at], other, *strikes[at + 1 :]]
        if how == "joined" and strikes:
            return strikes[:at] + list(chance.choice(self.corpus).strikes)[at:]
        return [*strikes, _struck(chance, kinds, ALL_POINTS, (1, 2, 3))]


class AtRows(Campaign):
    """Histories that were written to reach rows of the machines, all of them in turn, each with other latencies."""

    name = "rows"
    about = "faults that come together, to reach rows that chance does not reach"

    def plans(self) -> Iterator[Plan]:
        """See `Campaign`."""
        every = [
            (name, scope, version)
            for name, aimed in AIMED.items()
            for scope in aimed.scopes
            for version in aimed.versions
        ]
        for number, (name, scope, version) in enumerate(itertools.islice(itertools.cycle(every), self.seeds)):
            batches, job = job_of(AIM + name)
            yield Plan(History(self.first + number, scope, version, batches=batches, job=job), AIM + name)


def _steps_of_a_batch(scope: str, version: int) -> int:
    return play(0, scope=scope, transaction_version=version, batches=1).steps


CAMPAIGNS: dict[str, type[Campaign]] = {
    each.name: each for each in (AtRandom, AtPoints, AtSteps, InPairs, Varied, AtRows)
}
