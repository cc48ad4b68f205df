"""What a partition remembers of a producer: the server side of the idempotent producer, as rules."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from embedded_kafka.log.producer_state import (
    REMEMBERED_BATCHES,
    SEQUENCE_LIMIT,
    Accepted,
    AppendRefusal,
    DataBatch,
    Duplicate,
    Marker,
    ProducerStateEntry,
    Reason,
    SequencePlace,
    after_batch,
    expired,
    judge,
    judge_marker,
    judge_unsequenced,
)
from kafka_core.protocol.error_codes import Code

PID = 7
NOW = 1_000


def data(first_sequence: int, offset: int, count: int = 1, *, epoch: int = 0, transactional: bool = False) -> DataBatch:
    return DataBatch(epoch, first_sequence, offset, offset + count - 1, 5, transactional)


def marker(offset: int, *, epoch: int = 0, coordinator_epoch: int = 0) -> Marker:
    return Marker(epoch, coordinator_epoch, offset, 6)


def accept(verdict: Accepted | Duplicate | AppendRefusal) -> ProducerStateEntry:
    assert isinstance(verdict, Accepted), verdict
    return verdict.state


def refusal(verdict: Accepted | Duplicate | AppendRefusal) -> AppendRefusal:
    assert isinstance(verdict, AppendRefusal), verdict
    return verdict


def after(*batches: DataBatch, state: ProducerStateEntry | None = None) -> ProducerStateEntry:
    state = state or ProducerStateEntry(PID)
    for batch in batches:
        state = accept(judge(state, batch, NOW))
    return state


def test_every_reason_is_the_name_of_one_of_kafkas_codes() -> None:
    assert all(reason.name in Code.__members__ for reason in Reason)


# ---- duplicates


def test_each_of_the_last_five_batches_is_answered_with_its_old_offset() -> None:
    """Rule: seed 000 §5.5 step 5 (the last five batches are remembered; one of them again is a duplicate)."""
    batches = [data(3 * n, 100 + 3 * n, 3) for n in range(7)]
    state = after(*batches)

    answers = [judge(state, replace(batch, first_offset=500, last_offset=502), NOW) for batch in batches]

    assert [isinstance(answer, Duplicate) for answer in answers] == [False] * 2 + [True] * 5
    offsets = [answer.batch.first_offset for answer in answers if isinstance(answer, Duplicate)]
    assert offsets == [106, 109, 112, 115, 118]


def test_a_batch_older_than_the_five_is_out_of_order_and_told_to_lie_behind() -> None:
    """Rule: seed 000 §6 (a duplicate that lies behind is told from a gap that lies ahead)."""
    state = after(*(data(n, n) for n in range(REMEMBERED_BATCHES + 1)))

    answer = refusal(judge(state, data(0, 100), NOW))

    assert (answer.reason, answer.place) == (Reason.OUT_OF_ORDER_SEQUENCE_NUMBER, SequencePlace.BEHIND)


def test_only_the_very_same_range_of_sequences_is_a_duplicate() -> None:
    state = after(data(0, 0, 4), data(4, 4, 4))

    for changed in (data(4, 8, 3), data(5, 8, 3), data(2, 8, 4)):
        answer = refusal(judge(state, changed, NOW))
        assert (answer.reason, answer.place) == (Reason.OUT_OF_ORDER_SEQUENCE_NUMBER, SequencePlace.BEHIND)


def test_the_same_sequences_under_another_epoch_are_no_duplicate() -> None:
    state = after(data(0, 0, 2))

    assert accept(judge(state, data(0, 2, 2, epoch=1), NOW)).epoch == 1


# ---- order


def test_a_gap_is_out_of_order_and_told_to_lie_ahead() -> None:
    """Rule: seed 000 §5.5 step 6.6 (the next sequence is the last one plus one)."""
    state = after(data(0, 0, 3))

    answer = refusal(judge(state, data(5, 3), NOW))

    assert (answer.reason, answer.place) == (Reason.OUT_OF_ORDER_SEQUENCE_NUMBER, SequencePlace.AHEAD)
    assert "2 records are missing" in answer.message


def test_after_the_highest_sequence_comes_zero() -> None:
    """Rule: seed 000 §5.5 step 6.6 (Int.MaxValue is followed by 0)."""
    state = after(data(SEQUENCE_LIMIT - 2, 0, 2))

    assert after(data(0, 2), state=state).last_sequence == 0
    answer = refusal(judge(state, data(1, 2), NOW))
    assert answer.place is SequencePlace.AHEAD


def test_a_batch_may_lie_across_the_wrap_and_is_recognised_again() -> None:
    """Rule: seed 000 §5.5 step 6.6 (Int.MaxValue, inside a batch)."""
    across = data(SEQUENCE_LIMIT - 2, 10, 5)
    state = after(across)

    again = judge(state, data(SEQUENCE_LIMIT - 2, 15, 5), NOW)

    assert state.last_sequence == 2
    assert isinstance(again, Duplicate)
    assert (again.batch.first_sequence, again.batch.first_offset) == (SEQUENCE_LIMIT - 2, 10)
    assert after(data(3, 15), state=state).last_sequence == 3


def test_behind_and_ahead_are_told_apart_across_the_wrap() -> None:
    state = after(*(data(SEQUENCE_LIMIT - 3 + n, n) for n in range(3)), *(data(n, 3 + n) for n in range(5)))

    assert refusal(judge(state, data(SEQUENCE_LIMIT - 1, 9), NOW)).place is SequencePlace.BEHIND
    assert refusal(judge(state, data(7, 9), NOW)).place is SequencePlace.AHEAD


# ---- epochs


def test_a_new_epoch_starts_at_sequence_zero() -> None:
    """Rule: seed 000 §5.5 step 6.4 (a new epoch that does not start at 0 is out of order)."""
    state = after(data(0, 0, 3))

    assert refusal(judge(state, data(3, 3, epoch=1), NOW)).place is SequencePlace.NOT_AT_ZERO
    assert after(data(0, 3, epoch=1), state=state).batches[0].first_offset == 3


def test_a_new_epoch_forgets_the_batches_of_the_old_one() -> None:
    state = after(data(0, 0), data(1, 1), data(0, 2, epoch=1))

    assert [batch.last_offset for batch in state.batches] == [2]


def test_an_older_epoch_is_fenced() -> None:
    """Rule: seed 000 §5.5 step 6.3 (an older epoch is INVALID_PRODUCER_EPOCH)."""
    state = after(data(0, 0, epoch=3))

    assert refusal(judge(state, data(0, 1, epoch=2), NOW)).reason is Reason.INVALID_PRODUCER_EPOCH
    unsequenced = refusal(judge_unsequenced(state, data(-1, 1, epoch=2), NOW))
    assert unsequenced.reason is Reason.INVALID_PRODUCER_EPOCH


# ---- unknown producers


def test_an_unknown_producer_may_start_anywhere_since_kip_360() -> None:
    """Rule: seed 004 Broker Failure (without state and without messages writing is accepted again and the state built
    anew).
    """
    state = after(data(41, 9, 2))

    assert state.last_sequence == 42
    assert refusal(judge(state, data(50, 11), NOW)).place is SequencePlace.AHEAD


def test_strictly_an_unknown_producer_starts_at_sequence_zero() -> None:
    """Rule: seed 000 §5.5 step 6.2 (else UNKNOWN_PRODUCER_ID); the documents' rule, before KIP-360."""
    unknown = ProducerStateEntry(PID)

    answer = refusal(judge(unknown, data(41, 9), NOW, strict_first_sequence=True))

    assert answer.reason is Reason.UNKNOWN_PRODUCER_ID
    assert accept(judge(unknown, data(0, 9), NOW, strict_first_sequence=True)).known


