"""The transaction that makes a decision durable: the checks before it, its contents, its end, its outcome.

Owns: the steps of a commit that both scopes share, and the loop in which a machine has its effects carried out.
Does not know: which transactions are ended afterwards, what follows from an answer (the machines do).
Invariants:
- EndTxn(commit) of a decision is sent in `Deciding.record` and, again, in `Deciding.ask`, nowhere else.
- An answer about the outcome is definite or None.
- A step that fails becomes an event of the machine. The loop raises only defects of this program, and what the caller's
  own replay raises.
- Where the coordinator has forgotten the driver's id, the new identity is requested with the old one, so a newer run
  that the coordinator has on record fences this one; where it has neither, the ledger shows whether a newer run has
  decided since.
- A decision is written a second time only where the coordinator itself reports that it has nothing of the first write.
- A replay fits a torn transaction only where every partition gets the records that were decided for it, by
  count and digest. A partition without both does not fit.
Sources: KIP-98 (transactional.id.expiration.ms, 7 days by default), KIP-360 (InitProducerId with the current identity).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol, TypeVar

from kafka_core.errors import (
    DecisionBroken,
    ExactlyOnceError,
    InternalError,
    OutcomeUnknown,
    ProducerFenced,
    TransactionTooOld,
    WrongClock,
)
from kafka_core.protocol.error_codes import Code
from kafka_core.table import Ends, Story
from kafka_core.values import TopicPartition
from pyspark_kafka_eos import crash_points
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.requests.producer_states import States
from pyspark_kafka_eos.client.writing.producer import Producer
from pyspark_kafka_eos.client.writing.session import SessionState
from pyspark_kafka_eos.commit.ledger.arrived import require_arrived
from pyspark_kafka_eos.commit.ledger.topic import Ledger
from pyspark_kafka_eos.commit.machine import events as ev
from pyspark_kafka_eos.commit.markers import Mender
from pyspark_kafka_eos.commit.open_parts import open_as_sealed, partitions_of, stable_ends
from pyspark_kafka_eos.commit.proof import find_marker
from pyspark_kafka_eos.model import Decision, GroupOffsets, KeptPartition, Seal
from pyspark_kafka_eos.model.said_times import moment
from pyspark_kafka_eos.options import SinkOptions

log = logging.getLogger(__name__)

BATCH_IS_RETRIED = "no record of the batch is visible, and the batch is retried"

EndsT = TypeVar("EndsT", bound=Ends)
EffectT = TypeVar("EffectT")

DecisionEvent = ev.DecisionDurable | ev.DecisionUnanswered | ev.DecisionRefused

Found = tuple[str, dict[str, str | int | float]]
"""What keeps a batch from being decided: the message and the facts of its error."""


class Owner(Protocol):
    """What a commit needs of the run that it belongs to."""

    cluster: Cluster
    options: SinkOptions
    ledger: Ledger
    mender: Mender
    producer: Producer
    timeout_ms: int
    newest: Decision | None

    def left_ms(self) -> float:
        """Milliseconds until the batch's transactions time out."""

    def clean_up(self) -> None:
        """After a batch was given up: abort what else its tasks left open, unless a newer run owns that by now."""

    def fenced_by_timeout(self) -> bool:
        """Whether the coordinator raised the driver's epoch because its transaction timed out, with no newer run."""

    def narrow_repair(self, torn: Mapping[int, frozenset[TopicPartition]]) -> None:
        """Let the next replay's slots send to these partitions only: their records in the others are committed."""


