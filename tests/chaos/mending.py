"""Every history of an interrupted mending, and the table that says how each ended.

    python -m tests.chaos.mending [--write]

Owns: which histories there are, the table in docs/mending.md.
Does not know: how one is played (`tests.pyspark_kafka_eos.commit.mending`).
Invariants: each cell's fault proved that it fired and each kill that it happened, or the cell failed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from embedded_kafka.embedded import EmbeddedKafka
from pyspark_kafka_eos import crash_points
from tests.pyspark_kafka_eos.commit.mending import History, play
from tests.support.made import today

DOCUMENT = Path(__file__).parents[2] / "docs" / "mending.md"
_BEGIN, _END = "<!-- mending matrix -->", "<!-- end of the mending matrix -->"

ENDS = ("before-note-ended", "after-note-ended")


def histories() -> Iterator[History]:
    """All of them, for either transaction version."""
    for scope in ("task", "batch"):
        for late in (False, True):
            for point in (*crash_points.MENDING_POINTS, *crash_points.END_POINTS):
                yield History(scope, "data", point, late)
            # With scope=batch the decision's marker is one of the batch's own transaction.
            firsts = ("after-decision", "before-return") if scope == "task" else ("after-decision",)
            for first in firsts:
                for point in (*crash_points.SETTLING_POINTS, *crash_points.MENDING_POINTS):
                    yield History(scope, "ledger", point, late, first)
            for point in ("before-rewrite", "after-rewrite"):
                yield History(scope, "data", point, late, "mend-added")


def main() -> int:
    """Play all and print the table; 1 where a history failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.mending", description="interrupted mending")
    parser.add_argument("--write", action="store_true", help=f"also write the table into {DOCUMENT.name}")
    arguments = parser.parse_args()
    found: dict[History, dict[str, str]] = {}
    for version in ("1", "2"):
        with EmbeddedKafka(config={"transaction.version": version}) as broker:
            for history in histories():
                found.setdefault(history, {})[version] = _played(broker, history)
                print(f"TV{version} {history}: {found[history][version]}", flush=True)
    if arguments.write:
        text = DOCUMENT.read_text(encoding="utf-8")
        before, after = text.split(_BEGIN)[0], text.split(_END)[1]
        DOCUMENT.write_text(f"{before}{_BEGIN}\n{table(found)}\n{_END}{after}", encoding="utf-8")
    failed = sum(did.startswith("FAILED") for cell in found.values() for did in cell.values())
    print(f"{len(found) * 2 - failed} passed, {failed} failed")
    return 1 if failed else 0


def _played(broker: EmbeddedKafka, history: History) -> str:
    try:
        return play(broker, history)
    except AssertionError as error:
        broker.clear_faults()
        return f"FAILED: {' '.join(str(error).split())[:300]}"


def table(found: dict[History, dict[str, str]]) -> str:
    """A row for each place and point, a column for each scope, restart and version."""
    columns = [(scope, late, version) for scope in ("task", "batch") for late in (False, True) for version in "12"]
    heads = [f"{scope}, {'late' if late else 'at once'}, TV{version}" for scope, late, version in columns]
    rows: dict[tuple[str, str, str], dict[tuple[str, bool, str], str]] = {}
    for history, cell in found.items():
        row = rows.setdefault((history.forgotten, history.killed_first, history.point), {})
        for version, did in cell.items():
            row[history.scope, history.late, version] = did.split(":")[0]
    lines = [
        f"| forgotten marker | killed before | killed at | {' | '.join(heads)} |",
        "|---" * (3 + len(heads)) + "|",
    ]
    for (forgotten, first, point), row in rows.items():
        cells = [row.get(column, "") for column in columns]
        shown = "" if first == "before-return" else first
        lines.append(f"| {forgotten} | {shown} | {point} | {' | '.join(cells)} |")
    played = sum(len(cell) for cell in found.values())
    failed = sum(did.startswith("FAILED") for cell in found.values() for did in cell.values())
    return "\n".join([*lines, "", f"{played - failed} of {played} histories passed, on {today()}."])


if __name__ == "__main__":
    sys.exit(main())
