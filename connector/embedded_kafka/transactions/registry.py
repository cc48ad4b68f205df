"""Every transactional id's machine, run against the transaction log.

Owns: the machines, one per transactional id, the time of each one's next check, and the order "append, then act".
Does not know: which change is allowed (`machine.moves`), the record's form (`state_log`), markers, timeouts.
Invariants:
- No answer and no marker is sent before the change is in the log.
- An id has at most one change in progress.
- A change whose append failed has not happened.
- Each id is checked when it is due, and not before.
- What this broker no longer coordinates it neither knows nor changes.
"""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

from embedded_kafka.clock import Clock
from embedded_kafka.due import DueTimes
from embedded_kafka.faults import steps
from embedded_kafka.refusals import Refused
from embedded_kafka.settings.config import BrokerConfig
from embedded_kafka.topics.internal_topics import TRANSACTIONS_TOPIC
from embedded_kafka.topics.java_hash import partition_of
from embedded_kafka.transactions.machine.events import (
    Add,
    AnswerIdentity,
    Effect,
    End,
    Event,
    Expire,
    Init,
    Log,
    LogFailed,
    Logged,
    NeedProducerId,
    RefuseRequest,
    TimeOut,
    TransactionLogEntry,
    TransactionState,
    WriteMarkers,
)
from embedded_kafka.transactions.machine.moves import Transaction
from embedded_kafka.transactions.ports import Ids, StateLogs
from embedded_kafka.transactions.state_log import decode_key, decode_value, encode_key, encode_value
from kafka_core.errors import BlocksUnavailable, ExactlyOnceError, OptionsError
from kafka_core.protocol.error_codes import Code
from kafka_core.values import NO_EPOCH, ProducerIdentity

log = logging.getLogger(__name__)

_LOOKS_FOR_EACH = 100
"""An id in use is checked once per timeout and found not due. A check takes a microsecond or two. With a
fifth as many checks, 100,000 ids with transactions of a minute would delay the aborts of others."""

OnMarkers = Callable[[str, WriteMarkers], None]
"""Called for each decided transaction, after the decision is in the log."""


