"""The page of the matrix: what may change, when, and what becomes of the query, from the run alone.

Owns: evidence/changes.md.
Does not know: how a cell is played.
Invariants: a cell that does not hold is named with what was seen; a cell that makes no sense is counted with its
reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.changes.cell import REFUSED, Outcome
from tests.changes.cells import SENSELESS, every, senseless
from tests.changes.changes import CHANGES, Change
from tests.changes.moments import MOMENTS
from tests.changes.words import plain
from tests.support.made import today

PAGE = Path(__file__).resolve().parents[2] / "evidence" / "changes.md"

INTRODUCTION = """\
# The matrix of changes

What may be another one between two runs, two batches or two processes, and what becomes of a query that meets it. A cell is a change, a
moment, a way of writing, a scope and a transaction version. Each is played by the product's own code of source, driver and tasks on the embedded
broker, beside a stand-in for Spark; the reader that counts is librdkafka with `read_committed`. Made by `make changes`
on {day}; `tests/changes` has it.

A cell holds where the query goes on and each row is there once, with its key and its time. Otherwise the query is refused: three starts
end with an error of a class whom somebody has to act on, the words name the change, no row is there twice, nothing that was visible
is gone, and once the change is put back the query goes on with each row once.

**goes on**: all cells went on. **stops**: the run that met the change ended with an error that tells nobody to act, and the next
start went on. **refused**: all were refused. **goes on / refused**: it depends on the way, the scope or the version. **–**: no cell was played.
"""


def page(outcomes: Sequence[Outcome]) -> str:
    """The whole page."""
    parts = [
        INTRODUCTION.format(day=today()),
        _table(outcomes),
        _moments(),
        _refusals(outcomes),
        _bad(outcomes),
        _left_out(),
        _sum(outcomes),
    ]
    return "\n".join(part for part in parts if part)


def write(outcomes: Sequence[Outcome]) -> None:
    """Put the page in its place."""
    PAGE.write_text(page(outcomes), encoding="utf-8")


def _table(outcomes: Sequence[Outcome]) -> str:
    head = ["change", *(moment.name for moment in MOMENTS)]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for change in CHANGES:
        row = [change.name]
        for moment in MOMENTS:
            found = [each for each in outcomes if (each.cell.change, each.cell.moment) == (change, moment)]
            row.append(_square(found))
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines) + "\n"


def _square(found: Sequence[Outcome]) -> str:
    if not found:
        return "–"
    bad = sum(bool(each.problems) for each in found)
    words = sorted({_word(each) for each in found if not each.problems})
    return " / ".join([*words, *([f"**{bad} of {len(found)} do not hold**"] if bad else [])])


def _word(outcome: Outcome) -> str:
    if outcome.ended == REFUSED:
        return "refused"
    return "stops" if outcome.said else "goes on"


def _moments() -> str:
    lines = ["## The moments", "", "| moment | |", "|---|---|"]
    return "\n".join([*lines, *(f"| {each.name} | {each.means} |" for each in MOMENTS)]) + "\n"


def _refusals(outcomes: Sequence[Outcome]) -> str:
    lines = ["## What a refusal says", "", "| change | the first words |", "|---|---|"]
    for change in CHANGES:
        said = Counter(_first_words(each) for each in outcomes if each.cell.change == change and each.ended == REFUSED and not each.problems)  # fmt: skip
        lines += [f"| {change.name} | {words} |" for words, _ in sorted(said.items())]
    return "\n".join(lines) + "\n"


def _first_words(outcome: Outcome) -> str:

    return plain(outcome.said[-1])


def _bad(outcomes: Sequence[Outcome]) -> str:
    bad = [each for each in outcomes if each.problems]
    lines = ["## Cells that do not hold", ""]
    if not bad:
        return "\n".join([*lines, "None.\n"])

    lines += ["| change | moment | way | scope | version | seen |", "|---|---|---|---|---|---|"]
    for each in bad:
        cell = each.cell
        lines.append(f"| {cell.change.name} | {cell.moment.name} | {cell.way} | {cell.scope} | {cell.version} | {plain(each.problems[0])} |")  # fmt: skip
    return "\n".join(lines) + "\n"


def _left_out() -> str:
    why = Counter(senseless(cell) for cell in every())
    lines = ["## Cells that make no sense", "", "| cells | why |", "|---|---|"]
    return "\n".join([*lines, *(f"| {why[each.why]} | {each.why} |" for each in SENSELESS)]) + "\n"


def _sum(outcomes: Sequence[Outcome]) -> str:
    words = Counter("do not hold" if each.problems else _word(each) for each in outcomes)
    said = ", ".join(f"{number} {word}" for word, number in sorted(words.items()))
    possible = sum(senseless(cell) is None for cell in every())
    return f"{len(outcomes)} cells of {possible} were played: {said}. The transaction version takes turns.\n"


def changes_of(names: Sequence[str]) -> list[Change]:
    """The changes of these names or kinds."""
    return [each for each in CHANGES if each.name in names or each.kind in names] if names else list(CHANGES)
