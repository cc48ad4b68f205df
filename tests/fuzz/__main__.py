"""Plays random cases of everything that reads foreign bytes: `python -m tests.fuzz [--minutes 10] [--write]`."""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor


def main() -> int:
    """1 where there was a defect."""
    assert __doc__ is not None
    warnings.simplefilter("ignore", DeprecationWarning)
    from tests.fuzz.page import PAGE, page
    from tests.fuzz.play import Told, play
    from tests.fuzz.target import seeded
    from tests.fuzz.targets import TARGETS

    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0, help="for all targets together (10)")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes at a time (2)")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="another one in each second, unless given")
    parser.add_argument("--only", default="", metavar="NAME", help=f"one of: {', '.join(TARGETS)}")
    parser.add_argument("--case", type=int, metavar="N", help="play this case of --only and --seed alone, here")
    parser.add_argument("--write", action="store_true", help="put the table into evidence/fuzz.md")
    given = parser.parse_args()
    names = [given.only] if given.only else list(TARGETS)
    if given.case is not None:
        target = TARGETS[given.only]()
        try:
            case = target.made(seeded(given.seed, given.only, given.case))
            print(repr(case))  # noqa: T201  a command's output
            print(target.played(case))  # noqa: T201
        finally:
            target.closed()
        return 0
    share_s = given.minutes * 60 * min(given.jobs, len(names)) / len(names)

    def told_of(name: str) -> Told:
        told = play(TARGETS[name], given.seed, seconds=share_s)
        print(f"{name}: {told.cases:,} cases, {len(told.defects)} defects, {dict(told.outcomes)}", flush=True)  # noqa: T201
        return told

    with ThreadPoolExecutor(given.jobs) as pool:
        found = list(pool.map(told_of, names))
    text = page(found, given.seed)
    print(text)  # noqa: T201
    for each in found:
        for defect in each.defects:
            print(f"\nDEFECT {each.name}, seed {given.seed}, {defect}")  # noqa: T201
    if given.write:
        PAGE.write_text(text)
    return int(any(each.defects for each in found))


if __name__ == "__main__":
    sys.exit(main())
