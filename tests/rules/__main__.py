"""`make rules`: breaks every rule of docs/rules.md and docs/design/findings.md and shows that its tests fail; a table
of it.

    .venv/bin/python -m tests.rules [--sample N --seed TEXT] [--only TEXT] [--write] [--at-once N]

Exits with 1 where a breach was not caught, or a test of the table failed under no breach of its row.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Sequence

from tests.rules import report
from tests.rules.breaches import BREACHES
from tests.rules.play import Result, Unfit, Verdict, play
from tests.rules.table import Breach, Row, row_of, rows
from tests.support.planting import CodeMoved


def chosen(all_rows: Sequence[Row], sample: int | None, seed: str, only: str) -> list[Row]:
    """The rows to play: all that have tests, or a sample that depends on the seed alone, or those with a text in
    them.
    """
    found = [row for row in all_rows if row.tests and only in row.rule]
    if sample is None or sample >= len(found):
        return found
    return random.Random(seed).sample(found, sample)


def main() -> int:
    """Play, print, write what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.rules", description=__doc__.splitlines()[0])
    parser.add_argument("--sample", type=int, metavar="N", help="only so many rows, chosen by the seed")
    parser.add_argument("--seed", default="", help="what chooses the sample, such as the commit's hash")
    parser.add_argument("--only", default="", metavar="TEXT", help="only rows whose rule has this text")
    parser.add_argument("--at-once", type=int, default=2, metavar="N", help="breaches played at a time (2)")
    parser.add_argument("--write", action="store_true", help=f"put the table into {report.PLACE}")
    parser.add_argument("--show", action="store_true", help="print what pytest said of what was not caught")
    arguments = parser.parse_args()
    if arguments.write and (arguments.only or arguments.sample is not None):
        parser.error("--write needs all rows: the table would lose the others")
    all_rows = rows()
    mine = chosen(all_rows, arguments.sample, arguments.seed, arguments.only)
    breaches: list[Breach] = [each for each in BREACHES if row_of(each, all_rows) in mine]
    results: list[Result] = []
    began = time.monotonic()
    try:
        for result in play(breaches, all_rows, at_once=arguments.at_once):
            results.append(result)
            print(report.line(result), flush=True)  # noqa: T201  a command's output
            if arguments.show and result.verdict is not Verdict.CAUGHT:
                print(result.seen.output)  # noqa: T201
    except (CodeMoved, Unfit) as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    results.sort(key=lambda result: (all_rows.index(result.row), BREACHES.index(result.breach)))
    print(report.summary(results, mine, time.monotonic() - began))  # noqa: T201
    if arguments.write:
        report.write(results, all_rows)
    return 1 if report.complaints(results, mine) else 0


if __name__ == "__main__":
    sys.exit(main())
