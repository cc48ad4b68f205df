"""A pipeline's transactional ids, its open transactions, and the partitions whose read_committed readers wait for them.

Owns: combining what coordinators, leaders and the ledger have of each id, and explaining it in words.
Does not know: how it is shown; how transactions are ended (`ending`).
Invariants:
- Nothing is changed.
- An id counts as decided only where the ledger's newest decision has its very identity.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from kafka_core import runtime
from kafka_core.errors import AuthorizationFailed, UnknownTopic
from kafka_core.values import ProducerIdentity, TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.reading.offsets import READ_COMMITTED, READ_UNCOMMITTED, Offsets
from pyspark_kafka_eos.client.requests import admin
from pyspark_kafka_eos.client.requests.producer_states import States, describe_producers
from pyspark_kafka_eos.client.requests.transactions import Transactions, TransactionView
from pyspark_kafka_eos.commit.gone.absent import why_unknown
from pyspark_kafka_eos.commit.machine.events import Outcome
from pyspark_kafka_eos.commit.markers import UNSETTLED
from pyspark_kafka_eos.commit.noted_fates import Look
from pyspark_kafka_eos.commit.open_parts import open_parts
from pyspark_kafka_eos.commit.proof import Proof, prove, verdict_on
from pyspark_kafka_eos.commit.stops import how_to_abort
from pyspark_kafka_eos.model import Decision, Seal, all_ids, parse_transactional_id
from pyspark_kafka_eos.model.ids import BATCH, DRIVER, NOTES


@dataclass(frozen=True)
class Hold:
    """A partition in which a transaction is open: under which epoch, from which offset on, where readers of committed
    records stop, and where the partition ends."""

    where: TopicPartition
    epoch: int
    open_from: int
    last_stable_offset: int
    end_offset: int

    @property
    def first(self) -> bool:
        """Whether readers wait for this very transaction, and not for an earlier one."""
        return self.open_from == self.last_stable_offset


@dataclass(frozen=True)
class Leftover:
    """One transactional id. `state` and `identity` are its coordinator's; `age_ms` is None where nothing is open.

    `seal` is its seal in the ledger's newest decision (None: it has no part in that), `verdict` the outcome of the
    sealed transaction, `forgotten` whether an unknown verdict is permanent, `stranded` where it is open, from which
    offset on, under a producer id that is no longer the id's: no client can end that. `holds` is None where the right
    to look (READ on the topics) is missing. An id that belongs to no pipeline has no `last` part; where no coordinator
    names an id, it is empty.
    """

    transactional_id: str
    state: str
    identity: ProducerIdentity
    timeout_ms: int = 0
    age_ms: int | None = None
    partitions: tuple[TopicPartition, ...] = ()
    holds: tuple[Hold, ...] | None = ()
    seal: Seal | None = None
    verdict: Outcome | None = None
    batch_id: int | None = None
    forgotten: bool = False
    absent: str = ""
    stranded: tuple[tuple[TopicPartition, int], ...] = ()

    @property
    def last(self) -> str:
        """The last part of the id: the slot's number, "driver", "batch" or "notes"; empty where the id belongs to no
        pipeline.
        """
        parsed = parse_transactional_id(self.transactional_id)
        return parsed.last if parsed else ""

    @property
    def unsettled(self) -> bool:
        """Whether something is open under it, for the coordinator or for readers."""
        return self.state in UNSETTLED or bool(self.holds or self.stranded)

    @property
    def decided_open(self) -> bool:
        """Whether what is open is decided: it may only be committed."""
        return self.seal is not None and self.verdict in (Outcome.OPEN, Outcome.UNKNOWN)

    @property
    def lacks_markers(self) -> bool:
        """Whether the sealed transaction is ended, and still open in a partition: its marker was never written
        there.
        """
        sealed = self.seal.identity if self.seal is not None else None
        if sealed is None or self.verdict is not Outcome.COMMITTED:
            return False
        if sealed.producer_id != self.identity.producer_id:
            return bool(self.stranded)
        # A later epoch's transaction is another one.
        return any(hold.epoch <= sealed.epoch for hold in self.holds or ())


def find_leftovers(
    cluster: Cluster,
    pipeline: str,
    decision: Decision | None = None,
    *,
    ended: bool = False,
    look: Look | None = None,
) -> list[Leftover]:
    """Every transactional id of a pipeline that the coordinators list or the decision names: driver, batch, notes, then
    slots. That of the notes only while something is open under it.

    `ended`: a note in the ledger states that every marker of the decision was seen, so it is not proven again. `look`:
    at the pipeline's ledger. BrokerUnavailable where a coordinator cannot be asked: nothing is concluded from a part of
    the answers.
    """
    seals = {seal.transactional_id: seal for seal in (decision.seals if decision else ()) if seal.identity}
    own = own_ids(cluster, pipeline) | set(seals)
    # Proven before it is described: a transaction that another process ends in between is then found ended,
    # never open beside a proof of its end.
    proofs = _proofs(cluster, decision, list(seals.values()), ended, look)
    views = Transactions(cluster).describe(sorted(own), sure=True) if own else {}
    states = _producers(cluster, views.values(), seals.values())
    holds = _holds(cluster, views.values(), states)
    found = [
        replace(
            _leftover(view, holds),
            seal=seals.get(name),
            verdict=proofs[name].verdict if name in seals else None,
            forgotten=name in seals and proofs[name].forgotten,
            absent=_absent(cluster, seals[name], proofs[name]) if name in seals else "",
            batch_id=decision.batch_id if decision and name in seals else None,
            stranded=_stranded(view, seals.get(name), states),
        )
        for name, view in views.items()
    ]
    return sorted((each for each in found if each.last != NOTES or each.unsettled), key=_order)


def find_strangers(cluster: Cluster, topic: str, known: Collection[str]) -> list[Leftover]:
    """The ids and producers with something open in a topic, except the ids that are already `known`: other
    applications, and producers of which no coordinator has an id. AuthorizationFailed without READ on the
    topic, UnknownTopic where it does not exist."""
    names = {number: name for name, number in admin.list_transactions(cluster).items()}
    states = describe_producers(cluster, Offsets(cluster).partitions_of([topic]))
    if states is None:
        raise AuthorizationFailed(
            f"no right to see open transactions in topic {topic!r}; grant READ on it", {"topic": topic}
        )
    holding = {
        number: state.epoch
        for producers in states.values()
        for number, state in producers.items()
        if state.open_from >= 0 and names.get(number) not in known
    }
    views = Transactions(cluster).describe(sorted(names[number] for number in holding if number in names), sure=True)
    by_number = {number: views[names[number]] for number in holding if number in names}
    nameless = {
        number: TransactionView("", "NotFound", ProducerIdentity(number, epoch))
        for number, epoch in holding.items()
        if number not in names
    }
    found = {**by_number, **nameless}
    holds = _holds(cluster, found.values(), states)
    return [_leftover(found[number], holds) for number in sorted(found)]


def holders(cluster: Cluster, topic: str) -> set[str]:
    """The ids with something open in a topic, as far as coordinators name them."""
    return {each.transactional_id for each in find_strangers(cluster, topic, ()) if each.transactional_id}


def _leftover(view: TransactionView, holds: Mapping[int, tuple[Hold, ...]] | None) -> Leftover:
    """What coordinator and leaders have of an id, without the ledger."""
    return Leftover(
        transactional_id=view.transactional_id,
        state=view.state,
        identity=view.identity,
        timeout_ms=view.timeout_ms,
        age_ms=max(0, round(runtime.time() * 1000 - view.start_time_ms)) if _open(view) else None,
        partitions=tuple(sorted(view.partitions)),
        holds=None if holds is None else holds.get(view.identity.producer_id, ()),
    )


def _stranded(
    view: TransactionView, seal: Seal | None, states: States | None
) -> tuple[tuple[TopicPartition, int], ...]:
    sealed = seal.identity if seal is not None else None
    if seal is None or sealed is None or states is None or sealed.producer_id == view.identity.producer_id:
        return ()
    return tuple(sorted(open_parts([seal], states).get(seal.slot, {}).items()))


def own_ids(cluster: Cluster, pipeline: str) -> set[str]:
    """The transactional ids of a pipeline that the coordinators list. Those of other pipelines stay where they are."""
    found = admin.list_transactions(cluster, pattern=all_ids(pipeline))
    return {name for name in found if pipeline_of(name) == pipeline}


def pipelines_with_ids(cluster: Cluster) -> list[str]:
    """The pipelines whose driver's or batch's id a coordinator lists: any application may end its ids in a number."""
    found = map(parse_transactional_id, admin.list_transactions(cluster))
    return sorted({each.pipeline for each in found if each and each.slot is None})


def pipeline_of(transactional_id: str) -> str | None:
    """The pipeline whose id this would be, None for an id that belongs to none."""
    parsed = parse_transactional_id(transactional_id)
    return parsed.pipeline if parsed else None


def _order(each: Leftover) -> tuple[int, int]:
    named = {DRIVER: 0, BATCH: 1, NOTES: 2}
    return (named[each.last], 0) if each.last in named else (3, int(each.last))


def _open(view: TransactionView) -> bool:
    return view.state in UNSETTLED and view.start_time_ms > 0


def _absent(cluster: Cluster, seal: Seal, proof: Proof) -> str:
    return why_unknown(cluster, seal, proof) if proof.verdict is Outcome.UNKNOWN else ""


def _proofs(
    cluster: Cluster, decision: Decision | None, seals: Sequence[Seal], ended: bool, look: Look | None
) -> dict[str, Proof]:
    """The outcome of each sealed transaction, by its id."""
    if ended:
        return {seal.transactional_id: Proof(Outcome.COMMITTED) for seal in seals}
    try:
        proven = prove(cluster, seals, settle_ms=0, look=look)
    except (AuthorizationFailed, UnknownTopic):
        # Without the log only the coordinator's state is left;
        # where that shows no outcome, the outcome is unknown.
        proven = {seal.slot: Proof(Outcome.UNKNOWN) for seal in seals}
    if decision is not None:
        proven = {slot: replace(proof, verdict=verdict_on(decision, proof)) for slot, proof in proven.items()}
    return {seal.transactional_id: proven[seal.slot] for seal in seals}


def _producers(cluster: Cluster, views: Iterable[TransactionView], seals: Iterable[Seal]) -> States | None:
    """What leaders report about producers, in every partition of every topic that these wrote to; None without the
    right.
    """
    topics = {where.topic for view in views for where in view.partitions}
    topics |= {part.topic for seal in seals for part in seal.partitions}
    partitions: set[TopicPartition] = set()
    for topic in topics:
        # Committed offsets hold no reader of records.
        if not topic.startswith("__"):
            try:
                count = len(cluster.topic(topic, refresh=True).leaders)
                partitions |= {TopicPartition(topic, number) for number in range(count)}
            except UnknownTopic:
                continue
            except AuthorizationFailed:
                return None
    return describe_producers(cluster, partitions)


def _holds(
    cluster: Cluster, views: Iterable[TransactionView], states: States | None
) -> dict[int, tuple[Hold, ...]] | None:
    """Producer id -> what it has open, by partition, for those of the views; None without the right to look."""
    if states is None:
        return None
    ids = {view.identity.producer_id for view in views}
    held = [
        (where, number, state)
        for where in sorted(states)
        for number, state in states[where].items()
        if number in ids and state.open_from >= 0
    ]
    offsets, partitions = Offsets(cluster), {where for where, _, _ in held}
    stable = offsets.latest(partitions, READ_COMMITTED)
    ends = offsets.latest(partitions, READ_UNCOMMITTED)
    found: dict[int, list[Hold]] = {}
    for where, number, state in held:
        hold = Hold(where, state.epoch, state.open_from, stable[where], ends[where])
        found.setdefault(number, []).append(hold)
    return {number: tuple(each) for number, each in found.items()}


# ---- in words

WAY_ON = (
    "check with the readers of the topics whether its records were there, then start the query once with adopt.checkpoint=true: "
    "the batch then counts as committed, none of it is written again, and missing records stay missing"
)
"""The one way on where the outcome of a decided batch is lost for good."""

STRANGER = (
    "no pipeline's: another application has it open. Its owner ends it, or its timeout does; where it hangs, Kafka's "
    "kafka-transactions.sh with abort does"
)
"""The explanation of another application's open transaction."""


