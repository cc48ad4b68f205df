"""Sending under an identity that all tasks of a batch share: each partition's batches go in this task's turn.

Owns: the batches that a task has packed and not sent yet, the thread that sends them, the thread that reads the turns.
Does not know: rows, Spark, whose turn it is (`turns`), how the transaction ends.
Invariants:
- A batch is sent only during a turn, under the sequence at which the turn begins or a later one.
- A turn is passed on only when everything sent in it is acknowledged.
- The bytes held are bounded by `MOST_HELD_BYTES` and the producer's own bound.
- A task that fails logs that for the others, which then stop. It leaves the transaction to the driver, which fences
  before it aborts.

Three threads: the caller's thread packs and gives batches; `_carry` sends, asks for turns and passes them on;
`_listen` reads the events of all tasks. One lock guards what they share; it is never held during I/O.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from kafka_core import runtime
from kafka_core.errors import AttemptRefused, InternalError
from kafka_core.values import TopicPartition
from pyspark_kafka_eos import crash_points
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.writing.delivery import stamper
from pyspark_kafka_eos.client.writing.producer import Producer
from pyspark_kafka_eos.model import Seal
from pyspark_kafka_eos.records import Packed
from pyspark_kafka_eos.slot import turns as tm
from pyspark_kafka_eos.slot.plan import SharedPlan
from pyspark_kafka_eos.slot.turn_log import TurnLog

MOST_HELD_BYTES = 32 * 1024 * 1024
"""Packed batches that wait for a turn; at this size the task waits too. Half makes tasks wait for each other;
double only adds to the memory of every task."""

ASK_BYTES = 8 * 1024 * 1024
"""The size from which on a task asks for the turns that it lacks. Passing a turn on takes a few milliseconds, in which
this much is packed. Half passes turns on twice as often; double leaves little room until `MOST_HELD_BYTES`.
"""

_STEP_BYTES = 4 * 1024 * 1024
"""Bytes sent before the next check for turns that can be passed on: fewer than the five requests that a broker may have
in flight."""

_LOOK_S = 0.5
"""How often a waiting thread checks whether it has waited too long."""

_STOP_S = 10.0
"""How long a failed task waits for its threads; they end by themselves, a little later, where a broker does not
answer.
"""


@dataclass
class _Queue:
    """One partition. `left`: how many batches may still be sent in a turn that another task waits for, None where none
    does.
    """

    waiting: deque[tuple[int, Packed]] = field(default_factory=deque)
    wanted: bool = False
    granted: int | None = None
    held: bool = False
    left: int | None = None

    @property
    def sendable(self) -> bool:
        return self.held and bool(self.waiting) and self.left != 0

    @property
    def passable(self) -> bool:
        return self.held and self.left is not None and not self.sendable


@dataclass
class _Work:
    """What the sending thread does next: turns that begin (and at which sequence), batches to send, turns to
    pass on as soon as everything is acknowledged, turns to ask for; `last`: nothing comes after it."""

    begin: dict[TopicPartition, int] = field(default_factory=dict)
    send: list[tuple[TopicPartition, int, Packed]] = field(default_factory=list)
    end: list[TopicPartition] = field(default_factory=list)
    ask: list[TopicPartition] = field(default_factory=list)
    last: bool = False

    def __bool__(self) -> bool:
        return bool(self.begin or self.send or self.end or self.ask or self.last)


class TurnSender:
    """Sends what one start of a task packs. Use once: `give` as often as there are batches, then `finish`; or
    `stop`.
    """

    def __init__(self, plan: SharedPlan, task: int, cluster: Cluster) -> None:
        self._task = task
        self._start = runtime.uuid4().hex
        self._identity = plan.identity
        self._patience_s = plan.writing.delivery_timeout_ms / 1000
        self._log = TurnLog(cluster, plan.turns, plan.key)
        self._producer = Producer(
            cluster,
            plan.transactional_id,
            transaction_timeout_ms=plan.writing.transaction_timeout_ms,
            delivery_timeout_ms=plan.writing.delivery_timeout_ms,
            max_in_flight=plan.writing.client.max_in_flight,
            two_phase=plan.writing.two_phase,
            transaction_version=plan.transaction_version,
        )
        self._producer.join(plan.identity)
        self._producer.begin()
        self._changed = runtime.condition()
        self._queues: dict[TopicPartition, _Queue] = {}
        self._bytes = 0
        self._begun = self._finishing = self._over = self._others_know = False
        self._heard_at = runtime.monotonic()
        self._error: BaseException | None = None
        self._threads = [
            runtime.thread(self._guarded, f"kafka-eos-{name}", (run,))
            for name, run in (("send", self._carry), ("turns", self._listen))
        ]

    @property
    def retries(self) -> int:
        """Batches that were sent more than once."""
        return self._producer.retries

    # ---- the caller's thread

    def give(self, where: TopicPartition, count: int, batch: Packed) -> None:
        """Take over a packed batch of `count` records; waits while too much waits for its turn.

        Raises the reason why nothing can be sent any more: AttemptRefused where the batch has to be repeated
        because of another task, else the error of an earlier one of these batches.
        """
        if self._threads[0].ident is None:
            for thread in self._threads:
                thread.start()
        with self._changed:
            while self._bytes >= MOST_HELD_BYTES and self._error is None:
                self._changed.wait(_LOOK_S)
                self._require_sender()
            self._raise_error()
            self._queues.setdefault(where, _Queue()).waiting.append((count, batch))
            self._bytes += len(batch)
            self._changed.notify_all()

    def finish(self, slot: int, *, records: int, size_bytes: int, digest: int) -> Seal:
        """Wait until everything given is acknowledged and every turn passed on; the seal of it."""
        with self._changed:
            self._finishing = True
            self._changed.notify_all()
        if self._threads[0].ident is not None:
            while self._threads[0].is_alive():
                self._threads[0].join(_LOOK_S)
        with self._changed:
            self._raise_error()
        crash_points.reached("after-last-acknowledgement")
        return self._producer.seal(slot, records=records, size_bytes=size_bytes, digest=digest)

    def stop(self, error: BaseException) -> None:
        """Send nothing more, log the reason for the other tasks, and leave the transaction to the driver. Best
        effort.
        """
        self._fail(error)
        # First, because the sending thread may wait for room in it.
        self._producer.stop()
        if self._threads[0].ident is not None:
            give_up = runtime.monotonic() + _STOP_S
            # The sending thread first: with its end the other one has nothing left to read.
            for thread in self._threads:
                left_s = max(0.0, give_up - runtime.monotonic())
                thread.join(left_s)

    def _require_sender(self) -> None:
        if self._error is None and not self._threads[0].is_alive():
            raise InternalError(
                "the thread that sends has ended without an error; nothing of the batch is visible",
                {"task": self._task},
            )

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            if self._error is None:
                self._error = error
            self._changed.notify_all()

    def _guarded(self, run: Callable[[], None]) -> None:
        try:
            run()
        except BaseException as error:  # noqa: BLE001 -- every error that ends a thread goes to the caller
            # Except the error of a listener that is no longer needed.
            if run != self._listen or not self._over:
                self._fail(error)

    # ---- the sending thread

    def _carry(self) -> None:
        try:
            while self._step():
                pass
        except BaseException as error:
            self._fail(error)
            self._over = True
            if self._begun and not self._others_know:
                reason = f"task {self._task} failed: {self._error}"[:500]
                self._log.append_events([tm.Stopped(self._task, self._start, reason)])
            raise
        self._over = True

    def _step(self) -> bool:
        """Do what can be done now; False when that was all."""
        with self._changed:
            self._raise_error()
            while not (work := self._take_work()):
                self._wait_for_others()
                self._raise_error()
        if work.begin:
            crash_points.reached("after-turn")
            self._producer.add_partitions(frozenset(work.begin))
        for where, next_sequence in work.begin.items():
            self._producer.resume_partition(where, next_sequence)
        for where, count, batch in work.send:
            self._send(where, count, batch)
        if work.last:
            self._producer.flush()
        settled: dict[TopicPartition, int] = {}
        if work.end:
            settled = self._producer.settled(work.end, wait=not work.send and not work.ask)
        self._say(settled, work.ask, last=work.last)
        return not work.last

    def _take_work(self) -> _Work:
        work = _Work()
        size = 0
        for where, queue in self._queues.items():
            if queue.granted is not None:
                work.begin[where] = queue.granted
                queue.granted, queue.held, queue.wanted = None, True, False
                if queue.left is not None:
                    queue.left = len(queue.waiting)
            while queue.sendable and size < _STEP_BYTES:
                count, batch = queue.waiting.popleft()
                work.send.append((where, count, batch))
                size += len(batch)
                if queue.left is not None:
                    queue.left -= 1
        if size:
            self._bytes -= size
            self._changed.notify_all()
        work.last = self._finishing and not any(queue.waiting for queue in self._queues.values())
        asks = self._finishing or not self._begun or self._bytes >= ASK_BYTES
        for where, queue in self._queues.items():
            if queue.passable or (work.last and queue.held):
                work.end.append(where)
            elif asks and queue.waiting and not queue.held and not queue.wanted:
                work.ask.append(where)
        return work

    def _wait_for_others(self) -> None:
        waits = any(queue.wanted for queue in self._queues.values())
        if waits and runtime.monotonic() - self._heard_at > self._patience_s:
            raise AttemptRefused(
                "a task of the batch did not pass its turn on within kafka.delivery.timeout.ms, so its executor may be "
                "lost; nothing of the batch is visible; it is aborted and done again under a new epoch",
                {"task": self._task, "producer": str(self._identity)},
            )
        self._changed.wait(_LOOK_S)

    def _send(self, where: TopicPartition, count: int, batch: Packed) -> None:
        self._producer.send(where, count, stamper(batch, self._identity), machine_time=batch.machine_time)
        crash_points.reached("mid-produce")

    def _say(self, ended: dict[TopicPartition, int], asked: list[TopicPartition], *, last: bool) -> None:
        """Log which turns are over and which are wanted. Stores both first, because the answer may come at once."""
        if not ended and not asked:
            return
        with self._changed:
            for where in ended:
                self._queues[where].held, self._queues[where].left = False, None
            for where in asked:
                self._queues[where].wanted = True
            self._heard_at = runtime.monotonic()
            # The last record that is appended wakes the listener, which then has nothing left to read.
            self._over = last
        events: list[tm.Event] = []
        if not self._begun:
            crash_points.reached("before-turn")
            events.append(tm.TaskStarted(self._task, self._start))
            self._begun = True
        events += [tm.Passed(self._task, self._start, where, following) for where, following in ended.items()]
        events += [tm.Wanted(self._task, self._start, where) for where in asked]
        self._log.append_events(events)
        if ended:
            crash_points.reached("turn-passed")

    # ---- the listening thread

    def _listen(self) -> None:
        turns = tm.Turns()
        try:
            # Nor behind an error: who waits for this thread would wait for a Fetch that nothing wakes.
            while not self._over and self._error is None:
                events = list(self._log.new_events())
                with self._changed:
                    for event in events:
                        turns, effects = turns.handle(event)
                        for effect in effects:
                            self._hear(effect)
                    if events:
                        self._heard_at = runtime.monotonic()
                        self._changed.notify_all()
        finally:
            self._log.close()

    def _hear(self, effect: tm.Effect) -> None:
        if isinstance(effect, tm.Broke):
            self._refuse(effect.reason)
        elif effect.start != self._start:
            return
        elif isinstance(effect, tm.Dismissed):
            self._refuse("the task was started again before this start had its turn")
        elif isinstance(effect, tm.Granted):
            queue = self._queues[effect.where]
            if not queue.wanted:
                raise InternalError("a turn was granted that was not asked for", {"partition": str(effect.where)})
            queue.granted, queue.left = effect.next_sequence, None
        else:
            queue = self._queues[effect.where]
            queue.left = len(queue.waiting)

    def _refuse(self, reason: str) -> None:
        self._others_know = True
        if self._error is None:
            self._error = AttemptRefused(
                f"{reason}; nothing of the batch is visible; it is aborted and done again under a new epoch",
                {"task": self._task, "producer": str(self._identity)},
            )
