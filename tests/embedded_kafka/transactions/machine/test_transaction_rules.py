"""The rules of InitProducerId and EndTxn, cell by cell."""

from __future__ import annotations

from dataclasses import replace

import pytest

from embedded_kafka.transactions.machine import events as ev
from embedded_kafka.transactions.machine.moves import Transaction
from kafka_core.values import ProducerIdentity, TopicPartition

A = TopicPartition("a", 0)
IDLE = (ev.TransactionState.EMPTY, ev.TransactionState.COMPLETE_COMMIT, ev.TransactionState.COMPLETE_ABORT)
NOW = 2_000


def at(state: ev.TransactionState, **changes: object) -> Transaction:
    touched = (
        frozenset({A})
        if state in (ev.TransactionState.ONGOING, ev.TransactionState.PREPARE_COMMIT, ev.TransactionState.PREPARE_ABORT)
        else frozenset()
    )
    base = ev.TransactionLogEntry(7, 5, 500, state, touched, 1_000, 1_100, 4, 7, -1, 2)
    return Transaction("id", replace(base, **changes))  # type: ignore[arg-type]


def outcome(value: Transaction, event: ev.Init | ev.End) -> str | ProducerIdentity:
    """The refusal's name, the identity that is answered at once, or the state that is prepared."""
    after, (effect,) = value.handle(event)
    if isinstance(effect, ev.RefuseRequest):
        assert after == value
        return effect.refusal.name
    if isinstance(effect, ev.AnswerIdentity):
        assert after == value
        return effect.identity
    assert isinstance(effect, ev.Log) and after.pending == effect.entry
    return effect.entry.state.name


def initialised(value: Transaction, expected: ProducerIdentity | None = None) -> tuple[ProducerIdentity, int]:
    after, (effect,) = value.handle(ev.Init(600, NOW, expected, fresh_id=99))
    assert isinstance(effect, ev.Log) and after.pending == effect.entry
    assert effect.entry.state is ev.TransactionState.EMPTY and effect.entry.timeout_ms == 600
    return effect.entry.identity, effect.entry.last_epoch


@pytest.mark.parametrize("state", IDLE)
def test_without_an_epoch_it_is_bumped_and_the_last_one_forgotten(state: ev.TransactionState) -> None:
    """Rule: seed 001 updated epoch logic 1."""
    assert initialised(at(state)) == (ProducerIdentity(7, 6), -1)


@pytest.mark.parametrize("state", IDLE)
def test_with_the_current_epoch_it_is_bumped_and_the_given_one_is_the_last(state: ev.TransactionState) -> None:
    """Rule: seed 001 updated epoch logic 2.1."""
    assert initialised(at(state), ProducerIdentity(7, 5)) == (ProducerIdentity(7, 6), 5)


@pytest.mark.parametrize("state", IDLE)
def test_with_the_last_epoch_the_current_one_is_answered(state: ev.TransactionState) -> None:
    """Rule: seed 001 updated epoch logic 2.2."""
    assert initialised(at(state), ProducerIdentity(7, 4)) == (ProducerIdentity(7, 5), 4)


@pytest.mark.parametrize("state", IDLE)
@pytest.mark.parametrize("epoch", [0, 3, 6, 32_766])
def test_with_any_other_epoch_the_producer_is_fenced(state: ev.TransactionState, epoch: int) -> None:
    """Rule: seed 001 updated epoch logic 2.3 (PRODUCER_FENCED since KIP-588)."""
    assert outcome(at(state), ev.Init(600, NOW, ProducerIdentity(7, epoch))) == "PRODUCER_FENCED"


def test_without_a_mapping_a_new_producer_id_starts_at_epoch_0_whatever_the_client_had() -> None:
    """Rule: seed 001 InvalidProducerIdMapping 2."""
    unknown = Transaction("id", ev.TransactionLogEntry(42))
    assert initialised(unknown) == (ProducerIdentity(42, 0), -1)
    assert initialised(unknown, ProducerIdentity(7, 5)) == (ProducerIdentity(42, 0), -1)


