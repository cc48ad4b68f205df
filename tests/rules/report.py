"""The results of `make rules`, as lines for the terminal and as a table for the documents.

Owns: the form.
Does not know: how breaches are played.
Invariants: the page has nothing that differs from run to run but the day.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.rules.play import Result, Verdict
from tests.rules.table import Row
from tests.support.made import today
from tests.support.planting import ROOT, Planted

PLACE = "evidence/rules-breaches.md"

HEAD = """# What happens when a rule is broken

`make rules` breaks each rule of [rules.md](../docs/rules.md), and takes back what each of the [findings](../docs/design/findings.md) mended, in a copy of the
code, one change at a time, and runs the tests that the row names. This table is what it has seen: each change, and the tests that failed.
Ten rows, chosen by the commit, are played in CI (`make rules-sample`). Made on {day}.
"""


def short(test: str) -> str:
    """A test without the folder of all tests."""
    return test.removeprefix("tests/")


def line(result: Result) -> str:
    """One breach: verdict, rule and what was changed, and how many of the row's tests noticed."""
    seen = result.seen
    ended = ", time over" if seen.timed_out else ""
    broken = f", not run: {' '.join(sorted(map(short, seen.broken)))}" if seen.broken else ""
    return (
        f"{result.verdict.value:8}  {result.breach.rule.rstrip(':')}: {result.breach.planted.name} "
        f"[{len(seen.failed)} of {len(result.row.tests)} failed{broken}{ended}, {seen.seconds:.0f} s]"
    )


def idle(results: Sequence[Result]) -> list[tuple[Row, str]]:
    """Tests that failed under none of the breaches of their row."""
    failed: dict[str, set[str]] = {}
    for result in results:
        failed.setdefault(result.row.rule, set()).update(result.seen.failed, result.seen.left_out)
    rows = {result.row.rule: result.row for result in results}.values()
    return [(row, test) for row in rows for test in row.tests if test not in failed[row.rule]]


def complaints(results: Sequence[Result], rows: Sequence[Row]) -> list[str]:
    """Everything that keeps the table from being pinned."""
    played = {result.row.rule for result in results}
    found = [f"never played: {row.rule}" for row in rows if row.rule not in played]
    found += [line(result) for result in results if result.verdict is not Verdict.CAUGHT]
    return found + [f"failed under no breach of its row: {short(test)} ({row.rule})" for row, test in idle(results)]


def summary(results: Sequence[Result], rows: Sequence[Row], seconds: float) -> str:
    """What to read at the end."""
    caught = sum(result.verdict is Verdict.CAUGHT for result in results)
    total = f"{len(rows)} rules, {len(results)} breaches, {caught} caught, {len(results) - caught} not, {seconds:.0f} s"
    return "\n".join([*complaints(results, rows), total])


def _change(planted: Planted) -> str:
    files = dict.fromkeys(f"`{change.file().as_posix()}`" for change in planted.changes)
    return f"{planted.name} ({', '.join(files)})"


def write(results: Sequence[Result], all_rows: Sequence[Row]) -> None:
    """Put the table into the documents; rows without a test are listed with their reason."""
    lines = [HEAD.format(day=today())]
    by_rule: dict[str, list[Result]] = {}
    for result in results:
        by_rule.setdefault(result.row.rule, []).append(result)
    for section in dict.fromkeys(row.section for row in all_rows):
        lines += [f"## {section}", "", "| rule | what was changed | what failed |", "|---|---|---|"]
        for row in all_rows:
            if row.section != section:
                continue
            for number, result in enumerate(by_rule.get(row.rule, ())):
                failed = "<br>".join(f"`{short(test)}`" for test in sorted(result.seen.failed)) or "nothing"
                lines.append(f"| {'' if number else row.rule} | {_change(result.breach.planted)} | {failed} |")
            if not row.tests:
                lines.append(f"| {row.rule} | | {row.pinned} |")
        lines.append("")
    left_out = sorted({test for result in results for test in result.seen.left_out})
    if left_out:
        names = ", ".join(f"`{short(test)}`" for test in left_out)
        lines.append(
            f"Only Apache Kafka can pass these, so they are not played here but run in `make parity`: {names}."
        )
    (ROOT / PLACE).write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")