class Deciding:
    """The steps of one commit up to its decision, in either scope. Each carries out one effect and returns the
    machine's event.

    `failure`: the error of the newest step that did not succeed, which an abort or a stop raises.
    """

    def __init__(self, run: Owner) -> None:
        self.failure: ExactlyOnceError | None = None
        self._run = run

    def carry_out(
        self,
        start: tuple[EndsT, Sequence[EffectT]],
        shell: Callable[[EffectT], Sequence[object]],
        batch_id: int,
    ) -> None:
        """Carry out effects and give the answers to the machine, until it is at an end; raises what stopped it,
        and after an abort the reason."""
        commit, effects = start
        queue, story = deque(effects), Story()
        try:
            while queue:
                for event in self._answers(shell, queue.popleft()):
                    commit, more = story.step(commit, event)
                    if commit.over:
                        # Effects queued before the end are dropped; only the end's own are carried out.
                        queue = deque(more)
                        break
                    queue.extend(more)
        finally:
            if self.failure is not None or not commit.over:
                log.info("batch %d stopped in %s after: %s", batch_id, commit.state.name, story)
        if self.failure is not None:
            raise self.failure

    def _answers(self, shell: Callable[[EffectT], Sequence[object]], effect: EffectT) -> Sequence[object]:
        try:
            return shell(effect)
        except InternalError:
            raise
        except ExactlyOnceError as error:
            self.failure = error
            return [ev.StepFailed(str(error))]

    # ---- the check

    def checked(self, found: Found | None) -> Sequence[ev.AllAlive | ev.NotAlive]:
        """Whether the batch may be decided. `found`: what its scope has found against it."""
        found = found or self._late()
        if found is None:
            return [ev.AllAlive()]
        self.failure = TransactionTooOld(*found)
        return [ev.NotAlive(found[0])]

    def _late(self) -> Found | None:
        left_ms, margin_ms = self._run.left_ms(), self._run.options.transaction_margin_ms
        if left_ms >= margin_ms:
            return None
        return (
            "the batch's transactions are too close to their timeout to decide it safely; no record of the batch is visible, and "
            "the batch is retried; make batches smaller or raise kafka.transaction.timeout.ms",
            {"left_ms": round(left_ms), "margin_ms": margin_ms, "timeout_ms": self._run.timeout_ms},
        )

    def unmarked(
        self, name: str | None, producer_id: int, states: States | None, follows: str = BATCH_IS_RETRIED
    ) -> Found | None:
        """Found where the broker never wrote the marker of the last decision under this id. The marker of the next
        decision would end both, and an abort would undo what Spark has counted as done. `follows`: as in `broken_part`.
        """
        if name is None or not self._run.mender.misses_marker(name, producer_id, states):
            return None
        where = self._run.ledger.partition
        return (
            f"the broker left the last decision of this pipeline without its marker in {where}, and the marker of another decision "
            f"would end both; {follows}",
            {"ledger": str(where)},
        )

    def passed(self, seals: Sequence[Seal], states: States | None, follows: str = BATCH_IS_RETRIED) -> Found | None:
        """`passed_part` where the leaders may not be asked about producers (`states` is None)."""
        if states is not None:
            return None
        return passed_part(seals, stable_ends(self._run.cluster, partitions_of(seals)), follows)

    # ---- the decision

    def record(self, producer: Producer, write: Callable[[], None], release: Callable[[], object]) -> DecisionEvent:
        """Write the decision and end its transaction. `write`: everything but the end. `release`: gives the
        transaction up after a refusal."""
        crash_points.reached("before-decision")
        try:
            write()
        except ExactlyOnceError as error:
            # EndTxn was not sent, so the decision is definitely not made, whatever else is unclear.
            return self._refused(error, release)
        crash_points.reached("decision-written")
        try:
            producer.commit()
        except OutcomeUnknown as error:
            self.failure = error
            return ev.DecisionUnanswered(str(error))
        except ExactlyOnceError as error:
            return self._refused(error, release)
        return ev.DecisionDurable()

    def _refused(self, error: ExactlyOnceError, release: Callable[[], object]) -> ev.DecisionRefused:
        release()
        self.failure = error
        return ev.DecisionRefused(str(error))

    def ask(self, producer: Producer, transaction: str) -> DecisionEvent:
        """The outcome of a decision whose end got no answer. `transaction`: its name for a person."""
        committed = ask_decision(self._run.cluster, self._run.ledger, producer)
        if committed is None:
            return ev.DecisionUnanswered(producer.session.reason)
        self.failure = None
        if committed:
            return ev.DecisionDurable()
        self.failure = TransactionTooOld(
            f"{transaction} transaction was aborted by the broker; {BATCH_IS_RETRIED}",
            {"pipeline": self._run.ledger.pipeline, "ledger": str(self._run.ledger.partition)},
        )
        return ev.DecisionRefused(self.failure.message)


