"""What a batch's commit did: this process's newest reports, for listener, metrics and display.

Owns: the contents of a report; keeping reports until they are read, and no longer than that needs.
Does not know: who reads them; how a report comes about.
Invariants:
- At most `MOST_REPORTS` are kept, however long the process runs.
- A function of `foreachBatch` may write several pipelines: none hides another one, and the batch's report is that of
  all of them.
- Publishing never fails.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from kafka_core import runtime
from pyspark_kafka_eos.model import Decision, Traffic

MOST_REPORTS = 1024
"""Reports kept, over all queries; one takes about 500 bytes. Spark notifies a listener of a batch after its
end, from a queue of its own; the queue may lag by this many batches. Half could drop reports in a burst of
small batches; double gains nothing."""


@dataclass(frozen=True)
class CommitReport:
    """What one batch's commit did: sizes, and times in milliseconds.

    `commit_ms` ends with the last EndTxn answered, `visible_ms` when every partition has its marker.
    `left_ms` is the time that the transactions had left; infinite where they have no timeout. `repaired`:
    rewrites of slots that the broker aborted after the decision; `redone`: tries before this one that were
    aborted undecided (too old; with scope=batch also where a task failed). `retries`: record batches that
    were sent more than once; `fences`: earlier attempts of tasks and leftover open transactions that were
    fenced. `dead_letters`: how many of the records are rows that went to dead.letter.topic. `traffic`: what
    sending the records took; None where no task of this version wrote them.
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
    traffic: Traffic | None = None

    @staticmethod
    def of_decision(
        decision: Decision, began: float, ended_at: float, left_ms: float, fenced: int, *, resumed: bool
    ) -> CommitReport:
        """The report of a batch that is ended by now. `began`, `ended_at`: seconds of `runtime.perf_counter`,
        0 where nothing had to be ended. `fenced`: leftover transactions that were fenced."""
        now = runtime.perf_counter()
        return CommitReport(
            batch_id=decision.batch_id,
            records=decision.records,
            bytes=sum(seal.bytes for seal in decision.seals),
            slots=len(decision.seals),
            commit_ms=((ended_at or now) - began) * 1000,
            visible_ms=(now - began) * 1000,
            left_ms=left_ms,
            resumed=resumed,
            repaired=decision.repaired,
            retries=sum(seal.retries for seal in decision.seals),
            fences=fenced + sum(seal.attempt for seal in decision.seals),
            dead_letters=decision.dead_letters,
            traffic=decision.traffic,
        )

    @staticmethod
    def of_all(several: Sequence[CommitReport]) -> CommitReport:
        """The report of one batch that several pipelines wrote: sums, and the least time that was left."""
        return CommitReport(
            batch_id=several[0].batch_id,
            records=sum(each.records for each in several),
            bytes=sum(each.bytes for each in several),
            slots=sum(each.slots for each in several),
            commit_ms=sum(each.commit_ms for each in several),
            left_ms=min(each.left_ms for each in several),
            resumed=any(each.resumed for each in several),
            repaired=sum(each.repaired for each in several),
            redone=sum(each.redone for each in several),
            visible_ms=sum(each.visible_ms for each in several),
            retries=sum(each.retries for each in several),
            fences=sum(each.fences for each in several),
            dead_letters=sum(each.dead_letters for each in several),
            traffic=Traffic.of_all(each.traffic for each in several),
        )


@dataclass(frozen=True)
class Published:
    """One batch's report, with its query and its pipeline, or the names of several."""

    pipeline: str | None
    query_id: str
    report: CommitReport


class _Kept:
    """The reports that one process keeps."""

    def __init__(self) -> None:
        self.lock = runtime.lock()
        self.reports: dict[tuple[str, int, str | None, Hashable], Published] = {}


_kept = runtime.PerProcess(_Kept)


def publish(pipeline: str | None, query_id: str, report: CommitReport, place: Hashable = None) -> None:
    """Keep the report of a committed batch; one of an earlier run of the same batch is replaced. `place`: the cluster
    and the ledger in which the pipeline has its name.
    """
    key = (query_id, report.batch_id, pipeline, place)
    kept = _kept()
    with kept.lock:
        kept.reports.pop(key, None)
        kept.reports[key] = Published(pipeline, query_id, report)
        while len(kept.reports) > MOST_REPORTS:
            del kept.reports[next(iter(kept.reports))]


def find(query_id: str, batch_id: int) -> Published | None:
    """The report of a batch, of all pipelines that it wrote; None where another process
    committed it, or where it was committed too long ago."""
    kept = _kept()
    with kept.lock:
        found = [each for key, each in kept.reports.items() if key[:2] == (query_id, batch_id)]
    if len(found) < 2:
        return found[0] if found else None
    names = ", ".join(sorted({each.pipeline for each in found if each.pipeline is not None}))
    return Published(names or None, query_id, CommitReport.of_all([each.report for each in found]))
