"""The source documents' rules for sequences, in flight and retries, against a broker written from the same documents.

`BrokerPartition` follows the documents' broker rules and nothing of the product: what it says is what the client has to
live with. It is itself tested with histories that it must refuse.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_kafka_eos.client.writing.sequences import (
    MAX_IN_FLIGHT,
    SEQUENCE_LIMIT,
    Acknowledged,
    Batch,
    Effect,
    Enqueue,
    Event,
    GiveUp,
    NotDelivered,
    OutOfOrder,
    Rejected,
    Release,
    Resume,
    SendNext,
    Sequences,
    SequencesState,
    Stamp,
    Transmit,
)

WRITTEN, DUPLICATE, GAP, UNKNOWN_PRODUCER = "written", "duplicate", "gap", "unknown producer"


@dataclass
class BrokerPartition:
    """A partition's leader as the documents describe it: one producer epoch, its last five batches, its log."""

    last_sequence: int = -1
    remembered: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=5))
    log: list[tuple[int, int]] = field(default_factory=list)

    def produce(self, token: int, base_sequence: int, count: int) -> tuple[str, int]:
        """(what became of it, offset): duplicate of the last five, else in sequence, else refused."""
        last = (base_sequence + count - 1) % 2**31
        for first, end, offset in self.remembered:
            if (first, end) == (base_sequence, last):
                return DUPLICATE, offset
        if self.last_sequence == -1 and base_sequence != 0:
            return UNKNOWN_PRODUCER, -1
        if base_sequence != (self.last_sequence + 1) % 2**31:
            return GAP, -1
        offset = len(self.log)
        self.log.extend((token, index) for index in range(count))
        self.remembered.append((base_sequence, last, offset))
        self.last_sequence = last
        return WRITTEN, offset


# ---- the broker model, judged


def test_the_model_broker_answers_a_remembered_batch_with_its_old_offset() -> None:
    """Rule: seed 000 §5.5 (server, duplicate): a batch among the last five is answered as written, and is not
    written again."""
    broker = BrokerPartition()
    assert broker.produce(0, 0, 3) == (WRITTEN, 0)
    assert broker.produce(1, 3, 2) == (WRITTEN, 3)
    assert broker.produce(0, 0, 3) == (DUPLICATE, 0)
    assert len(broker.log) == 5


def test_the_model_broker_refuses_gaps_forgotten_batches_and_a_first_sequence_above_zero() -> None:
    """Rule: seed 000 §5.5 (server, checkSequence): the first sequence of an unknown producer is 0, each next one
    follows the last; what is older than five batches is no longer known as a duplicate."""
    broker = BrokerPartition()
    assert broker.produce(0, 1, 1) == (UNKNOWN_PRODUCER, -1)
    for n in range(6):
        assert broker.produce(n, n, 1) == (WRITTEN, n)
    assert broker.produce(8, 8, 1) == (GAP, -1)
    assert broker.produce(0, 0, 1) == (GAP, -1)
    assert broker.produce(1, 1, 1) == (DUPLICATE, 1)
    assert len(broker.log) == 6


# ---- the rules, one test each


def run(value: Sequences, *events: Event) -> tuple[Sequences, list[Effect]]:
    effects: list[Effect] = []
    for event in events:
        value, more = value.handle(event)
        effects.extend(more)
    return value, effects


def send_all(value: Sequences) -> tuple[Sequences, list[Transmit]]:
    sent: list[Transmit] = []
    while True:
        value, effects = value.handle(SendNext())
        if not effects:
            return value, sent
        sent.extend(effect for effect in effects if isinstance(effect, Transmit))


KNOWN = Sequences(acknowledged=SEQUENCE_LIMIT)
"""After a whole round: the next sequence is 0, and the leader knows the producer."""


def enqueued(count: int, start: Sequences = KNOWN) -> Sequences:
    value = start
    for token in range(count):
        value, _ = value.handle(Enqueue(token, 1))
    return value


