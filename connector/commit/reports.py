"""What a batch's commit did, and the newest of this process's queries, for whoever shows them: listener, metrics, display.

Owns: what a report says; keeping reports until somebody asks, and no longer than that needs.
Does not know: who asks; how a report comes about.
Invariants: it holds at most `MOST_REPORTS`, however long the process runs; publishing never fails.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

MOST_REPORTS = 1024
"""Reports kept, over all queries; one takes about 500 bytes. Spark tells a listener of a batch after it has ended, from a
queue of its own: this is how far that may lag. At half a burst of tiny batches might lose its numbers, at double nothing
is won."""


@dataclass(frozen=True)
class CommitReport:
    """What one batch's commit did: sizes, and times in milliseconds.

    `commit_ms` ends with the last EndTxn answered, `visible_ms` when every partition has its marker.
    `left_ms` is what the transactions had left; infinite where they have no timeout. `repaired`: rewrites of slots that
    the broker aborted after the decision; `redone`: tries before this one that were aborted undecided (too old; with
    scope=batch also where a task failed). `retries`: record batches that were sent more than once; `fences`: earlier
    attempts of tasks, and transactions that were left open, which were shut out. `dead_letters`: how many of the
    records are rows that went to dead.letter.topic.
    """

    batch_id: int
    records: int
    bytes: int
    slots: int
    commit_ms: float
    left_ms: float
    resumed: bool = False
    repaired: int = 0
    redone: int = 0
    visible_ms: float = 0.0
    retries: int = 0
    fences: int = 0
    dead_letters: int = 0


@dataclass(frozen=True)
class Published:
    """One batch's report, and whose it is."""

    pipeline: str | None
    query_id: str
    report: CommitReport


_kept: dict[tuple[str, int], Published] = {}
_lock = threading.Lock()


def publish(pipeline: str | None, query_id: str, report: CommitReport) -> None:
    """Keep the report of a committed batch; one of an earlier run of the same batch is replaced."""
    key = (query_id, report.batch_id)
    with _lock:
        _kept.pop(key, None)
        _kept[key] = Published(pipeline, query_id, report)
        while len(_kept) > MOST_REPORTS:
            del _kept[next(iter(_kept))]


def find(query_id: str, batch_id: int) -> Published | None:
    """The report of a batch, None where it was committed by another process, or too long ago."""
    with _lock:
        return _kept.get((query_id, batch_id))
