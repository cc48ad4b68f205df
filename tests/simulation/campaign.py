"""Many histories on several processes: what they reached, and what went wrong.

Owns: the processes, the totals.
Does not know: what a strike does, how a history is judged, how a table is written (`report.py`).
Invariants:
- A campaign's plans depend on its arguments alone, and not on how many processes play them or how fast. Only `seconds`
  ends it early.
- Every history that goes wrong is kept as data.
"""

from __future__ import annotations

import itertools
import logging
import multiprocessing
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from kafka_core import table
from tests.simulation import coverage
from tests.simulation.coverage import Lead
from tests.simulation.history import (
    CALM,
    History,
    play_history,
    play_recorded,
)
from tests.simulation.plans import Campaign, Plan, storms
from tests.simulation.play import Outcome
from tests.simulation.shrink import problem_class, shrink
from tests.simulation.world import PARTS

AT_ONCE = 4
"""Plans that a process takes at a time: handing over one costs less than a hundredth of playing it."""

AHEAD = 6
"""How many times `AT_ONCE` plans are handed out before the first answer is learnt from. Two processes need two; what
the corpus draws next depends on this number, so it is fixed.
"""


@dataclass(frozen=True)
class Played:
    """A plan's outcome. `history` has the strikes that were made; `leads` counts the machines' moves; `cpu_s`:
    seconds.
    """

    history: History
    outcome: Outcome
    leads: Counter[Lead]
    cpu_s: float


# ---- in each process

_process = ExitStack()
_leads: Counter[Lead] = Counter()


def prepare() -> None:
    """Make this process one that plays: the machines are held to their rows and counted, nothing is logged."""
    global _leads
    logging.disable(logging.CRITICAL)
    table.checked = True
    _process.close()
    _leads = _process.enter_context(coverage.noted())


@contextmanager
def prepared() -> Iterator[None]:
    """The same for as long as it lasts: tests go on in this process, and some of them read logs."""
    silenced, checked = logging.root.manager.disable, table.checked
    prepare()
    try:
        yield
    finally:
        _process.close()
        logging.disable(silenced)
        table.checked = checked


def play_plan(plan: Plan) -> Played:
    """Play it in a process that is prepared."""
    _leads.clear()
    history, began = plan.history, time.process_time()
    if plan.storm:
        outcome, history = play_recorded(
            history.seed,
            storms()[plan.storm],
            scope=history.scope,
            transaction_version=history.transaction_version,
            batches=history.batches,
            job=history.job,
        )
    else:
        outcome = play_history(history)
    return Played(history, outcome, Counter(_leads), time.process_time() - began)


def _play_plans(plans: list[Plan]) -> list[Played]:
    return [play_plan(plan) for plan in plans]


# ---- playing it


@dataclass
class Totals:
    """What a campaign came to. `wall_s`, `cpu_s`, `virtual_s`: seconds; `left_out`: histories that were not played
    because the time was over; `bad`: those that went wrong, with the problems.
    """

    name: str
    about: str
    storm: str = ""
    first: int = 0
    seeds: int = 0
    left_out: int = 0
    steps: int = 0
    runs: int = 0
    repaired: int = 0
    wall_s: float = 0.0
    cpu_s: float = 0.0
    virtual_s: float = 0.0
    fired: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    leads: Counter[Lead] = field(default_factory=Counter)
    kept: int = 0
    bad: list[Played] = field(default_factory=list)
    mended: list[Played] = field(default_factory=list)
    """What went wrong when it was played first and does so no more: see `look_again`."""

    def add(self, played: Played) -> None:
        """Count one."""
        outcome = played.outcome
        self.seeds += 1
        self.steps += outcome.steps
        self.runs += outcome.runs
        self.repaired += outcome.repaired
        self.cpu_s += played.cpu_s
        self.virtual_s += outcome.seconds
        self.fired.update({kind: times for kind, times in outcome.fired.items() if kind not in PARTS})
        self.errors.update(error.split(":")[0] for error in outcome.errors)
        self.leads.update(played.leads)
        if outcome.problems:
            self.bad.append(played)


def look_again(totals: Totals) -> None:
    """Play again what went wrong. Product and judge may have been mended since."""
    with prepared():
        for each in list(totals.bad):
            if not play_history(each.history).problems:
                totals.bad.remove(each)
                totals.mended.append(each)


def carry_out(
    campaign: Campaign,
    *,
    jobs: int = 1,
    seconds: float = float("inf"),
    faults: float = float("inf"),
    totals: Totals | None = None,
) -> Iterator[tuple[Totals, Played]]:
    """Play it; gives the totals after each history. After `seconds` of wall time the rest is left out and counted; with
    so many `faults` it is over. `totals`: of the first seeds, which are not played again.
    """
    totals = totals or Totals(campaign.name, campaign.about, campaign.storm, campaign.first)
    began = time.monotonic() - totals.wall_s
    last = time.monotonic() + seconds
    played_ones = _in_order(itertools.islice(campaign.plans(), totals.seeds, None), jobs)
    for played in played_ones:
        new = set(played.leads) - set(totals.leads)
        totals.add(played)
        campaign.learn(played.history, new)
        totals.kept += bool(new)
        totals.wall_s = time.monotonic() - began
        enough = sum(totals.fired.values()) >= faults
        if enough:
            played_ones.close()
        elif time.monotonic() > last:
            totals.left_out = max(0, campaign.seeds - totals.seeds)
            played_ones.close()
        yield totals, played


def _in_order(plans: Iterable[Plan], jobs: int) -> Iterator[Played]:
    plans = iter(plans)
    if jobs == 1:
        with prepared():
            yield from _in_one_process(plans)
        return
    waiting: deque[Future[list[Played]]] = deque()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, context, initializer=prepare) as pool:
        try:
            while True:
                while len(waiting) < AHEAD and (some := list(itertools.islice(plans, AT_ONCE))):
                    waiting.append(pool.submit(_play_plans, some))
                if not waiting:
                    return
                yield from waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


def _in_one_process(plans: Iterator[Plan]) -> Iterator[Played]:
    # As far ahead as with several processes, so that the corpus draws the same.
    waiting: deque[list[Plan]] = deque()
    while True:
        while len(waiting) < AHEAD and (some := list(itertools.islice(plans, AT_ONCE))):
            waiting.append(some)
        if not waiting:
            return
        yield from _play_plans(waiting.popleft())


def shortened(played: Played) -> tuple[History, int]:
    """The shortest list of strikes that goes wrong in the same way, and how many plays that took."""
    wanted = problem_class(played.outcome.problems)

    def fails(strikes: object) -> bool:
        shorter = played.history.with_strikes([*strikes, *healing])  # type: ignore[misc]
        return problem_class(play_history(shorter).problems) == wanted

    # Without it a fault would last for ever, which is another history.
    healing = [each for each in played.history.strikes if each.kind == CALM]
    strikes, plays = shrink([each for each in played.history.strikes if each.kind != CALM], fails)
    return played.history.with_strikes([*strikes, *healing]), plays
