"""A driver that is held up inside its decision for longer than its transaction may take: told from one that a newer run
fenced.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from embedded_kafka.embedded import EmbeddedKafka
from tests.pyspark_kafka_eos.commit.child import run_child
from tests.pyspark_kafka_eos.commit.held import held_at, run_as_the_writer_does
from tests.pyspark_kafka_eos.commit.judge import EXPECTED, read_all, settings_for

pytestmark = [pytest.mark.kafka, pytest.mark.embedded]

LONGER_THAN_A_DECISION_MS = 90_000


@pytest.fixture(params=["1", "2"], scope="module")
def moved(request: pytest.FixtureRequest) -> Iterator[EmbeddedKafka]:
    """A broker whose clock a test may move, because no other file uses it."""
    with EmbeddedKafka(config={"transaction.version": request.param}) as broker:
        yield broker


def test_a_driver_that_slept_through_its_decision_does_the_batch_again(moved: EmbeddedKafka) -> None:
    settings = settings_for(moved)

    with held_at("decision-written", settings, run_as_the_writer_does) as run:
        moved.advance(LONGER_THAN_A_DECISION_MS)
        report = run.release().report

    assert report == {"batch": 0, "repaired": 0, "redone": 1}
    assert read_all(moved, settings["options"]["topic"]) == EXPECTED
    assert run_child(settings).report["resumed"] is True


def test_a_driver_that_slept_and_was_replaced_meanwhile_stops(moved: EmbeddedKafka) -> None:
    settings = settings_for(moved)
    older = {**settings, "rows": [[f"older {value}" for value in values] for values in settings["rows"]]}

    with held_at("decision-written", older, run_as_the_writer_does) as run:
        moved.advance(LONGER_THAN_A_DECISION_MS)
        assert run_child(settings).report["records"] == EXPECTED.total()
        error = run.release().report["error"]

    assert error.startswith("ProducerFenced")
    assert "a newer run has taken over" in error
    assert read_all(moved, settings["options"]["topic"]) == EXPECTED


def test_where_the_batch_cannot_be_done_again_the_error_blames_no_newer_run(moved: EmbeddedKafka) -> None:
    settings = settings_for(moved)

    # `run` commits what its tasks wrote, once, as a sink by format does.
    with held_at("decision-written", settings) as run:
        moved.advance(LONGER_THAN_A_DECISION_MS)
        error = run.release().report["error"]

    assert error.startswith("TransactionTooOld")
    assert "newer run" not in error
    assert not read_all(moved, settings["options"]["topic"])
    assert run_child(settings).report["resumed"] is False
    assert read_all(moved, settings["options"]["topic"]) == EXPECTED
