"""What campaigns came to, kept in files, so that one can be stopped, continued, and shown beside others.

Owns: the files of a directory, one for each campaign.
Does not know: how a campaign is played or shown.
Invariant: a file is whole, and has the first `seeds` histories of its campaign, whenever the process is killed.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.simulation.campaign import Played, Totals
from tests.simulation.coverage import Lead, Row
from tests.simulation.history import History
from tests.simulation.play import Outcome


def file_of(directory: Path, totals: Totals) -> Path:
    """Where a campaign is kept: one name for each first seed and profile."""
    return directory / f"{totals.name}-{totals.storm}-{totals.first}.json"


def save(directory: Path, totals: Totals) -> None:
    """Keep what was played so far."""
    directory.mkdir(parents=True, exist_ok=True)
    path = file_of(directory, totals)
    body = {name: value for name, value in vars(totals).items() if name not in ("leads", "bad", "mended")}
    body["leads"] = [[*lead.row, lead.after, times] for lead, times in totals.leads.items()]
    body["bad"], body["mended"] = _listed(totals.bad), _listed(totals.mended)
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps(body), encoding="utf-8")
    os.replace(beside, path)


def load(path: Path) -> Totals:
    """From `save`'s file. OSError, ValueError or TypeError where it is none."""
    body: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    leads = Counter(
        {Lead(Row(machine, state, event), after): times for machine, state, event, after, times in body.pop("leads")}
    )
    bad, mended = _parsed(body.pop("bad")), _parsed(body.pop("mended", []))
    counters = {name: Counter(body.pop(name)) for name in ("fired", "errors")}
    return Totals(**body, **counters, leads=leads, bad=bad, mended=mended)


def _listed(played: list[Played]) -> list[dict[str, Any]]:
    return [{"history": each.history.text(), "outcome": asdict(each.outcome), "cpu_s": each.cpu_s} for each in played]


def _parsed(listed: list[dict[str, Any]]) -> list[Played]:
    return [
        Played(History.parse(each["history"]), Outcome(**each["outcome"]), Counter(), each["cpu_s"]) for each in listed
    ]


def all_of(directory: Path) -> Iterator[Totals]:
    """Every campaign that is kept there, by name."""
    return map(load, sorted(directory.glob("*.json")))
