"""The next batch of a run that goes on: its process shows by one question that the pipeline is still its own.

Owns: what a process keeps between two batches of a run, the proof that nothing has taken the pipeline over since.
Does not know: Spark; how a pipeline is taken over in doubt, which `run` does; how a batch is planned or ended.
Invariants:
- A process goes on only in a run of which it has begun or ended a batch before, under the same options.
- The batch before is ended, and the ledger has the identity that the driver's id had then.
- Each initialisation of the driver's id raises its epoch by one. The answer is that identity's next epoch, so no
  other initialisation came between, no timeout, no decision under TV2; under TV1 the ledger is read after it.
- In doubt the pipeline is taken over as at a run's start. The requests made so far are a prefix of a take-over's, so
  nothing has to be undone.

Why the rest of a take-over is not needed. It ends what older runs left: open slots, hanging transactions,
missing markers. The run's own start has done that, and since then only this run wrote. A batch of it that failed
was given up or begun again, and both change the driver's identity. What a task of an ended batch still leaves
open is ended by the next task of its slot, or by its timeout, as in a run of one process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from kafka_core import runtime
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.commit.ledger.reader import LedgerView
from pyspark_kafka_eos.commit.run import Run
from pyspark_kafka_eos.commit.start import admission
from pyspark_kafka_eos.model import ClientSettings
from pyspark_kafka_eos.options import SinkOptions

_MOST = 1_000
"""Pipelines that a process keeps something of. Half would take pipelines over for each batch where a driver has so many
queries; double would keep more of queries that are over."""


@dataclass
class _Memory:
    """The newest run of each pipeline whose batch this process has begun or ended, by cluster, ledger and pipeline."""

    runs: dict[tuple[ClientSettings, str, str], Run] = field(default_factory=dict)


_memory = runtime.PerProcess(_Memory)


def kept(cluster: Cluster, options: SinkOptions, query_id: str) -> Run | None:
    """The run of this process's last batch of the query; None where there was none. It is the caller's from now on, so
    two threads never have it.
    """
    run = _memory().runs.pop(_key(options), None)
    if run is None or (run.options, run.query_id) != (options, query_id):
        return None
    return run if run.cluster is cluster else None


def keep(run: Run) -> None:
    """Keep what the next call of `kept` gives. Call it once the batch is planned, or ended."""
    runs = _memory().runs
    if len(runs) >= _MOST:
        runs.clear()
    runs[_key(run.options)] = run


def go_on(run: Run, batch_id: int, source_offsets: Sequence[str] | None) -> bool:
    """Own the pipeline for a new batch of the run that ended the one before. False where that is in doubt: the run is
    then to take the pipeline over. Raises PipelineConflict as that does, with nothing written and no process fenced.
    """
    before = run.ledger.look()
    admission.refuse_conflict(run.options, run.query_id, before.newest, batch_id, source_offsets)
    if before.driver is None or not _is_free(before) or not _follows(run, before, batch_id):
        return False
    if run.producer.initialize() == replace(before.driver, epoch=before.driver.epoch + 1):
        after = run.ledger.look()
        if _is_free(after) and after.newest == before.newest:
            run.newest, run.newest_ended = after.newest, after.ended
            # Another process may have ended the batch before, and mended what a broker forgot of it.
            run.ledger.last_commits = after.last_commits
            run.warnings = admission.warn_of_another_topic(run.options, run.newest)
            return True
    run.forget_epoch()
    return False


def _is_free(view: LedgerView) -> bool:
    """Whether nothing is left to end: neither a decision nor a mending."""
    return view.ended and view.open is None and not view.unfinished


def _follows(run: Run, view: LedgerView, batch_id: int) -> bool:
    newest = view.newest
    return newest is not None and (newest.query_id, newest.batch_id) == (run.query_id, batch_id - 1)


def _key(options: SinkOptions) -> tuple[ClientSettings, str, str]:
    return options.client, options.ledger_topic, options.pipeline


__all__ = ["go_on", "keep", "kept"]
