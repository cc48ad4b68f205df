"""One query of the product in a process of its own, from the source to an output, by `tests.changes.small_spark`.

    python -m tests.cluster.job '{"name": ..., "way": ..., ...}'        a child of `python -m tests.cluster`

It says each batch as a line of JSON, and what ended the query as the last one. A file `stop` in its directory ends it
behind a batch.

Owns: the query's options, when a batch begins.
Does not know: what happens to the brokers, who looks at the output.
Invariants:
- A task has the rows of one partition of the source, in their order.
- No option is there for the test: what a user leaves out is left out.
"""

from __future__ import annotations

import json
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.changes.processes import many_processes
from tests.changes.small_spark import Checkpoint, Query, Row, row_of, task_contexts
from tests.cluster.judge import PARTITIONS
from tests.cluster.plan import ROWS_PER_BATCH, SOURCE, TRIGGER_S

READ_WITHIN_MS = 120_000
"""What the source's reader waits for where nobody changes it."""


@dataclass(frozen=True)
class Plan:
    """Which query. `name` is its pipeline and its output."""

    name: str
    way: str
    scope: str
    servers: str
    directory: str

    @property
    def checkpoint(self) -> Path:
        """Where Spark would keep it."""
        return Path(self.directory) / "checkpoint"

    @property
    def stop(self) -> Path:
        """Asks it to end."""
        return Path(self.directory) / "stop"

    def to_json(self) -> str:
        """For the command line."""
        return json.dumps(asdict(self))


class _Query(Query):
    def in_slots(self, rows: Sequence[dict[str, Any]]) -> list[list[Row]]:
        slots: list[list[Row]] = [[] for _ in range(PARTITIONS)]
        for row in rows:
            slots[row["partition"]].append(row_of(row))
        return slots


def run(plan: Plan) -> None:
    """Until it is asked to stop, or the query ends with an error."""
    servers = {"kafka.bootstrap.servers": plan.servers}
    sink = {**servers, "pipeline": plan.name, "topic": plan.name, "transaction.scope": plan.scope}
    source = {
        **servers,
        "subscribe": SOURCE,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(ROWS_PER_BATCH),
    }
    checkpoint, pause = Checkpoint(plan.checkpoint), threading.Event()
    with many_processes() as many, task_contexts():
        query = _Query(many, checkpoint, plan.way, sink, source, PARTITIONS, {}, {}, (), READ_WITHIN_MS)
        while not plan.stop.exists():
            began = time.time()
            if query.batch():
                _say(batch=checkpoint.newest("commits"), began=began, ended=time.time())
            pause.wait(max(0.0, began + TRIGGER_S - time.time()))


def _say(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


def main(given: str) -> int:
    """Run the query; 1 where it ended by itself."""
    try:
        run(Plan(**json.loads(given)))
    except Exception as error:  # noqa: BLE001 -- a query that ends says why, whatever it is
        text = str(error).splitlines() or [""]
        traceback.print_exc()
        _say(error=f"{type(error).__name__}: {text[0]}", at=time.time())
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