def test_with_transaction_version_two_an_unknown_transactional_producer_starts_at_zero() -> None:
    unknown = ProducerStateEntry(PID)

    answer = refusal(judge(unknown, data(4, 9, transactional=True), NOW, transaction_version=2))

    assert (answer.reason, answer.place) == (Reason.OUT_OF_ORDER_SEQUENCE_NUMBER, SequencePlace.NOT_AT_ZERO)
    assert accept(judge(unknown, data(4, 9), NOW, transaction_version=2)).known, "no transaction, no such rule"


def test_a_coordinators_own_batches_have_no_sequences_to_check() -> None:
    state = ProducerStateEntry(PID)
    for offset in (4, 9, 2_000):
        state = accept(judge_unsequenced(state, data(-1, offset, 3, transactional=True), NOW))

    assert (state.last_sequence, state.open_since) == (-1, 4)


# ---- transactions and markers


def test_a_transaction_is_open_from_its_first_batch_to_its_marker() -> None:
    state = after(data(0, 10, 2, transactional=True), data(2, 12, transactional=True))

    ended = judge_marker(state, marker(13), NOW)

    assert state.open_since == 10
    assert isinstance(ended, Accepted)
    assert (ended.ended, ended.state.open_since) == (10, None)


def test_a_plain_batch_inside_a_transaction_is_refused() -> None:
    state = after(data(0, 0, transactional=True))

    assert refusal(judge(state, data(1, 1), NOW)).reason is Reason.INVALID_TXN_STATE
    assert refusal(judge_unsequenced(state, data(-1, 1), NOW)).reason is Reason.INVALID_TXN_STATE