@pytest.mark.parametrize("state", [*IDLE, ev.TransactionState.ONGOING])
def test_another_producer_id_is_fenced_and_leaves_an_open_transaction_alone(state: ev.TransactionState) -> None:
    """Rule: seed 001 InvalidProducerIdMapping 3."""
    assert outcome(at(state), ev.Init(600, NOW, ProducerIdentity(8, 5))) == "PRODUCER_FENCED"


@pytest.mark.parametrize("state", [ev.TransactionState.PREPARE_COMMIT, ev.TransactionState.PREPARE_ABORT])
def test_while_a_transaction_ends_the_client_is_told_to_ask_again(state: ev.TransactionState) -> None:
    assert outcome(at(state), ev.Init(600, NOW)) == "CONCURRENT_TRANSACTIONS"


def test_used_up_epochs_bring_a_new_producer_id_and_the_repetition_gets_the_same() -> None:
    spent = at(ev.TransactionState.COMPLETE_COMMIT, epoch=32_766)
    assert spent.handle(ev.Init(600, NOW)) == (spent, (ev.NeedProducerId(),))
    assert initialised(spent) == (ProducerIdentity(99, 0), -1)
    assert initialised(spent, ProducerIdentity(7, 32_766)) == (ProducerIdentity(99, 0), 32_766)
    exchanged = at(ev.TransactionState.EMPTY, producer_id=99, epoch=0, last_epoch=32_766, previous_producer_id=7)
    assert initialised(exchanged, ProducerIdentity(7, 32_766)) == (ProducerIdentity(99, 0), 32_766)
    assert outcome(exchanged, ev.Init(600, NOW, ProducerIdentity(7, 32_765))) == "PRODUCER_FENCED"


LOWER, EQUAL, HIGHER, NEXT_BUT_ONE = 3, 5, 6, 7
BEFORE = 4
FENCED, WAIT, INVALID = "PRODUCER_FENCED", "CONCURRENT_TRANSACTIONS", "INVALID_TXN_STATE"
COMMITS, ABORTS = "PREPARE_COMMIT", "PREPARE_ABORT"
AGAIN = ProducerIdentity(7, 5)

V1: dict[ev.TransactionState, tuple[str | ProducerIdentity, str | ProducerIdentity]] = {
    # state: (what a commit under the current epoch comes to, what an abort comes to)
    ev.TransactionState.EMPTY: (INVALID, INVALID),
    ev.TransactionState.ONGOING: (COMMITS, ABORTS),
    ev.TransactionState.PREPARE_COMMIT: (WAIT, INVALID),
    ev.TransactionState.PREPARE_ABORT: (INVALID, WAIT),
    ev.TransactionState.COMPLETE_COMMIT: (AGAIN, INVALID),
    ev.TransactionState.COMPLETE_ABORT: (INVALID, AGAIN),
}
V2: dict[ev.TransactionState, dict[int, tuple[str | ProducerIdentity, str | ProducerIdentity]]] = {
    ev.TransactionState.EMPTY: {EQUAL: (INVALID, ABORTS), BEFORE: (FENCED, FENCED)},
    ev.TransactionState.ONGOING: {EQUAL: (COMMITS, ABORTS), BEFORE: (FENCED, FENCED)},
    ev.TransactionState.PREPARE_COMMIT: {EQUAL: (FENCED, FENCED), BEFORE: (WAIT, INVALID)},
    ev.TransactionState.PREPARE_ABORT: {EQUAL: (FENCED, FENCED), BEFORE: (INVALID, WAIT)},
    ev.TransactionState.COMPLETE_COMMIT: {EQUAL: (INVALID, ABORTS), BEFORE: (AGAIN, INVALID)},
    ev.TransactionState.COMPLETE_ABORT: {EQUAL: (INVALID, ABORTS), BEFORE: (INVALID, AGAIN)},
}


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("epoch", [LOWER, BEFORE, EQUAL, HIGHER, NEXT_BUT_ONE])
@pytest.mark.parametrize("state", list(V1), ids=lambda state: state.name)
def test_every_end_of_version_1_comes_to_what_kafka_answers(
    state: ev.TransactionState, epoch: int, commit: bool
) -> None:
    expected = V1[state][0 if commit else 1] if epoch == EQUAL else FENCED
    assert outcome(at(state), ev.End(ProducerIdentity(7, epoch), commit, 0, NOW)) == expected


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("epoch", [LOWER, BEFORE, EQUAL, HIGHER, NEXT_BUT_ONE])
@pytest.mark.parametrize("state", list(V2), ids=lambda state: state.name)
def test_every_end_of_version_2_comes_to_what_kafka_answers(
    state: ev.TransactionState, epoch: int, commit: bool
) -> None:
    expected = V2[state].get(epoch, (FENCED, FENCED))[0 if commit else 1]
    assert outcome(at(state), ev.End(ProducerIdentity(7, epoch), commit, 2, NOW)) == expected


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("state", list(V1), ids=lambda state: state.name)
def test_another_producer_id_ends_nothing(state: ev.TransactionState, version: int) -> None:
    assert outcome(at(state), ev.End(ProducerIdentity(8, 5), True, version, NOW)) == (
        ev.TransactionRefusal.INVALID_PRODUCER_ID_MAPPING.name
    )


