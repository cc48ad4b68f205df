"""Whether the batch's transaction is what its tasks sealed, as the coordinator and the leaders tell it."""

from __future__ import annotations

from typing import Any, cast

import pytest

from kafka_core.errors import InternalError
from kafka_core.values import ProducerIdentity, TopicPartition
from pyspark_kafka_eos.client.requests.producer_states import ProducerState, States
from pyspark_kafka_eos.client.requests.transactions import TransactionView
from pyspark_kafka_eos.commit.whole_batch.driver import WholeBatch, _Try
from pyspark_kafka_eos.commit.whole_batch.merging import mismatch
from pyspark_kafka_eos.model import Decision, Seal, SealedPartition

ME, NEWER = ProducerIdentity(7, 3), ProducerIdentity(7, 4)
P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
SEAL = Seal("pipe:batch", 0, ME, 2, records=5, partitions=(SealedPartition("flights", 0, 100, 4, 5),))
EMPTY = Seal("pipe:batch", 0, ME, 2)


def view(*partitions: TopicPartition, state: str = "Ongoing", identity: ProducerIdentity = ME) -> TransactionView:
    return TransactionView("pipe:batch", state, identity, partitions=frozenset(partitions))


def leaders(*, open_from: int = 100, last_sequence: int = 4) -> States:
    return {P0: {7: ProducerState(3, open_from, last_sequence)}}


def test_what_is_open_as_it_was_sealed_is_not_astray() -> None:
    assert mismatch(SEAL, view(P0), leaders(), {}) is None
    assert mismatch(SEAL, view(P0), None, {}) is None
    assert mismatch(EMPTY, view(state="Empty"), {}, {}) is None


def test_a_topic_that_was_deleted_since_has_nothing_of_the_batch() -> None:
    # Its partitions have no leader that could be asked.
    assert mismatch(SEAL, view(P0), {}, {}) is not None


@pytest.mark.parametrize(
    ("seal", "seen", "states", "said"),
    [
        (SEAL, view(P0, P1), leaders(), "flights-1: a task wrote there"),
        (EMPTY, view(P1), {}, "flights-1: a task wrote there"),
        (SEAL, view(), leaders(), "flights-0: the coordinator does not have it"),
        (SEAL, view(state="CompleteAbort"), leaders(), "another write took it over, or it timed out"),
        (SEAL, view(P0, P1, identity=NEWER), leaders(), "another write took it over; no record of this try"),
        (SEAL, view(P0), leaders(open_from=90), "wrote to flights-0 from offset 100 on"),
        (SEAL, view(P0), leaders(last_sequence=6), "its last sequence is 6"),
    ],
)
def test_what_differs_is_named(seal: Seal, seen: TransactionView, states: States, said: str) -> None:
    found = mismatch(seal, seen, states, {})

    assert found is not None
    assert said in found[0]
    assert "no record of " in found[0] and " is visible" in found[0]
    assert "the batch is retried" in found[0]


def test_a_newer_runs_transaction_is_not_taken_for_this_batchs() -> None:
    assert mismatch(EMPTY, view(P1, identity=NEWER), {}, {}) is None


def test_an_effect_that_nobody_carries_out_is_an_error_and_no_abort() -> None:
    class Batch:
        run = None
        replaced = 0

        def replace_identity(self) -> None:
            self.replaced += 1

    batch = Batch()
    attempt = _Try(cast(WholeBatch, batch), cast(Decision, None), {})

    with pytest.raises(InternalError, match="nothing carries out str"):
        attempt.carry_out(cast(Any, "an effect of tomorrow"))

    assert batch.replaced == 0