def story(each: Leftover) -> str:
    """What happened to a transactional id, and what the next run of its pipeline does about it."""
    if each.seal is not None:
        told = _of_a_seal(each)
        if told:
            return told
    if each.state in ("PrepareCommit", "PrepareAbort", "PrepareEpochFence"):
        return "its coordinator is writing the markers of its end; no action is needed"
    if each.state == "Ongoing":
        if each.last == "driver":
            return (
                "a driver is recording a decision now, or was killed while it did. No record of it is visible. The next run "
                "fences that driver, which aborts the transaction, and retries the batch"
            )
        return (
            "open and not decided: it is being written now, or its run was killed before the decision. The next run "
            f"aborts it and retries the batch; else the broker aborts it {_timeout_of(each)}"
        )
    if each.holds:
        return (
            "its coordinator reports it as ended, but markers are missing: it hangs, and no timeout ends it. "
            "The next run has them written"
        )
    if each.state == "NotFound":
        return "the coordinator does not have it (any more): it expired, or was never used"
    return "nothing is open under it"


def _of_a_seal(each: Leftover) -> str:
    batch = f"batch {each.batch_id}"
    if each.verdict is Outcome.OPEN:
        return (
            f"decided ({batch}) and not ended: the driver stopped between its decision and this end. The next run "
            f"commits it, and so does `transactions commit`. If neither does, the broker aborts it {_timeout_of(each)}, and "
            "the next run has to write it again"
        )
    if each.verdict is Outcome.ABORTED:
        return (
            f"decided ({batch}), but the broker aborted it: none of its records are visible. The next run, from "
            "the same checkpoint, writes them again and compares them with the decision; nothing else can restore them"
        )
    if each.verdict is Outcome.GONE:
        return f"decided ({batch}), without a record; no action is needed"
    if each.verdict is Outcome.UNKNOWN:
        return unknowable(each)
    if each.stranded:
        return f"committed, as decided ({batch}), but the broker never wrote its markers everywhere, and {_no_client(each)}"
    if each.state == "Ongoing":
        return ""
    if each.lacks_markers:
        return (
            f"committed, as decided ({batch}), but the broker never wrote its markers everywhere, and no timeout does. The "
            "next run has them written, and so does `transactions commit`"
        )
    return f"committed, as decided ({batch})"


