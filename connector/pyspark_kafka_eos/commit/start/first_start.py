"""Whether a run may begin where the ledger has no decision of its pipeline, or where its query now writes under another
name.

Owns: the refusals where the pipeline or the query is known elsewhere, the warning for a query whose earlier batches the
pipeline has not.
Does not know: how a pipeline is taken over.
Invariants:
- A pipeline without a decision begins only where no coordinator knows it, or where the ledger has the note of its first
  start.
- That note is in the ledger before any transactional id exists. So ids without it were begun under another ledger,
  whose decisions this one lacks. What the coordinators say of the ids is no proof that nothing was committed: a
  transaction that mended a decided batch's markers and timed out shows the same as one that was given up.
- A query that begins under another name leaves a note under its former ones, before it decides anything. So a start
  under a name that the query has left is known to be one.
- Behind batch 0 no partition of the ledger has a record of the pipeline, either.

A function of `foreachBatch` that returns for an empty frame skips batches, and so does a query that wrote elsewhere
before. Nothing of those batches can be written twice here. Whether rows of them should be here only their author knows:
hence a warning.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Sequence
from dataclasses import replace

from kafka_core.errors import LedgerUnreadable, PipelineConflict
from kafka_core.foreign_text import told
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.commit.ledger.notes import Began, Renamed
from pyspark_kafka_eos.commit.ledger.reader import LedgerView
from pyspark_kafka_eos.commit.ledger.survey import survey
from pyspark_kafka_eos.commit.ledger.topic import Ledger
from pyspark_kafka_eos.commit.start.admission import OffsetLog, ended_by_tombstone
from pyspark_kafka_eos.model import Decision
from pyspark_kafka_eos.options import SinkOptions

log = logging.getLogger(__name__)

_CLUSTER_OF_OFFSETS = re.compile(r'"cluster:([^"]+)"')
"""The cluster that a line of source offsets of `format("kafka_eos")` names."""


def admit(
    ledger: Ledger,
    options: SinkOptions,
    now: Began,
    view: LedgerView,
    known: Sequence[str],
    beside: Collection[str],
    offset_log: OffsetLog | None,
) -> None:
    """Let a pipeline without a decision begin, and note it; one with a decision where the query is not further under
    another name. PipelineConflict, with nothing written, where somebody knows the pipeline, or the query under another
    name.

    `known`: the pipeline's transactional ids that a coordinator has, in whatever state. `beside`: other pipelines that
    this run of the query writes too. `offset_log`: that of a streaming query, which no other write shares its id with.
    """
    now = now if options.batch_id is None else replace(now, batch_id=options.batch_id)
    began, query_id, batch_id = view.began, now.query_id, now.batch_id
    if view.newest is not None:
        if view.renamed is not None and view.renamed.query_id == query_id:
            own = view.newest.batch_id if view.newest.query_id == query_id else -1
            found = survey(ledger.cluster, options.ledger_topic, options.pipeline, query_id)
            _judge_names(ledger, options, now, found.names, beside, own, renames=options.adopt_checkpoint)
        return
    behind = batch_id > 0 and options.batch_id is None
    unnoted = not _is_noted(view, now, behind=behind) and not options.adopt_checkpoint
    if unnoted and known:
        raise _by_coordinators(options, view, batch_id if behind else 0, known)
    if offset_log is not None or behind:
        found = survey(ledger.cluster, options.ledger_topic, options.pipeline, query_id)
        if unnoted and began is None and found.places and behind:
            raise _known(options, batch_id, f"{_listed(found.places)} has records of it")
        renames = options.adopt_checkpoint or began == now or batch_id == 0
        _judge_names(ledger, options, now, found.names, beside, -1, renames=renames)
    if began is None or began != now:
        ledger.note(replace(now, adopted=options.adopt_checkpoint))
    elif view.believed:
        # Its writer is forgotten, as ids are that rested. Beside the first note of this run's own it would be somebody
        # else's, and the next start would know of no first one.
        ledger.note(began)


def _listed(places: Sequence[TopicPartition]) -> str:
    return ", ".join(map(str, places))


def known_elsewhere(options: SinkOptions, view: LedgerView, known: Sequence[str]) -> PipelineConflict | None:
    """Why a run that begins with batch 0 would be refused, as far as that shows without its query: the note of any
    first start counts as this run's. None where it would not be.
    """
    if not known or view.newest is not None or _is_noted(view, view.began, behind=False):
        return None
    return _by_coordinators(options, view, 0, known)


def _is_noted(view: LedgerView, now: Began | None, *, behind: bool) -> bool:
    """Whether the ledger, which has no decision, accounts for ids of the pipeline. `now`: the start of this run;
    `behind`: of a later batch than the query's first one.
    """
    # A later batch than the noted one runs because that one was done, and so was decided, unless the function of
    # foreachBatch has changed. What a user has confirmed of one batch is said of no other one.
    began = view.began
    unused = view.forgotten or (began is not None and not began.adopted)
    return (began is not None and began == now) or (unused and not behind)


def _by_coordinators(options: SinkOptions, view: LedgerView, batch_id: int, known: Sequence[str]) -> PipelineConflict:
    """The refusal of a pipeline whose ids a coordinator knows and the ledger does not."""
    if view.forgotten:
        return ended_by_tombstone(options, batch_id, _by_a_coordinator(known))
    return _known(options, batch_id, _by_a_coordinator(known))


def _by_a_coordinator(known: Sequence[str]) -> str:
    return f"a coordinator knows its transactional id {known[0]!r}"


def _known(options: SinkOptions, batch_id: int, by_whom: str) -> PipelineConflict:
    this = "this batch"
    if batch_id > 0:
        this, by_whom = f"batch {batch_id}", f"{by_whom}, and the checkpoint begins batch {batch_id}"
    return PipelineConflict(
        f"the ledger topic {options.ledger_topic!r} has no decision of pipeline {options.pipeline!r}, nor the first start of this batch, but {by_whom}; "
        "nothing was written. If the ledger was deleted, recreated or restored, or if ledger.topic named another one, bring it back, or find out "
        f"whether {this} is in the output. Once you know that it is not, or that the pipeline never committed a batch, "
        "set adopt.checkpoint=true once",
        {
            "pipeline": options.pipeline,
            "ledger": options.ledger_topic,
            "this_batch": batch_id,
            "known_by": by_whom,
        },
    )


def _judge_names(
    ledger: Ledger,
    options: SinkOptions,
    now: Began,
    names: Sequence[str],
    beside: Collection[str],
    own: int,
    *,
    renames: bool,
) -> None:
    """Refuse where the query is further under another name than here, or leave a note under each such name. `own`: the
    newest batch of the query under this one, -1 without. `renames`: the user says, or has said, that the pipeline has
    another name now, or the batch is the query's first one.
    """
    query_id, batch_id = now.query_id, now.batch_id
    left = []
    for name in [each for each in names if each not in beside]:
        former = Ledger(ledger.cluster, options.ledger_topic, name)
        until = _newest_of(former, query_id)
        if until is None:
            continue
        facts: dict[str, str | int] = {
            "pipeline": options.pipeline,
            "ledger_pipeline": name,
            "ledger_batch": until,
            "this_batch": batch_id,
            "query": query_id,
        }
        if isinstance(until, int) and until >= batch_id:
            raise PipelineConflict(
                f"batch {batch_id} of this query is committed already, as pipeline {name!r}, whose newest batch is {until}; nothing was "
                f"written: as pipeline {options.pipeline!r} its rows would come twice. Start the query once more with pipeline={name!r}: Spark "
                "then notes the batch as done. Then set the new name, with adopt.checkpoint=true once. Two queries from one checkpoint: "
                "give each a checkpoint of its own",
                facts,
            )
        if isinstance(until, int) and until <= own:
            continue
        if not renames:
            here = "which nobody knows" if own < 0 else f"whose newest batch of it is {own}"
            raise PipelineConflict(
                f"this query wrote as pipeline {name!r} until batch {until}, and begins batch {batch_id} as pipeline "
                f"{options.pipeline!r}, {here}; nothing was written. If the pipeline was renamed, set pipeline={name!r} again: "
                f"what is left of its last batch is finished under that name only. If it has to be renamed, or if the query writes to "
                f"both, set adopt.checkpoint=true once, after `kafka-eos transactions explain {name}` has shown that nothing is left",
                facts,
            )
        left.append(former)
    for former in left:
        former.note(Renamed(query_id, options.pipeline))


def _newest_of(ledger: Ledger, query_id: str) -> int | str | None:
    """The newest batch of the query that another pipeline has; None where that is another query's by now."""
    try:
        newest = ledger.look().newest
    except LedgerUnreadable:
        # What it cannot show it may have: only its user can tell.
        return "unknown (its newest record cannot be read)"
    return newest.batch_id if newest is not None and newest.query_id == query_id else None


