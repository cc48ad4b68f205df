"""The sweep of lies: each request of a batch, a restart, a repair, a mending, of a query that reads the output and of
`verify` x each way in which a broker of three may not know what it answers.

    .venv/bin/python -m tests.simulation.lies [--every N] [--write]

Owns: the two tables, which request a lie meets, evidence/lies.md.
Does not know: how a history is played and judged (`play`, `judge`), what a lie does to the brokers (`one_broker`).
Invariants:
- A lie that took no effect is told as such: it proves nothing.
- Every lie is over in some seconds, so every history can come to its end.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pyspark_kafka_eos.options.sink import DEFAULT_LEDGER_TOPIC
from tests.simulation.cluster import LINKS
from tests.simulation.one_broker import BEHIND, lagging, unacknowledged_tail
from tests.simulation.planted.recipes import KILL, at, forgotten, frozen
from tests.simulation.play import Faults, Outcome, Scene, no_faults, play
from tests.simulation.reading import Reading, beside, query, verify
from tests.simulation.watch import OUTPUT
from tests.simulation.witnesses import TELL_SOMEBODY
from tests.support.made import today

PAGE = Path(__file__).resolve().parents[2] / "evidence" / "lies.md"

LIES_FOR_S = 6.0
"""How long: longer than what the product waits for at first, shorter than what it waits for a witness (30 s)."""

SCOPES, VERSIONS = ("task", "batch"), (1, 2)

PHASES: Mapping[str, Faults] = {
    "a batch": no_faults,
    "a restart": at({"after-decision": [KILL]}),
    "a repair": at({"before-end": [frozen(30)]}),
    "a mending": at({"before-decision": [forgotten(OUTPUT)]}),
    "a later restart": at({("after-decision", 2): [KILL]}),
}
"""What is going on, by what strikes the batches beside the lie."""

BATCHES = {"a later restart": 3}
"""How many batches a phase has, two where nothing is said. With three, there is a commit before the one that counts,
which a broker that was cut off goes on to show.
"""

READERS: Mapping[str, Callable[[Scene, Reading], None]] = {"a source's planning": query, "verify": verify}
"""Who reads meanwhile, as a phase of its own."""


def _stale(scene: Scene) -> None:
    """The broker that gets this request is cut off from the others, which have elected others in its place."""
    node_id = LINKS.index(scene.broker.tap.receiver)
    scene.broker.cut_off(node_id, LIES_FOR_S, noticed=True)


def _lags(scene: Scene) -> None:
    for topic in (OUTPUT, DEFAULT_LEDGER_TOPIC):
        lagging(scene, topic, BEHIND, LIES_FOR_S / 2)


def _tail(topic: str) -> Callable[[Scene], None]:
    return lambda scene: unacknowledged_tail(scene, topic, 0, told=False)


LIES: Mapping[str, tuple[Callable[[Scene], None], str]] = {
    "the broker that is asked was replaced without noticing": (_stale, "broker cut off"),
    "new leaders whose high watermark lags": (_lags, "leader lags"),
    "the next append to the output is not in the next leader": (_tail(OUTPUT), "unacknowledged tail lost"),
    "the next append to the ledger is not in the next leader": (
        _tail(DEFAULT_LEDGER_TOPIC),
        "unacknowledged tail lost",
    ),
}
"""Name -> the lie, told from when the request is sent; what counts where it takes effect."""


@dataclass(frozen=True)
class Cell:
    """The lie meets the `request`-th request of the history, from 1."""

    phase: str
    lie: str
    scope: str
    version: int
    request: int

    def __str__(self) -> str:
        return f"{self.phase} | {self.lie} | {self.scope} | {self.version} | request {self.request}"


def at_request(number: int, does: Callable[[Scene], None]) -> Faults:
    """Where the n-th request is sent, by any process."""

    def schedule(scene: Scene) -> None:
        requests = itertools.count(1)

        def sent() -> None:
            if next(requests) == number:
                does(scene)

        scene.at_requests(sent)

    return schedule


def _begin(phase: str, scene: Scene) -> Reading:
    """What strikes, or who reads."""
    if phase in READERS:
        return beside(scene, READERS[phase])
    PHASES[phase](scene)
    return Reading()


def _play(phase: str, faults: Faults, scope: str, version: int) -> Outcome:
    return play(1, faults, scope=scope, transaction_version=version, batches=BATCHES.get(phase, 2))


def requests_of(phase: str, scope: str, version: int) -> int:
    """How many requests the history has without a lie."""
    count = 0

    def counted(scene: Scene) -> None:
        def sent() -> None:
            nonlocal count
            count += not scene.job.over

        _begin(phase, scene)
        scene.at_requests(sent)

    _play(phase, counted, scope, version)
    return count


def cells(every: int = 1) -> Iterator[Cell]:
    """Each `every`-th request of each history, others for each lie."""
    for phase, scope, version in itertools.product((*PHASES, *READERS), SCOPES, VERSIONS):
        most = requests_of(phase, scope, version)
        for number, lie in enumerate(LIES):
            for request in range(1 + number % every, most + 1, every):
                yield Cell(phase, lie, scope, version, request)


def play_cell(cell: Cell) -> tuple[Outcome, bool]:
    """What became of it, and whether the lie took effect."""
    does, fired = LIES[cell.lie]
    reading = Reading()

    def faults(scene: Scene) -> None:
        nonlocal reading
        reading = _begin(cell.phase, scene)
        at_request(cell.request, does)(scene)

    outcome = _play(cell.phase, faults, cell.scope, cell.version)
    told = [error for error in outcome.errors if error.partition(":")[0] in TELL_SOMEBODY]
    return replace(
        outcome, problems=[*outcome.problems, *told, *reading.wrong], errors=[*outcome.errors, *reading.errors]
    ), outcome.fired.get(fired, 0) > 0


# ---- the page

INTRODUCTION = """\
# The sweep of lies

