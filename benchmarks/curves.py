"""Draws the curves of docs/design/performance.md: what grows with the tasks, partitions, pipelines and queries.

    make pages

Owns: which points are drawn over what, with which aims; the pictures' files.
Does not know: how the points were measured.
Invariants: a picture names the digest of its points, so a test sees where a benchmark wrote new ones and nobody drew
them.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.children import ROOT

DIRECTORY = ROOT / "docs" / "design" / "performance"
BENCHMARKS = ROOT / "benchmarks"

Points = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Panel:
    """One diagram. `lines`: field of the points -> its label. `aims`: label -> (at none, for each one), where there is
    an aim.
    """

    unit: str
    lines: Mapping[str, str]
    aims: Mapping[str, tuple[float, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Picture:
    """One file. `points`: a file in benchmarks/ and the key of its points. `over`: the field on the horizontal axis.
    `only`: field and value of the points that are drawn.
    """

    name: str
    points: tuple[str, str]
    over: str
    label: str
    panels: tuple[Panel, ...]
    only: tuple[str, str] | None = None

    @property
    def path(self) -> Path:
        return DIRECTORY / f"{self.name}.svg"

    def read(self) -> Points:
        """The points that are drawn."""
        name, key = self.points
        found = json.loads((BENCHMARKS / name).read_text(encoding="utf-8"))[key]
        return [each for each in found if self.only is None or each[self.only[0]] == self.only[1]]

    def mark(self) -> str:
        """What the file says of the points that it was drawn from."""
        points = json.dumps(self.read(), sort_keys=True).encode()
        return f"benchmarks/{self.points[0]}, {hashlib.sha256(points).hexdigest()[:16]}"


_BATCH = {
    "begin_ms": "begin",
    "commit_ms": "commit",
    "visible_ms": "until every marker is written",
    "restart_ms": "a new run begins",
    "found_open_ms": "a new run begins, and finds the slots open",
    "verify_ms": "verify",
}
_DRIVER = Panel("MB", {"driver_mb": "driver"}, {"aim: below 300 MB": (300, 0)})
_TRIGGER = Panel("ms", {"trigger_ms": "trigger, median", "trigger_p99_ms": "trigger, p99"})

PICTURES = (
    Picture(
        "many-tasks", ("many-tasks.json", "points"), "slots", "slots of a batch",
        (Panel("ms", _BATCH, {"aim of the commit: 20 ms, and 0.2 for each further slot": (20, 0.2)}), _DRIVER),
    ),
    Picture(
        "many-partitions", ("many-partitions.json", "points"), "places", "output partitions of a slot",
        (Panel("ms", _BATCH), _DRIVER),
    ),
    Picture(
        "many-pipelines", ("many.json", "pipelines"), "pipelines", "other pipelines on the cluster and the ledger",
        (
            Panel(
                "ms",
                {
                    "after_all_begin_ms": "begin, after all others decided",
                    "after_all_commit_ms": "commit, the same",
                    "restart_ms": "a new run begins",
                    "newest_ms": "the newest decision is read",
                    "doctor_ms": "doctor",
                    "verify_ms": "verify",
                },
            ),
            Panel("MB", {"driver_mb": "driver", "broker_mb": "broker"}),
        ),
    ),
    Picture(
        "many-queries", ("many.json", "queries"), "queries", "queries in one driver, by foreachBatch",
        (_TRIGGER, Panel("MB", {"driver_mb": "driver's Python", "jvm_mb": "JVM", "task_workers_mb": "Python of tasks"})),
        ("form", "foreachBatch"),
    ),
    Picture(
        "many-queries-by-format", ("many.json", "queries"), "queries", "queries in one driver, by format",
        (_TRIGGER, Panel("MB", {"driver_mb": "driver's Python", "jvm_mb": "JVM", "planners_mb": "Python that plans and commits"})),
        ("form", "format"),
    ),
)  # fmt: skip


def main() -> int:
    """Draw all pictures."""
    DIRECTORY.mkdir(exist_ok=True)
    for picture in PICTURES:
        draw(picture)
        print(picture.path.relative_to(ROOT))
    return 0


def draw(picture: Picture) -> None:
    """One picture. Times have logarithmic axes, where a line of slope one is a cost of each further one; memory begins
    at none.
    """
    import matplotlib  # `make pages` installs it beside the environment

    # Text stays text, and the same points give the same file.
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": picture.name, "font.size": 9})
    from matplotlib.figure import Figure

    points = picture.read()
    over = [each[picture.over] for each in points]
    figure = Figure(figsize=(5.2 * len(picture.panels), 4.6), layout="constrained")
    for axes, panel in zip(figure.subplots(1, len(picture.panels), squeeze=False)[0], picture.panels, strict=True):
        for name, label in panel.lines.items():
            axes.plot(over, [each[name] for each in points], marker="o", label=label)
        for label, (at_none, each_one) in panel.aims.items():
            line = [at_none + each_one * count for count in over]
            axes.plot(over, line, linestyle="--", color="grey", label=label)
        axes.set(xscale="log", xlabel=picture.label, ylabel=panel.unit)
        if panel.unit == "MB":
            axes.set_ylim(bottom=0)
        else:
            axes.set_yscale("log")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter("{x:,.0f}")
            axis.set_minor_formatter("")
        axes.set_xticks(over)
        axes.grid(visible=True, alpha=0.3)
        axes.legend(loc="upper left", bbox_to_anchor=(0, -0.16), fontsize=8, frameon=False)
    figure.savefig(picture.path, metadata={"Date": None, "Description": picture.mark()})


if __name__ == "__main__":
    sys.exit(main())