def test_a_marker_that_bumps_the_epoch_makes_zero_the_next_sequence() -> None:
    """Rule: seed 000 §5.5 (checkSequence: after a marker bumped the epoch, the next sequence is 0)."""
    state = accept(judge_marker(after(data(0, 0, 4, transactional=True)), marker(4, epoch=1), NOW))

    assert (state.epoch, state.last_sequence) == (1, -1)
    assert refusal(judge(state, data(4, 5, epoch=1), NOW)).place is SequencePlace.NOT_AT_ZERO
    assert after(data(0, 5, epoch=1), state=state).last_sequence == 0


def test_a_marker_of_the_same_epoch_leaves_the_sequences_where_they_are() -> None:
    state = accept(judge_marker(after(data(0, 0, 4, transactional=True)), marker(4), NOW))

    assert after(data(4, 5, transactional=True), state=state).open_since == 5
    assert isinstance(judge(state, data(0, 5, 4, transactional=True), NOW), Duplicate)


def test_a_marker_for_a_producer_that_wrote_nothing_ends_nothing_and_is_remembered() -> None:
    verdict = judge_marker(ProducerStateEntry(PID), marker(0, epoch=3, coordinator_epoch=2), NOW)

    assert isinstance(verdict, Accepted)
    assert (verdict.ended, verdict.state.epoch, verdict.state.coordinator_epoch) == (None, 3, 2)
    assert refusal(judge(verdict.state, data(0, 1, epoch=2), NOW)).reason is Reason.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize(("version", "lowest"), [(0, 3), (1, 3), (2, 4)])
def test_a_marker_of_an_older_epoch_is_refused(version: int, lowest: int) -> None:
    """Rule: KIP-1228 (with transaction version 2 the epoch is bumped before the marker, so one of the open epoch is
    late).
    """
    state = after(data(0, 0, epoch=3, transactional=True))

    late = judge_marker(state, marker(1, epoch=lowest - 1), NOW, transaction_version=version)

    assert refusal(late).reason is Reason.INVALID_PRODUCER_EPOCH
    assert accept(judge_marker(state, marker(1, epoch=lowest), NOW, transaction_version=version))


