"""A decided batch that the broker aborted, and that this run cannot write again: refused, or given up by number.

Owns: what is said of the missing records, and the confirmation.
Does not know: how the decision was proven.

Only a run of that batch has its rows: a run of the earlier query, whose checkpoint may be lost, or one that begins the
same batch again. Spark begins a later batch than the decided one where the function of `foreachBatch` returned without
calling the writer or caught its error, and where somebody moved the checkpoint's commit log on.

Invariants:
- What of the batch is committed stays committed; only records that the broker aborted are given up, and only by the
  batch's number.
- The batch gets no note of an end: until a later batch is decided, every start needs the confirmation.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from kafka_core.errors import DecisionBroken, Fact
from kafka_core.foreign_text import told
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.model import Decision, Seal
from pyspark_kafka_eos.options import SinkOptions
from pyspark_kafka_eos.slot.plan import ALL_OTHERS

log = logging.getLogger(__name__)


def leave(
    options: SinkOptions,
    query_id: str,
    batch_id: int,
    decision: Decision,
    slots: Collection[int],
    torn: Mapping[int, frozenset[TopicPartition]],
) -> str:
    """The warning for records that are given up, as the option adopt.without.batch says. DecisionBroken, with nothing
    written, where it does not name this batch.

    `query_id`, `batch_id`: what this run begins. `slots`: of the decision, aborted by the broker. `torn`: those that
    lost some of their partitions only, with these.
    """
    lost = [seal for seal in decision.seals if seal.slot in slots]
    missing = sum(_missing(seal, torn.get(seal.slot) or torn.get(ALL_OTHERS)) for seal in lost)
    shown = decision.records - missing
    ended = "; ".join(decision.source_offsets)[:500]
    if options.adopt_without_batch == decision.batch_id:
        warning = (
            f"{missing} of the {decision.records} records of batch {decision.batch_id} of query {decision.query_id} are given up, because "
            f"adopt.without.batch={decision.batch_id} says so; the batch ended at source offsets {ended or 'that it has not'}"
        )
        return told(log, warning)
    facts: dict[str, Fact] = {
        "pipeline": options.pipeline,
        "batch": decision.batch_id,
        "this_batch": batch_id,
        "query": decision.query_id,
        "slots": tuple(seal.slot for seal in lost),
        "missing_records": missing,
        "committed_records": shown,
        "source_offsets": ended or None,
    }
    if decision.query_id == query_id:
        raise DecisionBroken(
            f"batch {decision.batch_id} of pipeline {options.pipeline!r} is decided, but the broker aborted {missing} of its "
            f"{decision.records} records, and this query begins batch {batch_id}, which does not have them: the function of foreachBatch "
            f"returned for batch {decision.batch_id} without calling the writer or caught its error, or the checkpoint's commit log was "
            f"changed; nothing was written. Batch {decision.batch_id} ended at source offsets {ended or 'that the ledger does not have'}. To "
            f"write the {missing} records, stop the query and delete offsets/{decision.batch_id + 1} and commits/{decision.batch_id} and all "
            f"later ones from its checkpoint: Spark then begins batch {decision.batch_id} again, where its source still has the rows. To "
            f"give them up, set adopt.without.batch={decision.batch_id} beside adopt.checkpoint=true until a batch is committed",
            facts,
        )
    twice = f"the {shown} committed ones are there twice then" if shown else "none of them is visible yet"
    again = (
        f"The batch ended at source offsets {ended}. If that checkpoint is still there, start the query from it once: it writes them. Else "
        f"begin the new checkpoint in front of that batch ({twice}), or behind it and give the {missing} records up"
        if ended
        else f"If it was a DataFrame, write the same rows again with batch.id={decision.batch_id}: it writes what is missing. Else write them "
        f"under another pipeline, or give them up"
    )
    raise DecisionBroken(
        f"batch {decision.batch_id} of the query that had pipeline {options.pipeline!r} before is decided, but the broker aborted {missing} of "
        f"its {decision.records} records, which only that query can write as they were decided; nothing was written. {again}; for both "
        f"set adopt.without.batch={decision.batch_id} beside adopt.checkpoint=true until a batch is committed",
        facts,
    )


def _missing(seal: Seal, only: frozenset[TopicPartition] | None) -> int:
    if only is None:
        return seal.records - sum(each.part.records for each in seal.kept)
    return sum(records for where, (records, _) in seal.shares.items() if where in only)


__all__ = ["leave"]
