"""What campaigns came to, for the terminal and for evidence/simulation-campaign.md.

Owns: the tables.
Does not know: how anything was played.
"""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.simulation import coverage
from tests.simulation.campaign import Totals
from tests.simulation.coverage import MACHINES, Lead, Row
from tests.simulation.rows import NOT_REACHED
from tests.simulation.shrink import problem_class
from tests.support.made import today

PAGE = Path(__file__).parents[2] / "evidence" / "simulation-campaign.md"

COUNTED = (
    "A fault counts once, where it takes effect: a message that is slow, a request that is struck or refused, a connection\n"
    "that is reset, a marker. What lasts counts the first time that it takes effect: a full disk, a right that is gone, each direction of\n"
    "a cut link. The kill by which another fault shows, a torn write or an upgrade, is not counted again, nor is a driver\n"
    "that ends itself."
)


def summary(totals: Totals, jobs: int) -> str:
    """One campaign in a few lines."""
    rows = coverage.rows_of(totals.leads)
    lines = [
        f"{totals.name}: {totals.seeds} seeds, {len(totals.bad)} bad, {sum(totals.fired.values())} faults, "
        f"{totals.virtual_s / 3600:.1f} virtual hours, {totals.steps} steps",
        f"  {totals.cpu_s:.1f} CPU s, {totals.wall_s:.1f} s on {jobs} processes, {_a_second(totals):.1f} seeds/s",
        f"  {len(rows)} of {len(coverage.all_rows())} rows, {len(totals.leads)} of {len(coverage.all_leads())} ways; "
        f"{totals.kept} histories reached something new",
        f"  {totals.runs} runs of a driver, {totals.repaired} slots repaired; "
        f"runs ended with {dict(totals.errors.most_common())}",
    ]
    if wrong := wrong_reasons(totals.leads):
        lines.append(f"  REACHED ALTHOUGH rows.py has a reason: {wrong}")
    if totals.left_out:
        lines.append(f"  NOT PLAYED: {totals.left_out} seeds, because the time was over")
    return "\n".join(lines)


def _a_second(totals: Totals) -> float:
    return totals.seeds / totals.wall_s if totals.wall_s else 0.0


def never_reached(leads: Counter[Lead]) -> list[Row]:
    """The rows that no history reached, in the tables' order."""
    reached = coverage.rows_of(leads)
    return [row for row in coverage.all_rows() if row not in reached]


def wrong_reasons(leads: Counter[Lead]) -> list[Row]:
    """The rows that were reached although there is a reason why none can, in the tables' order."""
    reached = coverage.rows_of(leads)
    return [row for row in coverage.all_rows() if row in reached and row in NOT_REACHED]


def page(campaigns: Sequence[Totals]) -> str:
    """The whole document."""
    leads: Counter[Lead] = Counter()
    fired: Counter[str] = Counter()
    for each in campaigns:
        leads.update(each.leads)
        fired.update(each.fired)
    return (
        "\n\n".join(
            [
                "# What the campaigns of the simulation came to",
                f"Written by `python -m tests.simulation --campaign .. --write` on {today()} with Python {platform.python_version()}. Do not edit.\n"
                "[The simulation](../docs/design/simulation.md) has what a campaign is, and which profile draws what.",
                _campaigns(campaigns),
                f"## Faults by kind\n\n{sum(fired.values()):,} in all. {COUNTED}\n\n"
                + _table(("kind", "times"), [(kind, f"{times:,}") for kind, times in fired.most_common()]),
                "## Rows of the machines' tables\n\nA row is a state and an event. A way is a row and the state it led to.\n\n"
                + _machines(leads),
                "## Rows that no history reached\n\n" + _never(leads),
                "## What went wrong\n\n" + _wrong(campaigns, "bad"),
                "## What went wrong and does so no more\n\nProduct or judge were mended, and the history was played again. "
                "[The simulation](../docs/design/simulation.md) has the findings.\n\n" + _wrong(campaigns, "mended"),
            ]
        )
        + "\n"
    )


def _campaigns(campaigns: Sequence[Totals]) -> str:
    head = (
        "campaign",
        "plays",
        "profile",
        "from seed",
        "seeds",
        "left out",
        "went wrong",
        "faults",
        "steps",
        "virtual hours",
        "CPU s",
        "wall s",
        "seeds/hour",
    )
    rows = [
        (
            each.name,
            each.about,
            each.storm,
            each.first,
            f"{each.seeds:,}",
            f"{each.left_out:,}",
            len(each.bad),
            f"{sum(each.fired.values()):,}",
            f"{each.steps:,}",
            f"{each.virtual_s / 3600:,.1f}",
            f"{each.cpu_s:,.0f}",
            f"{each.wall_s:,.0f}",
            f"{3600 * _a_second(each):,.0f}",
        )
        for each in campaigns
    ]
    return _table(head, rows)


def _machines(leads: Counter[Lead]) -> str:
    reached = set(coverage.rows_of(leads))
    rows = []
    for name in MACHINES:
        every = [row for row in coverage.all_rows() if row.machine == name]
        ways = [lead for lead in coverage.all_leads() if lead.row.machine == name]
        rows.append(
            (
                name,
                f"{len(reached & set(every))} of {len(every)}",
                f"{len(set(leads) & set(ways))} of {len(ways)}",
            )
        )
    return _table(("machine", "rows reached", "ways reached"), rows)


def _never(leads: Counter[Lead]) -> str:
    by_reason: dict[tuple[str, str], list[str]] = {}
    for row in never_reached(leads):
        reason = NOT_REACHED.get(row, "NO REASON IS KNOWN.")
        by_reason.setdefault((row.machine, reason), []).append(f"`{row.state} {row.event}`")
    for row in wrong_reasons(leads):
        wrong = f"REACHED, so this is not true: {NOT_REACHED[row]}"
        by_reason.setdefault((row.machine, wrong), []).append(f"`{row.state} {row.event}`")
    lines = [(name, len(listed), ", ".join(listed), why) for (name, why), listed in by_reason.items()]
    return _table(("machine", "rows", "which", "why"), lines) if lines else "None."


def _wrong(campaigns: Sequence[Totals], which: str) -> str:
    classes: Counter[tuple[str, str]] = Counter()
    example: dict[tuple[str, str], int] = {}
    for each in campaigns:
        for played in getattr(each, which):
            key = (each.name, problem_class(played.outcome.problems))
            classes[key] += 1
            example.setdefault(key, played.history.seed)
    rows = [(name, what, times, example[name, what]) for (name, what), times in classes.most_common()]
    return _table(("campaign", "problem", "histories", "a seed"), rows) if rows else "Nothing."


def _table(head: Sequence[object], rows: Sequence[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(str(cell) for cell in line)} |" for line in lines)