def test_a_marker_of_version_2_that_comes_again_is_taken_where_nothing_is_open() -> None:
    """Rule: KAFKA-19999 (a coordinator repeats a marker whose answer was lost, or after a restart)."""
    open_ = after(data(0, 0, epoch=3, transactional=True))
    ended = accept(judge_marker(open_, marker(1, epoch=4), NOW, transaction_version=2))

    again = judge_marker(ended, marker(2, epoch=4), NOW, transaction_version=2)

    assert isinstance(again, Accepted) and again.ended is None
    older = judge_marker(ended, marker(2, epoch=3), NOW, transaction_version=2)
    assert refusal(older).reason is Reason.INVALID_PRODUCER_EPOCH
    opened = after(data(0, 2, epoch=4, transactional=True), state=ended)
    late = judge_marker(opened, marker(3, epoch=4), NOW, transaction_version=2)
    assert refusal(late).reason is Reason.INVALID_PRODUCER_EPOCH, "it would end the transaction after its own"


def test_at_the_highest_epoch_a_marker_of_version_2_ends_what_is_open() -> None:
    """Rule: KAFKA-20090 (no epoch is above 32767, so nothing else could end that transaction)."""
    state = after(data(0, 7, epoch=32_767, transactional=True))

    verdict = judge_marker(state, marker(8, epoch=32_767), NOW, transaction_version=2)

    assert isinstance(verdict, Accepted) and verdict.ended == 7


def test_a_marker_of_an_older_coordinator_is_refused() -> None:
    state = accept(judge_marker(after(data(0, 0, transactional=True)), marker(1, coordinator_epoch=5), NOW))

    answer = refusal(judge_marker(state, marker(2, coordinator_epoch=4), NOW))

    assert answer.reason is Reason.TRANSACTION_COORDINATOR_FENCED
    assert accept(judge_marker(state, marker(2, coordinator_epoch=5), NOW))


# ---- expiry


def test_an_idle_producer_is_forgotten_after_its_time_by_the_brokers_clock() -> None:
    """Rule: seed 001 prolonged producer state retention (KIP-854: producer.id.expiration.ms)."""
    state = after(data(0, 0))

    assert not expired(state, NOW + 99, 100)
    assert expired(state, NOW + 100, 100)


def test_the_age_of_the_records_does_not_make_a_producer_idle() -> None:
    state = after_batch(ProducerStateEntry(PID), data(0, 0), now_ms=10**12)

    assert state.last_timestamp_ms == 5
    assert not expired(state, 10**12 + 99, 100)


def test_a_producer_with_an_open_transaction_is_never_forgotten() -> None:
    state = after(data(0, 0, transactional=True))

    assert not expired(state, 10**15, 1)


# ---- any history


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_sent_again_or_lost_each_record_is_accepted_once_and_in_order(seed: int) -> None:
    """A client with five batches in flight, answers and requests lost at random; the accepted sequences have no gap."""
    rng = random.Random(seed)
    start = rng.choice([0, SEQUENCE_LIMIT - 20])
    batches, sequence = [], start
    for _ in range(40):
        count = rng.randint(1, 4)
        batches.append((sequence, count))
        sequence = (sequence + count) % SEQUENCE_LIMIT
    state, accepted, oldest, offset = ProducerStateEntry(PID), [], 0, 0
    while oldest < len(batches):
        for number in range(oldest, min(oldest + REMEMBERED_BATCHES, len(batches))):
            if rng.random() < 0.3:
                break  # the request is lost, and with it the connection's later ones
            first, count = batches[number]
            verdict = judge(state, data(first, offset, count), NOW)
            assert not isinstance(verdict, AppendRefusal), "in order and within five: nothing to refuse"
            if isinstance(verdict, Accepted):
                state = verdict.state
                accepted.append((first, count))
                offset += count
            if rng.random() < 0.7 and number == oldest:
                oldest += 1  # its answer arrives

    assert accepted == batches
