"""The seeds under which the bugs were caught, kept in `known.json` by the command.

A seed is good for one version of the product and the simulation: where either changes what is sent, another seed may be
due.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

FILE = Path(__file__).with_name("known.json")


@dataclass(frozen=True)
class Caught:
    """The first seed that the judge refused, what the hunt took, and the first problem."""

    seed: int
    cpu_s: float
    problem: str


def _load() -> dict[str, Caught]:
    return {name: Caught(**fields) for name, fields in json.loads(FILE.read_text()).items()} if FILE.exists() else {}


KNOWN: dict[str, Caught] = _load()


def save() -> None:
    """Keep it."""
    body = {name: asdict(caught) for name, caught in sorted(KNOWN.items())}
    FILE.write_text(json.dumps(body, indent=1) + "\n")
