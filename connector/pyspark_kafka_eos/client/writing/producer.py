"""One transactional (or only idempotent) producer session: carries out what `session` decides.

Owns: the session value, its delivery, and the order of initialise, write, seal or end.
Does not know: rows, Spark, the ledger.
Invariants:
- Records are sent only for partitions that the machine allows.
- A seal exists only when every batch is acknowledged.
- After an error the session is used only for `abort`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from kafka_core import runtime
from kafka_core.errors import ExactlyOnceError, InternalError, OutcomeUnknown, ProducerFenced
from kafka_core.protocol.error_codes import Code
from kafka_core.values import ProducerIdentity, TopicPartition
from pyspark_kafka_eos import crash_points
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.requests.ends import EndAnswer, EndRequest
from pyspark_kafka_eos.client.requests.transactions import Transactions
from pyspark_kafka_eos.client.writing import session as pm
from pyspark_kafka_eos.client.writing.delivery import Delivery, Stamper
from pyspark_kafka_eos.model import GroupOffsets, Seal, SealedPartition, Traffic

_ABORT_DEADLINE_MS = 10_000
"""An abort only saves readers the wait for the transaction's timeout, so a task must not hang on it."""


_ABORTABLE = (pm.SessionState.IN_TRANSACTION, pm.SessionState.SEALED, pm.SessionState.ABORTABLE_ERROR)
"""In other states there is nothing to abort, or an abort is forbidden (after a commit without an answer)."""