Three brokers, and a lie from the moment in which one request is sent, of two batches: undisturbed, with the driver killed behind
its decision, with a decided slot to repair, with a forgotten marker to mend; of three batches with the driver killed behind the second decision; of
two with a query of the product's source that reads the output meanwhile, four offsets at a time, and with `verify` again and again. Both scopes, both transaction versions. The lie is over after some
seconds. Played in virtual time on the embedded cluster, whose logs' bytes the judge of [the simulation](../docs/design/simulation.md) reads.
Made by `python -m tests.simulation.lies --write` on {day}.

**holds**: every row is there once, nothing decided was aborted, nothing is called committed that is not, no person was told to act. Behind it how many
histories, and in how many of them the lie took effect; an append that never comes is not lost, and proves nothing.
"""


def page(played: Sequence[tuple[Cell, Outcome, bool]], every: int) -> str:
    """The whole page."""
    lines = [INTRODUCTION.format(day=today())]
    lines += ["| | " + " | ".join(LIES) + " |", "|" + "---|" * (len(LIES) + 1)]
    for phase in (*PHASES, *READERS):
        row = [phase]
        for lie in LIES:
            here = [each for each in played if (each[0].phase, each[0].lie) == (phase, lie)]
            bad = sum(bool(outcome.problems) for _, outcome, _ in here)
            met = sum(fired for _, _, fired in here)
            row.append(f"**{bad} of {len(here)} do not hold**" if bad else f"holds, {len(here)}, {met}")
        lines.append("| " + " | ".join(row) + " |")
    bad_cells = [(cell, outcome) for cell, outcome, _ in played if outcome.problems]
    ended = sum(bool(outcome.errors) for _, outcome, _ in played)
    lines += [
        "",
        f"{len(played)} histories (with `--every {every}` one request of {every}), {len(bad_cells)} do not hold; in {ended} a run ended with an "
        "error that the next one needs nobody for.",
    ]
    lines += [f"- {cell}: {outcome.problems[0][:200]}" for cell, outcome in bad_cells]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Play all, tell what does not hold, and write the page. Exit code 1 where a cell does not hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.lies")
    parser.add_argument("--every", type=int, default=1, help="play each N-th request only (1)")
    parser.add_argument("--write", action="store_true", help="write evidence/lies.md")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    played = []
    for cell in cells(given.every):
        outcome, fired = play_cell(cell)
        played.append((cell, outcome, fired))
        if outcome.problems or outcome.errors:
            print(f"{cell}: {outcome.problems} {[error[:160] for error in outcome.errors]}", flush=True)
    bad = sum(bool(outcome.problems) for _, outcome, _ in played)
    print(f"{len(played)} histories, {sum(fired for _, _, fired in played)} of them met a lie, {bad} do not hold")
    if given.write:
        PAGE.write_text(page(played, given.every), encoding="utf-8")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