def test_sequences_start_at_zero_and_grow_by_the_records_of_each_batch() -> None:
    """Rule: seed 000 §5.1 (PID) and §5.2: numbers start at 0 per partition and epoch; a batch carries its first, the
    others follow from it."""
    value, effects = run(Sequences(), Enqueue(0, 3), Enqueue(1, 5), Enqueue(2, 1))
    assert effects == [Stamp(0, 0), Stamp(1, 3), Stamp(2, 8)]
    assert value.next_sequence == 9
    assert value.last_sequence == 8


def test_there_is_no_last_sequence_before_the_first_batch() -> None:
    """Rule: seed 000 §5.5 (NO_SEQUENCE): -1 stands for a producer that has written nothing."""
    assert Sequences().last_sequence == -1


def test_a_re_sent_batch_keeps_the_sequence_of_its_first_sending() -> None:
    """Rule: seed 000 §5.2 (setProducerState) and seed 001 (simplified error handling, 1): a sequence is assigned once
    and for good, because the first sending may have been written."""
    value, sent = send_all(enqueued(2))
    value, _ = run(value, NotDelivered(1, "lost"), NotDelivered(0, "lost"))
    value, (again,) = send_all(value)
    assert (again.token, again.base_sequence, again.attempt) == (sent[0].token, sent[0].base_sequence, 2)
    value, effects = run(value, Acknowledged(0, 10))
    assert effects == [Release(0)]
    _, (second,) = send_all(value)
    assert (second.token, second.base_sequence, second.attempt) == (sent[1].token, sent[1].base_sequence, 2)


def test_a_batch_is_stamped_exactly_once_however_often_it_is_sent() -> None:
    """Rule: seed 000 §5.4 (drain): producer id, epoch and sequence are put on a batch that has none, never again."""
    value, effects = run(Sequences(), Enqueue(0, 1))
    for _ in range(4):
        value, more = run(value, SendNext(), NotDelivered(0, "lost"))
        effects += more
    assert [effect for effect in effects if isinstance(effect, Stamp)] == [Stamp(0, 0)]
    assert sum(isinstance(effect, Transmit) for effect in effects) == 4


def test_at_most_five_batches_are_in_flight() -> None:
    """Rule: seed 000 §6 (why max in flight <= 5) and seed 004 (How does the idempotent producer work): no more than
    the broker remembers."""
    value, sent = send_all(enqueued(9))
    assert MAX_IN_FLIGHT == 5
    assert [each.base_sequence for each in sent] == [0, 1, 2, 3, 4]
    assert len(value.waiting) == 4


def test_five_unanswered_batches_are_all_still_known_to_the_broker_when_they_are_re_sent() -> None:
    """Rule: seed 000 §6 (why max in flight <= 5): with five, the oldest is still among the last five batches, so its
    re-sending is recognised; the sixth would have pushed it out."""
    value, sent = send_all(enqueued(6))
    broker = BrokerPartition()
    assert [broker.produce(each.token, each.base_sequence, 1)[0] for each in sent] == [WRITTEN] * 5
    for each in sent:
        value, _ = value.handle(NotDelivered(each.base_sequence, "the answer was lost"))
    for each in sent:
        value, (again,) = send_all(value)
        outcome, offset = broker.produce(again.token, again.base_sequence, 1)
        assert (outcome, offset) == (DUPLICATE, each.base_sequence)
        value, _ = value.handle(Acknowledged(again.base_sequence, offset))
    assert len(broker.log) == 5


def test_a_sixth_batch_in_flight_would_make_the_broker_forget_the_first() -> None:
    """Rule: seed 000 §6 (why max in flight <= 5): six written, the first re-sent: taken for out of order, for ever."""
    broker = BrokerPartition()
    for sequence in range(MAX_IN_FLIGHT + 1):
        broker.produce(sequence, sequence, 1)
    assert broker.produce(0, 0, 1) == (GAP, -1)
    assert broker.produce(1, 1, 1) == (DUPLICATE, 1)


