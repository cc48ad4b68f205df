"""What an operator may do to a pipeline's transactions when no run of it does: commit what is decided, end what is not.

Owns: which of them each operation may touch, and taking the pipeline over before anything undecided is ended.
Does not know: who confirmed it, how it is shown.
Invariants: only what the ledger has decided is committed; nothing that is decided is aborted or fenced before its end is
proven; nothing is called undecided before the pipeline's driver is fenced, because until then it may decide at any
moment; an answer that proves nothing is reported as unknown.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from connector.client.cluster import Cluster
from connector.client.ends import EndRequest
from connector.client.producer import Producer
from connector.client.transactions import Transactions
from connector.commit.driver import DECISION_TIMEOUT_MS
from connector.commit.hanging import UNSETTLED, Mender, never_ended
from connector.commit.ledger import Ledger
from connector.commit.leftovers import Leftover, find_leftovers, pipeline_of
from connector.commit.proof import prove
from connector.errors import ExactlyOnceError
from connector.machines.commit import Verdict
from connector.model import Decision, Seal, batch_transactional_id

Outcome = Literal["committed", "aborted", "fenced", "unchanged", "refused", "unknown"]

_TIMEOUT_MS = 60_000
"""Of the transactions that these operations open themselves, which last milliseconds; Kafka's default."""


@dataclass(frozen=True)
class Done:
    """What became of one transactional id, and why."""

    transactional_id: str
    outcome: Outcome
    detail: str


def commit(cluster: Cluster, ledger: Ledger, ids: Collection[str] = ()) -> list[Done]:
    """End with a commit what the newest decision has decided and nobody has ended; of `ids` only, if any are named.

    A run of the pipeline may be at work meanwhile: it would do the same.
    """
    view = ledger.look()
    Mender(cluster, ledger, _TIMEOUT_MS).finish(view)
    decision = view.newest
    found = _chosen(find_leftovers(cluster, ledger.pipeline, decision), ids, ledger.pipeline)
    done = [_commit_one(cluster, ledger, each) for each in found if each.seal is not None or ids]
    return done + _unheard_of(found, ids)


def _commit_one(cluster: Cluster, ledger: Ledger, each: Leftover) -> Done:
    seal, name = each.seal, each.transactional_id
    if seal is None or seal.identity is None:
        return Done(name, "refused", "the ledger has not decided it, so it may not be committed")
    if each.verdict is Verdict.ABORTED:
        return Done(
            name, "refused", "the broker has aborted it; only the query's next run can write it again"
        )
    if each.verdict is Verdict.COMMITTED and not each.lacks_markers:
        return Done(name, "unchanged", "it is committed already")
    try:
        if each.verdict is Verdict.OPEN:
            request = EndRequest(name, seal.identity, True, seal.transaction_version)
            Transactions(cluster).end(request)
        elif each.verdict is Verdict.UNKNOWN and not never_ended(cluster, seal):
            return Done(
                name, "unknown", "neither the coordinator nor the log can say how it ended; nothing was done"
            )
        # Whatever the answer was: the proof counts. An end without its markers shows nothing.
        if _verdict(cluster, seal) is Verdict.COMMITTED or each.verdict is Verdict.UNKNOWN:
            Mender(cluster, ledger, _TIMEOUT_MS).await_markers([seal], commit=True)
        verdict = _verdict(cluster, seal)
    except ExactlyOnceError as error:
        return Done(name, "unknown", f"{type(error).__name__}: {error.message}")
    if verdict is Verdict.COMMITTED:
        return Done(name, "committed", f"{seal.records} records of batch {each.batch_id} show now")
    return Done(name, "unknown", f"asked to commit, but it is {verdict.name.lower()} now; ask again")


def _verdict(cluster: Cluster, seal: Seal) -> Verdict:
    return prove(cluster, [seal])[seal.slot].verdict


def abort(cluster: Cluster, ledger: Ledger, group: str, ids: Collection[str] = ()) -> list[Done]:
    """Abort what is open and not decided; of `ids` only, if any are named. A run that is at work is fenced first.

    What is decided is refused: `commit` is for that.
    """
    return _end_undecided(cluster, ledger, group, ids, fence=False)


def fence(cluster: Cluster, ledger: Ledger, group: str, ids: Collection[str] = ()) -> list[Done]:
    """Give every id a new epoch, but those whose decided end is not proven: what is open under it is aborted, and nobody
    who wrote under it before writes again. A run that is at work is fenced too."""
    return _end_undecided(cluster, ledger, group, ids, fence=True)


