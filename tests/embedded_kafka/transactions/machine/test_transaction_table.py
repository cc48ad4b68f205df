"""The transaction machine's table: every state and event is a move that is listed here, or refused with nothing
changed.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from embedded_kafka.transactions.machine import events as ev
from embedded_kafka.transactions.machine.moves import MOVES, Transaction
from kafka_core.errors import IllegalMove
from kafka_core.values import ProducerIdentity, TopicPartition
from tests.support.tables import Table, TableTests

A, B = TopicPartition("a", 0), TopicPartition("b", 1)
ME = ProducerIdentity(7, 5)
IDLE = (ev.TransactionState.EMPTY, ev.TransactionState.COMPLETE_COMMIT, ev.TransactionState.COMPLETE_ABORT)
PREPARED = (ev.TransactionState.PREPARE_COMMIT, ev.TransactionState.PREPARE_ABORT)
LIVE = (*IDLE, ev.TransactionState.ONGOING, *PREPARED)
NOW = 2_000


def entry(state: ev.TransactionState = ev.TransactionState.EMPTY, **changes: object) -> ev.TransactionLogEntry:
    open_or_ending = state is ev.TransactionState.ONGOING or state in PREPARED
    base = ev.TransactionLogEntry(
        producer_id=7,
        epoch=5,
        timeout_ms=500,
        state=state,
        partitions=frozenset({A, B} if open_or_ending else ()),
        start_ms=-1 if state is ev.TransactionState.EMPTY else 1_000,
        last_update_ms=1_100,
        last_epoch=4,
        previous_producer_id=7,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def idle(state: ev.TransactionState, **changes: object) -> Transaction:
    return Transaction("id", entry(state, **changes))


def changed(value: Transaction, **changes: object) -> tuple[Transaction, tuple[ev.Effect, ...]]:
    prepared = replace(value.current, previous_producer_id=value.current.producer_id, **changes)  # type: ignore[arg-type]
    return replace(value, pending=prepared), (ev.Log(prepared),)


EVENTS: dict[type, ev.Event] = {
    ev.Init: ev.Init(600, NOW),
    ev.Add: ev.Add(ME, frozenset({A}), NOW),
    ev.End: ev.End(ME, True, 0, NOW),
    ev.TimeOut: ev.TimeOut(NOW),
    ev.Expire: ev.Expire(NOW, 100),
    ev.Logged: ev.Logged(NOW),
    ev.LogFailed: ev.LogFailed(),
    ev.MarkerWritten: ev.MarkerWritten(A),
    ev.Finish: ev.Finish(),
    ev.StateLoaded: ev.StateLoaded(NOW),
}

ALLOWED: dict[type, tuple[ev.TransactionState, ...]] = {
    ev.Init: LIVE,
    ev.Add: LIVE,
    ev.End: LIVE,
    ev.TimeOut: (ev.TransactionState.ONGOING,),
    ev.Expire: IDLE,
    ev.Logged: LIVE,
    ev.LogFailed: LIVE,
    ev.MarkerWritten: PREPARED,
    ev.Finish: PREPARED,
    ev.StateLoaded: PREPARED,
}


class TestTheTable(TableTests):
    """Of a transactional id; the tests below judge the moves."""

    table = Table(
        "transaction",
        MOVES,
        ev.TransactionState,
        ev.Event,
        EVENTS,
        {state: idle(state) for state in ev.TransactionState},
        {(state, kind): () for kind, states in ALLOWED.items() for state in states},
    )


@pytest.mark.parametrize("state", LIVE)
@pytest.mark.parametrize("kind", [ev.Init, ev.Add, ev.End])
def test_while_a_change_is_pending_every_request_is_told_to_ask_again(state: ev.TransactionState, kind: type) -> None:
    value = replace(idle(state), pending=entry(ev.TransactionState.ONGOING))
    assert value.handle(EVENTS[kind]) == (
        value,
        (
            ev.RefuseRequest(
                ev.TransactionRefusal.CONCURRENT_TRANSACTIONS, ev.TransactionRefusal.CONCURRENT_TRANSACTIONS.value
            ),
        ),
    )


@pytest.mark.parametrize("state", [*IDLE, ev.TransactionState.ONGOING])
def test_a_logged_change_is_made_and_answered(state: ev.TransactionState) -> None:
    pending = entry(ev.TransactionState.ONGOING, start_ms=NOW)
    value = replace(idle(state), pending=pending)
    assert value.handle(ev.Logged(NOW)) == (Transaction("id", pending), (ev.AnswerIdentity(ME),))


@pytest.mark.parametrize("state", [*IDLE, ev.TransactionState.ONGOING])
def test_a_change_that_is_not_in_the_log_has_not_happened(state: ev.TransactionState) -> None:
    value = replace(idle(state), pending=entry(ev.TransactionState.ONGOING))
    assert value.handle(ev.LogFailed()) == (idle(state), ())


@pytest.mark.parametrize("state", LIVE)
def test_logged_without_a_pending_change_is_refused(state: ev.TransactionState) -> None:
    with pytest.raises(IllegalMove, match="nothing was being logged"):
        idle(state).handle(ev.Logged(NOW))


@pytest.mark.parametrize("state", PREPARED)
def test_a_completion_that_is_not_in_the_log_stays_pending(state: ev.TransactionState) -> None:
    value = replace(idle(state), pending=entry(ev.TransactionState.COMPLETE_ABORT))
    assert value.handle(ev.LogFailed()) == (value, ())


@pytest.mark.parametrize(
    ("prepared", "completed"),
    [
        (ev.TransactionState.PREPARE_COMMIT, ev.TransactionState.COMPLETE_COMMIT),
        (ev.TransactionState.PREPARE_ABORT, ev.TransactionState.COMPLETE_ABORT),
    ],
)
def test_a_logged_decision_sends_the_markers_and_leads_to_its_completion_alone(
    prepared: ev.TransactionState, completed: ev.TransactionState
) -> None:
    decision = entry(prepared, epoch=6, last_epoch=5, version=2, last_update_ms=1_900)
    value, effects = replace(idle(ev.TransactionState.ONGOING), pending=decision).handle(ev.Logged(NOW))
    commit = prepared is ev.TransactionState.PREPARE_COMMIT
    done = replace(decision, state=completed, partitions=frozenset(), last_update_ms=NOW)
    markers = ev.WriteMarkers(ProducerIdentity(7, 6), commit, frozenset({A, B}), 2, 1_900)
    assert effects == (ev.AnswerIdentity(ProducerIdentity(7, 6)), markers)
    assert value == Transaction("id", decision, done)
    value, effects = value.handle(ev.MarkerWritten(B))
    assert value.current.partitions == {A} and effects == ()
    assert value.handle(ev.Finish()) == (value, ())
    value, _ = value.handle(ev.MarkerWritten(A))
    value, effects = value.handle(ev.Finish())
    assert effects == (ev.Log(done),)
    assert value.handle(ev.Logged(NOW)) == (Transaction("id", done), ())


@pytest.mark.parametrize("state", PREPARED)
def test_what_was_prepared_before_a_restart_is_resumed_with_markers_that_may_be_there(
    state: ev.TransactionState,
) -> None:
    value, effects = idle(state).handle(ev.StateLoaded(NOW))
    assert value.pending is not None
    assert effects[-1] == ev.WriteMarkers(
        ME, state is ev.TransactionState.PREPARE_COMMIT, frozenset({A, B}), 0, 1_100, resumed=True
    )


@pytest.mark.parametrize("state", IDLE)
def test_the_first_partition_begins_the_transaction_and_its_clock(state: ev.TransactionState) -> None:
    value = idle(state)
    assert value.handle(ev.Add(ME, frozenset({A}), NOW, 2)) == changed(
        value, state=ev.TransactionState.ONGOING, partitions=frozenset({A}), start_ms=NOW, last_update_ms=NOW, version=2
    )


def test_later_partitions_join_and_the_clock_goes_on() -> None:
    value = idle(ev.TransactionState.ONGOING, partitions=frozenset({A}))
    assert value.handle(ev.Add(ME, frozenset({B}), NOW)) == changed(
        value, partitions=frozenset({A, B}), last_update_ms=NOW
    )


def test_partitions_that_are_there_already_are_answered_without_a_record() -> None:
    value = idle(ev.TransactionState.ONGOING)
    assert value.handle(ev.Add(ME, frozenset({A}), NOW)) == (value, (ev.AnswerIdentity(ME),))


@pytest.mark.parametrize("state", [*IDLE, ev.TransactionState.ONGOING])
@pytest.mark.parametrize(
    ("identity", "refusal"),
    [
        (ProducerIdentity(8, 5), ev.TransactionRefusal.INVALID_PRODUCER_ID_MAPPING),
        (ProducerIdentity(7, 4), ev.TransactionRefusal.PRODUCER_FENCED),
        (ProducerIdentity(7, 6), ev.TransactionRefusal.PRODUCER_FENCED),
    ],
)
def test_nobody_else_adds_partitions(
    state: ev.TransactionState, identity: ProducerIdentity, refusal: ev.TransactionRefusal
) -> None:
    value = idle(state)
    assert value.handle(ev.Add(identity, frozenset({A}), NOW)) == (
        value,
        (ev.RefuseRequest(refusal, refusal.value),),
    )


@pytest.mark.parametrize(
    ("version", "last_epoch"), [(1, -1), (2, 5)], ids=["transaction-version-1", "transaction-version-2"]
)
def test_a_transaction_that_is_older_than_its_timeout_is_aborted_under_the_next_epoch(
    version: int, last_epoch: int
) -> None:
    """Rule: seed 003 transaction expiry: a moment before, nothing happens."""
    value = idle(ev.TransactionState.ONGOING)
    assert value.handle(ev.TimeOut(1_500, version)) == (value, ())
    after, effects = value.handle(ev.TimeOut(1_501, version))
    assert after.pending is not None and effects == (ev.Log(after.pending),)
    assert (after.pending.state, after.pending.epoch, after.pending.last_epoch) == (
        ev.TransactionState.PREPARE_ABORT, 6, last_epoch,
    )  # fmt: skip


def test_a_two_phase_transaction_never_times_out() -> None:
    value = idle(ev.TransactionState.ONGOING, timeout_ms=2_147_483_647)
    assert value.handle(ev.TimeOut(10**15)) == (value, ())


@pytest.mark.parametrize("state", IDLE)
def test_an_unused_id_dies_after_its_time_and_not_before(state: ev.TransactionState) -> None:
    value = idle(state)
    assert value.handle(ev.Expire(1_199, 100)) == (value, ())
    assert value.handle(ev.Expire(1_200, 100)) == changed(value, state=ev.TransactionState.DEAD)


@pytest.mark.parametrize("version", [1, 2])
def test_init_over_an_open_transaction_aborts_it_under_the_next_epoch(version: int) -> None:
    after, _ = idle(ev.TransactionState.ONGOING).handle(ev.Init(600, NOW, server_version=version))
    assert after.pending is not None
    assert (after.pending.state, after.pending.epoch) == (ev.TransactionState.PREPARE_ABORT, 6)


def test_at_the_last_epoch_version_2_needs_a_new_producer_id_to_end_anything() -> None:
    value = idle(ev.TransactionState.ONGOING, epoch=32_766)
    last = ProducerIdentity(7, 32_766)
    for event in (ev.End(last, True, 2, NOW), ev.TimeOut(NOW), ev.Init(600, NOW)):
        assert value.handle(event) == (value, (ev.NeedProducerId(),))
        after, _ = value.handle(replace(event, fresh_id=99))
        assert after.pending is not None
        assert (after.pending.epoch, after.pending.next_producer_id) == (32_767, 99)
        after, effects = after.handle(ev.Logged(NOW))
        assert effects[0] == ev.AnswerIdentity(ProducerIdentity(99, 0))
        assert after.pending is not None
        assert (after.pending.previous_producer_id, after.pending.last_epoch) == (7, 32_766)


def test_under_version_1_the_last_epoch_is_given_up_by_the_next_init() -> None:
    value = idle(ev.TransactionState.ONGOING, epoch=32_766)
    after, _ = value.handle(ev.TimeOut(NOW, 1))
    assert after.pending is not None and after.pending.epoch == 32_767
    value = idle(ev.TransactionState.COMPLETE_ABORT, epoch=32_767)
    assert value.handle(ev.Init(600, NOW)) == (value, (ev.NeedProducerId(),))
    after, _ = value.handle(ev.Init(600, NOW, fresh_id=99))
    assert after.pending is not None and after.pending.identity == ProducerIdentity(99, 0)
