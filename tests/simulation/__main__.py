"""`python -m tests.simulation`: many histories, or one again from its seed.

Exit code 1 where the judge has something against one; each such line ends in the command that plays it again.
"""

from __future__ import annotations

import argparse
import logging
import time
from collections import Counter

from tests.simulation.faults import PROFILES
from tests.simulation.play import play


def main() -> int:
    """Play what the command line names."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, help="play this one and show its story")
    parser.add_argument("--seeds", type=int, default=200, help="how many (200)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (0)")
    parser.add_argument(
        "--scope", choices=("task", "batch"), help="of all; by the seed where it is not given"
    )
    parser.add_argument("--transaction-version", type=int, choices=(1, 2), help="the same")
    parser.add_argument("--profile", choices=tuple(PROFILES), default="storm", help="which strikes (storm)")
    arguments = parser.parse_args()
    if arguments.seed is None:
        logging.disable(logging.CRITICAL)
    seeds = (
        [arguments.seed]
        if arguments.seed is not None
        else range(arguments.first, arguments.first + arguments.seeds)
    )
    fired: Counter[str] = Counter()
    errors: Counter[str] = Counter()
    bad, steps, virtual_s, began = 0, 0, 0.0, time.process_time()
    for seed in seeds:
        scope, version = varied(seed)
        scope, version = arguments.scope or scope, arguments.transaction_version or version
        outcome = play(seed, PROFILES[arguments.profile], scope=scope, transaction_version=version)
        fired.update(outcome.fired)
        errors.update(error.split(":")[0] for error in outcome.errors)
        steps += outcome.steps
        virtual_s += outcome.seconds
        if outcome.problems:
            bad += 1
            again = f"{outcome.command} --profile {arguments.profile}"
            print(f"{outcome.problems} after {outcome.errors[-2:]}; again: {again}", flush=True)
        if arguments.seed is not None:
            print(
                f"trace {outcome.trace}, {outcome.runs} runs, {outcome.seconds:.3f} s, fired {dict(outcome.fired)}"
            )
            print("\n".join(outcome.errors))
    cpu_s = time.process_time() - began
    print(f"{len(seeds)} seeds, {bad} bad, {steps} steps, {virtual_s:.0f} virtual s, {cpu_s:.1f} CPU s")
    print(f"fired: {dict(fired.most_common())}")
    print(f"runs ended with: {dict(errors.most_common())}")
    return 1 if bad else 0


def varied(seed: int) -> tuple[str, int]:
    """Scope and transaction version of a seed: every pair in turn."""
    return ("task", "batch")[seed % 2], (2, 1)[seed // 2 % 2]


if __name__ == "__main__":
    raise SystemExit(main())
