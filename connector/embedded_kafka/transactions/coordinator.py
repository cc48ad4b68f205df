"""The transaction coordinator: clients' requests about a transactional id, and everything that falls due with time.

Owns: the checks before a change, the tasks that carry decided ends out, timeouts and expiry.
Does not know: which change is allowed (`machine.moves`), the log (`registry`), how a marker is written.
Invariants:
- A decided end is retried until it is carried out, across restarts.
- A partition that cannot be written to delays only its own marker.

"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable
from itertools import islice
from typing import Any

from embedded_kafka.clock import Clock
from embedded_kafka.faults import steps
from embedded_kafka.refusals import Refused
from embedded_kafka.settings.config import BrokerConfig
from embedded_kafka.topics.internal_topics import OFFSETS_TOPIC
from embedded_kafka.transactions.machine.events import (
    NO_TIMEOUT_MS,
    Add,
    End,
    Expire,
    Finish,
    Init,
    Log,
    MarkerWritten,
    StateLoaded,
    TimeOut,
    TransactionLogEntry,
    TransactionState,
    WriteMarkers,
)
from embedded_kafka.transactions.machine.moves import Transaction
from embedded_kafka.transactions.ports import Ids, MarkerWriter, StateLogs
from embedded_kafka.transactions.registry import TransactionRegistry
from embedded_kafka.transactions.state_log import MAX_ID_BYTES
from kafka_core.protocol.error_codes import Code
from kafka_core.values import ProducerIdentity, TopicPartition

log = logging.getLogger(__name__)

MAX_IDS = 200_000
"""Transactional ids in memory, about 1 KB each; they expire after transactional_id_expiration_ms.
Twice as many would still fit, but Python's garbage collector scans all of them from time to time,
which blocks every client."""

_PREPARED = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

_NO_MARKER_NEEDED = {
    # The partition was deleted together with the records of the transaction.
    Code.UNKNOWN_TOPIC_OR_PARTITION: "no longer exists",
    # A newer epoch has written there, so this one's transaction has been ended (an administrator's abort). Kafka leaves
    # the transaction prepared until its coordinator moves; that may be never, so the partition is passed over.
    Code.INVALID_PRODUCER_EPOCH: "has a newer epoch of the producer",
    Code.TRANSACTION_COORDINATOR_FENCED: "has a marker of a newer coordinator",
}


class TransactionCoordinator:
    """The transactional ids of the partitions of the log that the broker leads. Everything runs on one event loop;
    `load`, `tick` and the rest are called there.
    """

    def __init__(
        self,
        *,
        config: BrokerConfig,
        clock: Clock,
        ids: Ids,
        logs: StateLogs,
        markers: MarkerWriter,
        reached: steps.Reached = steps.nothing,
        marking: steps.Marking = steps.now,
    ) -> None:
        self._config = config
        self._clock = clock
        self._markers = markers
        self._reached = reached
        self._marking = marking
        # Decided ends without a running task; a dict, because those that wait longest come first.
        self._unfinished: dict[str, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        self._book = TransactionRegistry(
            config=config, clock=clock, ids=ids, logs=logs, reached=reached, on_markers=self._on_markers
        )

    @property
    def transaction_version(self) -> int:
        """The finalised feature, which may be set while the broker runs."""
        return self._book.transaction_version

    @transaction_version.setter
    def transaction_version(self, version: int) -> None:
        self._book.transaction_version = version

    def load(self) -> None:
        """Load the log and start to carry out prepared ends. CorruptBatch, UnsupportedVersion, OptionsError."""
        self._resume(self._book.load())

    def take_over(self, partition: int) -> None:
        """Coordinate what a partition of the log stores, from what is in it. Errors as of `load`."""
        self._resume(self._book.load(partition))

    def resign(self, partition: int) -> None:
        """Coordinate a partition's ids no longer. Ends that are not carried out are their next coordinator's."""
        self._book.resign(partition)
        for transactional_id in [each for each in self._unfinished if self.partition_for(each) == partition]:
            del self._unfinished[transactional_id]

    def _resume(self, loaded: Iterable[Transaction]) -> None:
        for transaction in loaded:
            if transaction.state in _PREPARED:
                self._unfinished[transaction.transactional_id] = None
        self._carry_on()

    async def close(self) -> None:
        """Stop; unfinished decided ends are carried out after the next `load`."""
        self._closed = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def partition_for(self, transactional_id: str) -> int:
        """The partition of the transaction log that stores this id."""
        return self._book.partition_for(transactional_id)

    def tick(self, at_most: int | None = None) -> None:
        """Handle what falls due with time: missing markers, transactions older than their timeout, unused ids.

        Handles `at_most` of each kind (None: all), the rest with the next tick.
        """
        now_ms = self._clock.now_ms()
        self._carry_on(at_most)
        expire = Expire(now_ms, self._config.transactional_id_expiration_ms)
        for transaction in self._book.due(now_ms, at_most):
            if transaction.timed_out(now_ms):
                self._spawn(self._time_out(transaction.transactional_id))
            elif transaction.expired(now_ms, expire.after_ms):
                self._book.expire(transaction.transactional_id, expire)

    # ---- requests of clients

    async def init_producer_id(
        self,
        transactional_id: str | None,
        timeout_ms: int,
        expected: ProducerIdentity | None = None,
        *,
        two_phase: bool = False,
        keep_prepared: bool = False,
    ) -> ProducerIdentity:
        """A producer id and epoch to write with. Fences earlier producers of the id and aborts
        their open transaction.

        Without a transactional id: a new producer id. `two_phase` (KIP-939): the transactions have no timeout.
        """
        if transactional_id is None:
            return ProducerIdentity(self._book.fresh_id(), 0)
        if not transactional_id or len(transactional_id.encode()) > MAX_ID_BYTES:
            raise Refused(Code.INVALID_REQUEST, f"a transactional id has between 1 and {MAX_ID_BYTES} bytes in UTF-8")
        if two_phase and not self._config.two_phase_commit:
            raise Refused(Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "two-phase commit is not enabled")
        if keep_prepared:
            # As in Kafka up to 4.3: the wire format has the field, but no coordinator can hand over an
            # open transaction yet.
            raise Refused(Code.UNSUPPORTED_VERSION, "keepPreparedTxn is not supported")
        if not two_phase and not 0 < timeout_ms <= self._config.transaction_max_timeout_ms:
            raise Refused(
                Code.INVALID_TRANSACTION_TIMEOUT,
                f"{timeout_ms} ms is not between 1 and {self._config.transaction_max_timeout_ms} ms",
            )
        transaction = self._book.get(transactional_id)
        if transaction is None:
            if len(self._book) >= MAX_IDS:
                raise Refused(Code.POLICY_VIOLATION, f"there are {MAX_IDS} transactional ids already")
            transaction = Transaction(transactional_id, TransactionLogEntry(self._book.fresh_id()))
        was_open = transaction.state is TransactionState.ONGOING
        event = Init(
            NO_TIMEOUT_MS if two_phase else timeout_ms,
            self._clock.now_ms(),
            expected,
            self.transaction_version,
        )
        identity = await self._book.change(transaction, event, "abort-prepared" if was_open else "init-logged")
        if was_open:
            raise Refused(Code.CONCURRENT_TRANSACTIONS, "the transaction that was open is being aborted")
        return identity

    async def add_partitions(
        self,
        transactional_id: str,
        identity: ProducerIdentity,
        partitions: Collection[TopicPartition],
        *,
        version: int = 0,
    ) -> None:
        """Add partitions to the transaction; the first one begins it. `version` 2: on behalf of a Produce."""
        event = Add(identity, frozenset(partitions), self._clock.now_ms(), version)
        await self._book.change(self._known(transactional_id), event, "add-logged")

    async def add_offsets(self, transactional_id: str, identity: ProducerIdentity, offsets_partition: int) -> None:
        """Add a partition of the offsets topic to the transaction."""
        await self.add_partitions(transactional_id, identity, [TopicPartition(OFFSETS_TOPIC, offsets_partition)])

    def verify_partition(self, transactional_id: str, identity: ProducerIdentity, partition: TopicPartition) -> None:
        """Check that the producer may write to the partition in its transaction (KIP-890); Refused otherwise."""
        refusal = self._known(transactional_id).verify(identity, partition)
        if refusal is not None:
            raise Refused(Code[refusal.name], f"{partition}: {refusal.value}")

    async def ensure_partition(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Collection[TopicPartition],
        *,
        add: bool,
        knows_abortable: bool = True,
    ) -> None:
        """Ensure that the partitions are part of the transaction, before transactional records are written.

        `add`: the client leaves adding to the broker (version 2). `knows_abortable`: whether the client
        supports TRANSACTION_ABORTABLE (Produce from 11 on, TxnOffsetCommit from 4 on). The codes are those
        of Kafka for producers.
        """
        identity = ProducerIdentity(producer_id, epoch)
        try:
            if add:
                await self.add_partitions(transactional_id, identity, partitions, version=2)
            else:
                for partition in partitions:
                    self.verify_partition(transactional_id, identity, partition)
        except Refused as refused:
            if refused.code is Code.PRODUCER_FENCED:
                raise Refused(Code.INVALID_PRODUCER_EPOCH, refused.message) from refused
            if refused.code is Code.TRANSACTION_ABORTABLE and not knows_abortable:
                raise Refused(Code.INVALID_TXN_STATE, refused.message) from refused
            raise

    async def end(
        self, transactional_id: str, identity: ProducerIdentity, *, commit: bool, version: int
    ) -> ProducerIdentity:
        """Decide the transaction; returns the identity for the next one. The markers are
        written after the return."""
        event = End(identity, commit, version, self._clock.now_ms())
        return await self._book.change(self._known(transactional_id), event, "end-prepared")

    def describe(self, transactional_id: str) -> TransactionLogEntry:
        """The id's state; Refused where the id does not exist."""
        if not transactional_id:
            raise Refused(Code.INVALID_REQUEST, "an empty transactional id")
        transaction = self._book.get(transactional_id)
        if transaction is None:
            raise Refused(Code.TRANSACTIONAL_ID_NOT_FOUND, f"no transactional id {transactional_id} exists")
        return transaction.current

    def everything(self) -> list[Transaction]:
        """Every id's present state, for a `listing` in parts."""
        return list(self._book)

    def listing(
        self,
        states: Iterable[TransactionState] | None = None,
        producer_ids: Collection[int] = (),
        duration_ms: int = -1,
        among: Iterable[Transaction] | None = None,
    ) -> list[tuple[str, TransactionLogEntry]]:
        """The ids in one of these states (None: any), of one of these producer ids, begun longer ago than
        `duration_ms`.
        """
        now_ms = self._clock.now_ms()
        wanted = None if states is None else frozenset(states)
        return [
            (transaction.transactional_id, entry)
            for transaction in (self._book if among is None else among)
            for entry in (transaction.current,)
            if (wanted is None or entry.state in wanted)
            and (not producer_ids or entry.producer_id in producer_ids)
            and (duration_ms < 0 or now_ms - entry.start_ms > duration_ms)
        ]

    def _known(self, transactional_id: str) -> Transaction:
        if not transactional_id:
            raise Refused(Code.INVALID_REQUEST, "an empty transactional id")
        transaction = self._book.get(transactional_id)
        if transaction is None:
            raise Refused(Code.INVALID_PRODUCER_ID_MAPPING, f"no transactional id {transactional_id} exists")
        return transaction

    # ---- decided ends

    def _carry_on(self, at_most: int | None = None) -> None:
        now_ms = self._clock.now_ms()
        for transactional_id in list(islice(self._unfinished, at_most)):
            del self._unfinished[transactional_id]
            self._book.apply(transactional_id, StateLoaded(now_ms))

    def _on_markers(self, transactional_id: str, markers: WriteMarkers) -> None:
        self._spawn(self._finish(transactional_id, markers))

    async def _finish(self, transactional_id: str, markers: WriteMarkers) -> None:
        term = self._book.term(transactional_id)
        try:
            held = []
            for number, partition in enumerate(sorted(markers.partitions), 1):
                may_write = self._marking(transactional_id, partition, markers.commit)
                if may_write is None:
                    await self._mark_as(number, partition, transactional_id, markers)
                else:
                    held.append((number, partition, transactional_id, markers, may_write))
            await asyncio.gather(*(self._mark_as(*each) for each in held))
            if self._book.term(transactional_id) != term:
                return
            for effect in self._book.apply(transactional_id, Finish()):
                if isinstance(effect, Log):
                    await self._book.record(transactional_id, effect.entry, "end-completed")
        except Refused:
            log.warning("the end of %s is not in the log yet; the broker retries", transactional_id)
        finally:
            transaction = self._book.get(transactional_id) if self._book.term(transactional_id) == term else None
            if transaction is not None and transaction.state in _PREPARED:
                self._unfinished[transactional_id] = None

    async def _mark_as(
        self, number: int, partition: TopicPartition, transactional_id: str, markers: WriteMarkers,
        may_write: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:  # fmt: skip
        term = self._book.term(transactional_id)
        wanted = may_write is None or await may_write()
        if self._book.term(transactional_id) != term:
            # Its next coordinator writes the marker.
            return
        if not wanted:
            # As in Kafka where the metadata has no leader: "likely deleted already and hence can be skipped".
            log.warning("no marker in %s, because a test set a fault for it", partition)
        elif not await self._mark(partition, transactional_id, markers):
            return
        self._book.apply(transactional_id, MarkerWritten(partition))
        if wanted:
            await self._reached(f"marker-written:{number}")

    async def _mark(self, partition: TopicPartition, transactional_id: str, markers: WriteMarkers) -> bool:
        """Write one marker; returns whether this partition is finished."""
        producer_id, epoch = markers.identity.producer_id, markers.identity.epoch
        # The marker may exist already: the broker was killed after writing it, or the write failed after its
        # last byte. Only the partition's log shows whether the open transaction was closed under this epoch
        # since the decision. The time matters where epochs are not bumped (version 1) and a transaction added
        # a partition without writing to it: its newest marker may then belong to the previous transaction.
        # Even if the clock was set back in between, an open transaction is always closed, because `ended`
        # checks that first. At worst a partition without records of this transaction gets a second marker or
        # none, which no reader can distinguish.
        if markers.resumed and self._markers.ended(partition, producer_id, epoch, markers.since_ms):
            return True
        try:
            await self._markers.write(
                partition,
                producer_id,
                epoch,
                commit=markers.commit,
                coordinator_epoch=self._book.coordinator_epoch(transactional_id),
                transaction_version=markers.version,
            )
        except Refused as refused:
            why = _NO_MARKER_NEEDED.get(refused.code)
            if why is None:
                _log_delay(partition, markers, refused)
                return False
            log.warning("no marker in %s, which %s", partition, why)
        except OSError as error:
            _log_delay(partition, markers, error)
            return False
        return True

    # ---- what falls due

    async def _time_out(self, transactional_id: str) -> None:
        now_ms = self._clock.now_ms()
        try:
            transaction = self._book.get(transactional_id)
        except Refused:
            return
        if transaction is None or not transaction.timed_out(now_ms):
            return
        event = TimeOut(now_ms, self.transaction_version)
        try:
            await self._book.change(transaction, event, "abort-prepared")
        except Refused as refused:
            log.warning("%s is not aborted yet, the broker retries: %s", transactional_id, refused)
        finally:
            self._book.look_again(transactional_id)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        if self._closed:
            work.close()
            return
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a task of the transaction coordinator failed", exc_info=task.exception())


def _log_delay(partition: TopicPartition, markers: WriteMarkers, error: Exception) -> None:
    # Each sweep retries; only the first failure is worth a line in the log.
    level = logging.DEBUG if markers.resumed else logging.WARNING
    log.log(level, "no marker in %s yet, the broker retries: %s", partition, error)
