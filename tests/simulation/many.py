"""`python -m tests.simulation.many`: a job of thousands of tasks in virtual time, undisturbed, and killed in the middle
of its ends.

Owns: the strikes, the curve over the number of slots.
Does not know: how a history is played (`play`).
Invariants: what is counted is the same on every machine: a seed is one history.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import sys
import time
from collections.abc import Mapping

from embedded_kafka.wire.server import REQUESTS, api_name
from tests.simulation.faults import EVERY, at_point
from tests.simulation.hooks import Meeting
from tests.simulation.network import SimSocket
from tests.simulation.play import Faults, Outcome, Scene, no_faults, play

JOB = "many tasks"
SEED = 1
UNDISTURBED = "nothing"

_KEYS = {api_name(key): key for key in REQUESTS}


def strikes(slots: int) -> Mapping[str, Faults]:
    """Name -> what strikes a job of so many slots, once."""
    half = slots // 2
    return {
        UNDISTURBED: no_faults,
        "driver killed, half of the ends sent": at_request("EndTxn", half, "kill driver"),
        "driver killed, half of the slots sealed": at_point("after-seal", "kill driver", half),
        "driver killed before the decision": at_point("before-decision", "kill driver"),
        "broker killed, half of the ends sent": at_request("EndTxn", half, "kill broker"),
        "executor killed, half of the slots sealed": at_point("after-seal", "kill executor", half),
    }


def at_request(api: str, nth: int, strike: str) -> Faults:
    """Where the n-th request of an API leaves its sender. `strike`: a name of `EVERY`."""

    def schedule(scene: Scene) -> None:
        def does(_end: SimSocket, _frame: bytes) -> float:
            scene.world.schedule(0.0, lambda: EVERY[strike](scene))
            return 0.0

        scene.broker.tap.add(Meeting(_KEYS[api], nth, does))

    return schedule


def play_many(slots: int, strike: str, *, scope: str = "task", watched: bool = False) -> Outcome:
    """Two batches of so many slots. `strike`: a name of `strikes`."""
    return play(
        SEED,
        strikes(slots)[strike],
        scope=scope,
        slots=slots,
        job=JOB,
        # A batch takes some hundred steps for each slot.
        most_steps=400_000 + 4_000 * slots,
        watched=watched,
    )


def further(less: tuple[int, Outcome], more: tuple[int, Outcome]) -> dict[str, float]:
    """API -> requests that each further slot of the two batches adds, of two histories with (slots, what became of
    it).
    """
    (few, before), (many, after) = less, more
    return {
        api: (count - before.requests.get(api, 0)) / (many - few) / 2 for api, count in sorted(after.requests.items())
    }


def main() -> int:
    """Play and print. Exit code 1 where the judge has something against a history."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.many", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--slots", type=lambda text: [int(each) for each in text.split(",")], default=[100, 1_000, 10_000]
    )
    parser.add_argument("--scope", choices=("task", "batch"), default="task")
    parser.add_argument("--strikes", nargs="*", choices=sorted(strikes(2)), default=list(strikes(2)))
    arguments = parser.parse_args()
    # asyncio tells of every answer to a process that was killed.
    logging.disable(logging.WARNING)
    wrong, calm = 0, []
    for slots in arguments.slots:
        for strike in arguments.strikes:
            began = time.monotonic()
            outcome = play_many(slots, strike, scope=arguments.scope)
            wrong += bool(outcome.problems)
            print(
                f"{slots:,} slots, {strike}: {outcome.steps:,} steps, {sum(outcome.requests.values()):,} requests, "
                f"{outcome.seconds:.2f} s, {outcome.runs} runs, fired {dict(outcome.fired)}, "
                f"played in {time.monotonic() - began:.0f} s: {outcome.problems or 'every row is there once'}",
                flush=True,
            )
            if strike == UNDISTURBED:
                calm.append((slots, outcome))
    for less, more in itertools.pairwise(calm):
        rates = further(less, more)
        print(
            f"each slot from {less[0]:,} to {more[0]:,}, requests of a batch: "
            + ", ".join(f"{api} {rate:.3f}" for api, rate in rates.items() if rate)
        )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
