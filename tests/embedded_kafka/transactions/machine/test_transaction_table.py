"""The transaction machine's table: every state and event is a move that is listed here, or refused with nothing changed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from embedded_kafka.transactions.machine.events import (
    Add,
    Answer,
    Effect,
    End,
    Entry,
    Event,
    Expire,
    Finish,
    Init,
    Log,
    LogFailed,
    Logged,
    MarkerWritten,
    NeedProducerId,
    Refusal,
    Refuse,
    Resume,
    State,
    TimeOut,
    WriteMarkers,
)
from embedded_kafka.transactions.machine.moves import MOVES, Transaction
from kafka_core.errors import IllegalMove
from kafka_core.values import ProducerIdentity, TopicPartition
from tests.support.tables import Table, TableTests

A, B = TopicPartition("a", 0), TopicPartition("b", 1)
ME = ProducerIdentity(7, 5)
IDLE = (State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT)
PREPARED = (State.PREPARE_COMMIT, State.PREPARE_ABORT)
LIVE = (*IDLE, State.ONGOING, *PREPARED)
NOW = 2_000


def entry(state: State = State.EMPTY, **changes: object) -> Entry:
    open_or_ending = state is State.ONGOING or state in PREPARED
    base = Entry(
        producer_id=7,
        epoch=5,
        timeout_ms=500,
        state=state,
        partitions=frozenset({A, B} if open_or_ending else ()),
        start_ms=-1 if state is State.EMPTY else 1_000,
        last_update_ms=1_100,
        last_epoch=4,
        previous_producer_id=7,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def idle(state: State, **changes: object) -> Transaction:
    return Transaction("id", entry(state, **changes))


def changed(value: Transaction, **changes: object) -> tuple[Transaction, tuple[Effect, ...]]:
    prepared = replace(value.current, previous_producer_id=value.current.producer_id, **changes)  # type: ignore[arg-type]
    return replace(value, pending=prepared), (Log(prepared),)


EVENTS: dict[type, Event] = {
    Init: Init(600, NOW),
    Add: Add(ME, frozenset({A}), NOW),
    End: End(ME, True, 0, NOW),
    TimeOut: TimeOut(NOW),
    Expire: Expire(NOW, 100),
    Logged: Logged(NOW),
    LogFailed: LogFailed(),
    MarkerWritten: MarkerWritten(A),
    Finish: Finish(),
    Resume: Resume(NOW),
}

ALLOWED: dict[type, tuple[State, ...]] = {
    Init: LIVE,
    Add: LIVE,
    End: LIVE,
    TimeOut: (State.ONGOING,),
    Expire: IDLE,
    Logged: LIVE,
    LogFailed: LIVE,
    MarkerWritten: PREPARED,
    Finish: PREPARED,
    Resume: PREPARED,
}


class TestTheTable(TableTests):
    """Of a transactional id; the tests below judge the moves."""

    table = Table(
        "transaction",
        MOVES,
        State,
        Event,
        EVENTS,
        {state: idle(state) for state in State},
        {(state, kind): () for kind, states in ALLOWED.items() for state in states},
    )


@pytest.mark.parametrize("state", LIVE)
@pytest.mark.parametrize("kind", [Init, Add, End])
def test_while_a_change_is_pending_every_request_is_told_to_ask_again(state: State, kind: type) -> None:
    value = replace(idle(state), pending=entry(State.ONGOING))
    assert value.handle(EVENTS[kind]) == (
        value,
        (Refuse(Refusal.CONCURRENT_TRANSACTIONS, Refusal.CONCURRENT_TRANSACTIONS.value),),
    )


@pytest.mark.parametrize("state", [*IDLE, State.ONGOING])
def test_a_logged_change_is_made_and_answered(state: State) -> None:
    pending = entry(State.ONGOING, start_ms=NOW)
    value = replace(idle(state), pending=pending)
    assert value.handle(Logged(NOW)) == (Transaction("id", pending), (Answer(ME),))


@pytest.mark.parametrize("state", [*IDLE, State.ONGOING])
def test_a_change_that_is_not_in_the_log_has_not_happened(state: State) -> None:
    value = replace(idle(state), pending=entry(State.ONGOING))
    assert value.handle(LogFailed()) == (idle(state), ())


@pytest.mark.parametrize("state", LIVE)
def test_logged_without_a_pending_change_is_refused(state: State) -> None:
    with pytest.raises(IllegalMove, match="nothing was being logged"):
        idle(state).handle(Logged(NOW))


@pytest.mark.parametrize("state", PREPARED)
def test_a_completion_that_is_not_in_the_log_stays_pending(state: State) -> None:
    value = replace(idle(state), pending=entry(State.COMPLETE_ABORT))
    assert value.handle(LogFailed()) == (value, ())


@pytest.mark.parametrize(
    ("prepared", "completed"),
    [(State.PREPARE_COMMIT, State.COMPLETE_COMMIT), (State.PREPARE_ABORT, State.COMPLETE_ABORT)],
)
def test_a_logged_decision_sends_the_markers_and_leads_to_its_completion_alone(
    prepared: State, completed: State
) -> None:
    decision = entry(prepared, epoch=6, last_epoch=5, version=2, last_update_ms=1_900)
    value, effects = replace(idle(State.ONGOING), pending=decision).handle(Logged(NOW))
    commit = prepared is State.PREPARE_COMMIT
    done = replace(decision, state=completed, partitions=frozenset(), last_update_ms=NOW)
    markers = WriteMarkers(ProducerIdentity(7, 6), commit, frozenset({A, B}), 2, 1_900)
    assert effects == (Answer(ProducerIdentity(7, 6)), markers)
    assert value == Transaction("id", decision, done)
    value, effects = value.handle(MarkerWritten(B))
    assert value.current.partitions == {A} and effects == ()
    assert value.handle(Finish()) == (value, ())
    value, _ = value.handle(MarkerWritten(A))
    value, effects = value.handle(Finish())
    assert effects == (Log(done),)
    assert value.handle(Logged(NOW)) == (Transaction("id", done), ())


@pytest.mark.parametrize("state", PREPARED)
def test_what_was_prepared_before_a_restart_is_resumed_with_markers_that_may_be_there(state: State) -> None:
    value, effects = idle(state).handle(Resume(NOW))
    assert value.pending is not None
    assert effects[-1] == WriteMarkers(
        ME, state is State.PREPARE_COMMIT, frozenset({A, B}), 0, 1_100, resumed=True
    )


@pytest.mark.parametrize("state", IDLE)
def test_the_first_partition_begins_the_transaction_and_its_clock(state: State) -> None:
    value = idle(state)
    assert value.handle(Add(ME, frozenset({A}), NOW, 2)) == changed(
        value, state=State.ONGOING, partitions=frozenset({A}), start_ms=NOW, last_update_ms=NOW, version=2
    )


def test_later_partitions_join_and_the_clock_goes_on() -> None:
    value = idle(State.ONGOING, partitions=frozenset({A}))
    assert value.handle(Add(ME, frozenset({B}), NOW)) == changed(
        value, partitions=frozenset({A, B}), last_update_ms=NOW
    )


def test_partitions_that_are_there_already_are_answered_without_a_record() -> None:
    value = idle(State.ONGOING)
    assert value.handle(Add(ME, frozenset({A}), NOW)) == (value, (Answer(ME),))


@pytest.mark.parametrize("state", [*IDLE, State.ONGOING])
@pytest.mark.parametrize(
    ("identity", "refusal"),
    [
        (ProducerIdentity(8, 5), Refusal.INVALID_PRODUCER_ID_MAPPING),
        (ProducerIdentity(7, 4), Refusal.PRODUCER_FENCED),
        (ProducerIdentity(7, 6), Refusal.PRODUCER_FENCED),
    ],
)
def test_nobody_else_adds_partitions(state: State, identity: ProducerIdentity, refusal: Refusal) -> None:
    value = idle(state)
    assert value.handle(Add(identity, frozenset({A}), NOW)) == (value, (Refuse(refusal, refusal.value),))


@pytest.mark.parametrize(
    ("version", "last_epoch"), [(1, -1), (2, 5)], ids=["transaction-version-1", "transaction-version-2"]
)
def test_a_transaction_that_is_older_than_its_timeout_is_aborted_under_the_next_epoch(
    version: int, last_epoch: int
) -> None:
    """Rule: seed 003 transaction expiry: a moment before, nothing happens."""
    value = idle(State.ONGOING)
    assert value.handle(TimeOut(1_500, version)) == (value, ())
    after, effects = value.handle(TimeOut(1_501, version))
    assert after.pending is not None and effects == (Log(after.pending),)
    assert (after.pending.state, after.pending.epoch, after.pending.last_epoch) == (
        State.PREPARE_ABORT, 6, last_epoch,
    )  # fmt: skip


def test_a_two_phase_transaction_never_times_out() -> None:
    value = idle(State.ONGOING, timeout_ms=2_147_483_647)
    assert value.handle(TimeOut(10**15)) == (value, ())


@pytest.mark.parametrize("state", IDLE)
def test_an_unused_id_dies_after_its_time_and_not_before(state: State) -> None:
    value = idle(state)
    assert value.handle(Expire(1_199, 100)) == (value, ())
    assert value.handle(Expire(1_200, 100)) == changed(value, state=State.DEAD)


@pytest.mark.parametrize("version", [1, 2])
def test_init_over_an_open_transaction_aborts_it_under_the_next_epoch(version: int) -> None:
    after, _ = idle(State.ONGOING).handle(Init(600, NOW, server_version=version))
    assert after.pending is not None
    assert (after.pending.state, after.pending.epoch) == (State.PREPARE_ABORT, 6)


def test_at_the_last_epoch_version_2_needs_a_new_producer_id_to_end_anything() -> None:
    value = idle(State.ONGOING, epoch=32_766)
    last = ProducerIdentity(7, 32_766)
    for event in (End(last, True, 2, NOW), TimeOut(NOW), Init(600, NOW)):
        assert value.handle(event) == (value, (NeedProducerId(),))
        after, _ = value.handle(replace(event, fresh_id=99))
        assert after.pending is not None
        assert (after.pending.epoch, after.pending.next_producer_id) == (32_767, 99)
        after, effects = after.handle(Logged(NOW))
        assert effects[0] == Answer(ProducerIdentity(99, 0))
        assert after.pending is not None
        assert (after.pending.previous_producer_id, after.pending.last_epoch) == (7, 32_766)


def test_under_version_1_the_last_epoch_is_given_up_by_the_next_init() -> None:
    value = idle(State.ONGOING, epoch=32_766)
    after, _ = value.handle(TimeOut(NOW, 1))
    assert after.pending is not None and after.pending.epoch == 32_767
    value = idle(State.COMPLETE_ABORT, epoch=32_767)
    assert value.handle(Init(600, NOW)) == (value, (NeedProducerId(),))
    after, _ = value.handle(Init(600, NOW, fresh_id=99))
    assert after.pending is not None and after.pending.identity == ProducerIdentity(99, 0)
