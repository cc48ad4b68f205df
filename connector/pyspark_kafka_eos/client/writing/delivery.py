"""Produce: sends one producer epoch's batches to their leaders, pipelined, in sequence order per partition.

Owns: the bytes of unacknowledged batches, the requests in flight per broker, back-off and retry deadlines.
Does not know: transactions beyond their id, rows, Spark; what may be sent (`sequences`).
Invariants:
- At most `max_in_flight` Produce requests await an answer on one connection.
- A batch's bytes never change once stamped.
- The bytes held are bounded by `buffer_bytes` plus one batch per caller.
- No caller waits longer than twice the delivery timeout, whatever the loop does.
- A batch that a leader leaves unanswered is sent again, to the leader of a later epoch and to no other: one of them at
  most can append it, and the sequences tell a batch that is there already.
- An error on the loop's thread reaches the caller.

Two threads: the caller's (`submit`, `flush`) and the network loop's (every method whose name ends in
`_on_loop`). One lock guards the state; it is never held while a request is encoded or a callback runs.

"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection
from dataclasses import replace

from kafka_core import runtime
from kafka_core.errors import AbortableError, AuthorizationFailed, ExactlyOnceError, InternalError, UnsupportedVersion
from kafka_core.protocol import messages as m
from kafka_core.protocol.error_codes import Action, action_for, name_of
from kafka_core.values import ProducerIdentity, TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.elsewhere import LOOK_AFTER_S
from pyspark_kafka_eos.client.net.network import Answer
from pyspark_kafka_eos.client.wire.produce import produce_request
from pyspark_kafka_eos.client.wire.versions import Versions
from pyspark_kafka_eos.client.writing import sequences as seq
from pyspark_kafka_eos.client.writing.held import Held, Sent
from pyspark_kafka_eos.client.writing.produce_refusals import RefusedBatch, answer_mismatch, outcome, removed
from pyspark_kafka_eos.model import SealedPartition, Traffic
from pyspark_kafka_eos.records import Packed, stamp

MAX_REQUEST_BYTES = 1024 * 1024
"""Batches of several partitions share a request up to this size. A larger batch has a request of its own,
which is sent without a copy. A quarter costs more round trips with many small partitions; four times makes
needless copies."""

BUFFER_BYTES = 16 * 1024 * 1024
"""Unacknowledged bytes a task may hold: enough for five 1-MB requests to each of three brokers. Half starves a wide
cluster, double only adds to the memory of every task."""

RETRY_BACKOFF_MS = 50
"""Pause before re-sending. An election takes tens of milliseconds; Java's 100 is twice what is needed."""

_FRESH = seq.Sequences()
"""A partition that nothing was written to."""

Stamper = Callable[[int], bytes | bytearray | memoryview]
"""base sequence -> the finished batch. Called once, on the caller's thread."""


def stamper(batch: Packed, identity: ProducerIdentity) -> Stamper:
    """Puts the identity and the sequence into a batch that is packed already."""
    return lambda base_sequence: stamp(
        batch,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        base_sequence=base_sequence,
    )


