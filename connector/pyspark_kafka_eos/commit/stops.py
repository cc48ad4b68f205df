"""Why a decided batch cannot be finished now, in words: the state of the data, and what to do.

Owns: the errors for the effects that stop a commit, and for what no client can end.
Does not know: what led to such an effect.
Invariants: no error states that a decided batch is lost or may be skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kafka_core.errors import (
    AuthorizationFailed,
    DecisionBroken,
    ExactlyOnceError,
    Fact,
    NondeterministicPlan,
    OutcomeUnknown,
)
from kafka_core.foreign_text import Lines
from kafka_core.values import ProducerIdentity, TopicPartition
from pyspark_kafka_eos.commit.machine import events as ev


def stop_error(effect: ev.Stop, facts: Mapping[str, Fact], why: Mapping[int, str] | None = None) -> ExactlyOnceError:
    """The error to raise for an effect that ends a commit. `why`: of slots, what is not there any more
    (`absent.why_unknown`).
    """
    if isinstance(effect, ev.StopBroken):
        return _unknowable(effect, facts, why or {})
    return _ERRORS[type(effect)](effect, facts)


def _nondeterministic(effect: ev.StopNondeterministic, facts: Mapping[str, Fact]) -> NondeterministicPlan:
    decided, again = effect.decided, effect.replayed
    return NondeterministicPlan(
        f"slot {decided.slot} of a decided batch was aborted (its transaction timed out, or a task attempt that "
        "Spark had abandoned took its id over), and its replay differs from the decision: the query's plan gives other "
        "rows when it runs again (random values, current time, an unordered limit, a changed static table), or its source "
        "no longer has the decided ones (failOnDataLoss=false); committed slots stay committed, this slot is not written; "
        f"make the plan deterministic or restore its input, then start the query again; {gone_for_good(facts['batch'])}",
        {
            **facts,
            "slot": decided.slot,
            "decided_records": decided.records,
            "replayed_records": again.records if again else None,
            "decided_digest": f"{decided.digest:016x}",
            "replayed_digest": f"{again.digest:016x}" if again else None,
        },
    )


def _for_now(effect: ev.StopForNow, facts: Mapping[str, Fact]) -> DecisionBroken:
    return DecisionBroken(
        f"a decided batch is not finished: {effect.reason}; what of it is committed stays committed and nothing is skipped; then "
        "start the query again from the same checkpoint, and it goes on with this batch",
        facts,
    )


def _undecided(effect: ev.StopUnknown, facts: Mapping[str, Fact]) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"whether the batch is decided is unknown: {effect.reason}; no slot was ended; the next run asks again "
        "before it does anything else",
        facts,
    )


def _denied(effect: ev.StopDenied, facts: Mapping[str, Fact]) -> AuthorizationFailed:
    return AuthorizationFailed(
        f"the batch is decided, but the right to end {effect.denied.transactional_id!r} is gone ({effect.reason}); its "
        f"records show when it is ended; {effect.remedy} and start the query again before the transaction times out; "
        "nothing is skipped",
        {**facts, "slot": effect.denied.slot},
    )


def _unanswered(effect: ev.StopUnanswered, facts: Mapping[str, Fact]) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"the batch is decided, but ending {effect.unanswered.transactional_id!r} got no definite answer {effect.tries} times "
        f"(last: {effect.reason}); the next run proves and ends it; nothing is skipped",
        {**facts, "slot": effect.unanswered.slot},
    )


def _unknowable(effect: ev.StopBroken, facts: Mapping[str, Fact], why: Mapping[int, str]) -> DecisionBroken:
    lines = [
        f"slot {seal.slot}: {seal.transactional_id}, {seal.identity}, "
        + ", ".join(f"{each.topic}-{each.partition} from offset {each.first_offset}" for each in seal.partitions)
        + (f": {said}" if (said := why.get(seal.slot)) else "")
        for seal in effect.unknown
    ]
    what = (
        "the outcome of decided slots is unknown: neither the coordinator nor the log has it; what of the "
        "other slots is committed stays committed and nothing is skipped. If retention or somebody deleted their records or their topic, check with the readers of "
        "the topics whether they were there, and set adopt.checkpoint=true once: the batch then counts as "
        "committed, none of it is written again, and missing records stay missing:"
    )
    return DecisionBroken(
        Lines.joined([what, *lines]),
        {**facts, "slots": tuple(seal.slot for seal in effect.unknown)},
    )


def gone_for_good(batch_id: Fact) -> str:
    """What is left to do where no replay can give the decided rows."""
    return (
        f"where they are gone for good, go on from a new checkpoint behind batch {batch_id}, with adopt.checkpoint=true and "
        f"adopt.without.batch={batch_id} until a batch is committed"
    )


def _split_differently(stop: ev.StopSplit, facts: Mapping[str, Fact]) -> DecisionBroken:
    """The error for a replay that has the decided rows in other slots, where some of the decided slots are
    committed.
    """
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


_ERRORS: dict[type, Callable[[Any, Mapping[str, Fact]], ExactlyOnceError]] = {
    ev.StopDenied: _denied,
    ev.StopForNow: _for_now,
    ev.StopNondeterministic: _nondeterministic,
    ev.StopSplit: _split_differently,
    ev.StopUnanswered: _unanswered,
    ev.StopUnknown: _undecided,
}


# ---- what no client can end

REWRITTEN = "it finds the abort and writes these rows anew"
RETRIED = "the batch was not decided, none of it is visible, and it is written anew"


def how_to_abort(hanging: Mapping[TopicPartition, int]) -> str:
    """The operator's command for each partition and the offset from which on it hangs."""
    return " and ".join(
        f"`kafka-transactions.sh --bootstrap-server ... abort --topic {where.topic} --partition {where.partition} "
        f"--start-offset {offset}`"
        for where, offset in sorted(hanging.items())
    )


def stranded(
    transactional_id: str,
    identity: ProducerIdentity,
    hanging: Mapping[TopicPartition, int],
    follows: str = REWRITTEN,
) -> DecisionBroken:
    """The error for open transactions that no client can end: this producer's, in these partitions from these offsets
    on.

    A marker can only be written under the producer id of the records. An id that expired or used up its epochs gets
    another one, so nothing that this package may send reaches the old transaction. Kafka's own tool does, with rights
    on the cluster (KIP-664). `follows`: what the next start then does.
    """
    places = ", ".join(f"{where} (from offset {offset})" for where, offset in sorted(hanging.items()))
    return DecisionBroken(
        f"the transaction of {transactional_id!r} is ended, but the broker left {places} without its marker, and the id has "
        f"another producer id than {identity.producer_id} by now (it expired, or its epochs are used up), so no client can write "
        f"that marker; nothing is skipped; have the broker abort it with {how_to_abort(hanging)}, then start the query again: "
        f"{follows}",
        {
            "transactional_id": transactional_id,
            "producer": str(identity),
            "hanging": tuple(str(where) for where in sorted(hanging)),
        },
    )
