"""What the newest batches of this process's queries did, for whoever shows it: listener, metrics, progress display.

Owns: keeping the reports until somebody asks, and no longer than that needs.
Does not know: who asks; how a report comes about.
Invariants: it holds at most `MOST_REPORTS`, however long the process runs; publishing never fails.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from connector.commit.driver import CommitReport

MOST_REPORTS = 1024
"""Reports kept, over all queries; one takes about 500 bytes. Spark tells a listener of a batch after it has ended, from a
queue of its own: this is how far that may lag. At half a burst of tiny batches might lose its numbers, at double nothing
is won."""


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
