"""What jobs there are beside the usual one of two tasks with four short rows each.

Owns: the table `SHAPES`, by whose names a history refers to them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Shape:
    """`handed_over`: a batch begins in one process of the driver's machine and is committed in another, as with the
    sink by format.
    `kept`: those processes live on to the next batch. `at_once`: tasks that run at a time, as many as Spark has cores;
    0: all.
    `key_bytes`: length of each row's key; 0: rows have none. `options`: of the sink, beside those of every job.
    `ledger_bytes`: the ledger's max.message.bytes; 0: as the product makes it. `empty`: of a hundred slots so many have
    no rows, others in each batch.
    """

    slots: int = 2
    at_once: int = 0
    rows: int = 4
    key_bytes: int = 0
    handed_over: bool = False
    kept: bool = False
    ledger_bytes: int = 0
    empty: int = 0
    options: Mapping[str, str] = field(default_factory=dict)


SHAPES: dict[str, Shape] = {
    "": Shape(),
    "handed over": Shape(handed_over=True),
    "workers kept": Shape(handed_over=True, kept=True),
    # Two rows fill a batch, so a slot has six batches for each of the two partitions: more than may be in flight.
    "many batches": Shape(rows=24, key_bytes=400, options={"kafka.batch.size": "1024"}),
    # A decision takes 20 to 60 records.
    "small ledger": Shape(slots=6, ledger_bytes=400),
    "long life": Shape(slots=3, empty=60),
    "long life, handed over": Shape(slots=3, empty=60, handed_over=True, kept=True),
    "many tasks": Shape(slots=200, at_once=16, rows=2),
}
"""Name -> job. A name does not change its meaning: histories that are kept somewhere have it."""
