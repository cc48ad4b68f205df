"""Whether the next run can continue from the newest decision, judged without changing anything.

Owns: the judgement of the ledger's newest decision, and of a ledger that has lost some.
Does not know: how findings are shown; the query's checkpoint, so the judgement is that of a run that begins with this
batch.
Invariants:
- A finding that fails carries the error that this run would raise.
- Nothing is written, ended or fenced.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kafka_core import runtime
from kafka_core.errors import Fact
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.commit.gone.absent import why_unknown
from pyspark_kafka_eos.commit.ledger.topic import Ledger
from pyspark_kafka_eos.commit.machine import events as ev
from pyspark_kafka_eos.commit.machine.events import Outcome
from pyspark_kafka_eos.commit.open_parts import never_ended
from pyspark_kafka_eos.commit.proof import Proof, prove, verdict_on
from pyspark_kafka_eos.commit.start.admission import warnings_of_writers
from pyspark_kafka_eos.commit.stops import stop_error
from pyspark_kafka_eos.model import Decision, Seal
from pyspark_kafka_eos.model.said_times import span
from pyspark_kafka_eos.operations.leftovers import WAY_ON
from pyspark_kafka_eos.operations.standing import look, lost_ledger
from pyspark_kafka_eos.operations.topic_checks import Check
from pyspark_kafka_eos.options import SinkOptions


def newest_decision(cluster: Cluster, options: SinkOptions) -> Iterator[Check]:
    """The checks `pipeline` (which query decided last, and whether the ledger has lost that) and `decision`
    (the newest decision's outcome)."""
    pipeline = options.pipeline
    ledger = Ledger(cluster, options.ledger_topic, pipeline)
    refused = lost_ledger(cluster, options, pipeline)
    if refused is not None:
        yield Check(
            "pipeline", "fail", refused.message, "see the message: restore the ledger, or check the last batch and adopt",
            pipeline, refused,
        )  # fmt: skip
        return
    view = look(ledger)
    newest = view.newest
    if newest is None:
        yield Check("pipeline", "ok", "the ledger has no decision of it: a new name", "", pipeline)
    else:
        age = span(int(runtime.time() * 1000) - newest.decided_ms)
        yield Check(
            "pipeline", "ok",
            f"batch {newest.batch_id} of query {newest.query_id} was decided {age} ago ({newest.records} records)",
            "start it from the checkpoint of that query; a new checkpoint needs adopt.checkpoint=true once", pipeline,
        )  # fmt: skip
    # As the next start says it.
    for warning in warnings_of_writers(options, view):
        yield Check("ledger", "warn", warning, "docs/tenants.md says what Write on the ledger allows", pipeline)
    if view.open is not None and not view.settled:
        yield Check(
            "decision", "warn",
            f"a decision at offset {view.open.offset} of {view.open.where} is neither committed nor aborted: a driver is recording "
            "it now, or was killed while it did",
            "no record of that batch is visible; the next run ends the decision first, and repeats the batch "
            "where the decision was not made",
            pipeline,
        )  # fmt: skip
    if newest is not None:
        yield _judged(cluster, options, newest, ended=view.ended)


def _judged(cluster: Cluster, options: SinkOptions, decision: Decision, *, ended: bool) -> Check:
    pipeline, batch = options.pipeline, f"batch {decision.batch_id}"
    if ended:
        return Check("decision", "ok", f"{batch} is committed, and every marker of it was seen", "", pipeline)
    seals = [seal for seal in decision.seals if seal.identity is not None]
    ledger = Ledger(cluster, options.ledger_topic, pipeline)
    proofs = prove(cluster, seals, settle_ms=0, look=lambda: look(ledger))
    verdicts = {seal.slot: _as_the_run_sees_it(cluster, options, decision, seal, proofs[seal.slot]) for seal in seals}
    unknown = [seal for seal in seals if verdicts[seal.slot] is Outcome.UNKNOWN]
    if unknown:
        facts: dict[str, Fact] = {"pipeline": pipeline, "batch": decision.batch_id}
        why = {seal.slot: why_unknown(cluster, seal, proofs[seal.slot]) for seal in unknown}
        error = stop_error(ev.StopBroken(unknown=tuple(unknown)), facts, why)
        # A person has to confirm an outcome that is lost for good.
        # Otherwise a broker or a right is missing, which the message names.
        do = WAY_ON if all(proofs[seal.slot].forgotten for seal in unknown) else "see the message"
        return Check("decision", "fail", error.message.partition(":\n")[0], do, pipeline, error)
    aborted, undone = _slots(verdicts, Outcome.ABORTED), _slots(verdicts, Outcome.OPEN)
    if aborted:
        return Check(
            "decision", "warn", f"{batch} is decided, but the broker aborted {aborted}",
            "start the query from the same checkpoint: it writes them again and compares them with the decision; where that is lost, "
            f"adopt.checkpoint=true asks for adopt.without.batch={decision.batch_id}",
            pipeline,
        )  # fmt: skip
    if undone:
        return Check(
            "decision", "warn", f"{batch} is decided, but not ended in {undone}",
            f"start the query, or commit them: kafka-eos transactions commit {pipeline}; the broker aborts them when they time out",
            pipeline,
        )  # fmt: skip
    return Check("decision", "ok", f"{batch} is committed", "", pipeline)


def _as_the_run_sees_it(
    cluster: Cluster, options: SinkOptions, decision: Decision, seal: Seal, proof: Proof
) -> Outcome:
    verdict = verdict_on(decision, proof, options)
    if verdict is Outcome.UNKNOWN and proof.verdict is verdict and never_ended(cluster, seal):
        return Outcome.OPEN
    return verdict


def _slots(verdicts: Mapping[int, Outcome], verdict: Outcome) -> str:
    found: Sequence[int] = sorted(slot for slot, each in verdicts.items() if each is verdict)
    return f"slot{'s' if len(found) > 1 else ''} {', '.join(map(str, found))}" if found else ""
