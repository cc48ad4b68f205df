"""The proof where a cleaner has been at the log: what may have been removed is gone, and nobody is accused. In
memory.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from pyspark_kafka_eos.client.writing.producer import Producer
from pyspark_kafka_eos.model import Seal
from pyspark_kafka_eos.operations.audit import Verdict, verify
from pyspark_kafka_eos.records import digest_of, topic_seed
from tests.pyspark_kafka_eos.commit.fakes import OUTPUT, PIPELINE, World, decision_of, send

WHERE = OUTPUT[0]


def sealed(world: World, records: int = 2) -> Seal:
    """One slot's transaction of single-record batches, with the digest of what the log has."""
    log = world.kafka.log(WHERE)
    begin = len(log.batches)
    seal = world.slot(0, {0: records})
    data = b"".join(each.data for each in log.batches[begin:])
    return replace(seal, digest=digest_of(data, topic_seed(WHERE.topic), False))


def ended(world: World, *, commit: bool = True, records: int = 2) -> Seal:
    seal = sealed(world, records)
    world.end(seal, commit=commit)
    return seal


def compact(world: World, *offsets: int) -> None:
    """A cleaner removes the batches at these offsets."""
    before = len(world.kafka.log(WHERE).batches)
    world.kafka.log(WHERE).compact(*offsets)
    assert len(world.kafka.log(WHERE).batches) == before - len(offsets)


def verdict_on(world: World, seal: Seal) -> tuple[Verdict, str]:
    (finding,) = verify(world.cluster, decision_of([seal]))
    return finding.verdict, finding.reason


def test_what_is_whole_matches_before_and_behind_what_a_cleaner_removed(world: World) -> None:
    replaced, seal = ended(world), ended(world)
    after = ended(world, commit=False)
    compact(world, *range(seal.partitions[0].first_offset), after.partitions[0].first_offset)

    assert verdict_on(world, seal) == (Verdict.MATCHES, "")
    assert verdict_on(world, replaced)[0] is Verdict.GONE


def test_a_decision_of_a_driver_whose_clock_began_in_1970_is_proved(world: World) -> None:
    """A time before 1970 is none that ListOffsets takes: -1 and -2 mean the log's end and beginning there."""
    seal = replace(ended(world), opened_ms=0)

    (finding,) = verify(world.cluster, decision_of([seal], decided_ms=1))

    assert finding.verdict is Verdict.MATCHES


def test_records_that_were_removed_are_gone_and_the_reason_names_the_cleaner(world: World) -> None:
    seal = ended(world)
    ended(world)
    compact(world, 0)

    verdict, reason = verdict_on(world, seal)

    assert verdict is Verdict.GONE
    assert f"{WHERE} is compacted: its cleaner has removed records" in reason


@pytest.mark.parametrize("commit", [True, False], ids=["committed", "aborted"])
def test_the_next_marker_is_not_taken_for_the_one_that_was_removed(world: World, commit: bool) -> None:
    seal = ended(world)
    following = ended(world, commit=commit)
    compact(world, 0, 1, 2)

    assert verdict_on(world, seal)[0] is Verdict.GONE
    assert verdict_on(world, following)[0] is (Verdict.MATCHES if commit else Verdict.ABORTED)


@pytest.mark.parametrize("commit", [True, False], ids=["committed", "aborted"])
def test_the_next_marker_is_not_taken_for_it_where_its_records_were_removed_too(world: World, commit: bool) -> None:
    seal = ended(world)
    ended(world, commit=commit)
    compact(world, 0, 1, 2, 3, 4)

    assert verdict_on(world, seal)[0] is Verdict.GONE


def test_the_next_transaction_of_a_producer_that_goes_on_is_not_taken_for_one_that_was_removed(
    world: World,
) -> None:
    """The producer of scope=batch goes on from batch to batch: with version 2 the next one has the epoch of this one's
    marker.
    """
    template = ended(world)
    producer = Producer(world.cluster, f"{PIPELINE}:batch", transaction_timeout_ms=60_000)
    seals = []
    for number in range(2):
        if number == 0 or world.cluster.transaction_version < 2:
            producer.initialize()
        producer.begin()
        first, identity = world.kafka.log(WHERE).end, producer.identity
        for value in (b"a", b"b"):
            send(producer, WHERE, value)
        producer.flush()
        producer.commit()
        part = replace(template.partitions[0], first_offset=first)
        seals.append(replace(template, identity=identity, partitions=(part,)))
    compact(world, *range(seals[1].partitions[0].first_offset))

    assert verdict_on(world, seals[0])[0] is Verdict.GONE


def test_a_transaction_of_which_nothing_is_left_was_not_left_open(world: World) -> None:
    """A cleaner stops at the first open transaction."""
    seal = ended(world)
    other = world.slot(1, {0: 1})
    compact(world, 0, 1, 2)

    assert verdict_on(world, seal)[0] is Verdict.GONE
    world.end(other, commit=True)
    assert verdict_on(world, seal)[0] is Verdict.GONE


def test_an_aborted_transaction_is_aborted_as_long_as_its_marker_is_there(world: World) -> None:
    seal = ended(world, commit=False)
    ended(world)
    compact(world, 0, 1)

    assert verdict_on(world, seal)[0] is Verdict.ABORTED


def test_a_log_without_a_hole_was_not_cleaned_whatever_the_topic_says(world: World) -> None:
    world.kafka.configure(WHERE.topic, {"cleanup.policy": "compact"})
    seal = ended(world)
    (part,) = seal.partitions
    more = replace(seal, records=3, partitions=(replace(part, records=3),))

    assert verdict_on(world, more) == (Verdict.DIFFERS, f"{WHERE}: 2 records of 3")
