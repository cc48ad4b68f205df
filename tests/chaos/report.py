"""What a run of `make chaos` found, for people: the matrix as a table, the rounds, the verdicts.

Owns: words and tables, the place of the matrix in evidence/.
Does not know: how anything was played.
Invariants: a cell that did not pass is marked as such in the table, never left out; numbers come from the results
alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.chaos.checker import Kind
from tests.chaos.history import EntryKind
from tests.chaos.matrix import POINTS, Result
from tests.chaos.rounds import Round
from tests.chaos.stories import score
from tests.support.made import today

PAGE = Path(__file__).resolve().parents[2] / "evidence" / "crash-matrix.md"
_BEGIN, _END = "<!-- crash matrix -->", "<!-- end of the crash matrix -->"
_VICTIMS = ("driver", "task", "broker")


def matrix_table(results: Sequence[Result]) -> str:
    """One line per point; per rung and victim what it took, at once / late."""
    rungs = list(dict.fromkeys(result.rung for result in results))
    by_cell = {
        (each.rung, each.cell.point, each.cell.count, each.cell.victim, each.cell.late): each for each in results
    }
    head = ["point", *(f"{rung}: {victim}" for rung in rungs for victim in _VICTIMS)]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for point, count in POINTS:
        row = [point if count == 1 else f"{point}, {count}"]
        for rung in rungs:
            for victim in _VICTIMS:
                pair = [by_cell.get((rung, point, count, victim, late)) for late in (False, True)]
                row.append(" / ".join(_outcome(each) for each in pair) if any(pair) else "")
        lines.append("| " + " | ".join(row) + " |")
    passed = sum(not each.problems for each in results)
    return "\n".join([*lines, "", f"{passed} of {len(results)} cells passed, on {today()}."])


def _outcome(result: Result | None) -> str:
    if result is None:
        return "–"
    if result.problems:
        return "**FAILED**"
    mended = result.mended
    did = [
        word
        for word, there in (
            ("repaired", mended["repaired"]),
            ("redone", mended["redone"]),
            ("resumed", mended["resumed"] and not mended["repaired"]),
        )
        if there
    ]
    return did[0] if did else "ok"


def write_matrix(results: Sequence[Result]) -> None:
    """Put the table between its marks."""
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(_BEGIN)
    _, after = rest.split(_END)
    PAGE.write_text(
        f"{before}{_BEGIN}\n{matrix_table(results)}\n{_END}{after}",
        encoding="utf-8",
    )


def summary(results: Sequence[Result], rounds: Sequence[Round]) -> str:
    """The report: faults, records, transactions, the longest hold, verdicts, bad histories that the checker rejects."""
    fired = Counter(each.cell.victim for each in results if each.fired)
    fired += Counter(fault.kind for one in rounds for fault in one.faults if fault.fired)
    missed = sum(not fault.fired for one in rounds for fault in one.faults)
    problems = [problem for each in (*results, *rounds) for problem in each.problems]
    kinds = Counter(problem.split(":")[0] for problem in problems)
    entries = sum((each.entries for each in (*results, *rounds)), Counter[EntryKind]())
    caught, bad = score()
    hold = f"{max(one.longest_hold_s for one in rounds):.1f} s" if rounds else "not watched"
    lines = [
        f"faults that fired:        {', '.join(f'{kind} {count}' for kind, count in sorted(fired.items()))}",
        f"strikes after a job's end: {missed}",
        f"records in the logs:      {entries[EntryKind.DATA]}",
        f"transactions' markers:    {entries[EntryKind.COMMIT]} commit, {entries[EntryKind.ABORT]} abort (one per partition)",
        f"longest hold of the last stable offset: {hold}",
        f"bad histories rejected: {caught} of {bad}",
        "verdict by anomaly:",
        *(f"  {kind.name.lower().replace('_', ' '):<22} {kinds.pop(kind.name, 0)}" for kind in Kind),
        f"  {'other':<22} {sum(kinds.values())}",
    ]
    for each in results:
        lines += [f"{each.rung}, {each.cell.name}: {problem[:400]}" for problem in each.problems[:3]]
    for one in rounds:
        lines += [f"{one.rung}, round {one.plan.seed}: {problem[:400]}" for problem in one.problems[:3]]
    return "\n".join(lines)