def write_decision(producer: Producer, ledger: Ledger, decision: Decision, group: str, offsets: GroupOffsets) -> None:
    """Begin the producer's transaction and put the ledger record and the source offsets into it.

    Returns once the broker has acknowledged all of it, and the ledger has its part. DecisionBroken where the ledger
    takes no record of this machine's time.
    """
    try:
        producer.begin()
        ledger.add_decision(producer, decision)
        producer.send_offsets(group, offsets)
        producer.flush()
        require_arrived(producer, ledger.topic)
    except WrongClock as error:
        raise _of_another_time(ledger, error) from error


def _of_another_time(ledger: Ledger, error: WrongClock) -> DecisionBroken:
    """The error where the broker refuses the ledger's record because of its timestamp, which is this machine's time."""
    ms = error.facts["machine_time_ms"]
    assert isinstance(ms, int)
    said = error.facts.get("reason") or Code.INVALID_TIMESTAMP.name
    return DecisionBroken(
        f"the clock of the driver's machine shows {moment(ms)} ({ms} ms), and the broker takes no record of that time into ledger topic "
        f"{ledger.topic!r}: {said}; nothing was written there; set the clock of the driver's machine right, or the broker's where that "
        f"one is wrong",
        {"topic": ledger.topic, "code": Code.INVALID_TIMESTAMP.name, "driver_time_ms": ms, "reason": said},
    )


# ---- a driver whose id was idle for so long that the coordinator has forgotten it


def put_decision(producer: Producer, ledger: Ledger, decision: Decision, group: str, offsets: GroupOffsets) -> None:
    """`write_decision` under a valid identity, a new one where the coordinator has forgotten the old one.

    ProducerFenced where a newer run has taken over. With any error, EndTxn was not sent.
    """
    if producer.session.state is not SessionState.READY:
        # Version 1 gives no fresh epoch with the end: bump it, unless a newer driver has (KIP-360).
        before = producer.session.identity
        now = producer.initialize()
        if before is not None and before.producer_id != now.producer_id:
            _refuse_newer(ledger, decision)
    try:
        write_decision(producer, ledger, decision, group, offsets)
    except ExactlyOnceError as error:
        if not producer.forgotten(error):
            raise
        log.info("the coordinator has forgotten %s; it is initialised again", producer.transactional_id)
        # Checked before the id is taken too: a newer run that is idle as well would lose it.
        _refuse_newer(ledger, decision)
        producer.initialize()
        _refuse_newer(ledger, decision)
        write_decision(producer, ledger, decision, group, offsets)


def reinitialize_forgotten(producer: Producer, ledger: Ledger, last: Decision | None) -> None:
    """Initialise a driver's id that the coordinator has forgotten. The ledger, not the coordinator, then shows which
    run owns the pipeline: ProducerFenced where its newest decision is not `last`, the newest that this run has seen.
    """
    _refuse_other(ledger, last)
    producer.initialize()
    _refuse_other(ledger, last)


def _refuse_other(ledger: Ledger, last: Decision | None) -> None:
    newest = ledger.newest(settle=True)
    if newest is not None and (last is None or _name(newest) != _name(last)):
        raise _fenced_by(newest, ledger)


def _name(decision: Decision) -> tuple[str, int, int]:
    return decision.query_id, decision.batch_id, decision.repaired


def _refuse_newer(ledger: Ledger, decision: Decision) -> None:
    """ProducerFenced where the ledger's newest decision is not one that precedes this one."""
    newest = ledger.newest(settle=True)
    if newest is None:
        return
    before = (newest.batch_id, newest.repaired) < (decision.batch_id, decision.repaired)
    if newest.query_id != decision.query_id or not before:
        raise _fenced_by(newest, ledger)


def _fenced_by(newest: Decision, ledger: Ledger) -> ProducerFenced:
    return ProducerFenced(
        f"a newer run of pipeline {ledger.pipeline!r} has decided batch {newest.batch_id} while this run was idle; "
        "this run stops, and what it had open is aborted",
        {"pipeline": ledger.pipeline, "ledger_batch": newest.batch_id, "ledger_query": newest.query_id},
    )


