"""Commands judge a pipeline as its next run does: the newest decision wherever it lives, and a ledger that lost one. In
memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner

from pyspark_kafka_eos.cli.app import app
from pyspark_kafka_eos.commit.dataframe_write import UNNAMED
from pyspark_kafka_eos.commit.ledger.notes import Ended, Settled
from pyspark_kafka_eos.commit.ledger.topic import Ledger
from pyspark_kafka_eos.model import Decision, Seal
from pyspark_kafka_eos.operations.history import newest_first, newest_of_each
from pyspark_kafka_eos.operations.standing import lost_ledger, newest_decided
from pyspark_kafka_eos.spark.source.ledger_source import row_of
from tests.pyspark_kafka_eos.commit.fakes import (
    DRIVER,
    LEDGER,
    OUTPUT,
    PIPELINE,
    NodeCluster,
    World,
    decision_of,
)
from tests.pyspark_kafka_eos.commit.test_last_commits import options

pytestmark = pytest.mark.usefixtures("one_cluster")


def batch(world: World, batch_id: int, **more: Any) -> tuple[Decision, Seal]:
    """A batch of one slot, decided and ended."""
    seal = world.slot(0)
    decision = decision_of([seal], batch_id=batch_id, number=batch_id + 1, **more)
    world.decide(decision)
    world.end(seal, commit=True)
    world.ledger.note(Ended.of_decision(decision))
    return decision, seal


def without_its_marker(world: World) -> tuple[Decision, Seal]:
    """Batch 1 is decided, and the broker forgets the marker of the decision. Its slot is not ended yet."""
    forgotten = world.kafka.forget_marker(world.where, DRIVER)
    seal = world.slot(0)
    decision = decision_of([seal], batch_id=1, number=2)
    world.decide(decision)
    assert forgotten.fired == 1
    return decision, seal


def ended_and_noted(world: World) -> Decision:
    decision, seal = without_its_marker(world)
    world.end(seal, commit=True)
    world.ledger.note(Ended.of_decision(decision))
    return decision


def in_a_note_alone(world: World) -> Decision:
    """The transaction that was to write the missing marker has timed out, and the abort took the decision's record."""
    decision, seal = without_its_marker(world)
    world.end(seal, commit=True)
    (record,) = world.ledger.look().all_open
    assert record.identity is not None
    world.ledger.note(Settled(record.offset, record.identity, decision))
    world.kafka.abort_hanging(world.where, record.identity)
    return decision


DECIDED: list[Callable[[World], Decision]] = [ended_and_noted, in_a_note_alone]


def shown(world: World) -> list[tuple[str, int | None]]:
    """Status and batch of each entry, the newest first."""
    return [
        (each.status, each.decision.batch_id if each.decision else None)
        for page in newest_first(world.cluster, LEDGER, PIPELINE)
        for each in page
    ]


@pytest.mark.parametrize("decided", DECIDED, ids=lambda decided: decided.__name__)
def test_a_decision_whose_marker_was_forgotten_is_the_newest_one_for_every_command(
    world: World, decided: Callable[[World], Decision]
) -> None:
    batch(world, 0)
    decision = decided(world)

    assert shown(world) == [("decided", 1), ("decided", 0)]
    (page,) = (page for page in newest_first(world.cluster, LEDGER) if page)
    assert [row_of(each)["batch_id"] for each in page] == [1, 0]
    assert newest_decided(world.cluster, Ledger(world.cluster, LEDGER, PIPELINE)) == decision
    _, document = command("verify", PIPELINE)
    assert [each["batch_id"] for each in document["batches"]] == [1]
    assert document["problems"] == []
    world.kafka.log(OUTPUT[0]).lose_beginning(world.kafka.log(OUTPUT[0]).end)
    code, document = command("verify", PIPELINE)
    assert [(each["batch_id"], each["verdict"]) for each in document["batches"]] == [(1, "gone")]
    assert code == 3


def test_a_decision_that_only_its_slots_show_is_judged_though_the_ledger_shows_it_open(world: World) -> None:
    batch(world, 0)
    decision, seal = without_its_marker(world)
    world.end(seal, commit=True)

    assert shown(world) == [("open", 1), ("decided", 0)]
    assert newest_decided(world.cluster, Ledger(world.cluster, LEDGER, PIPELINE)) == decision
    assert [each["batch_id"] for each in command("verify", PIPELINE)[1]["batches"]] == [1]