def test_a_failed_batch_is_queued_where_its_sequence_belongs() -> None:
    """Rule: seed 000 §6 (reenqueue, insertInSequenceOrder): before everything with a higher sequence, whatever the
    order in which the failures come."""
    value, _ = send_all(enqueued(7))
    value, _ = run(value, *(NotDelivered(base, "lost") for base in (3, 0, 4, 2, 1)))
    assert [batch.base_sequence for batch in value.waiting] == [0, 1, 2, 3, 4, 5, 6]


def test_while_a_batch_is_re_sent_it_is_the_oldest_and_alone() -> None:
    """Rule: seed 000 §5.4 (drain, firstInFlightSequence) and §6: a retried batch goes only when it is the oldest, so
    requests in flight shrink to one."""
    value, _ = send_all(enqueued(6))
    value, _ = run(value, NotDelivered(1, "lost"))
    value, sent = send_all(value)
    assert sent == [], "the older batch 0 is still unanswered"
    value, _ = run(value, Acknowledged(0, 0))
    value, sent = send_all(value)
    assert sent == [], "three younger ones are still unanswered"
    value, _ = run(value, OutOfOrder(2), OutOfOrder(3), OutOfOrder(4))
    value, sent = send_all(value)
    assert [each.base_sequence for each in sent] == [1]


def test_batches_behind_a_lost_one_are_refused_as_out_of_order_and_re_sent_in_order() -> None:
    """Rule: seed 000 §6 (is order kept): request 2 of 1..5 fails, so 3, 4 and 5 are refused too, and 2, 3, 4, 5 go
    again in this order."""
    value, _ = send_all(enqueued(5))
    value, _ = run(value, Acknowledged(0, 0), NotDelivered(1, "failed"), OutOfOrder(2), OutOfOrder(3), OutOfOrder(4))
    order: list[int] = []
    while value.unacknowledged:
        value, (sent,) = send_all(value)
        order.append(sent.base_sequence)
        value, _ = run(value, Acknowledged(sent.base_sequence, sent.base_sequence))
    assert order == [1, 2, 3, 4]
    assert value.state is SequencesState.IDLE


def test_after_the_last_re_sent_batch_five_may_be_in_flight_again() -> None:
    """Rule: seed 000 §6 (order and speed): one in flight while there is trouble, five again when it is over."""
    value, _ = send_all(enqueued(8))
    value, _ = run(value, *(NotDelivered(base, "cut") for base in range(5)))
    for base in range(5):
        value, (sent,) = send_all(value)
        value, _ = run(value, Acknowledged(sent.base_sequence, base))
    assert value.state is SequencesState.SENDING
    value, _ = run(value, Enqueue(8, 1), Enqueue(9, 1), Enqueue(10, 1))
    assert [each.base_sequence for each in send_all(value)[1]] == [5, 6, 7, 8, 9]


def test_out_of_order_for_the_oldest_batch_ends_the_epoch() -> None:
    """Rule: seed 004 (How does the idempotent producer work, warning): with nothing before it unanswered, a gap means
    that records are missing in the log; the transaction can only be aborted."""
    value, _ = send_all(enqueued(2))
    value, effects = run(value, OutOfOrder(0))
    assert value.state is SequencesState.REJECTED
    assert [type(effect) for effect in effects] == [GiveUp]


def test_after_a_fatal_error_nothing_behind_the_batch_is_sent() -> None:
    """Rule: seed 001 (simplified error handling, 2): when a batch fails for good, all later ones of the partition
    fail."""
    value, _ = send_all(enqueued(7))
    value, effects = run(value, Rejected(1, "too large"))
    assert effects == [GiveUp("too large")]
    value, effects = run(value, Acknowledged(0, 0), NotDelivered(2, "cut"), SendNext(), SendNext())
    assert effects == []
    assert value.state is SequencesState.REJECTED


def test_a_re_sent_batch_never_gets_another_sequence_after_a_fatal_error() -> None:
    """Rule: seed 001 (simplified error handling, 1): the old repair, giving the batches behind a failed one new
    sequences, does not exist: nothing is enqueued, stamped or numbered anew under this epoch."""
    value, _ = run(Sequences(), Enqueue(0, 1), SendNext(), Rejected(0, "UNKNOWN_PRODUCER_ID"))
    with pytest.raises(Exception, match="Enqueue is not allowed in REJECTED"):
        value.handle(Enqueue(1, 1))
    assert value.next_sequence == 1


