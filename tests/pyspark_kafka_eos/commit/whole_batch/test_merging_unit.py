"""The one seal of a batch in one transaction: what the tasks' seals have to agree on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from kafka_core.errors import AttemptRefused, IllegalMove
from kafka_core.values import ProducerIdentity
from pyspark_kafka_eos.client.writing.sequences import SEQUENCE_LIMIT
from pyspark_kafka_eos.commit.whole_batch.merging import merge, require_every_slot
from pyspark_kafka_eos.model import Seal, SealedPartition, Traffic

IDENTITY = ProducerIdentity(7, 3)


def task(slot: int, *parts: SealedPartition, **more: Any) -> Seal:
    """A task's seal; it counts the records of its partitions."""
    records = sum(part.records for part in parts)
    return Seal("p:batch", slot, IDENTITY if parts else None, 2, records=records, partitions=parts, **more)


def part(first_offset: int, last_sequence: int, records: int, partition: int = 0) -> SealedPartition:
    return SealedPartition("t", partition, first_offset, last_sequence, records)


def merged(seals: Sequence[Seal]) -> Seal:
    return merge(seals, transactional_id="p:batch", identity=IDENTITY, transaction_version=2, two_phase=True)


def test_counts_are_summed_and_the_transaction_is_that_of_all() -> None:
    seal = merged(
        [
            task(0, part(100, 4, 5), bytes=50, digest=11, dead_letters=1, retries=2, opened_ms=900),
            task(1, part(-1, 7, 3), bytes=30, digest=22, dead_letters=2, retries=1, opened_ms=800),
            task(2),
        ]
    )

    assert (seal.transactional_id, seal.slot, seal.identity) == ("p:batch", 0, IDENTITY)
    assert (seal.transaction_version, seal.two_phase) == (2, True)
    assert (seal.records, seal.bytes, seal.digest) == (8, 80, 33)
    assert (seal.dead_letters, seal.retries, seal.opened_ms) == (3, 3, 800)
    # A task that wrote to one partition has all of its digest there.
    assert seal.partitions == (replace(part(100, 7, 8), digest=33),)


def test_what_sending_took_is_summed() -> None:
    seals = [
        task(0, part(100, 4, 5), traffic=Traffic(2)),
        task(1, part(-1, 7, 3), traffic=Traffic(3)),
        task(2),
    ]
    assert merged(seals).traffic == Traffic(5)


def test_digests_wrap_round_as_each_of_them_does() -> None:
    seals = [task(0, part(0, 0, 1), digest=2**64 - 1), task(1, part(-1, 1, 1), digest=3)]
    assert merged(seals).digest == 2


def test_partitions_come_in_order_and_each_begins_where_the_first_turn_began() -> None:
    seal = merged([task(0, part(-1, 3, 2, 5), part(10, 0, 1, 2)), task(1, part(40, 1, 2, 5))])
    assert seal.partitions == (part(10, 0, 1, 2), part(40, 3, 4, 5))


def test_a_batch_without_rows_has_an_empty_seal_of_all() -> None:
    seal = merged([task(0), task(1)])
    assert (seal.records, seal.partitions, seal.opened_ms) == (0, (), 0)


def test_sequences_that_passed_their_limit_are_counted_from_zero_again() -> None:
    records = SEQUENCE_LIMIT + 5
    seal = merged([task(0, part(0, 2, 3)), task(1, part(-1, 4, records - 3))])
    assert seal.partitions == (replace(part(0, 4, records), digest=0),)


@pytest.mark.parametrize(
    "seals",
    [
        pytest.param([task(0, part(0, 4, 5)), task(1, part(-1, 9, 3))], id="records that nobody counts"),
        pytest.param([task(0, part(0, 4, 5)), task(1, part(-1, 5, 3))], id="records counted twice"),
    ],
)
def test_seals_that_count_other_records_than_were_written_are_refused(seals: list[Seal]) -> None:
    with pytest.raises(AttemptRefused) as refusal:
        merged(seals)
    assert refusal.value.facts["partition"] == "t-0"
    assert refusal.value.facts["records"] == 8


def test_every_task_must_have_its_seal_once() -> None:
    zero, one, two = task(0), task(1), task(2)
    require_every_slot([two, zero, one], 3)
    require_every_slot([], 0)
    # Where Spark does not say how many there were, a gap is seen all the same.
    require_every_slot([zero, one], None)
    wrong: list[tuple[list[Seal], int | None]] = [
        ([zero, one], 3),
        ([zero, one, two], 2),
        ([zero, two], 2),
        ([zero, two], None),
        ([zero, zero], 2),
        ([], 1),
    ]
    for seals, tasks in wrong:
        with pytest.raises(IllegalMove, match="not every slot has its seal"):
            require_every_slot(seals, tasks)


@pytest.mark.parametrize("firsts", [(-1, -1), (100, 100), (100, 200)])
def test_one_task_has_the_beginning_of_a_partition_or_the_batch_is_done_again(firsts: tuple[int, int]) -> None:
    """A broker took records of one task for those of another: the counts agree all the same."""
    seals = [task(0, part(firsts[0], 1, 1)), task(1, part(firsts[1], 1, 1))]

    with pytest.raises(AttemptRefused, match=r"^\d tasks have the beginning of what the batch wrote to a partition"):
        merged(seals)