class Delivery:
    """Sends the batches of one (producer id, epoch). A failure is kept; the caller's next call raises it."""

    def __init__(
        self,
        cluster: Cluster,
        identity: ProducerIdentity,
        *,
        transactional_id: str | None,
        transaction_version: int,
        max_in_flight: int = seq.MAX_IN_FLIGHT,
        delivery_timeout_ms: int = 120_000,
        buffer_bytes: int = BUFFER_BYTES,
    ) -> None:
        self.cluster = cluster
        self.identity = identity
        self.transactional_id = transactional_id
        self._transaction_version = transaction_version
        self._max_in_flight = min(max_in_flight, seq.MAX_IN_FLIGHT)
        self._delivery_timeout_s = delivery_timeout_ms / 1000
        self._delivery_timeout_ms = delivery_timeout_ms
        self._buffer_bytes = buffer_bytes
        self._changed = runtime.condition()
        self._sequences: dict[TopicPartition, seq.Sequences] = {}
        self._begins: dict[TopicPartition, tuple[int, int]] = {}
        """The offset of this delivery's first record, and the log's start in the newest answer that had one."""
        self._held: dict[int, Held] = {}
        self._ready: dict[TopicPartition, float] = {}
        self._tokens = itertools.count()
        self._in_flight: dict[int, int] = {}
        self._unanswered: dict[Sent, None] = {}  # in the order of sending
        self._looked_s = 0.0
        self._bytes_held = 0
        self._pump_scheduled = False
        self._refreshing = False
        self._error: ExactlyOnceError | None = None
        self.retries = 0
        self._traffic = Traffic()

    @property
    def traffic(self) -> Traffic:
        """What the answered requests carried and how long they took, with the connections that are open now."""
        return replace(self._traffic, connections=self.cluster.network.connections)

    # ---- the caller's thread

    def submit(self, where: TopicPartition, count: int, stamp: Stamper, *, machine_time: bool = False) -> None:
        """Queue a batch behind everything submitted for its partition; waits while too much is unacknowledged.

        `machine_time`: its records' time is that of this machine's clock.

        Raises the failure of an earlier batch; this batch is then not sent.
        """
        with self._changed:
            self._await(lambda: self._bytes_held < self._buffer_bytes)
            token = next(self._tokens)
            base_sequence = self._sequences.get(where, _FRESH).next_sequence
        # Only this thread submits, so the sequence stays free. The bytes are finished (CRC included) without the lock,
        # which is safe: the batch cannot be sent before its sequences are stored below.
        data = stamp(base_sequence)
        with self._changed:
            self._raise_error()
            # Answers may have advanced the sequences in the meantime.
            sequences, effects = self._sequences.get(where, _FRESH).handle(seq.Enqueue(token, count))
            assert effects == (seq.Stamp(token, base_sequence),)
            self._sequences[where] = sequences
            self._held[token] = Held(where, data, runtime.monotonic(), machine_time)
            self._bytes_held += len(data)
            self._ready.setdefault(where, 0.0)
            # With a full pipe nothing can be sent before an answer arrives, and every answer triggers a pump.
            # Invariant: this check holds the lock under which answers are counted, so none can intervene.
            full = self._in_flight.get(self.cluster.leader(where), 0) >= self._max_in_flight
        if not full:
            self._schedule_pump()

    def resume_partition(self, where: TopicPartition, next_sequence: int) -> None:
        """Continue in a partition that others wrote to under this identity, with no batch in flight."""
        with self._changed:
            self._raise_error()
            sequences, _ = self._sequences.get(where, _FRESH).handle(seq.Resume(next_sequence))
            self._sequences[where] = sequences

    def settled(self, partitions: Collection[TopicPartition], *, wait: bool) -> dict[TopicPartition, int]:
        """Those of the partitions whose submitted batches are all acknowledged, each with its next sequence.

        `wait`: waits until there is at least one. Raises the failure of a batch, as `flush` does.
        """

        def found() -> dict[TopicPartition, int]:
            each_partition = ((where, self._sequences[where]) for where in partitions)
            return {
                where: sequences.next_sequence
                for where, sequences in each_partition
                if sequences.state is seq.SequencesState.IDLE
            }

        with self._changed:
            self._await(lambda: not wait or not partitions or bool(found()))
            return found()

    def flush(self, timeout_ms: int | None = None) -> None:
        """Wait until every submitted batch is acknowledged; raises the failure of the first that never is."""
        with self._changed:
            self._await(lambda: not self._held, timeout_ms)

    def _await(self, done: Callable[[], bool], timeout_ms: int | None = None) -> None:
        """Under the lock: wait until `done()`, or raise the failure that an answer caused."""
        deadline = runtime.monotonic() + (timeout_ms or 2 * self._delivery_timeout_ms) / 1000
        self._raise_error()
        while not done():
            left = deadline - runtime.monotonic()
            if left <= 0:
                raise AbortableError(
                    f"batches are still unacknowledged after the time allowed; {outcome(self.transactional_id)}",
                    {"unacknowledged": len(self._held), "transactional_id": self.transactional_id},
                )
            self._changed.wait(min(left, LOOK_AFTER_S))
            self._raise_error()
            if not done():
                self._look_elsewhere()

    def _look_elsewhere(self) -> None:
        """Under the lock: take back what leaders leave unanswered for a second, where others lead the partitions now.

        The lock is not held while a broker is asked.
        """
        now_s = runtime.monotonic()
        silent = [each for each in self._unanswered if now_s - each.sent_s >= LOOK_AFTER_S and each.batches]
        if not silent or now_s - self._looked_s < LOOK_AFTER_S:
            return
        topics = {where.topic for each in silent for where in each.batches}
        self._changed.release()
        try:
            self.cluster.look_for_leaders(topics, {each.node for each in silent})
        finally:
            self._changed.acquire()
            self._looked_s = runtime.monotonic()
        taken_back = False
        for each in silent:
            # A request that was answered meanwhile has nothing left.
            for where, (_, base) in list(each.batches.items()):
                leader = self.cluster.leader(where)
                if leader in (-1, each.node):
                    continue
                del each.batches[where]
                each.moved.add(where)
                self._not_delivered(where, base, f"broker {each.node} is silent, and broker {leader} leads now")
                taken_back = True
        self._raise_error()
        if taken_back:
            self._schedule_pump()

    def stop(self, timeout_ms: int) -> bool:
        """Drop queued batches, wait for requests in flight; False where some are unanswered in the end.

        Afterwards no batch can be submitted, and this delivery sends nothing again.
        """
        deadline = runtime.monotonic() + timeout_ms / 1000
        with self._changed:
            if self._error is None:
                self._error = AbortableError(
                    "the transaction was aborted here; begin another",
                    {"transactional_id": self.transactional_id},
                )
            self._changed.notify_all()
            while any(self._in_flight.values()):
                left = deadline - runtime.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(left)
        return True

    @property
    def unacknowledged(self) -> int:
        """Batches that are not acknowledged."""
        return len(self._held)

    def sealed_partitions(self) -> tuple[SealedPartition, ...]:
        """What was written to each partition. Call after `flush`."""
        with self._changed:
            return tuple(
                SealedPartition(
                    where.topic,
                    where.partition,
                    sequences.first_offset,
                    sequences.last_sequence,
                    sequences.acknowledged,
                    leader_epoch=self.cluster.leader_epoch(where),
                )
                for where, sequences in sorted(self._sequences.items())
            )

    def require_kept(self) -> None:
        """AbortableError where an answer has shown that a log begins behind the first record written here. Call after
        `flush`.
        """
        with self._changed:
            for where, (first, begins) in sorted(self._begins.items()):
                if begins > first:
                    raise removed(where, first, begins, self.transactional_id)

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    def _schedule_pump(self) -> None:
        with self._changed:
            if self._pump_scheduled:
                return
            self._pump_scheduled = True
        self.cluster.network.on_loop(self._pump_on_loop)

    # ---- the loop's thread

    def _pump_on_loop(self) -> None:
        try:
            with self._changed:
                self._pump_scheduled = False
                requests = [] if self._error is not None else self._drain()
            for node, tokens in requests:
                self._transmit_on_loop(node, tokens)
        except Exception as error:  # noqa: BLE001 -- the loop would swallow it, and the caller would wait
            self._broke(error)

    def _drain(self) -> list[tuple[int, list[tuple[int, int]]]]:
        now = runtime.monotonic()
        requests: list[tuple[int, list[tuple[int, int]]]] = []
        by_leader: dict[int, list[TopicPartition]] = {}
        wake_at: float | None = None
        for where, not_before in list(self._ready.items()):
            if not_before > now:
                wake_at = min(wake_at or not_before, not_before)
                continue
            leader = self.cluster.leader(where)
            if leader < 0:
                self._give_up_when_late(where, self._sequences[where].waiting[0].token, "the partition has no leader")
                self._refresh(where.topic)
                continue
            by_leader.setdefault(leader, []).append(where)
        for leader, partitions in by_leader.items():
            while self._in_flight.get(leader, 0) < self._max_in_flight:
                batches = self._fill(partitions)
                if not batches:
                    break
                self._in_flight[leader] = self._in_flight.get(leader, 0) + 1
                requests.append((leader, batches))
        if wake_at is not None:
            self.cluster.network.later(max(1.0, (wake_at - now) * 1000), self._pump_on_loop)
        return requests

    def _fill(self, partitions: list[TopicPartition]) -> list[tuple[int, int]]:
        batches: list[tuple[int, int]] = []
        size = 0
        for where in partitions:
            if where not in self._ready:
                continue
            sequences = self._sequences[where]
            if (
                batches
                and sequences.waiting
                and size + len(self._held[sequences.waiting[0].token].data) > MAX_REQUEST_BYTES
            ):
                break
            sequences, effects = sequences.handle(seq.SendNext())
            self._sequences[where] = sequences
            if not sequences.waiting:
                self._ready.pop(where, None)
            for effect in effects:
                if isinstance(effect, seq.Transmit):
                    batches.append((effect.token, effect.base_sequence))
                    size += len(self._held[effect.token].data)
                    self.retries += effect.attempt > 1
        return batches

    def _transmit_on_loop(self, node: int, batches: list[tuple[int, int]]) -> None:
        held = [self._held[token] for token, _ in batches]
        batches_of_request = [(each.where.topic, each.where.partition, each.data) for each in held]
        timeout_ms = self.cluster.settings.request_timeout_ms

        def build(versions: Versions) -> m.Message:
            version = versions.of(m.ProduceRequest, self._transaction_version)
            return produce_request(version, self.transactional_id, timeout_ms, batches_of_request)

        sent = Sent(node, {self._held[token].where: (token, base) for token, base in batches})
        count, size = len(batches), sum(len(each.data) for each in held)
        with self._changed:
            self._unanswered[sent] = None

        def answered(answer: Answer) -> None:
            if not isinstance(answer, ExactlyOnceError):
                self._measure_on_loop(count, size, runtime.monotonic() - sent.sent_s, answer)
            self._answered_on_loop(sent, answer)

        self.cluster.network.send_on_loop(node, build, answered)

    def _measure_on_loop(self, batches: int, size: int, took_s: float, answer: m.Message) -> None:
        took_us = int(took_s * 1_000_000)
        throttled_ms = getattr(answer, "throttle_time_ms", 0) or 0
        self._traffic += Traffic(1, batches, size, took_us, took_us, throttled_ms)

    def _answered_on_loop(self, sent: Sent, answer: Answer) -> None:
        try:
            with self._changed:
                self._in_flight[sent.node] -= 1
                self._unanswered.pop(sent, None)
                batches, sent.batches = sent.batches, {}
                if isinstance(answer, ExactlyOnceError):
                    for where, (_, base) in batches.items():
                        self._not_delivered(where, base, str(answer))
                        self._refresh(where.topic)
                    if isinstance(answer, (AuthorizationFailed, UnsupportedVersion)):
                        self._fail(answer)
                else:
                    self._take_answer(batches, sent.moved, answer)
                self._changed.notify_all()
        except Exception as error:  # noqa: BLE001 -- the library would swallow it, and the caller would wait
            self._broke(error)
        self._pump_on_loop()

    def _take_answer(
        self, sent: dict[TopicPartition, tuple[int, int]], moved: set[TopicPartition], answer: m.Message
    ) -> None:
        unanswered = dict(sent)
        unasked: list[TopicPartition] = []
        for topic in answer.responses:
            for partition in topic.partition_responses:
                where = TopicPartition(topic.name, partition.index)
                batch = unanswered.pop(where, None)
                if where in moved:
                    continue  # Of a former leader; the batch is on its way to the present one.
                if batch is None:
                    unasked.append(where)
                else:
                    self._take_code(where, *batch, partition)
        for where, (_, base) in unanswered.items():
            self._not_delivered(where, base, "the answer leaves the partition out")
        if unanswered or unasked:
            # An answer about other partitions does not show what the broker did with these batches.
            self._fail(answer_mismatch(unanswered, unasked, self.transactional_id))

    def _take_code(self, where: TopicPartition, token: int, base: int, partition: m.Message) -> None:
        code = partition.error_code
        action = action_for(m.ProduceRequest.API_KEY, code)
        if action is Action.DONE:
            self._note_begin(where, partition)
            self._apply(where, seq.Acknowledged(base, partition.base_offset))
        elif action is Action.ORDER:
            self._apply(where, seq.OutOfOrder(base))
        elif action in (Action.RETRY, Action.REDISCOVER):
            self._not_delivered(where, base, name_of(code))
            if action is Action.REDISCOVER:
                self._refresh(where.topic)
        else:
            self._apply(where, seq.Rejected(base, name_of(code)))
            data, machine_time = (held.data, held.machine_time) if (held := self._held.get(token)) else (b"", False)
            refused = RefusedBatch.from_answer(where, partition, data, machine_time=machine_time)
            self._refresh(where.topic)  # a leader that was cut off refuses by what a coordinator of its own time knows
            self._fail(refused.error(action, self.transactional_id))

    def _note_begin(self, where: TopicPartition, partition: m.Message) -> None:
        # Some duplicates are acknowledged without an offset. A log never begins earlier than it did.
        offset, begins = partition.base_offset, getattr(partition, "log_start_offset", -1)
        first, known = self._begins.get(where, (offset, -1))
        if offset >= 0:
            self._begins[where] = (min(first, offset), max(known, begins))

    def _not_delivered(self, where: TopicPartition, base: int, reason: str) -> None:
        sequences = self._sequences[where]
        token = next(batch.token for batch in sequences.in_flight if batch.base_sequence == base)
        self._apply(where, seq.NotDelivered(base, reason))
        now = runtime.monotonic()
        self._ready[where] = now + RETRY_BACKOFF_MS / 1000
        self._give_up_when_late(where, token, reason)

    def _give_up_when_late(self, where: TopicPartition, token: int, reason: str) -> None:
        held = self._held.get(token)
        if held is not None and runtime.monotonic() - held.first_try_at > self._delivery_timeout_s:
            self._fail(
                AbortableError(
                    f"a batch for {where} was not acknowledged within kafka.delivery.timeout.ms (last: {reason}); "
                    f"whether it was written is unknown; {outcome(self.transactional_id)}",
                    {"partition": str(where), "timeout_ms": self._delivery_timeout_ms},
                )
            )

    def _apply(self, where: TopicPartition, event: seq.Event) -> None:
        sequences, effects = self._sequences[where].handle(event)
        self._sequences[where] = sequences
        if sequences.waiting:
            self._ready.setdefault(where, 0.0)
        for effect in effects:
            if isinstance(effect, seq.Release):
                held = self._held.pop(effect.token)
                self._bytes_held -= len(held.data)
            elif isinstance(effect, seq.GiveUp):
                self._fail(
                    AbortableError(
                        f"partition {where} rejects all later batches: {effect.reason}; {outcome(self.transactional_id)}",
                        {"partition": str(where), "transactional_id": self.transactional_id},
                    )
                )

    def _refresh(self, topic: str) -> None:
        if not self._refreshing:
            self._refreshing = True
            self.cluster.network.later(
                RETRY_BACKOFF_MS,
                lambda: self.cluster.request_leaders_on_loop([topic], self._refreshed_on_loop),
            )

    def _refreshed_on_loop(self) -> None:
        with self._changed:
            self._refreshing = False
        self._pump_on_loop()

    def _broke(self, error: Exception) -> None:
        known = error if isinstance(error, ExactlyOnceError) else None
        with self._changed:
            self._fail(
                known
                or InternalError(
                    f"sending failed: {type(error).__name__}: {error}; {outcome(self.transactional_id)}",
                    {"transactional_id": self.transactional_id},
                )
            )

    def _fail(self, error: ExactlyOnceError) -> None:
        # A refusal is more specific than the give-up that the same answer caused in the state machine.
        if self._error is None or type(self._error) is AbortableError:
            self._error = error
        self._changed.notify_all()
