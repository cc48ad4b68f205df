"""The state machines as tables for docs/design/machines.md, read from their `MOVES`: `python -m tools.draw_machines` rewrites them.

Owns: the text between the markers `<!-- machine: NAME -->` and `<!-- end -->`.
Does not know: what the machines are for.
Invariants: what is drawn comes from MOVES and the docstrings of its handlers alone, so it cannot differ from the code.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from connector.machines import login
from connector.machines.commit import per_task as commit
from connector.machines.commit import whole_batch as batch_commit
from connector.machines.group import moves as group
from connector.machines.producer import sequences, turns
from connector.machines.producer import session as producer
from connector.machines.transaction import moves as transaction

MACHINES: Mapping[str, Any] = {
    "commit": commit,
    "batch_commit": batch_commit,
    "turns": turns,
    "producer": producer,
    "sequences": sequences,
    "transaction": transaction,
    "group": group,
    "login": login,
}

_BLOCK = re.compile(r"<!-- machine: (\w+) -->\n.*?<!-- end -->", re.DOTALL)


def table(name: str) -> str:
    """The machine's states and moves as Markdown tables."""
    module = MACHINES[name]
    lines = ["| state | meaning |", "|---|---|"]
    lines += [f"| {state.name} | {state.value} |" for state in module.State]
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
