"""A few cells of the matrix of changes, so that every change, moment, way and scope is among them; and what the judge
refuses.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.changes.cell import GOES_ON, REFUSED, Cell, play
from tests.changes.cells import SENSELESS, every, few, senseless, sensible, whole
from tests.changes.changes import CHANGES, Change
from tests.changes.moments import MOMENTS
from tests.changes.small_spark import DF_WRITE, FOREACH, FORMAT
from tests.changes.words import plain
from tests.changes.world import OUTPUT, World

pytestmark = pytest.mark.kafka

NOTHING = next(each for each in CHANGES if each.name == "nothing")
MOMENT = {each.name: each for each in MOMENTS}


def cell(change: Change = NOTHING, moment: str = "restarted", way: str = DF_WRITE, scope: str = "task") -> Cell:
    return Cell(change, MOMENT[moment], way, scope, 2)


@pytest.mark.parametrize("played", few(whole(), 12), ids=str)
def test_a_query_that_meets_a_change_goes_on_or_is_told_of_it(played: Cell) -> None:
    outcome = play(played)

    assert outcome.problems == []


@pytest.mark.parametrize("scope", ["task", "batch"])
@pytest.mark.parametrize("way", [FOREACH, FORMAT])
def test_a_committed_batch_that_ends_elsewhere_in_the_checkpoint_is_refused(way: str, scope: str) -> None:
    edited = next(each for each in CHANGES if each.name == "checkpoint edited")

    outcome = play(cell(edited, way=way, scope=scope))

    assert (outcome.ended, outcome.problems) == (REFUSED, [])
    assert "other source offsets for batch" in outcome.said[0]


@pytest.mark.parametrize("version", [2, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    ("moment", "way", "scope", "ended"),
    [
        ("decided", FOREACH, "task", GOES_ON),
        ("decided", FORMAT, "task", GOES_ON),
        ("decided", FORMAT, "batch", GOES_ON),
        ("ended", FORMAT, "task", GOES_ON),
        ("timed out", FOREACH, "task", REFUSED),
        ("timed out", FORMAT, "task", REFUSED),
        ("torn", FOREACH, "batch", REFUSED),
    ],
)
def test_a_decided_batch_that_the_commit_log_has_as_done_is_ended_before_the_next_one_or_refused(
    moment: str, way: str, scope: str, ended: str, version: int
) -> None:
    moved_on = next(each for each in CHANGES if each.name == "commit log moved on")

    outcome = play(replace(cell(moved_on, moment, way, scope), version=version))

    assert (outcome.ended, outcome.problems) == (ended, [])


@pytest.mark.parametrize(
    ("way", "scope"),
    [
        (FOREACH, "task"),
        (FORMAT, "batch"),
        pytest.param(FOREACH, "batch", marks=pytest.mark.long),
        pytest.param(FORMAT, "task", marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize("may_lose", [False, True])
def test_a_planned_batch_whose_topic_is_recreated_has_no_row_of_the_new_topic(
    may_lose: bool, way: str, scope: str
) -> None:
    # The new topic has the same leader and epoch, and other records at the planned offsets.
    name = "source topic recreated, with more records" + ", and records may be lost" * may_lose
    anew = next(each for each in CHANGES if each.name == name)
    seen = []

    def apply(world: World) -> None:
        anew.apply(world)
        written = world.visible()
        world.hooks["written"] = lambda: seen.append(world.visible() - written)
        put_back = world.undo

        def undo() -> None:
            # What is written once the source is put back is right.
            world.hooks.clear()
            if put_back is not None:
                put_back()

        world.undo = undo

    outcome = play(cell(replace(anew, apply=apply), "planned", way, scope))

    assert outcome.problems == []
    if may_lose:
        assert (outcome.ended, outcome.said) == (GOES_ON, [])
    else:
        assert outcome.ended == REFUSED
        assert "of the topic with the id" in outcome.said[0]
        assert seen == []


@pytest.mark.parametrize("version", [2, 1])
@pytest.mark.parametrize("scope", ["task", "batch"])
@pytest.mark.parametrize("way", [FOREACH, FORMAT, DF_WRITE])
@pytest.mark.parametrize("moment", ["running", "begun", "written"])
def test_every_task_names_the_topic_that_its_rows_are_in_where_it_was_recreated(
    moment: str, way: str, scope: str, version: int
) -> None:
    # A marker that is missing is looked for in the topic that the decision names.
    name = "output topic recreated, and a marker forgotten"
    anew = next(each for each in CHANGES if each.name == name)
    ids: list[set[str]] = []

    def apply(world: World) -> None:
        def name_ids() -> None:
            _, decision, _ = world.newest_decision()
            said = [json.loads(decision), *json.loads(decision)["seals"]]
            ids.append({topic for each in said for name, topic, _ in each.get("topics", ()) if name == OUTPUT})
            ids.append({world.topic_id(OUTPUT)})

        anew.apply(world)
        world.at_the_end = name_ids

    outcome = play(replace(cell(replace(anew, apply=apply), moment, way, scope), version=version))

    assert (outcome.ended, outcome.problems) == (GOES_ON, [])
    # A run that Spark gives the rows once stops, and the next one has them again.
    assert len(outcome.said) <= (way != FOREACH)
    assert all("was deleted and recreated" in each for each in outcome.said)
    assert ids[0] == ids[1]


@pytest.mark.parametrize(
    ("change", "moment", "way", "scope"),
    [
        ("another dead letter topic", "torn", DF_WRITE, "batch"),
        ("another compression of the client", "torn", DF_WRITE, "batch"),
        ("another topic", "timed out", FOREACH, "task"),
        ("another topic", "torn", FORMAT, "batch"),
    ],
)
def test_what_was_aborted_of_a_decided_batch_is_written_again_by_the_options_that_it_was_decided_with(
    change: str, moment: str, way: str, scope: str
) -> None:
    changed = next(each for each in CHANGES if each.name == change)

    outcome = play(cell(changed, moment, way, scope))

    assert (outcome.ended, outcome.said, outcome.problems) == (GOES_ON, [], [])


@pytest.mark.parametrize("change", ["ledger topic recreated", "another ledger topic"])
@pytest.mark.parametrize("way", [FOREACH, DF_WRITE])
@pytest.mark.parametrize("scope", ["task", "batch"])
def test_a_batch_is_not_written_again_by_a_ledger_that_lacks_it_although_its_ids_show_an_abort(
    change: str, way: str, scope: str
) -> None:
    # The mending of its markers has timed out, so the coordinator shows of the one id that there is what it shows of a
    # batch given up.
    changed = next(each for each in CHANGES if each.name == change)

    def alone(world: World) -> None:
        world.parallelism = 1

    outcome = play(cell(replace(changed, before=alone), "torn", way, scope))

    assert (outcome.ended, outcome.problems) == (REFUSED, [])
    assert "nor the first start of this batch, but a coordinator knows its transactional id" in outcome.said[0]


@pytest.mark.parametrize("scope", ["task", "batch"])
def test_a_decision_that_is_refused_for_its_time_names_the_clock_of_the_drivers_machine(scope: str) -> None:
    ahead = next(each for each in CHANGES if each.name == "the driver's clock a day ahead")

    outcome = play(cell(ahead, "torn", FORMAT, scope))

    assert outcome.problems == []
    assert "the clock of the driver's machine shows 20" in outcome.said[0]
    assert "is out of range" in outcome.said[0] and "correct the row" not in outcome.said[0]


def test_every_cell_is_played_or_left_out_for_a_reason() -> None:
    assert {senseless(each) for each in every()} == {None, *(each.why for each in SENSELESS)}
    parts = [(each.change.name, each.moment.name, each.way, each.scope) for each in sensible()]
    assert sorted(set(parts)) == sorted((each.change.name, each.moment.name, each.way, each.scope) for each in whole())


# ---- what the judge refuses


def test_a_row_that_is_lost_is_seen() -> None:
    outcome = play(
        cell(
            Change(
                "a row that the query cannot see",
                "planted",
                lambda world: world.fed.update({"r-lost": ("r-lost", b"", 0)}),
            )
        )
    )

    assert outcome.problems == ["1 of 25 rows are missing: r-lost"]


def test_a_row_that_comes_twice_is_seen() -> None:
    outcome = play(
        cell(Change("a job that is written twice", "planted", lambda world: world.jobs.append(world.jobs[0])))
    )

    assert outcome.problems == ["12 rows come more than once: r0, r1, r10, r11, r2"]


def test_a_row_with_another_time_is_seen() -> None:
    def shift(world: object) -> None:
        world.fed["r0"] = ("r0", b"k0", 0)  # type: ignore[attr-defined]

    outcome = play(cell(Change("a row of another time", "planted", shift)))

    assert outcome.problems == ["r0 has key b'k0' and time 1700000000000, fed with b'k0' and 0"]


def test_a_refusal_without_the_words_is_seen() -> None:
    renamed = next(each for each in CHANGES if each.name == "now by df.write")
    outcome = play(cell(replace(renamed, words=("the moon",)), way=FORMAT))

    assert outcome.ended == REFUSED
    assert len(outcome.problems) == 1
    assert outcome.problems[0].startswith(
        "the words lack 'the moon': PipelineConflict: pipeline 'orders' belongs to a streaming query"
    )


def test_a_refusal_of_nothing_is_seen() -> None:
    renamed = next(each for each in CHANGES if each.name == "now by df.write")
    outcome = play(cell(replace(renamed, words=()), way=FORMAT))

    assert outcome.problems[0].startswith("refused, where nothing stands against going on: PipelineConflict")


def test_a_query_without_a_change_goes_on() -> None:
    outcome = play(cell())

    assert (outcome.ended, outcome.said, outcome.problems) == (GOES_ON, [], [])


def test_a_page_has_nothing_of_one_run() -> None:
    said = "PipelineConflict: 127.0.0.1:1234 has cluster abcdefghijklmnopqrstuv and 123e4567-e89b-12d3-a456-426614174000 [fact=1]"

    assert plain(said) == "PipelineConflict: HOST:PORT has cluster ID and ID"
    clock = "the clock of the driver's machine shows 2026-11-28T06:17:48+00:00 (1795846668965 ms), and 12 records"
    assert plain(clock) == "the clock of the driver's machine shows TIME (TIME ms), and 12 records"
