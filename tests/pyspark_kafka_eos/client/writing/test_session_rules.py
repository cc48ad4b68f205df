"""The source documents' rules for epochs, KIP-360 and the flow of a transaction, as the session machine keeps them."""

from __future__ import annotations

import pytest

from kafka_core.errors import IllegalMove
from kafka_core.values import ProducerIdentity, TopicPartition
from pyspark_kafka_eos.client.writing.session import (
    AbortRequested,
    Begin,
    CommitRequested,
    Effect,
    EndAnswered,
    EndNotSent,
    EndUnanswered,
    Event,
    Fenced,
    Initialize,
    Initialized,
    Need,
    NeedOffsets,
    PartitionsAdded,
    Proven,
    SealRequested,
    SendAddPartitions,
    SendEndTxn,
    SendInitProducerId,
    SendOffsets,
    Session,
    SessionFailed,
    SessionState,
    TransactionFailed,
)

ME, NEXT = ProducerIdentity(7, 3), ProducerIdentity(7, 4)
P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
ONE, OTHER = frozenset((P0,)), frozenset((P1,))


def run(version: int, *events: Event) -> tuple[Session, list[Effect]]:
    value, effects = Session(version), list[Effect]()
    for event in events:
        value, more = value.handle(event)
        effects.extend(more)
    return value, effects


WRITING: tuple[Event, ...] = (Initialize(), Initialized(ME), Begin(), Need(ONE), PartitionsAdded(ONE))


def test_nothing_is_written_before_an_identity_is_given() -> None:
    """Rule: seed 000 §5.4 (maybeWaitForProducerId) and seed 003 (obtaining the PID): the identity comes first."""
    for events in ((), (Initialize(),)):
        value, _ = run(1, *events)
        for event in (Begin(), Need(ONE), SealRequested(0), CommitRequested(0)):
            with pytest.raises(IllegalMove):
                value.handle(event)


def test_a_refused_identity_is_fatal_for_the_session() -> None:
    """Rule: seed 000 §5.4 (maybeWaitForProducerId): what cannot be retried ends the session."""
    value, _ = run(1, Initialize(), SessionFailed("CLUSTER_AUTHORIZATION_FAILED"))
    assert value.state is SessionState.FATAL
    with pytest.raises(IllegalMove):
        value.handle(Initialize())


def test_begin_sends_nothing() -> None:
    """Rule: seed 003 (beginning a transaction) and seed 004 (How Transactions Work): begin is local; the coordinator
    hears of the transaction with its first partition."""
    value, effects = run(1, Initialize(), Initialized(ME), Begin())
    assert effects == [SendInitProducerId(None)]
    assert (value.state, value.opened) == (SessionState.IN_TRANSACTION, False)


def test_a_partition_is_added_before_records_for_it_are_sent() -> None:
    """Rule: seed 003 (AddPartitionsToTxnRequest): the coordinator learns of a partition before the first record."""
    value, effects = run(1, *WRITING[:4])
    assert effects[1:] == [SendAddPartitions(ONE)]
    assert value.added == frozenset()
    value, _ = value.handle(PartitionsAdded(ONE))
    assert value.added == ONE


def test_a_partition_is_added_once_per_transaction() -> None:
    """Rule: seed 004 (Performance of Transactions): at most one registration per partition and transaction."""
    value, _ = run(1, *WRITING)
    value, effects = value.handle(Need(ONE | OTHER))
    assert effects == (SendAddPartitions(OTHER),)
    value, effects = value.handle(Need(OTHER))
    assert effects == ()


def test_transaction_version_two_adds_partitions_with_the_records_themselves() -> None:
    """Rule: seed 003 (AddPartitionsToTxnRequest), changed by KIP-890 (Kafka 4.0, transaction version 2)."""
    value, effects = run(2, *WRITING[:4])
    assert effects[1:] == []
    assert value.added == ONE


def test_source_offsets_make_a_transaction_that_has_to_be_ended() -> None:
    """Rule: seed 003 (AddOffsetsToTxnRequest): offsets alone open the transaction at the coordinator."""
    _, effects = run(1, Initialize(), Initialized(ME), Begin(), NeedOffsets("group"), CommitRequested(0))
    assert effects[-2:] == [SendOffsets("group"), SendEndTxn(True)]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("asked", [NeedOffsets("group"), Need(ONE)], ids=["offsets", "partitions"])
def test_what_the_coordinator_may_have_been_told_has_to_be_ended_even_if_the_request_failed(
    version: int, asked: Event
) -> None:
    """Design section 3: the request may have taken effect, so its error does not make the transaction empty."""
    value, effects = run(
        version,
        Initialize(),
        Initialized(ME),
        Begin(),
        asked,
        TransactionFailed("no answer"),
        AbortRequested(),
    )
    assert effects[-1] == SendEndTxn(False)
    assert value.state is SessionState.ABORTING


def test_a_commit_that_was_never_sent_can_be_aborted() -> None:
    """Design section 3: only an EndTxn that may have left makes the outcome unknown."""
    value, effects = run(1, *WRITING, CommitRequested(0), EndNotSent("no right"), AbortRequested())
    assert effects[-1] == SendEndTxn(False)
    assert value.state is SessionState.ABORTING


def test_a_transaction_without_content_is_not_ended_at_the_coordinator() -> None:
    """Rule: seed 003 (beginning a transaction): the coordinator knows of none, and would refuse to end it."""
    for end in (CommitRequested(0), AbortRequested()):
        value, effects = run(1, Initialize(), Initialized(ME), Begin(), end)
        assert effects == [SendInitProducerId(None)]
        assert (value.state, value.identity) == (SessionState.READY, ME)