# ---- its outcome


def ask_decision(cluster: Cluster, ledger: Ledger, producer: Producer) -> bool | None:
    """Whether a decision whose EndTxn got no answer is committed. The coordinator is asked first, then the
    ledger's log is read. None while neither shows the outcome."""
    (written,) = [each for each in producer.written_partitions() if each.topic == ledger.topic]
    where = TopicPartition(written.topic, written.partition)
    producer_id = producer.identity.producer_id

    def witness() -> bool | None:
        # A leader that was cut off since the decision was written does not have its marker.
        ledger.find_leaders()
        verdict = find_marker(cluster, where, producer_id, written.first_offset)
        return {ev.Outcome.COMMITTED: True, ev.Outcome.ABORTED: False}.get(verdict)

    return producer.ask_outcome(witness)


def broken_part(seals: Sequence[Seal], states: States | None, follows: str = BATCH_IS_RETRIED) -> Found | None:
    """A partition whose log does not have a seal's transaction open from its first record on; None where all have.

    Where an earlier transaction of the same producer was left without a marker in that partition, the commit would end
    that one too and make its records visible twice. The abort that follows from this result ends both. `follows`: what
    the message says of the batch.
    """
    if states is None:
        return None
    for seal in seals:
        assert seal.identity is not None
        for part in seal.partitions:
            # The broker acknowledges some duplicates without an offset, so there is none to compare.
            if part.first_offset >= 0 and not open_as_sealed(seal.identity, part, states):
                where = TopicPartition(part.topic, part.partition)
                return (
                    f"slot {seal.slot} wrote to {where} from offset {part.first_offset} on, but its leader reports "
                    f"{states.get(where, {}).get(seal.identity.producer_id)}: an earlier transaction was left without its "
                    f"markers there, records are gone, or somebody else wrote under the slot's producer id; {follows}",
                    {"slot": seal.slot, "partition": str(where)},
                )
    return None


def passed_part(
    seals: Sequence[Seal], ends: Mapping[TopicPartition, int], follows: str = BATCH_IS_RETRIED
) -> Found | None:
    """A partition whose last stable offset, of `ends`, lies behind the first record of a seal: the seal's transaction
    is not open there from that record on. None where no partition says so, which is no proof that all are open: another
    transaction, begun before, holds that offset too.
    """
    for seal in seals:
        for part in seal.partitions:
            where = TopicPartition(part.topic, part.partition)
            # The broker acknowledges some duplicates without an offset.
            if ends.get(where, 0) > part.first_offset >= 0:
                return (
                    f"slot {seal.slot} wrote to {where} from offset {part.first_offset} on, but nothing is open there before "
                    f"offset {ends[where]}: somebody else wrote under the slot's producer id, or records are gone; {follows}",
                    {"slot": seal.slot, "partition": str(where)},
                )
    return None


# ---- of a torn transaction: committed in some partitions, aborted in others


def kept_of(seal: Seal, lost: Collection[TopicPartition]) -> tuple[KeptPartition, ...]:
    """The part of a seal that needs no rewriting: all but its lost partitions, under the identity that wrote them."""
    assert seal.identity is not None
    here = [part for part in seal.partitions if TopicPartition(part.topic, part.partition) not in lost]
    return (*seal.kept, *(KeptPartition(seal.identity, part) for part in here))


def moved_rows(decided: Seal, replayed: Sequence[Seal]) -> list[TopicPartition]:
    """The partitions into which the replay puts other rows than the decided seal has there, in order."""
    again: dict[TopicPartition, tuple[int, int | None]] = {}
    for seal in replayed:
        for where, (records, digest) in seal.shares.items():
            known_records, known = again.get(where, (0, 0))
            both = None if known is None or digest is None else (known + digest) & 0xFFFFFFFFFFFFFFFF
            again[where] = (known_records + records, both)
    wanted = decided.shares
    return [
        where
        for where in sorted({*wanted, *again})
        if wanted.get(where) != again.get(where) or wanted[where][1] is None
    ]