class TransactionRegistry:
    """The logged state of every transactional id, in memory."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        clock: Clock,
        ids: Ids,
        logs: StateLogs,
        reached: steps.Reached,
        on_markers: OnMarkers,
    ) -> None:
        self.transaction_version = config.transaction_version
        self._partitions = config.transaction_state_partitions
        self._clock = clock
        self._ids = ids
        self._logs = logs
        self._reached = reached
        self._on_markers = on_markers
        self._transactions: dict[str, Transaction] = {}
        self._terms: Counter[int] = Counter()
        self._expire_after_ms = config.transactional_id_expiration_ms
        # Two queues, because each of an id's two times only moves forward; in one queue it
        # would also move back.
        self._open: DueTimes[str] = DueTimes()
        self._unused: DueTimes[str] = DueTimes()

    def __len__(self) -> int:
        return len(self._transactions)

    def __iter__(self) -> Iterator[Transaction]:
        """A snapshot of the ids; later changes do not affect the iteration."""
        return iter(list(self._transactions.values()))

    def get(self, transactional_id: str) -> Transaction | None:
        """The machine of an id. Refused(NOT_COORDINATOR) where the id's partition of the log is damaged, or another
        broker leads it."""
        offline = self._logs.offline(TRANSACTIONS_TOPIC)
        if offline and self.partition_for(transactional_id) in offline:
            raise Refused(
                Code.NOT_COORDINATOR,
                f"the partition of {TRANSACTIONS_TOPIC} with {transactional_id} is not served by this broker",
            )
        return self._transactions.get(transactional_id)

    def due(self, now_ms: int, at_most: int | None = None) -> list[Transaction]:
        """Ids whose timeout or expiry has passed, `at_most` of each, those that wait longest first.

        Each id is returned once, and again only after a change (even a failed one) or after `look_again`.
        """
        late = self._late(self._open, now_ms, at_most) + self._late(self._unused, now_ms, at_most)
        # An id whose transaction has ended in the meantime may be in both lists.
        return list({each.transactional_id: each for each in late}.values())

    def _late(self, times: DueTimes[str], now_ms: int, at_most: int | None) -> list[Transaction]:
        late: list[Transaction] = []
        for _ in range(_LOOKS_FOR_EACH):
            names = times.due(now_ms, None if at_most is None else at_most - len(late))
            for name in names:
                transaction = self._transactions.get(name)
                due_ms = None if transaction is None else transaction.due_ms(self._expire_after_ms)
                if transaction is not None and due_ms is not None and due_ms <= now_ms:
                    late.append(transaction)
                else:
                    self.look_again(name)
            if not names:
                break
        return late

    def look_again(self, transactional_id: str) -> None:
        """Put an id back in the queue, because the handling of its due time may have failed."""
        transaction = self._transactions.get(transactional_id)
        if transaction is not None:
            self._keep(transaction)

    def partition_for(self, transactional_id: str) -> int:
        """The partition of the log that stores this id, as in Kafka: Java's hash, its absolute
        value, 0 for the lowest."""
        return partition_of(transactional_id, self._partitions)

    def load(self, only: int | None = None) -> list[Transaction]:
        """Read the log, or one partition of it; returns the ids that are there. CorruptBatch, UnsupportedVersion,
        OptionsError."""
        loaded = []
        for partition, state_log in self._logs.existing(TRANSACTIONS_TOPIC):
            if only not in (None, partition):
                continue
            # Most records are superseded by later ones of the same id; only the last ones are worth decoding.
            values: dict[bytes, bytes] = {}
            try:
                for record in state_log.scan_records():
                    if record.key is not None and record.value is not None:
                        values[record.key] = record.value
                    elif record.key is not None:
                        values.pop(record.key, None)
            except Refused as damaged:
                self._logs.take_offline(TRANSACTIONS_TOPIC, partition, damaged)
                continue
            for key, value in values.items():
                transactional_id = decode_key(key)
                if transactional_id is None:
                    continue
                if self.partition_for(transactional_id) != partition:
                    raise OptionsError(
                        "the transaction log was written with another number of partitions; nothing was "
                        "changed; restore that number",
                        {"transaction_state_partitions": self._partitions},
                    )
                loaded.append(Transaction(transactional_id, decode_value(value)))
        for transaction in loaded:
            self._keep(transaction)
        return loaded

    def resign(self, partition: int) -> None:
        """Another broker coordinates the partition's ids from now on, or this one reads them anew. A change that is in
        progress gets no further here: what is of it in the log is its next coordinator's."""
        self._terms[partition] += 1
        for transactional_id in [each for each in self._transactions if self.partition_for(each) == partition]:
            del self._transactions[transactional_id]

    def term(self, transactional_id: str) -> int:
        """Another number whenever the id's state was dropped."""
        return self._terms[self.partition_for(transactional_id)]

    def coordinator_epoch(self, transactional_id: str) -> int:
        """Under which the id's markers are written."""
        return self._logs.coordinator_epoch(TRANSACTIONS_TOPIC, self.partition_for(transactional_id))

    async def change(self, transaction: Transaction, event: Init | Add | End | TimeOut, step: str) -> ProducerIdentity:
        """Apply the event; a change is made only after it is in the log and `step` is reached. Returns the
        identity for the next request.

        Refused means that nothing has changed.
        """
        after, effects = transaction.handle(event)
        if NeedProducerId() in effects and not isinstance(event, Add):
            after, effects = transaction.handle(replace(event, fresh_id=self.fresh_id()))
        for effect in effects:
            if isinstance(effect, RefuseRequest):
                raise Refused(Code[effect.refusal.name], effect.reason)
            if isinstance(effect, Log):
                # From here until `Logged` the change is pending; other requests for the id get
                # a retriable refusal.
                self._keep(after)
                effects = await self.record(transaction.transactional_id, effect.entry, step)
        return next((each.identity for each in effects if isinstance(each, AnswerIdentity)), after.current.identity)

    async def record(self, transactional_id: str, entry: TransactionLogEntry, step: str) -> tuple[Effect, ...]:
        """Append a pending change, reach `step`, make the change. Refused means that the change is not made; with
        NOT_COORDINATOR its next coordinator may make it."""
        term = self.term(transactional_id)
        effects: tuple[Effect, ...] = ()
        self._append(transactional_id, entry)
        try:
            await self._reached(step)
        finally:
            # Also if the request was cancelled (its connection is gone): a logged change has happened.
            if self.term(transactional_id) == term:
                effects = self.apply(transactional_id, Logged(self._clock.now_ms()))
        if self.term(transactional_id) != term:
            raise Refused(Code.NOT_COORDINATOR, f"{transactional_id} has got another coordinator")
        return effects

    def apply(self, transactional_id: str, event: Event) -> tuple[Effect, ...]:
        """Apply an event to an id's machine; the caller has to `record` the changes to log."""
        after, effects = self._transactions[transactional_id].handle(event)
        self._keep(after)
        for effect in effects:
            if isinstance(effect, WriteMarkers):
                self._on_markers(transactional_id, effect)
        return effects

    def expire(self, transactional_id: str, event: Expire) -> None:
        """Remove an id, with a tombstone in the log. The id stays if it was used since, or if the append fails."""
        for effect in self.apply(transactional_id, event):
            if isinstance(effect, Log):
                with contextlib.suppress(Refused):
                    self._append(transactional_id, effect.entry)
                    del self._transactions[transactional_id]

    def fresh_id(self) -> int:
        """A new producer id. Refused: none is available yet (retry), or there will never be one."""
        try:
            return self._ids.next_id()
        except BlocksUnavailable as error:
            raise Refused(Code.COORDINATOR_LOAD_IN_PROGRESS, str(error)) from error
        except ExactlyOnceError as error:
            raise Refused(Code.UNKNOWN_SERVER_ERROR, str(error)) from error

    def _keep(self, transaction: Transaction) -> None:
        name = transaction.transactional_id
        self._transactions[name] = transaction
        due_ms = transaction.due_ms(self._expire_after_ms)
        if due_ms is not None:
            (self._open if transaction.state is TransactionState.ONGOING else self._unused).by(name, due_ms)

    def _append(self, transactional_id: str, entry: TransactionLogEntry) -> None:
        value = encode_value(entry, min(self.transaction_version, 1))
        try:
            state_log = self._logs.internal_log(TRANSACTIONS_TOPIC, self.partition_for(transactional_id))
            state_log.append_internal([(encode_key(transactional_id), value)], now_ms=self._clock.now_ms())
        except (Refused, OSError) as error:
            self.apply(transactional_id, LogFailed())
            if self._transactions[transactional_id].current.epoch == NO_EPOCH:
                del self._transactions[transactional_id]
            log.error("cannot write the transaction log for %s: %s", transactional_id, error)
            raise Refused(_code_of_failed_append(error), f"the transaction log: {error}") from error


def _code_of_failed_append(error: Refused | OSError) -> Code:
    """The code of Kafka's coordinator for a client when an append to its own log fails."""
    if isinstance(error, OSError) or error.code in (Code.KAFKA_STORAGE_ERROR, Code.NOT_LEADER_OR_FOLLOWER):
        return Code.NOT_COORDINATOR
    if error.code in (Code.MESSAGE_TOO_LARGE, Code.RECORD_LIST_TOO_LARGE):
        return Code.UNKNOWN_SERVER_ERROR
    return Code.COORDINATOR_NOT_AVAILABLE