def test_an_acknowledged_duplicate_is_a_success() -> None:
    """Rule: seed 000 §5.5 (duplicate) and seed 004 (How does the idempotent producer work): a duplicate raises
    nothing; its old offset is as good as a new one."""
    value, _ = run(Sequences(), Enqueue(0, 4), SendNext(), NotDelivered(0, "answer lost"), SendNext())
    value, effects = run(value, Acknowledged(0, 17))
    assert effects == [Release(0)]
    assert (value.state, value.first_offset, value.acknowledged) == (SequencesState.IDLE, 17, 4)


def test_until_the_first_batch_of_an_epoch_is_acknowledged_it_is_alone_in_flight() -> None:
    """A leader that does not know the producer takes any sequence as its first: behind a first batch with a retriable
    error it would take the second one, and refuse the first for good.
    """
    value, sent = send_all(enqueued(7, Sequences()))
    assert [each.base_sequence for each in sent] == [0]
    value, _ = run(value, NotDelivered(0, "NOT_ENOUGH_REPLICAS"))
    value, again = send_all(value)
    assert [(each.base_sequence, each.attempt) for each in again] == [(0, 2)]
    value, _ = run(value, Acknowledged(0, 40))
    assert [each.base_sequence for each in send_all(value)[1]] == [1, 2, 3, 4, 5]


def test_behind_the_batches_of_other_tasks_nothing_waits_for_a_first_one() -> None:
    """They are acknowledged (scope=batch), so the leader knows the producer."""
    value, _ = run(Sequences(), Resume(3))
    assert [each.base_sequence for each in send_all(enqueued(4, value))[1]] == [3, 4, 5, 6]


# ---- the end of the numbers


def near_the_end(sequences_left: int) -> Sequences:
    """A partition that has acknowledged all but the last `sequences_left` sequences of the first round."""
    written = SEQUENCE_LIMIT - sequences_left
    return Sequences(next_sequence=written, first_offset=0, acknowledged=written)


def test_after_the_highest_sequence_comes_zero() -> None:
    """Rule: seed 000 §5.5 (inSequence, Int.MaxValue): numbers are int32 and wrap at 2^31 - 1."""
    assert SEQUENCE_LIMIT - 1 == 2_147_483_647
    value, effects = run(near_the_end(1), Enqueue(0, 1), Enqueue(1, 1))
    assert effects == [Stamp(0, 2_147_483_647), Stamp(1, 0)]
    assert value.last_sequence == 0


def test_a_batch_may_lie_across_the_wrap() -> None:
    """Rule: seed 000 §5.5 (inSequence, Int.MaxValue): the batch's last sequence is counted round the end."""
    value, effects = run(near_the_end(2), Enqueue(0, 5), Enqueue(1, 1))
    assert effects == [Stamp(0, 2_147_483_646), Stamp(1, 3)]
    assert value.waiting[0].last_sequence == 2


def test_order_is_kept_when_the_failed_batches_lie_on_both_sides_of_the_wrap() -> None:
    """Rule: seed 000 §6 (reenqueue): sequence order near 2^31 - 1 is the order of assignment, not of the numbers."""
    value = enqueued(5, near_the_end(2))
    value, sent = send_all(value)
    bases = [each.base_sequence for each in sent]
    assert bases == [2_147_483_646, 2_147_483_647, 0, 1, 2]
    value, _ = run(value, *(NotDelivered(base, "cut") for base in (bases[2], bases[0], bases[4], bases[1], bases[3])))
    assert [batch.base_sequence for batch in value.waiting] == bases


def test_out_of_order_across_the_wrap_is_told_from_a_real_gap() -> None:
    """Rule: seed 000 §6 (out of order, behind or ahead): sequence 0 after 2^31 - 1 is the younger one."""
    value, _ = send_all(enqueued(2, near_the_end(1)))
    retried, effects = run(value, OutOfOrder(0))
    assert (retried.state, effects) == (SequencesState.RETRYING, [])
    queued, _ = run(value, NotDelivered(SEQUENCE_LIMIT - 1, "cut"))
    queued, effects = run(queued, OutOfOrder(0))
    assert (queued.state, effects) == (SequencesState.RETRYING, [])
    ended, effects = run(value, OutOfOrder(SEQUENCE_LIMIT - 1))
    assert (ended.state, len(effects)) == (SequencesState.REJECTED, 1)


