"""What an operator may do to a pipeline's transactions when no run of it does: commit what is decided, end what is not.

Owns: which of them each operation may touch, and taking the pipeline over before anything undecided is ended.
Does not know: how an operation was confirmed, how it is shown.
Invariants:
- Only transactions that the ledger has decided are committed.
- Nothing that is decided is aborted or fenced before its end is proven.
- Nothing is ended by records of which nobody can tell whether the pipeline wrote them: neither what they decide, nor
  what they do not name. A run's start judges them by its checkpoint, which a command has not.
- Nothing counts as undecided before the pipeline's driver is fenced, because until then it may decide at any moment.
- An answer that proves nothing is reported as unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Literal

from kafka_core.errors import ExactlyOnceError
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.requests.ends import EndRequest
from pyspark_kafka_eos.client.requests.transactions import Transactions
from pyspark_kafka_eos.client.writing.producer import Producer
from pyspark_kafka_eos.commit.ledger.reader import LedgerView
from pyspark_kafka_eos.commit.ledger.topic import Ledger
from pyspark_kafka_eos.commit.machine.events import Outcome
from pyspark_kafka_eos.commit.markers import UNSETTLED, Mender
from pyspark_kafka_eos.commit.open_parts import never_ended
from pyspark_kafka_eos.commit.proof import prove
from pyspark_kafka_eos.commit.run import DECISION_TIMEOUT_MS
from pyspark_kafka_eos.model import Decision, Seal, batch_transactional_id, driver_transactional_id
from pyspark_kafka_eos.operations.leftovers import Leftover, find_leftovers, pipeline_of, story, unknowable

Ending = Literal["committed", "aborted", "fenced", "unchanged", "refused", "unknown"]

_TIMEOUT_MS = 60_000
"""Timeout of the transactions that these operations open themselves, which last milliseconds; Kafka's default."""

_SHOWN_NAMES = 5
"""Ids on the one line that an interrupted operation prints; the ledger and the coordinators have the others."""

_BELIEVED = (
    "no coordinator knows who wrote what the ledger has of this pipeline: its ids have expired since, the ledger is a copy of another cluster's, "
    "or the pipeline has no decision of its own there and somebody else wrote one. So what is decided cannot be told, and nothing was done to it. "
    "The query's next run ends it, and says whose decision it goes by; without one the broker aborts what is open when it times out"
)

_NOTHING_VISIBLE = "none of its records were ever visible, and none will be"


@dataclass(frozen=True)
class Done:
    """The outcome for one transactional id, and why."""

    transactional_id: str
    outcome: Ending
    detail: str


@dataclass
class EndingProgress:
    """How far an operation has come, for a user who interrupts it: the ids that are done, the one begun, those left."""

    done: list[Done] = field(default_factory=list)
    current: str = ""
    left: list[str] = field(default_factory=list)

    def known(self) -> str:
        """The progress in words, on one line."""
        said = [
            f"{outcome}: {_names([each.transactional_id for each in self.done if each.outcome == outcome])}"
            for outcome in ("committed", "aborted", "fenced")
            if any(each.outcome == outcome for each in self.done)
        ]
        if self.current:
            said.append(f"the outcome of {self.current} is unknown")
        if not said:
            return "nothing was changed"
        if self.left:
            said.append(f"not begun: {_names(self.left)}")
        return "; ".join(said) + "; the same command goes on from there"


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN_NAMES])
    return shown if len(names) <= _SHOWN_NAMES else f"{shown} and {len(names) - _SHOWN_NAMES} more"


def commit(
    cluster: Cluster, ledger: Ledger, ids: Collection[str] = (), progress: EndingProgress | None = None
) -> list[Done]:
    """Commit the transactions that the newest decision has decided and no process has ended; of `ids` only,
    if any are named. Open transactions that are not decided are refused, with the alternatives.

    A run of the pipeline may be at work meanwhile: it would do the same.
    """
    progress = progress or EndingProgress()
    view = ledger.look_anew()
    if not view.believed:
        Mender(cluster, ledger, _TIMEOUT_MS).finish(view)
    found = _chosen(
        find_leftovers(cluster, ledger.pipeline, view.newest, ended=view.ended, look=ledger.look_anew),
        ids,
        ledger.pipeline,
    )

    def end(each: Leftover) -> Done | None:
        if each.unsettled and not each.decided_open and not each.lacks_markers:
            return Done(each.transactional_id, "refused", _BELIEVED) if view.believed else _undecided(each)
        return _commit_one(cluster, ledger, each, believed=view.believed) if each.seal is not None or ids else None

    return _each_of(found, end, progress) + _unheard_of(found, ids)