def test_a_decision_that_is_being_recorded_is_none(world: World) -> None:
    before, _ = batch(world, 0)
    seal = world.slot(0)
    world.decide(decision_of([seal], batch_id=1, number=2), commit=False)

    assert newest_decided(world.cluster, Ledger(world.cluster, LEDGER, PIPELINE)) == before
    assert [each["batch_id"] for each in command("verify", PIPELINE)[1]["batches"]] == [0]


# ---- a ledger that has lost its tail


def command(*words: str) -> tuple[int, dict[str, Any]]:
    """What a command answers as JSON, and its exit code."""
    done = CliRunner().invoke(
        app, [*words, "-b", "memory:1", "-o", f"ledger.topic={LEDGER}", "-o", "topic=out", "--json"]
    )
    return done.exit_code, json.loads(done.stdout)


def lost_tail(world: World) -> None:
    """Batch 1 is committed, and the ledger has nothing of it any more."""
    batch(world, 0)
    end = world.kafka.log(world.where).end
    batch(world, 1)
    world.kafka.log(world.where).lose_tail(end)


@pytest.mark.parametrize("words", [("transactions", "explain"), ("transactions", "list"), ("verify",), ("doctor",)])
@pytest.mark.parametrize("named", [True, False], ids=["named", "all pipelines"])
def test_a_ledger_that_lost_its_tail_is_said_by_every_command(
    world: World, words: tuple[str, ...], named: bool
) -> None:
    lost_tail(world)
    end = world.kafka.log(world.where).end
    if words == ("doctor",):
        refused = lost_ledger(world.cluster, options(), PIPELINE)
        assert refused is not None and "the ledger has lost a later decision" in refused.message
        return

    code, document = command(*words, *([PIPELINE] if named else []))

    (problem,) = document["problems"]
    assert problem["pipeline"] == PIPELINE
    assert "the ledger has lost a later decision" in problem["problem"]
    assert code == document["exit_code"] == 1
    assert world.kafka.log(world.where).end == end


@pytest.mark.parametrize("word", ["abort", "fence"])
@pytest.mark.parametrize("lost", ["its tail", "all"])
def test_what_shows_a_lost_decision_is_not_taken_away_by_hand(world: World, word: str, lost: str) -> None:
    """With a new epoch the coordinator shows no commit any more, and the next run would write the batch again."""
    if lost == "its tail":
        lost_tail(world)
    else:
        world.end(world.slot(0), commit=False)
    before = world.identity(f"{PIPELINE}:0"), world.state(f"{PIPELINE}:driver")

    code, document = command("transactions", word, PIPELINE, "--yes")

    assert code == document["exit_code"] != 0
    assert document["error"]["class"] == "PipelineConflict"
    assert "nothing was changed" in document["error"]["message"]
    assert (world.identity(f"{PIPELINE}:0"), world.state(f"{PIPELINE}:driver")) == before


def test_a_whole_ledger_has_no_problem_for_any_command(world: World) -> None:
    batch(world, 0)
    batch(world, 1)

    for words in (("verify",), ("transactions", "explain"), ("transactions", "list")):
        assert command(*words, PIPELINE)[1]["problems"] == []
    assert lost_ledger(world.cluster, options(), PIPELINE) is None


def test_a_pipeline_of_another_ledger_is_accused_only_where_it_was_named(world: World) -> None:
    world.end(world.slot(0, name="elsewhere:0"), commit=True)
    batch(world, 0)

    assert lost_ledger(world.cluster, options(), "elsewhere", named=False) is None
    assert lost_ledger(world.cluster, options(), "elsewhere") is not None


def test_a_write_that_has_forgotten_its_name_is_accused_by_nobody(world: World) -> None:
    name = UNNAMED + 32 * "0"
    world.end(world.slot(0, name=f"{name}:0"), commit=True)
    Ledger(world.cluster, LEDGER, name).forget()

    assert lost_ledger(world.cluster, options(), name) is None
    assert newest_of_each(newest_first(world.cluster, LEDGER)) == {}


def test_a_record_that_cannot_be_read_hides_no_other_pipeline_from_the_proof(world: World) -> None:
    batch(world, 0)
    other = Ledger(NodeCluster(world.kafka), LEDGER, "other")
    other._append(b"other", b'{"version":1,"batch_id":Infinity}', "a record of a test")

    code, document = command("verify")

    assert [each["pipeline"] for each in document["batches"]] == [PIPELINE]
    assert [each["pipeline"] for each in document["problems"]] == ["other"]
    assert code == 1