def test_the_first_offset_is_not_that_of_the_second_zero() -> None:
    """Sequence 0 comes again after 2^31 records; the seal's first offset stays that of the first."""
    value, _ = run(near_the_end(1), Enqueue(0, 1), Enqueue(1, 1), SendNext(), SendNext())
    value, _ = run(value, Acknowledged(SEQUENCE_LIMIT - 1, 99), Acknowledged(0, 100))
    assert value.first_offset == 0
    unknown = Sequences(next_sequence=0, acknowledged=SEQUENCE_LIMIT)
    value, _ = run(unknown, Enqueue(0, 1), SendNext(), Acknowledged(0, 100))
    assert value.first_offset == -1


# ---- everything at once


@dataclass
class Request:
    """A Produce of one batch on its way."""

    base_sequence: int
    token: int
    count: int
    answer: Event | None = None


@dataclass
class World:
    """A client's sequences, a leader and the connection between them. One connection keeps order both ways; a cut one
    loses every answer, and a part of the requests that were already with the broker may still be written later.
    """

    start: Sequences
    broker: BrokerPartition
    client: Sequences = field(init=False)
    connection: deque[Request] = field(default_factory=deque)
    stragglers: deque[Request] = field(default_factory=deque)
    stamps: dict[int, int] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)
    resent: int = 0

    def __post_init__(self) -> None:
        self.client = self.start

    def tell(self, event: Event) -> None:
        before = self.client
        self.client, effects = before.handle(event)
        for effect in effects:
            if isinstance(effect, Stamp):
                assert effect.token not in self.stamps, "a sequence was assigned twice"
                self.stamps[effect.token] = effect.base_sequence
            elif isinstance(effect, Transmit):
                assert self.stamps[effect.token] == effect.base_sequence, "a sequence was reassigned"
                if before.state is SequencesState.RETRYING:
                    assert not before.in_flight, "a re-sent batch was not alone"
                    assert not self.connection
                self.resent += effect.attempt > 1
                self.connection.append(Request(effect.base_sequence, effect.token, self.counts[effect.token]))
            else:
                assert isinstance(effect, Release), f"the sequences gave up: {effect}"
        self.check()

    def check(self) -> None:
        waiting, in_flight = self.client.waiting, self.client.in_flight
        assert len(in_flight) <= 5
        assert [batch.base_sequence for batch in in_flight] == [request.base_sequence for request in self.connection]
        unknown = [batch for batch in (*in_flight, *waiting) if batch.attempts]
        assert len(unknown) <= 5, "the broker could forget one of these"
        tokens = [batch.token for batch in (*in_flight, *waiting)]
        assert len(tokens) == len(set(tokens))
        assert [batch.token for batch in waiting] == sorted(batch.token for batch in waiting)
        assert all(self.stamps[batch.token] == batch.base_sequence for batch in (*in_flight, *waiting))

    def enqueue(self, count: int) -> None:
        token = len(self.counts)
        self.counts[token] = count
        self.tell(Enqueue(token, count))

    def broker_handles(self, request: Request, hiccup: str) -> Event:
        if hiccup == "before":
            return NotDelivered(request.base_sequence, "NOT_LEADER_OR_FOLLOWER")
        outcome, offset = self.broker.produce(request.token, request.base_sequence, request.count)
        if outcome in (GAP, UNKNOWN_PRODUCER):
            return OutOfOrder(request.base_sequence)
        if hiccup == "after":
            return NotDelivered(request.base_sequence, "NOT_ENOUGH_REPLICAS_AFTER_APPEND")
        return Acknowledged(request.base_sequence, offset)

    def process(self, hiccup: str = "") -> None:
        request = next((each for each in self.connection if each.answer is None), None)
        if request is not None:
            request.answer = self.broker_handles(request, hiccup)

    def answer(self) -> None:
        if self.connection and self.connection[0].answer is not None:
            request = self.connection.popleft()
            assert request.answer is not None
            self.tell(request.answer)

    def straggle(self) -> None:
        if self.stragglers:
            self.broker_handles(self.stragglers.popleft(), "")

    def cut(self, chance: random.Random) -> None:
        lost = list(self.connection)
        unread = [request for request in lost if request.answer is None]
        self.stragglers.extend(unread[: chance.randint(0, len(unread))])
        chance.shuffle(lost)
        for request in lost:
            self.connection.remove(request)
            self.tell(NotDelivered(request.base_sequence, "connection lost"))

    def settle(self) -> None:
        for _ in range(10_000):
            if self.client.state is SequencesState.IDLE:
                return
            self.tell(SendNext())
            self.process()
            self.answer()
        raise AssertionError(f"never settled: {self.client}")


