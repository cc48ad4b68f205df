"""A run's next batch begins with one question where nothing has taken the pipeline over; with a take-over in doubt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from kafka_core import runtime
from kafka_core.errors import PipelineConflict, ProducerFenced
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.commit import handover as ho
from pyspark_kafka_eos.commit.handover import going_on
from pyspark_kafka_eos.commit.ledger.notes import Ended
from pyspark_kafka_eos.commit.ledger.topic import Ledger
from pyspark_kafka_eos.commit.run import Run
from pyspark_kafka_eos.model import Seal
from pyspark_kafka_eos.options import SinkOptions
from pyspark_kafka_eos.slot.plan import SharedPlan
from tests.pyspark_kafka_eos.commit.fakes import DRIVER, GROUP, OUTPUT, PIPELINE, SOURCE, World
from tests.pyspark_kafka_eos.commit.handover.test_handover_rules import options_of

SCOPES = pytest.mark.parametrize("scope", ["task", "batch"])

LISTED = "ListTransactions"


@pytest.fixture(autouse=True)
def one_cluster(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every process finds the cluster in memory, and keeps nothing of another test."""
    monkeypatch.setattr(Cluster, "shared", staticmethod(lambda *_: world.cluster))
    runtime.forget(runtime.process_id())
    yield
    runtime.forget(runtime.process_id())


def lines(batch: int) -> tuple[str]:
    return (f"offsets of batch {batch}",)


def written(world: World, plan: Any) -> list[Seal]:
    if isinstance(plan, SharedPlan):
        # A batch without rows: nothing is written under the shared identity.
        return [Seal(f"{PIPELINE}:batch", slot, None, 2) for slot in range(2)]
    return [world.slot(0), world.slot(1)]


def begun(world: World, options: SinkOptions, batch: int) -> tuple[Any, ho.Handover]:
    return ho.begin(world.cluster, options, "query", batch, lines(batch))


def played(world: World, options: SinkOptions, batch: int) -> None:
    plan, handover = begun(world, options, batch)
    report = ho.finish(world.cluster, options, handover, written(world, plan), lines(batch), {SOURCE: batch + 1})
    assert not report.resumed


@contextmanager
def asked(world: World) -> Iterator[Counter[str]]:
    """What is asked meanwhile."""
    before = Counter(world.kafka.asked)
    found: Counter[str] = Counter()
    yield found
    found.update(Counter(world.kafka.asked) - before)


def lists_ids(world: World, options: SinkOptions, batch: int) -> bool:
    """Whether the beginning of a batch takes the pipeline over in full."""
    with asked(world) as requests:
        begun(world, options, batch)
    return requests[LISTED] > 0


@SCOPES
def test_the_next_batch_of_a_run_asks_nothing_that_other_applications_make_longer(world: World, scope: str) -> None:
    options = options_of(**{"transaction.scope": scope})
    played(world, options, 0)

    with asked(world) as requests:
        plan, handover = begun(world, options, 1)

    assert requests[LISTED] == requests["DescribeProducers"] == requests["Metadata"] == 0
    assert requests["InitProducerId"] == (1 if scope == "task" else 2)
    assert sum(requests.values()) <= (4 if scope == "task" else 8), requests
    report = ho.finish(world.cluster, options, handover, written(world, plan), lines(1), {SOURCE: 2})
    assert (report.batch_id, report.resumed) == (1, False)
    newest = world.ledger.look().newest
    assert newest is not None and newest.batch_id == 1
    # What the run's start found of the pipeline's ids goes from decision to decision.
    assert {name for name, _ in newest.earlier} <= {f"{PIPELINE}:batch"}


@SCOPES
def test_many_batches_go_on_one_after_another(world: World, scope: str) -> None:
    options = options_of(**{"transaction.scope": scope})
    played(world, options, 0)

    with asked(world) as requests:
        for batch in range(1, 12):
            played(world, options, batch)

    assert requests[LISTED] == 0
    assert [len(world.shown(where)) for where in OUTPUT[:2]] == ([24, 24] if scope == "task" else [0, 0])


def taken_over_by_another_process(world: World, options: SinkOptions) -> None:
    runtime.forget(runtime.process_id())
    Run(world.cluster, options, "query").take_over(1, lines(1))


def driver_without_a_decision(world: World, _options: SinkOptions) -> None:
    world.driver()


def note_without_a_driver(world: World, _options: SinkOptions) -> None:
    newest = world.ledger.look().newest
    assert newest is not None
    world.ledger.note(Ended.of_decision(newest))