def _end_undecided(
    cluster: Cluster, ledger: Ledger, group: str, ids: Collection[str], *, fence: bool
) -> list[Done]:
    decision, batch_was = take_over(cluster, ledger, group)
    found = _chosen(find_leftovers(cluster, ledger.pipeline, decision), ids, ledger.pipeline)
    done = []
    mendings = ledger.look().mendings
    for each in found:
        mending = mendings.get(each.transactional_id)
        if mending is not None and each.state in UNSETTLED and each.identity == mending.identity:
            why = "a run is writing the missing markers of a decided batch under it; `transactions commit` ends it"
            done.append(Done(each.transactional_id, "refused", why))
        elif each.transactional_id == batch_transactional_id(ledger.pipeline) and batch_was in UNSETTLED:
            outcome: Outcome = "fenced" if fence else "aborted"
            done.append(Done(each.transactional_id, outcome, "nothing of it was visible, nor is"))
        elif each.last == "driver":
            done.append(
                Done(
                    each.transactional_id, "fenced", "a run that was at work stops; nothing of it is decided"
                )
            )
        elif each.decided_open or (each.seal is not None and each.verdict is Verdict.ABORTED):
            why = "is aborted by the broker" if each.verdict is Verdict.ABORTED else "may only be committed"
            done.append(
                Done(each.transactional_id, "refused", f"batch {each.batch_id} is decided, and this {why}")
            )
        elif fence:
            done.append(_fence_one(cluster, each))
        elif each.state in UNSETTLED:
            done.append(_abort_one(cluster, each))
        elif ids:
            done.append(Done(each.transactional_id, "unchanged", f"nothing is open under it ({each.state})"))
    return done + _unheard_of(found, ids)


def take_over(cluster: Cluster, ledger: Ledger, group: str) -> tuple[Decision | None, str]:
    """Fence the pipeline's runs of either scope, as a new run does, and read the newest decision: from here on it stays the
    newest. Also the state that the transaction of a batch in one transaction was in; what was open is aborted by that."""
    driver_id, batch_id = f"{ledger.pipeline}.driver", batch_transactional_id(ledger.pipeline)
    producer = Producer(cluster, driver_id, transaction_timeout_ms=DECISION_TIMEOUT_MS)
    mender = Mender(cluster, ledger, DECISION_TIMEOUT_MS)
    mender.finish(ledger.look())
    mender.settle_decision(driver_id, group)
    producer.initialize()
    transactions = Transactions(cluster)
    batch_was = transactions.describe([batch_id])[batch_id].state
    if batch_was != "NotFound":
        # It may hold a decision open in the ledger, which could not be read then.
        transactions.init_producer_id(batch_id, _TIMEOUT_MS)
    return ledger.newest(settle=True), batch_was


def _abort_one(cluster: Cluster, each: Leftover) -> Done:
    name, transactions = each.transactional_id, Transactions(cluster)
    try:
        answer = transactions.end(EndRequest(name, each.identity, False, cluster.transaction_version))
        state = transactions.describe([name])[name].state
    except ExactlyOnceError as error:
        return Done(name, "unknown", f"{type(error).__name__}: {error.message}")
    if answer.definite or state in ("CompleteAbort", "PrepareAbort"):
        return Done(name, "aborted", "nothing of it was visible, nor is")
    return Done(name, "unknown", f"EndTxn answered {answer.reason}; the coordinator says {state}")


def _fence_one(cluster: Cluster, each: Leftover) -> Done:
    try:
        identity = Transactions(cluster).init_producer_id(each.transactional_id, _TIMEOUT_MS)
    except ExactlyOnceError as error:
        return Done(each.transactional_id, "unknown", f"{type(error).__name__}: {error.message}")
    was = "what was open is aborted" if each.state in UNSETTLED else "nothing was open"
    return Done(each.transactional_id, "fenced", f"{was}; it is at {identity} now")


def _unheard_of(found: Sequence[Leftover], ids: Collection[str]) -> list[Done]:
    known = {each.transactional_id for each in found}
    return [Done(each, "unchanged", "no coordinator knows it") for each in ids if each not in known]


def _chosen(found: Sequence[Leftover], ids: Collection[str], pipeline: str) -> list[Leftover]:
    """The leftovers of the ids that were named (all, where none was), each as the coordinator has it."""
    foreign = [each for each in ids if pipeline_of(each) != pipeline]
    assert not foreign, foreign
    return [each for each in found if not ids or each.transactional_id in ids]