ACTIONS = ("enqueue", "send", "send", "process", "process", "answer", "cut", "straggle", "before", "after")


def play(start: Sequences, broker: BrokerPartition, actions: list[str], seed: int) -> World:
    world = World(start, broker)
    chance = random.Random(seed)
    for action in actions:
        if action == "enqueue":
            world.enqueue(chance.randint(1, 4))
        elif action == "send":
            world.tell(SendNext())
        elif action == "process":
            world.process()
        elif action in ("before", "after"):
            world.process(action)
        elif action == "answer":
            world.answer()
        elif action == "cut":
            world.cut(chance)
        else:
            world.straggle()
    world.settle()
    while world.stragglers:
        world.straggle()
    return world


def all_records(world: World) -> list[tuple[int, int]]:
    return [(token, index) for token, count in world.counts.items() for index in range(count)]


FAULTS = given(actions=st.lists(st.sampled_from(ACTIONS), max_size=120), seed=st.integers(0, 2**32))
QUICK = settings(max_examples=300, derandomize=True)


@QUICK
@FAULTS
def test_every_record_is_in_the_log_once_and_in_order_whatever_is_lost(actions: list[str], seed: int) -> None:
    """Rule: seed 000 §6 (is order kept) and seed 002 (the same): with sequences, retries and five in flight, nothing
    is lost, doubled or swapped."""
    world = play(Sequences(), BrokerPartition(), actions, seed)
    assert world.broker.log == all_records(world)
    assert world.client.acknowledged == len(world.broker.log)
    assert world.client.first_offset == (0 if world.counts else -1)


@QUICK
@FAULTS
def test_the_same_holds_where_the_sequences_wrap(actions: list[str], seed: int) -> None:
    """Rule: seed 000 §5.5 (inSequence, Int.MaxValue): the wrap is nothing special to either side."""
    broker = BrokerPartition(last_sequence=SEQUENCE_LIMIT - 8)
    world = play(near_the_end(7), broker, actions, seed)
    assert broker.log == all_records(world)
    assert world.client.first_offset == 0


def test_the_random_histories_do_lose_answers_and_re_send() -> None:
    """The faults above happen: a property that never meets one proves nothing."""
    chance = random.Random(7)
    worlds = [
        play(Sequences(), BrokerPartition(), [chance.choice(ACTIONS) for _ in range(120)], seed) for seed in range(50)
    ]
    assert sum(world.resent for world in worlds) > 100
    assert sum(world.broker.log == all_records(world) for world in worlds) == 50


def test_the_checker_rejects_a_client_that_renumbers_a_batch() -> None:
    """The history checker is itself checked: re-sending under a new sequence doubles the record."""
    broker = BrokerPartition()
    broker.produce(0, 0, 1)
    broker.produce(0, 1, 1)
    world = World(Sequences(), broker)
    world.counts = {0: 1}
    assert broker.log != all_records(world)
    world.stamps = {0: 0}
    world.client = Sequences(SequencesState.SENDING, 2, waiting=(Batch(0, 1, 1),))
    with pytest.raises(AssertionError):
        world.check()
