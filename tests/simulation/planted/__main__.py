"""`python -m tests.simulation.planted`: plays seeds until the judge refuses what follows from each bug.

    python -m tests.simulation.planted             those that have no known seed
    python -m tests.simulation.planted --again     all of them anew
    python -m tests.simulation.planted --write     the table in evidence/planted-bugs.md, from what is known

Exit code 1 where a bug is not caught.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time

from tests.simulation.planted.known import KNOWN, Caught, save
from tests.simulation.planted.plant import MOST_SEEDS, hunt
from tests.simulation.planted.report import PAGE, page
from tests.simulation.planted.table import BUGS


def main() -> int:
    """Do what the command line names."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.planted", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="words of the names of the bugs to hunt (all)")
    parser.add_argument("--again", action="store_true", help="also those that have a known seed")
    parser.add_argument("--seeds", type=int, default=MOST_SEEDS, help=f"at most ({MOST_SEEDS})")
    parser.add_argument("--write", action="store_true", help="only write the table")
    arguments = parser.parse_args()
    if arguments.write:
        PAGE.write_text(page())
        return 0
    logging.disable(logging.CRITICAL)
    missed = 0
    for bug in BUGS:
        if arguments.names and not any(word in bug.name for word in arguments.names):
            continue
        if bug.name in KNOWN and not arguments.again:
            continue
        began = time.process_time()
        found = hunt(bug, arguments.seeds)
        cpu_s = time.process_time() - began
        if found is None:
            missed += 1
            print(
                f"NOT CAUGHT in {arguments.seeds} seeds, {cpu_s:.1f} CPU s: {bug.name} [{bug.recipe}]",
                flush=True,
            )
            continue
        KNOWN[bug.name] = Caught(found.seed, round(cpu_s, 1), found.problems[0][:200])
        save()
        print(
            f"seed {found.seed}, {cpu_s:.1f} CPU s: {bug.name} [{bug.recipe}]: {found.problems[0]}",
            flush=True,
        )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