def _each_of(found: Sequence[Leftover], end: Callable[[Leftover], Done | None], progress: EndingProgress) -> list[Done]:
    progress.left = [each.transactional_id for each in found]
    for each in found:
        progress.left.remove(each.transactional_id)
        progress.current = each.transactional_id
        done = end(each)
        progress.current = ""
        if done is not None:
            progress.done.append(done)
    return list(progress.done)


def _undecided(each: Leftover) -> Done:
    """The answer of `commit` for an open transaction that the ledger has not decided."""
    if each.state in UNSETTLED and each.state != "Ongoing":
        return Done(each.transactional_id, "unchanged", story(each))
    before = f"batch {each.batch_id} is committed already. What is open now: " if each.seal is not None else ""
    waiting = ", ".join(f"{hold.where} at offset {hold.open_from}" for hold in each.holds or () if hold.first)
    waits = f". Readers wait for it in {waiting}" if waiting else ""
    now = ". `transactions abort` aborts it now" if each.state == "Ongoing" else ""
    return Done(each.transactional_id, "refused", f"{before}{story(each)}{waits}{now}. It may not be committed")


def _commit_one(cluster: Cluster, ledger: Ledger, each: Leftover, *, believed: bool) -> Done:
    seal, name = each.seal, each.transactional_id
    if seal is None or seal.identity is None:
        return Done(name, "refused", "the ledger has not decided it, so it may not be committed")
    if each.verdict is Outcome.ABORTED:
        return Done(name, "refused", "the broker has aborted it; only the query's next run can write it again")
    if each.verdict is Outcome.COMMITTED and not each.lacks_markers:
        return Done(name, "unchanged", "it is committed already")
    if each.verdict is Outcome.GONE:
        return Done(name, "unchanged", story(each))
    try:
        if each.verdict is Outcome.UNKNOWN and not never_ended(cluster, seal):
            return Done(name, "unknown", f"nothing was done to it: {unknowable(each)}")
        if believed:
            return Done(name, "refused", _BELIEVED)
        if each.verdict is Outcome.OPEN:
            request = EndRequest(name, seal.identity, True, seal.transaction_version)
            Transactions(cluster).end(request)
        # Only the proof counts, whatever the answer was. Without its markers an end makes nothing visible.
        if _verdict(cluster, seal) is Outcome.COMMITTED or each.verdict is Outcome.UNKNOWN:
            Mender(cluster, ledger, _TIMEOUT_MS).await_markers([seal], commit=True)
        verdict = _verdict(cluster, seal)
    except ExactlyOnceError as error:
        return Done(name, "unknown", f"{type(error).__name__}: {error.message}")
    if verdict is Outcome.COMMITTED:
        return Done(name, "committed", f"{seal.records} records of batch {each.batch_id} are visible now")
    return Done(name, "unknown", f"a commit was requested, but it is {verdict.name.lower()} now; ask again")


def _verdict(cluster: Cluster, seal: Seal) -> Outcome:
    return prove(cluster, [seal])[seal.slot].verdict


def abort(
    cluster: Cluster, ledger: Ledger, group: str, ids: Collection[str] = (), progress: EndingProgress | None = None
) -> list[Done]:
    """Abort the transactions that are open and not decided; of `ids` only, if any are named. A run that is at work is
    fenced first.

    Decided transactions are refused: `commit` ends those.
    """
    return _end_undecided(cluster, ledger, group, ids, progress or EndingProgress(), fence=False)


def fence(
    cluster: Cluster, ledger: Ledger, group: str, ids: Collection[str] = (), progress: EndingProgress | None = None
) -> list[Done]:
    """Give every id a new epoch, except those whose decided end is not proven. A transaction that is open under an id
    is aborted, and no earlier producer of that id can write again. A run that is at work is fenced too.
    """
    return _end_undecided(cluster, ledger, group, ids, progress or EndingProgress(), fence=True)


def _end_undecided(
    cluster: Cluster, ledger: Ledger, group: str, ids: Collection[str], progress: EndingProgress, *, fence: bool
) -> list[Done]:
    if (view := ledger.look_anew()).believed:
        return _refused(cluster, ledger, view, ids, fence=fence)
    progress.current = driver_transactional_id(ledger.pipeline)
    decision, batch_was = take_over(cluster, ledger, group)
    view = ledger.look()
    found = _chosen(
        find_leftovers(cluster, ledger.pipeline, decision, ended=view.ended, look=ledger.look_anew),
        ids,
        ledger.pipeline,
    )

    def end(each: Leftover) -> Done | None:
        name, mending = each.transactional_id, view.mendings.get(each.transactional_id)
        if mending is not None and each.state in UNSETTLED and each.identity == mending.identity:
            why = "a run is writing the missing markers of a decided batch under it; `transactions commit` ends it"
            return Done(name, "refused", why)
        if name == batch_transactional_id(ledger.pipeline) and batch_was in UNSETTLED:
            return Done(name, "fenced" if fence else "aborted", _NOTHING_VISIBLE)
        if each.last == "driver":
            # The results for the other ids cover what the driver has decided before.
            return Done(name, "fenced", "a run that was at work stops: it decides nothing from here on")
        if each.decided_open or (each.seal is not None and each.verdict is Outcome.ABORTED):
            return Done(name, "refused", _decided(each))
        if fence:
            return _fence_one(cluster, each)
        if each.state in UNSETTLED:
            return _abort_one(cluster, each)
        return Done(name, "unchanged", f"nothing is open under it ({each.state})") if ids else None

    return _each_of(found, end, progress) + _unheard_of(found, ids)