class Producer:
    """Writes batches under one transactional id; with `transactional_id=None`, idempotently but without transactions.

    `two_phase`: its transactions have no timeout (KIP-939); the cluster must allow it. `transaction_version`:
    the version of a transaction that other producers share; the cluster's own where it is left out.
    """

    def __init__(
        self,
        cluster: Cluster,
        transactional_id: str | None,
        *,
        transaction_timeout_ms: int = 60_000,
        delivery_timeout_ms: int = 120_000,
        max_in_flight: int = 5,
        identity: ProducerIdentity | None = None,
        two_phase: bool = False,
        transaction_version: int | None = None,
    ) -> None:
        self.cluster = cluster
        self.transactional_id = transactional_id
        self.transactions = Transactions(cluster)
        self.transaction_timeout_ms = transaction_timeout_ms
        self._delivery_timeout_ms = delivery_timeout_ms
        self._max_in_flight = max_in_flight
        self._two_phase = two_phase
        self._session = pm.Session(transaction_version or cluster.transaction_version, identity=identity)
        self._delivery: Delivery | None = None
        self._lock = runtime.lock()
        self.opened_ms = 0

    @property
    def session(self) -> pm.Session:
        """The current value of the state machine."""
        return self._session

    @property
    def identity(self) -> ProducerIdentity:
        """The identity in use; InternalError before `initialize`."""
        if self._session.identity is None:
            raise InternalError("the producer has no identity yet", {"transactional_id": self.transactional_id})
        return self._session.identity

    @property
    def retries(self) -> int:
        """Batches that were sent more than once."""
        return self._delivery.retries if self._delivery else 0

    @property
    def traffic(self) -> Traffic | None:
        """What sending took since `begin`; None before it."""
        return self._delivery.traffic if self._delivery else None

    def initialize(self) -> ProducerIdentity:
        """Get an identity: fences every older session of the id and aborts what it left open."""
        (effect,) = self._step(pm.Initialize())
        assert isinstance(effect, pm.SendInitProducerId)
        try:
            identity = self.transactions.init_producer_id(
                self.transactional_id,
                self.transaction_timeout_ms,
                effect.current,
                two_phase=self._two_phase,
            )
        except ProducerFenced as error:
            self._step(pm.Fenced(str(error)))
            raise
        except ExactlyOnceError as error:
            self._step(pm.SessionFailed(str(error)))
            raise
        self._step(pm.Initialized(identity))
        return identity

    def join(self, identity: ProducerIdentity) -> None:
        """Write under an identity that another process initialised, in the one transaction that it will end.

        Among all producers that join, each partition must have one writer at a time, which begins where the
        last one ended (`resume`): sequences are counted per partition, from 0.
        """
        self._step(pm.Joined(identity))

    def stop(self) -> bool:
        """Send nothing more, leave the transaction to its owner; False where requests are still in flight."""
        return self._delivery is None or self._delivery.stop(_ABORT_DEADLINE_MS)

    def begin(self) -> None:
        """Start a transaction; nothing is sent yet."""
        self._step(pm.Begin())
        self.opened_ms = 0
        self._delivery = Delivery(
            self.cluster,
            self.identity,
            transactional_id=self.transactional_id,
            transaction_version=self._session.transaction_version,
            max_in_flight=self._max_in_flight,
            delivery_timeout_ms=self._delivery_timeout_ms,
        )

    def send(self, where: TopicPartition, count: int, stamp: Stamper, *, machine_time: bool = False) -> None:
        """Queue one batch of `count` records; waits while too much is unacknowledged. See `Delivery.submit`."""
        if where not in self._session.added:
            self._need(where)
        try:
            self._writing().submit(where, count, stamp, machine_time=machine_time)
        except ExactlyOnceError as error:
            self._fail(error)
            raise

    def _need(self, where: TopicPartition) -> None:
        if not self.opened_ms:
            self.opened_ms = int(runtime.time() * 1000)
        for effect in self._step(pm.Need(frozenset((where,)))):
            if isinstance(effect, pm.SendAddPartitions):
                self._add(effect.partitions)

    def _add(self, partitions: frozenset[TopicPartition]) -> None:
        try:
            if self.transactional_id is not None:
                self.transactions.add_partitions(self.transactional_id, self.identity, partitions)
        except ExactlyOnceError as error:
            self._fail(error)
            raise
        self._step(pm.PartitionsAdded(partitions))

    def add_partitions(self, partitions: frozenset[TopicPartition]) -> None:
        """Add several partitions in one request, before the first batch for them (transaction version 1)."""
        if self.transactional_id is None or self._session.transaction_version >= 2:
            return
        for effect in self._step(pm.Need(partitions)):
            if isinstance(effect, pm.SendAddPartitions):
                self._add(effect.partitions)

    def send_offsets(self, group: str, offsets: GroupOffsets) -> None:
        """Put source offsets of a consumer group into the transaction."""
        if not offsets:
            return
        assert self.transactional_id is not None
        # Before the request: even one that fails may reach the coordinator, which then needs an EndTxn.
        (effect,) = self._step(pm.NeedOffsets(group))
        assert isinstance(effect, pm.SendOffsets)
        try:
            self.transactions.commit_offsets(
                self.transactional_id,
                self.identity,
                effect.group,
                offsets,
                self._session.transaction_version,
            )
        except ExactlyOnceError as error:
            self._fail(error)
            raise

    def resume_partition(self, where: TopicPartition, next_sequence: int) -> None:
        """Continue in a partition that others have written to. See `Delivery.resume_partition`."""
        self._writing().resume_partition(where, next_sequence)

    def settled(self, partitions: Collection[TopicPartition], *, wait: bool) -> dict[TopicPartition, int]:
        """The partitions whose batches are all acknowledged, with their next sequences. See
        `Delivery.settled`."""
        try:
            return self._writing().settled(partitions, wait=wait)
        except ExactlyOnceError as error:
            self._fail(error)
            raise

    def flush(self) -> None:
        """Wait until everything sent is acknowledged."""
        try:
            self._writing().flush()
        except ExactlyOnceError as error:
            self._fail(error)
            raise

    def written_partitions(self) -> tuple[SealedPartition, ...]:
        """What was written to each partition so far. Call after `flush`."""
        return self._writing().sealed_partitions()

    def seal(self, slot: int, *, records: int, size_bytes: int, digest: int) -> Seal:
        """Hand over the open transaction: every batch is acknowledged, another process ends it.

        AbortableError where records of it were removed meanwhile, as far as the answers to Produce have shown."""
        self.flush()
        self._writing().require_kept()
        self._step(pm.SealRequested(self._writing().unacknowledged))
        assert self.transactional_id is not None
        return Seal(
            transactional_id=self.transactional_id,
            slot=slot,
            identity=self.identity if self._session.opened else None,
            transaction_version=self._session.transaction_version,
            two_phase=self._two_phase,
            records=records,
            bytes=size_bytes,
            digest=digest,
            opened_ms=self.opened_ms,
            partitions=self.written_partitions() if self._session.opened else (),
            traffic=self.traffic,
        )

    def commit(self, deadline_ms: float | None = None, *, points: bool = True) -> None:
        """Commit in this process. Raises OutcomeUnknown when no answer was definite in time: the transaction
        may or may not be committed. After any other error EndTxn was not sent, so the transaction is
        definitely not committed and can be aborted. `points`: whether it is a decision, which has crash points."""
        self.flush()
        effects = self._step(pm.CommitRequested(self._writing().unacknowledged))
        if not effects:
            return
        (effect,) = effects
        assert isinstance(effect, pm.SendEndTxn)
        sent = _decision_sent if points and crash_points.armed("decision-sent") else None
        answer = self.transactions.end(self._end_request(commit=effect.commit), deadline_ms, sent=sent)
        if points:
            crash_points.reached("decision-answered")
        if answer.definite:
            self._step(pm.EndAnswered(answer.next_identity))
            return
        if not answer.sent and answer.error is not None:
            self._step(pm.EndNotSent(answer.reason))
            raise answer.error
        self._step(pm.EndUnanswered(_why(answer)))
        raise OutcomeUnknown(
            f"the commit of {self.transactional_id!r} got no definite answer ({answer.reason}); it may or may not have "
            f"taken effect; {f'{answer.remedy}, then ' if answer.remedy else ''}ask the coordinator or the "
            "log before this id is used again",
            {
                "transactional_id": self.transactional_id,
                "producer": str(self.identity),
                "reason": answer.reason,
            },
        )

    def ask_outcome(self, witness: Callable[[], bool | None], deadline_ms: float | None = None) -> bool | None:
        """After OutcomeUnknown: ask the coordinator again, then the witness (True: committed, False: aborted,
        None: no proof). The result is definite, or None while nothing proves the outcome; `session.reason`
        then holds the cause and the remedy. An error of either counts as no answer."""
        answer = self.transactions.end(self._end_request(commit=True), deadline_ms)
        if answer.definite:
            self._step(pm.EndAnswered(answer.next_identity))
            return True
        why = _why(answer)
        try:
            committed = witness()
        except ExactlyOnceError as error:
            committed, why = None, f"{why}; {error.message}"
        if committed is None:
            self._step(pm.EndUnanswered(why))
        else:
            self._step(pm.Proven(committed))
        return committed

    def forgotten(self, error: ExactlyOnceError) -> bool:
        """Whether `error` means that the coordinator has dropped this id and has no part of the open
        transaction. This session has then aborted it, and `initialize` acquires the id again, unless another
        producer has in between."""
        said = error.facts.get("code") == Code.INVALID_PRODUCER_ID_MAPPING.name
        if not said or self.transactional_id is None or self.retries:
            return False
        self.abort()
        if self._session.state is not pm.SessionState.UNINITIALIZED:
            return False
        try:
            view = self.transactions.describe([self.transactional_id])[self.transactional_id]
        except ExactlyOnceError:
            # The error that led here is the one to report.
            return False
        return view.state == "NotFound" or view.identity.producer_id != self.identity.producer_id

    def abort(self) -> None:
        """Abort in this process, if the coordinator can be reached; else the id's next session does."""
        if self._session.state not in _ABORTABLE:
            return
        # On brokers before 3.6, a record that reaches its leader after the abort's marker would reopen the
        # transaction, so no batch is sent any more and this waits for requests in flight.
        quiet = self._delivery is None or self._delivery.stop(_ABORT_DEADLINE_MS)
        for effect in self._step(pm.AbortRequested()):
            if isinstance(effect, pm.SendEndTxn) and not quiet:
                self._step(pm.EndUnanswered("records are still in flight; the next epoch fences them"))
            elif isinstance(effect, pm.SendEndTxn) and self.transactional_id is None:
                self._step(pm.EndUnanswered("there is no transaction to end"))
            elif isinstance(effect, pm.SendEndTxn):
                answer = self.transactions.end(self._end_request(commit=effect.commit), _ABORT_DEADLINE_MS)
                if answer.definite:
                    self._step(pm.EndAnswered(answer.next_identity))
                else:
                    self._step(pm.EndUnanswered(answer.reason))

    def _end_request(self, *, commit: bool) -> EndRequest:
        assert self.transactional_id is not None
        return EndRequest(self.transactional_id, self.identity, commit, self._session.transaction_version)

    def _writing(self) -> Delivery:
        if self._delivery is None:
            raise InternalError("no transaction was begun", {"transactional_id": self.transactional_id})
        return self._delivery

    def _fail(self, error: ExactlyOnceError) -> None:
        if self._session.state is not pm.SessionState.IN_TRANSACTION:
            return
        fenced = isinstance(error, ProducerFenced)
        self._step(pm.Fenced(str(error)) if fenced else pm.TransactionFailed(str(error)))

    def _step(self, event: pm.Event) -> tuple[pm.Effect, ...]:
        with self._lock:
            self._session, effects = self._session.handle(event)
        return effects


def _why(answer: EndAnswer) -> str:
    return f"{answer.reason}; {answer.remedy}" if answer.remedy else answer.reason


def _decision_sent() -> None:
    crash_points.reached("decision-sent")
