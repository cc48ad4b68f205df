"""Why a decided batch cannot be finished now, in words: the state of the data, and what to do.

Owns: the errors for the effects that stop a commit.
Does not know: what led to such an effect.
Invariants: no error states that a decided batch is lost or may be skipped.
"""

from __future__ import annotations

from collections.abc import Mapping

from connector.errors import DecisionBroken, ExactlyOnceError, Fact, NondeterministicPlan
from connector.machines.commit import per_task as cm


def stop_error(effect: cm.Effect, facts: Mapping[str, Fact]) -> ExactlyOnceError:
    """The error to raise for an effect that ends a commit."""
    if isinstance(effect, cm.StopNondeterministic):
        decided, again = effect.decided, effect.replayed
        return NondeterministicPlan(
            f"slot {decided.slot} of a decided batch was aborted (its transaction timed out, or a task attempt that "
            "Spark had abandoned took its id over), and its replay differs from the decision: the query's plan gives other "
            "rows when it runs again (random values, current time, an unordered limit, a changed static table); committed "
            "slots stay committed, this slot is not written; make the plan deterministic or restore its input, "
            "then start the query again",
            {
                **facts,
                "slot": decided.slot,
                "decided_records": decided.records,
                "replayed_records": again.records if again else None,
                "decided_digest": f"{decided.digest:016x}",
                "replayed_digest": f"{again.digest:016x}" if again else None,
            },
        )
    if isinstance(effect, cm.StopSplit):
        return _split_differently(effect, facts)
    if isinstance(effect, cm.StopForNow):
        return DecisionBroken(
            "a decided batch is not finished: "
            + effect.reason
            + "; its other slots are committed and nothing is "
            "skipped; start the query again from the same checkpoint, and it goes on with this batch",
            facts,
        )
    assert isinstance(effect, cm.StopBroken)
    lines = [
        f"slot {seal.slot}: {seal.transactional_id}, {seal.identity}, "
        + ", ".join(
            f"{each.topic}-{each.partition} from offset {each.first_offset}" for each in seal.partitions
        )
        for seal in effect.unknown
    ]
    return DecisionBroken(
        "the outcome of decided slots is unknown: neither the coordinator nor the log has it; the other slots "
        "are committed and nothing is skipped. If retention or somebody deleted their records, check with the readers of the "
        "topics whether they were there, and set adopt.checkpoint=true once: the batch then counts as "
        "committed, none of it is written again, and missing records stay missing:\n" + "\n".join(lines),
        {**facts, "slots": tuple(seal.slot for seal in effect.unknown)},
    )


def _split_differently(stop: cm.StopSplit, facts: Mapping[str, Fact]) -> DecisionBroken:
    """The error for a replay that has the decided rows in other
    slots, where some of the decided slots are committed."""
    decided, replayed = len(stop.decided), len(stop.replayed)
    return DecisionBroken(
        "the broker aborted slots of a decided batch, and its replay has the same rows, split differently: the decision had "
        f"{decided} slots, the replay has {replayed}. Some of the decided slots are committed, so the others can only be "
        "written as they were. Nothing is lost, and what was written again is aborted. Start the query once with "
        "the settings of that time that decide how its rows are split: the number of cores "
        f"(local[{decided}], executors), spark.default.parallelism, "
        "spark.sql.shuffle.partitions, spark.sql.files.maxPartitionBytes and minPartitionNum, or the coalesce or repartition "
        "of the plan; once this batch is finished, any split works again",
        {**facts, "decided_slots": decided, "replayed_slots": replayed},
    )