def _refused(cluster: Cluster, ledger: Ledger, view: LedgerView, ids: Collection[str], *, fence: bool) -> list[Done]:
    """The answers where nobody can tell what is decided: no id is taken over, and nothing is ended."""
    found = find_leftovers(cluster, ledger.pipeline, view.newest, ended=view.ended, look=ledger.look_anew)
    done = []
    for each in _chosen(found, ids, ledger.pipeline):
        if each.seal is not None and each.verdict is Outcome.UNKNOWN:
            done.append(Done(each.transactional_id, "refused", _decided(each)))
        elif fence or each.last == "driver" or each.unsettled:
            done.append(Done(each.transactional_id, "refused", _BELIEVED))
        elif ids:
            done.append(Done(each.transactional_id, "unchanged", f"nothing is open under it ({each.state})"))
    return done + _unheard_of(found, ids)


def _decided(each: Leftover) -> str:
    """Why a decided transaction is neither aborted nor fenced, and what ends it."""
    if each.verdict is Outcome.ABORTED:
        return f"batch {each.batch_id} is decided, and the broker has aborted this; only the query's next run can write it again"
    if each.verdict is Outcome.UNKNOWN:
        return f"nothing was done to it: {unknowable(each)}"
    return f"batch {each.batch_id} is decided, so it may only be committed: `transactions commit` does, or the query's next run"


def take_over(cluster: Cluster, ledger: Ledger, group: str) -> tuple[Decision | None, str]:
    """Fence the pipeline's runs of either scope, as a new run does, and read the newest decision, which stays the
    newest from here on. Returns it with the state in which the scope=batch transaction was; fencing aborts an open one.
    """
    driver_id = driver_transactional_id(ledger.pipeline)
    batch_id = batch_transactional_id(ledger.pipeline)
    producer = Producer(cluster, driver_id, transaction_timeout_ms=DECISION_TIMEOUT_MS)
    mender = Mender(cluster, ledger, DECISION_TIMEOUT_MS)
    ledger.find_leaders()
    mender.finish(ledger.look())
    mender.settle_decision(driver_id, group)
    producer.initialize()
    transactions = Transactions(cluster)
    batch_was = transactions.describe([batch_id], sure=True)[batch_id].state
    if batch_was != "NotFound":
        # It may hold a decision open in the ledger, which could not be read then.
        transactions.init_producer_id(batch_id, _TIMEOUT_MS)
    # A run may have decided until the fence, at a leader that took the place of the one that is known.
    ledger.find_leaders()
    return ledger.newest(settle=True), batch_was


def _abort_one(cluster: Cluster, each: Leftover) -> Done:
    name, transactions = each.transactional_id, Transactions(cluster)
    try:
        answer = transactions.end(EndRequest(name, each.identity, False, cluster.transaction_version))
        state = transactions.describe([name])[name].state
    except ExactlyOnceError as error:
        return Done(name, "unknown", f"{type(error).__name__}: {error.message}")
    if answer.definite or state in ("CompleteAbort", "PrepareAbort"):
        return Done(name, "aborted", _NOTHING_VISIBLE)
    return Done(name, "unknown", f"EndTxn answered {answer.reason}; the coordinator reports {state}")


def _fence_one(cluster: Cluster, each: Leftover) -> Done:
    try:
        identity = Transactions(cluster).init_producer_id(each.transactional_id, _TIMEOUT_MS)
    except ExactlyOnceError as error:
        return Done(each.transactional_id, "unknown", f"{type(error).__name__}: {error.message}")
    was = "what was open is aborted" if each.state in UNSETTLED else "nothing was open"
    return Done(each.transactional_id, "fenced", f"{was}; it is at {identity} now")


def _unheard_of(found: Sequence[Leftover], ids: Collection[str]) -> list[Done]:
    known = {each.transactional_id for each in found}
    return [Done(each, "unchanged", "no coordinator lists it") for each in ids if each not in known]


def _chosen(found: Sequence[Leftover], ids: Collection[str], pipeline: str) -> list[Leftover]:
    """The leftovers of the ids that were named (all, where none was), each as the coordinator has it."""
    foreign = [each for each in ids if pipeline_of(each) != pipeline]
    assert not foreign, foreign
    return [each for each in found if not ids or each.transactional_id in ids]
