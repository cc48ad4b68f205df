"""The state machines as tables for docs/design/machines.md, read from their `MOVES`: `python -m tools.draw_machines`
rewrites them.

Owns: the text between the markers `<!-- machine: NAME -->` and `<!-- end -->`.
Does not know: what the machines are for.
Invariants: what is drawn comes from MOVES and the docstrings of its handlers alone, so it cannot differ from the code.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from embedded_kafka.cluster import life
from embedded_kafka.groups.machine import consumer_moves as consumer_group
from embedded_kafka.groups.machine import moves as group
from embedded_kafka.security import login
from embedded_kafka.transactions.machine import moves as transaction
from pyspark_kafka_eos.client.writing import sequences
from pyspark_kafka_eos.client.writing import session as producer
from pyspark_kafka_eos.commit.machine import per_task as commit
from pyspark_kafka_eos.commit.machine import whole_batch as batch_commit
from pyspark_kafka_eos.slot import turns

MACHINES: Mapping[str, Any] = {
    "commit": commit,
    "batch_commit": batch_commit,
    "turns": turns,
    "producer": producer,
    "sequences": sequences,
    "transaction": transaction,
    "group": group,
    "consumer_group": consumer_group,
    "login": login,
    "broker": life,
}

_BLOCK = re.compile(r"<!-- machine: (\w+) -->\n.*?<!-- end -->", re.DOTALL)


def states(module: Any) -> type[Enum]:
    """The machine's states, in the order of their definition: those that the rows of its table begin with."""
    state, _ = next(iter(module.MOVES))
    return type(state)


def table(name: str) -> str:
    """The machine's states and moves as Markdown tables."""
    module = MACHINES[name]
    lines = ["| state | meaning |", "|---|---|"]
    lines += [f"| {state.name} | {state.value} |" for state in states(module)]
    lines += ["", "| in state | on event | next state | what happens |", "|---|---|---|---|"]
    for (state, event), move in module.MOVES.items():
        meaning = " ".join((move.handler.__doc__ or "").split())
        following = ", ".join("the same" if each is state else each.name for each in move.next)
        lines.append(f"| {state.name} | {event.__name__} | {following} | {meaning} |")
    return "\n".join(lines)


def redraw(text: str) -> str:
    """The document with every machine's block drawn anew."""
    return _BLOCK.sub(lambda found: f"<!-- machine: {found[1]} -->\n{table(found[1])}\n<!-- end -->", text)


if __name__ == "__main__":
    document = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/design/machines.md")
    document.write_text(redraw(document.read_text(encoding="utf-8")), encoding="utf-8")