@pytest.mark.parametrize(("version", "epoch"), [(0, 5), (2, 6)])
def test_an_end_of_version_2_bumps_the_epoch_and_one_of_version_1_does_not(version: int, epoch: int) -> None:
    after, _ = at(ev.TransactionState.ONGOING).handle(ev.End(ProducerIdentity(7, 5), True, version, NOW))
    assert after.pending is not None
    assert (after.pending.identity, after.pending.version) == (ProducerIdentity(7, epoch), version)


def test_the_repetition_of_the_end_that_used_up_the_epochs_is_known_by_the_previous_producer_id() -> None:
    done = at(ev.TransactionState.COMPLETE_COMMIT, producer_id=99, epoch=0, last_epoch=32_766, previous_producer_id=7)
    again = ev.End(ProducerIdentity(7, 32_766), True, 2, NOW)
    assert outcome(done, again) == ProducerIdentity(99, 0)
    assert outcome(done, replace(again, commit=False)) == INVALID
    assert outcome(done, replace(again, version=0)) == "INVALID_PRODUCER_ID_MAPPING"
    assert outcome(done, replace(again, identity=ProducerIdentity(7, 32_765))) == ("INVALID_PRODUCER_ID_MAPPING")


@pytest.mark.parametrize("state", IDLE)
def test_an_abort_of_nothing_has_no_partitions_but_a_beginning(state: ev.TransactionState) -> None:
    after, _ = at(state).handle(ev.End(ProducerIdentity(7, 5), False, 2, NOW))
    assert after.pending is not None
    assert (after.pending.partitions, after.pending.start_ms) == (frozenset(), NOW)


def test_only_a_partition_of_the_open_transaction_may_be_written() -> None:
    me, other = ProducerIdentity(7, 5), TopicPartition("other", 0)
    assert at(ev.TransactionState.ONGOING).verify(me, A) is None
    assert at(ev.TransactionState.ONGOING).verify(me, other) is ev.TransactionRefusal.TRANSACTION_ABORTABLE
    assert at(ev.TransactionState.EMPTY).verify(me, A) is ev.TransactionRefusal.TRANSACTION_ABORTABLE
    assert at(ev.TransactionState.PREPARE_COMMIT).verify(me, A) is ev.TransactionRefusal.CONCURRENT_TRANSACTIONS
    assert at(ev.TransactionState.ONGOING).verify(ProducerIdentity(7, 4), A) is ev.TransactionRefusal.PRODUCER_FENCED
    assert (
        at(ev.TransactionState.ONGOING).verify(ProducerIdentity(8, 5), A)
        is ev.TransactionRefusal.INVALID_PRODUCER_ID_MAPPING
    )
