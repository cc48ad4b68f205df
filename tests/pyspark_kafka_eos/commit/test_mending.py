"""A broker forgets a marker, and the process that has it written is killed: the next run completes it, whenever it
comes.

Some histories of each kind; all of them are played by `python -m tests.chaos.mending`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from embedded_kafka.embedded import EmbeddedKafka
from pyspark_kafka_eos import crash_points
from pyspark_kafka_eos.commit import markers as hanging
from pyspark_kafka_eos.commit.ledger import topic as ledger
from tests.pyspark_kafka_eos.commit.mending import History, play

pytestmark = [pytest.mark.kafka, pytest.mark.embedded]


@pytest.fixture(params=["1", "2"], scope="module")
def moved(request: pytest.FixtureRequest) -> Iterator[EmbeddedKafka]:
    """A broker whose clock a test may move, because no other file uses it."""
    with EmbeddedKafka(config={"transaction.version": request.param}) as broker:
        yield broker


@pytest.mark.parametrize("late", [False, True], ids=["at once", "late"])
@pytest.mark.parametrize("scope", ["task", "batch"])
@pytest.mark.parametrize("point", ["mend-initialized", "mend-added"])
def test_killed_while_it_mends_the_records_markers_the_next_run_completes_the_batch(
    moved: EmbeddedKafka, scope: str, point: str, late: bool
) -> None:
    did = play(moved, History(scope, "data", point, late))

    # What held the partition was committed, or timed out and was aborted there: then that part is written again.
    assert did == ("repaired" if late and point == "mend-added" else "resumed")


@pytest.mark.parametrize("late", [False, True], ids=["at once", "late"])
@pytest.mark.parametrize("killed_first", ["after-decision", "before-return"])
def test_killed_while_it_mends_the_decisions_marker_the_next_run_knows_the_decision(
    moved: EmbeddedKafka, killed_first: str, late: bool
) -> None:
    history = History("task", "ledger", "mend-added", late, killed_first)

    did = play(moved, history)

    assert did == ("repaired" if late and killed_first == "after-decision" else "resumed")


def test_every_point_of_mending_is_one_that_a_process_can_be_killed_at() -> None:
    named = {*crash_points.MENDING_POINTS, *crash_points.SETTLING_POINTS, *crash_points.END_POINTS}

    assert {"mend-added", "decision-settled", "after-note-ended"} <= named
    # A point that the code does not pass would make its histories fail late, one by one.
    code = "".join(Path(module.__file__).read_text(encoding="utf-8") for module in (hanging, ledger))
    passed = set(re.findall(r'reached\("([a-z-]+)"\)', code))
    assert named <= passed | {
        f"{when}-note-{note}" for when in ("before", "after") for note in ("ended", "mending", "settled")
    }