def warn_of_gap(
    options: SinkOptions,
    query_id: str,
    newest: Decision | None,
    batch_id: int,
    source_offsets: Sequence[str] | None,
    cluster: Cluster,
) -> tuple[str, ...]:
    """The log and the next decision record that earlier batches of the query are not in the pipeline."""
    mine = newest is not None and newest.query_id == query_id
    first = newest.batch_id + 1 if newest is not None and mine else 0
    if batch_id <= first or (newest is not None and not mine):
        return ()
    those = f"batch {first}" if batch_id == first + 1 else f"batches {first} to {batch_id - 1}"
    moved = (
        ""
        if mine
        else "the query had another sink then, as Spark's own before it was moved to this one (which is fine), or "
    )
    warning = (
        f"pipeline {options.pipeline!r} does not have {those} of this query and goes on with batch {batch_id}: {moved}the function of "
        "foreachBatch returned without calling the writer (as `if df.isEmpty(): return` does, which is fine), or the query wrote elsewhere "
        "then (to another cluster, under another name); rows that it wrote to none of these are missing in this pipeline's topic"
    )
    mine_is = cluster.cluster_id()
    named = {each for line in source_offsets or () for each in _CLUSTER_OF_OFFSETS.findall(line)}
    elsewhere = sorted(named - {mine_is})
    if elsewhere:
        warning += (
            f"; the checkpoint's source offsets are of cluster {', '.join(elsewhere)}, this sink's cluster is {mine_is}"
        )
    return (told(log, warning),)


__all__ = ["admit", "known_elsewhere", "warn_of_gap"]
