"""From the model to the code: TLC's random traces of `TaskCommit` as plans that the simulation can follow.

Owns: having TLC draw traces, reading its states, what a difference of two states means.
Does not know: how a plan is followed (`guided`).

    python -m tests.simulation.traces --write      draws new ones into model_traces.json

A plan is a list of events in the order of the trace. `pass RUN POINT`: this run goes on behind its crash point. `new
RUN`, `crash RUN`: a run starts beside an older one, or dies. `timeout`: open transactions get too old. `forget
ledger|output`: the next commit marker there is never written. `lose answer`, `late`: of the decision's EndTxn.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from embedded_kafka.real.java import require_java
from tools.model import SOURCES, checker, configuration_of, configurations, tlc, written

KEPT = Path(__file__).parent / "model_traces.json"
CONFIGURATIONS = tuple(
    f"TaskCommit-{name}-tv{version}" for name in ("full", "slots", "late", "markers", "batches") for version in (1, 2)
)
"""Those without late attempts, processes that give up and rests that outlive ids, which a plan has no event for."""

POINTS = {
    "check": "before-check",
    "decide": "before-decision",
    "endDecision": "decision-written",
    "finish": "before-end",
    "note": "before-note-ended",
    "return": "after-note-ended",
    "mendDecision": "decision-settled",
    "endDecisionMend": "mend-added",
    "rewrite": "before-rewrite",
}
"""Where a run stands in the model (`pc`) -> the crash point that it stands at in the code."""

_DEPTH = 70
_DRAWN = 20
"""How many traces are drawn for each plan that is kept."""

_SELDOM = "  /\\ RandomElement(1..25) = 1\n"
"""Put into the model's Crash. Where TLC draws among all actions a run dies within a few steps."""


@dataclass(frozen=True)
class State:
    """What a plan needs of one state of the model."""

    places: tuple[str, ...]
    decisions: str
    driver: str
    forgotten: int
    timed_out: int
    flying: str


def plan_of(text: str) -> list[list[str]]:
    """The events of one trace, in TLC's own notation."""
    states = [_state(each) for each in re.split(r"^STATE_\d+ ==", text, flags=re.MULTILINE)[1:]]
    plan: list[list[str]] = []
    started: set[int] = set()
    for before, after in itertools.pairwise(states):
        if after.forgotten > before.forgotten:
            plan.append(["forget", "ledger" if after.driver != before.driver else "output"])
        if after.timed_out > before.timed_out and after.places == before.places:
            plan.append(["timeout"])
        for number, (was, now) in enumerate(zip(before.places, after.places, strict=True)):
            run = str(number)
            if was == now:
                continue
            if was == "off":
                if started:
                    plan.append(["new", run])
                started.add(number)
            elif now == "dead" and was != "return" and after.driver == before.driver:
                plan.append(["crash", run])
            else:
                if now == "unknown":
                    plan.append(["late"] if after.flying != before.flying else ["lose answer"])
                if was in POINTS:
                    plan.append(["pass", run, POINTS[was]])
    return plan


def _state(text: str) -> State:
    parts = dict(re.findall(r"^/\\ (\w+) = (.*?)(?=^/\\ |\Z)", text, re.MULTILINE | re.DOTALL))
    used = dict(re.findall(r"(\w) \|-> (\d+)", parts["used"]))
    return State(
        tuple(re.findall(r'pc \|-> "(\w+)"', parts["d"])),
        " ".join(re.findall(r'f \|-> "(.)"', parts["led"])),
        parts["drv"].strip(),
        int(used["f"]),
        int(used["t"]),
        " ".join(parts["flight"].split()),
    )


def draw(name: str, count: int, seed: int) -> list[list[list[str]]]:
    """The plans of so many traces of a configuration that have the most events and a fault among them."""
    java, jar = require_java().executable, checker()
    drawn = configuration_of(name)
    with tempfile.TemporaryDirectory() as directory:
        found = Path(directory)
        model = (SOURCES / f"{drawn.module}.tla").read_text(encoding="utf-8")
        model = model.replace("\nCrash(x) ==\n", "\nCrash(x) ==\n" + _SELDOM, 1)
        (found / f"{drawn.module}.tla").write_text(model, encoding="utf-8")
        (found / "Drawn.cfg").write_text(drawn.text, encoding="utf-8")
        simulate = [
            "-simulate",
            f"file=trace,num={_DRAWN * count}",
            "-depth",
            str(_DEPTH),
            "-seed",
            str(seed),
        ]
        command = tlc(java, jar, "Drawn", drawn.module, "states", *simulate, memory="-Xmx1g")
        subprocess.run(command, cwd=found, capture_output=True, check=True)
        texts = [path.read_text(encoding="utf-8") for path in sorted(found.glob("trace_*"))]
    plans: dict[str, list[list[str]]] = {}
    for text in texts:
        plan = plan_of(text)
        if any(event[0] != "pass" for event in plan):
            plans[json.dumps(plan)] = plan
    return sorted(plans.values(), key=len, reverse=True)[:count]


def counterexample(name: str) -> list[list[str]]:
    """The shortest history that breaks an invariant where a rule is taken away: the product, which has the rule, must
    not break.
    """
    java, jar = require_java().executable, checker()
    with tempfile.TemporaryDirectory() as states:
        command = tlc(java, jar, name, "TaskCommit", states)
        there = written(configuration_of(name))
        said = subprocess.run(command, cwd=there, capture_output=True, text=True, check=False).stdout
    text = re.sub(r"^State (\d+):.*$", r"STATE_\1 ==", said, flags=re.MULTILINE)
    return plan_of(text[: text.rfind("\n\n")] + "\n")


def broken_rules() -> list[str]:
    """The configurations without a rule whose counterexample has only faults that a plan has an event for."""
    return [
        each.name
        for each in configurations()
        if each.name.startswith("TaskCommit-no-")
        and each.expected != "no error"
        and not any(each.bound[name] for name in ("MaxZombies", "MaxGiveUps", "MaxExpiries", "MaxStale"))
    ]


def kept() -> dict[str, list[list[list[str]]]]:
    """The plans in the repository, by the configuration that they come from."""
    found: dict[str, list[list[list[str]]]] = json.loads(KEPT.read_text(encoding="utf-8"))
    return found


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.traces", description=__doc__)
    parser.add_argument("--count", type=int, default=25, help="traces of each configuration (25)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", action="store_true", help=f"into {KEPT.name}")
    asked = parser.parse_args(arguments)
    plans = {name: draw(name, asked.count, asked.seed) for name in CONFIGURATIONS}
    plans |= {name: [counterexample(name)] for name in broken_rules()}
    for name, each in plans.items():
        sys.stdout.write(f"{name}: {len(each)} plans\n")
    if asked.write:
        lines = [
            f"{json.dumps(name)}: [\n" + ",\n".join(json.dumps(plan) for plan in each) + "\n]"
            for name, each in plans.items()
        ]
        KEPT.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
