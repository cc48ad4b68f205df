"""Every decision of a ledger, read backwards: whatever windows it is cut into, the same decisions come, the newest
first.
"""

from __future__ import annotations

import pytest

from kafka_core.errors import UnknownPipeline
from pyspark_kafka_eos.client.writing.appending import append_record
from pyspark_kafka_eos.client.writing.producer import Producer
from pyspark_kafka_eos.commit.dataframe_write import UNNAMED
from pyspark_kafka_eos.commit.ledger.notes import Ended
from pyspark_kafka_eos.commit.ledger.topic import Ledger
from pyspark_kafka_eos.model import Decision
from pyspark_kafka_eos.operations import history
from pyspark_kafka_eos.operations.history import LedgerEntry, newest_first, newest_of_each, pipelines_of
from pyspark_kafka_eos.operations.known import require_known
from tests.pyspark_kafka_eos.commit.fakes import LEDGER, PIPELINE, World, decision_of

DECIDED = [0, 1, 3, 4, 5, 7]
OPEN = 8


def decided(world: World) -> None:
    """Decisions of one pipeline, each with its note; batches 2 and 6 were aborted, 8 has no end yet. Another pipeline's
    lie between them, and the transaction of one of those is open from the middle on.
    """
    other = Ledger(world.cluster, LEDGER, "other")
    for batch in range(OPEN + 1):
        decision = decision_of([], batch_id=batch)
        if batch in DECIDED:
            world.decide(decision)
            world.ledger.note(Ended.of_decision(decision))
        elif batch == OPEN:
            world.decide(decision, commit=False)
        else:
            world.decide(decision, commit=False).abort()
        if batch == 4:
            producer = Producer(world.cluster, "other:driver")
            producer.initialize()
            producer.begin()
            other.add_decision(producer, Decision("other", "query", 0, ()))
            producer.flush()


def batches(pages: list[list[LedgerEntry]], pipeline: str = PIPELINE) -> list[tuple[int, bool]]:
    """(batch, open) in the order in which they came."""
    return [
        (each.decision.batch_id, each.open)
        for page in pages
        for each in page
        if each.pipeline == pipeline and each.decision is not None
    ]


@pytest.mark.parametrize("window", [1, 2, 3, 7, 1000])
def test_whatever_the_windows_the_same_decisions_come_and_the_newest_first(
    world: World, monkeypatch: pytest.MonkeyPatch, window: int
) -> None:
    decided(world)
    monkeypatch.setattr(history, "_WINDOW", window)
    monkeypatch.setattr(history, "_LONGEST_WINDOW", window)

    pages = list(newest_first(world.cluster, LEDGER))

    assert batches(pages) == [(OPEN, True), *((batch, False) for batch in reversed(DECIDED))]
    assert batches(pages, "other") == [(0, True)]
    oldest_first = newest_of_each(pages)
    assert [each.decision.batch_id for each in oldest_first[PIPELINE] if each.decision] == [*DECIDED, OPEN]
    assert pipelines_of(world.cluster, LEDGER) == {PIPELINE, "other"}


def test_what_is_older_than_was_asked_for_is_not_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    decided(world)
    monkeypatch.setattr(history, "_WINDOW", 2)
    monkeypatch.setattr(history, "_LONGEST_WINDOW", 2)
    before = world.kafka.asked["Fetch"]
    list(newest_first(world.cluster, LEDGER))
    everything = world.kafka.asked["Fetch"] - before

    pages = list(newest_first(world.cluster, LEDGER, PIPELINE, 2))

    assert batches(pages) == [(OPEN, True), (7, False)]
    assert world.kafka.asked["Fetch"] - before - everything < everything


def test_of_every_pipeline_as_many_are_kept_as_were_asked_for(world: World) -> None:
    decided(world)

    pages = list(newest_first(world.cluster, LEDGER, None, 1))

    assert (batches(pages), batches(pages, "other")) == ([(OPEN, True)], [(0, True)])


def test_a_record_that_is_no_decision_comes_out_with_its_place_and_hides_no_other(world: World) -> None:
    decided(world)
    append_record(world.cluster, world.where, PIPELINE.encode(), b"garbage", what="a record of a test", grant="")

    (newest, *others) = (each for page in newest_first(world.cluster, LEDGER, PIPELINE) for each in page)

    assert (newest.decision, newest.open) == (None, False)
    assert "is not a decision" in newest.problem
    assert len(others) == len(DECIDED) + 1


@pytest.mark.parametrize("window", [1, 2, 1000])
def test_a_write_that_was_forgotten_is_no_pipeline(world: World, monkeypatch: pytest.MonkeyPatch, window: int) -> None:
    """Its decision stands in front of its tombstone until the cleaner has taken both."""
    monkeypatch.setattr(history, "_WINDOW", window)
    monkeypatch.setattr(history, "_LONGEST_WINDOW", window)
    name = UNNAMED + 32 * "0"
    for pipeline, forgets in ((name, True), ("kept", False), ("deleted by hand", True)):
        ledger = Ledger(world.cluster, LEDGER, pipeline)
        producer = Producer(world.cluster, f"{pipeline}:driver")
        producer.initialize()
        producer.begin()
        ledger.add_decision(producer, Decision(pipeline, "query", 0, ()))
        producer.flush()
        producer.commit()
        if forgets:
            ledger.forget()

    assert {each.pipeline for page in newest_first(world.cluster, LEDGER) for each in page} == {"kept"}
    assert pipelines_of(world.cluster, LEDGER) == {"kept"}
    assert next(iter(newest_first(world.cluster, LEDGER, name))) == []
    assert Ledger(world.cluster, LEDGER, name).look().forgotten
    with pytest.raises(UnknownPipeline):
        require_known(world.cluster, LEDGER, "deleted by hand, really")
