"""The table of a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.fuzz.play import GROWS_AT_MOST_MB, Told
from tests.fuzz.targets import TARGETS
from tests.support.made import today

PAGE = Path(__file__).parents[2] / "evidence" / "fuzz.md"

HEAD = f"""# Bytes and texts from anybody

`make fuzz` wrote this page on {{day}}. A case is made at random from something right, and given to what reads it. A defect is an exception
that is none of the reader's own, an error with a secret, an escape or all of a foreign text in it, more than a second of the processor, more
memory at a time than the reader may take, a process that ends, and memory that grows by more than {GROWS_AT_MOST_MB} MB from the first third
of a run to the last.

"""


def page(found: Sequence[Told], seed: int) -> str:
    """What was played, in Markdown."""
    cases = sum(each.cases for each in found)
    defects = sum(len(each.defects) for each in found)
    lines = [
        HEAD.format(day=today()).rstrip("\n"),
        "",
        f"**{cases:,} cases of seed {seed}: {defects} defects.**",
        "",
        "| who reads what | cases | what came of them | slowest, ms | at a time, MB | growth, MB |",
        "|---|---:|---|---:|---:|---:|",
    ]
    for each in found:
        outcomes = ", ".join(f"{name} {count / max(1, each.cases):.0%}" for name, count in each.outcomes.most_common(4))
        growth = "" if each.grown_mb is None else f"{max(0.0, each.grown_mb):.0f}"
        lines.append(
            f"| {TARGETS[each.name].reads} | {each.cases:,} | {outcomes} | {each.slowest_ms:.0f} | {each.peak_mb:.0f} | {growth} |"
        )
    return "\n".join(lines) + "\n"