def test_a_commit_waits_for_every_acknowledgement() -> None:
    """Rule: seed 003 (EndTxnRequest, flush): EndTxn follows the last acknowledgement; a seal likewise."""
    value, _ = run(1, *WRITING)
    for event in (CommitRequested(2), SealRequested(1)):
        with pytest.raises(IllegalMove, match="unacknowledged"):
            value.handle(event)
    assert value.handle(CommitRequested(0))[1] == (SendEndTxn(True),)


def test_a_sealed_transaction_takes_no_more_records() -> None:
    """Design section 2: a seal is the proof that everything is in; what came after it would not be proven."""
    value, _ = run(1, *WRITING, SealRequested(0))
    for event in (Need(OTHER), NeedOffsets("group"), SealRequested(0)):
        with pytest.raises(IllegalMove):
            value.handle(event)
    assert value.state is SessionState.SEALED


def test_one_identity_carries_one_transaction() -> None:
    """Design section 3 (FLINK-8132): after an end, version 1 has to bump the epoch before the next transaction."""
    value, _ = run(1, *WRITING, CommitRequested(0), EndAnswered(None))
    assert value.state is SessionState.UNINITIALIZED
    with pytest.raises(IllegalMove):
        value.handle(Begin())
    value, effects = value.handle(Initialize())
    assert effects == (SendInitProducerId(ME),)


def test_transaction_version_two_begins_again_with_the_epoch_that_the_end_gave() -> None:
    """KIP-890: EndTxn v5 answers the next epoch, so that no InitProducerId is needed."""
    value, _ = run(2, *WRITING[:4], CommitRequested(0), EndAnswered(NEXT))
    assert (value.state, value.identity, value.added) == (SessionState.READY, NEXT, frozenset())


def test_after_an_abortable_error_abort_is_the_only_way_on() -> None:
    """Rule: seed 001 (safe epoch incrementing, step 1): ABORTABLE_ERROR is left by aborting only."""
    value, _ = run(1, *WRITING, TransactionFailed("UNKNOWN_PRODUCER_ID"))
    for event in (Need(OTHER), CommitRequested(0), SealRequested(0), Begin(), Initialize()):
        with pytest.raises(IllegalMove):
            value.handle(event)
    assert value.handle(AbortRequested())[1] == (SendEndTxn(False),)


def test_after_the_abort_the_epoch_is_bumped_with_the_current_identity() -> None:
    """Rule: seed 001 (safe epoch incrementing, steps 2 and 4): InitProducerId with producer id and epoch; then the
    next transaction begins, from sequence 0 under the new epoch."""
    value, effects = run(1, *WRITING, TransactionFailed("no"), AbortRequested(), EndAnswered(None), Initialize())
    assert effects[-2:] == [SendEndTxn(False), SendInitProducerId(ME)]
    value, _ = value.handle(Initialized(NEXT))
    assert (value.state, value.identity, value.added) == (SessionState.READY, NEXT, frozenset())


def test_an_epoch_that_another_producer_bumped_is_the_end_of_this_one() -> None:
    """Rule: seed 001 (safe epoch incrementing, step 3): INVALID_PRODUCER_EPOCH is fatal; nothing is taken back."""
    value, _ = run(
        1, *WRITING, TransactionFailed("no"), AbortRequested(), EndAnswered(None), Initialize(), Fenced("47")
    )
    assert value.state is SessionState.FENCED
    for event in (Initialize(), Begin(), AbortRequested(), CommitRequested(0)):
        with pytest.raises(IllegalMove):
            value.handle(event)


def test_a_new_producer_id_after_expiry_is_taken_over() -> None:
    """Rule: seed 001 (InvalidProducerIdMapping, 1 and 2): asked again with the old identity, the coordinator may give
    a new producer id; after the abort the session goes on under it."""
    renewed = ProducerIdentity(99, 0)
    value, effects = run(
        1,
        *WRITING,
        TransactionFailed("49"),
        AbortRequested(),
        EndUnanswered("49"),
        Initialize(),
        Initialized(renewed),
    )
    assert effects[-1] == SendInitProducerId(ME)
    assert (value.state, value.identity) == (SessionState.READY, renewed)


@pytest.mark.parametrize("state_events", [WRITING, (*WRITING, SealRequested(0)), (*WRITING, CommitRequested(0))])
def test_a_fenced_session_sends_nothing_more(state_events: tuple[Event, ...]) -> None:
    """Rule: seed 003 (recovery, epoch) and seed 004 (zombie fencing): the older epoch's owner stops."""
    value, _ = run(1, *state_events, Fenced("90"))
    assert value.state is SessionState.FENCED
    for event in (PartitionsAdded(OTHER), TransactionFailed("x"), EndUnanswered("x"), SessionFailed("x")):
        assert value.handle(event) == (value, ())


def test_a_commit_without_an_answer_is_neither_success_nor_failure() -> None:
    """Design section 3: an unknown outcome is asked about until it is definite; it is never aborted meanwhile."""
    value, effects = run(1, *WRITING, CommitRequested(0), EndUnanswered("silence"), EndUnanswered("silence"))
    assert value.state is SessionState.OUTCOME_UNKNOWN
    assert effects[-1] == SendEndTxn(True)
    for event in (AbortRequested(), Begin(), Initialize(), CommitRequested(0)):
        with pytest.raises(IllegalMove):
            value.handle(event)
    for definite in (EndAnswered(None), Proven(True), Proven(False)):
        assert value.handle(definite)[0].state is SessionState.UNINITIALIZED