def unknowable(each: Leftover) -> str:
    """The state of a decided transaction whose outcome cannot be determined now, and what to do."""
    known = f"decided (batch {each.batch_id}), and neither the coordinator nor the log has its outcome"
    if each.stranded:
        return f"{known}: a marker is missing, and {_no_client(each)}"
    if each.holds:
        return (
            f"{known}, but its records are there and open: the next run commits it, and so does `transactions commit`"
        )
    if each.forgotten:
        why = each.absent or "its id has expired and its records are gone"
        return f"{known}, now or later: {why}. The way on: {WAY_ON}"
    return (
        f"{known}. The next run asks again, and stops if the outcome is still unknown. The way on: make sure "
        "that the brokers answer and that the topics may be read and described, then ask again"
    )


def _no_client(each: Leftover) -> str:
    return (
        "its producer id is no longer that of the id, so no client can write it. Have the broker abort what hangs with "
        f"{how_to_abort(dict(each.stranded))}; the next run then finds the abort and writes these rows anew"
    )


def _timeout_of(each: Leftover) -> str:
    if each.age_ms is None or each.timeout_ms <= 0:
        return "when it times out"
    if each.timeout_ms == 2**31 - 1:
        return "never: it has no timeout (KIP-939)"
    left = each.timeout_ms - each.age_ms
    return "any moment now" if left <= 0 else f"in about {left // 1000} s"
