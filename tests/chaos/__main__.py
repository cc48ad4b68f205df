"""`make chaos`: the crash matrix and rounds with SIGKILL at random moments, on real brokers, and a report.

    .venv/bin/python -m tests.chaos [--seed 1] [--rounds 50] [--only matrix|rounds] [--write]

Exits with 1 where anything was found.
"""

from __future__ import annotations

import argparse
import random
import sys
import time

from tests.chaos import matrix, report, rounds


def main() -> int:
    """Play everything, print the report."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, help="of the rounds; drawn and printed where it is not given")
    parser.add_argument("--rounds", type=int, default=50, help="spread over the rungs (50)")
    parser.add_argument("--only", choices=("matrix", "rounds"))
    parser.add_argument("--write", action="store_true", help="put the matrix into evidence/crash-matrix.md")
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else random.randrange(1_000_000)
    print(f"seed {seed}", flush=True)
    results: list[matrix.Result] = []
    played: list[rounds.Round] = []
    for number, rung in enumerate(matrix.RUNGS):
        if arguments.only != "rounds":
            began = time.monotonic()
            found = matrix.play(rung, list(matrix.cells()))
            results += found
            bad = sum(bool(each.problems) for each in found)
            print(f"{rung.name}: {len(found)} cells, {bad} failed, {time.monotonic() - began:.0f} s", flush=True)
        if arguments.only != "matrix":
            began = time.monotonic()
            numbers = range(number, arguments.rounds, len(matrix.RUNGS))
            found_rounds = rounds.play(rung, numbers, seed)
            played += found_rounds
            bad = sum(bool(each.problems) for each in found_rounds)
            print(
                f"{rung.name}: {len(found_rounds)} rounds, {bad} failed, {time.monotonic() - began:.0f} s",
                flush=True,
            )
    print(report.summary(results, played))
    if arguments.write and results:
        report.write_matrix(results)
    return 1 if any(each.problems for each in (*results, *played)) else 0


if __name__ == "__main__":
    sys.exit(main())