def noted_under_an_older_identity(world: World, _options: SinkOptions) -> None:
    newest, now = world.ledger.look().newest, world.identity(DRIVER)
    assert newest is not None
    world.ledger.note(Ended.of_decision(newest, replace(now, epoch=now.epoch - 1)))


def decided_meanwhile(world: World, _options: SinkOptions) -> None:
    newest = world.ledger.look().newest
    assert newest is not None
    world.decide(replace(newest, decided_ms=newest.decided_ms + 1))


@pytest.mark.parametrize(
    "doubt",
    [driver_without_a_decision, note_without_a_driver, noted_under_an_older_identity, decided_meanwhile],
    ids=lambda doubt: doubt.__name__,
)
def test_in_doubt_the_pipeline_is_taken_over(world: World, doubt: Callable[[World, SinkOptions], None]) -> None:
    options = options_of()
    played(world, options, 0)
    doubt(world, options)

    assert lists_ids(world, options, 1)
    # The take-over left nothing behind: the batch is committed.
    played(world, options, 1)
    assert [len(world.shown(where)) for where in OUTPUT[:2]] == [4, 4]


@pytest.mark.parametrize(
    ("batch", "more", "query"),
    [
        (0, {}, "query"),
        (2, {}, "query"),
        (1, {"offsets.group": ""}, "query"),
        (1, {"transaction.scope": "batch"}, "query"),
    ],
    ids=["the same batch again", "a batch is left out", "another group", "another scope"],
)
def test_another_batch_or_other_options_take_the_pipeline_over(
    world: World, batch: int, more: dict[str, str], query: str
) -> None:
    options = options_of()
    played(world, options, 0)

    with asked(world) as requests:
        ho.begin(world.cluster, options_of(**more), query, batch, lines(batch))

    assert requests[LISTED] > 0


def test_a_new_process_takes_the_pipeline_over(world: World) -> None:
    options = options_of()
    played(world, options, 0)
    runtime.forget(runtime.process_id())

    assert lists_ids(world, options, 1)


def test_another_connection_takes_the_pipeline_over(world: World) -> None:
    options = options_of()
    played(world, options, 0)
    world.fresh_process()

    assert lists_ids(world, options, 1)


def test_a_batch_that_was_given_up_is_begun_with_a_take_over(world: World) -> None:
    options = options_of()
    played(world, options, 0)
    plan, handover = begun(world, options, 1)
    seals = written(world, plan)
    assert ho.give_up(options, handover, seals, "a test")

    assert lists_ids(world, options, 1)
    played(world, options, 1)
    assert [len(world.shown(where)) for where in OUTPUT[:2]] == [4, 4]


def test_a_run_that_was_taken_over_while_it_rested_fences_the_newer_one_as_every_beginning_does(
    world: World,
) -> None:
    options = options_of()
    played(world, options, 0)
    newer = Run(world.cluster, options, "query")
    newer.take_over(1, lines(1))

    assert lists_ids(world, options, 1)
    with pytest.raises(ProducerFenced):
        newer.require_ownership()


def test_a_conflict_is_found_before_any_process_is_fenced(world: World) -> None:
    options = options_of()
    played(world, options, 0)
    before = going_on.kept(world.cluster, options, "query")
    run = Run(world.cluster, options, "query", before)
    newest = world.ledger.look().newest
    assert newest is not None
    world.decide(replace(newest, batch_id=7, seals=(), decided_ms=newest.decided_ms + 1))
    before = world.identity(DRIVER)

    with pytest.raises(PipelineConflict, match="the checkpoint is older than the output"):
        going_on.go_on(run, 1, lines(1))

    assert world.identity(DRIVER) == before


def test_a_decision_of_the_moment_between_the_two_looks_is_found(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under TV1 a decision leaves the epoch as it is: only the second look at the ledger shows it."""
    options = options_of()
    played(world, options, 0)
    look, looks = Ledger.look, []

    def changed(ledger: Ledger) -> Any:
        view = look(ledger)
        looks.append(view)
        if len(looks) == 2:
            return replace(view, newest=replace(view.newest, decided_ms=view.newest.decided_ms + 1))
        return view

    monkeypatch.setattr(Ledger, "look", changed)

    assert lists_ids(world, options, 1)


def test_what_a_process_keeps_of_its_pipelines_is_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(going_on, "_MOST", 3)
    for number in range(8):
        run = Run(world.cluster, options_of(pipeline=f"pipe{number}", **{"offsets.group": GROUP}), "query")
        going_on.keep(run)

    assert len(going_on._memory().runs) <= 3
    assert going_on.kept(world.cluster, run.options, "query") is run
    assert going_on.kept(world.cluster, run.options, "query") is None, "one caller has it"
