"""Nobody came for days: ids have expired, records are gone. The documents' way out, and a verified output.

Every test follows a section of docs/operating.md, "When something went wrong", and types nothing but `kafka-eos`. Where
the section has the query started again, that is the next run of the same pipeline.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from embedded_kafka.embedded import EmbeddedKafka
from tests.incidents.operator import kafka_eos, must_be_verified
from tests.pyspark_kafka_eos.cli.cli_tools import committed, killed, name_of
from tests.pyspark_kafka_eos.commit.child import run_child
from tests.pyspark_kafka_eos.commit.judge import EXPECTED, read_all
from tests.pyspark_kafka_eos.commit.resting import DAY_MS, rest
from tests.pyspark_kafka_eos.commit.test_damage import following, rows_of, with_options
from tests.pyspark_kafka_eos.commit.test_long_rest import NOTHING, named, resting

pytestmark = [pytest.mark.kafka, pytest.mark.embedded]


@pytest.fixture
def broker() -> Iterator[EmbeddedKafka]:
    """One of its own: its clock is moved."""
    with EmbeddedKafka(in_process=True, config={"transaction.version": "2"}) as kafka:
        yield kafka


def days_pass(broker: EmbeddedKafka, pipeline: str) -> None:
    """Until every id of the pipeline has expired; its records stay."""
    broker.advance(16 * 60 * 1000)
    broker.advance(8 * DAY_MS)
    found = kafka_eos(broker, "transactions", "list", pipeline)
    assert set(found.states.values()) <= {"NotFound"}, found.states


def test_a_batch_that_was_ended_stays_verified_when_its_ids_have_expired(broker: EmbeddedKafka) -> None:
    """Section "The transactional ids have expired"."""
    settings = committed(broker)
    pipeline, topic = name_of(settings), settings["options"]["topic"]
    days_pass(broker, pipeline)

    must_be_verified(broker, pipeline, topic, EXPECTED)
    assert run_child(following(settings)).report["batch"] == 1
    must_be_verified(broker, pipeline, topic, rows_of(settings, following(settings)), batches=2)


def test_a_batch_whose_markers_are_there_is_proven_by_the_log_when_its_ids_have_expired(
    broker: EmbeddedKafka,
) -> None:
    """Section "The transactional ids have expired"."""
    settings = killed(broker, "before-note-ended")
    pipeline, topic = name_of(settings), settings["options"]["topic"]
    days_pass(broker, pipeline)

    seen = kafka_eos(broker, "transactions", "explain", pipeline)
    assert (seen.code, {seen.decided[slot] for slot in "012"}) == (0, {"committed"})
    assert run_child(settings).report["resumed"] is True

    must_be_verified(broker, pipeline, topic, EXPECTED)


def test_a_batch_that_timed_out_is_written_again_after_its_ids_have_expired(broker: EmbeddedKafka) -> None:
    """Section "The transactional ids have expired"."""
    settings = killed(broker, "ends-arrived:1")
    pipeline, topic = name_of(settings), settings["options"]["topic"]
    days_pass(broker, pipeline)

    seen = kafka_eos(broker, "transactions", "explain", pipeline)
    assert (seen.code, seen.decided["0"], seen.decided["2"]) == (1, "committed", "aborted")
    assert kafka_eos(broker, "verify", pipeline).verdicts == [(0, "aborted")]
    assert run_child(settings).report["repaired"] == 1

    must_be_verified(broker, pipeline, topic, EXPECTED)


def test_a_decided_batch_that_retention_has_removed_is_checked_and_adopted_once(
    broker: EmbeddedKafka,
) -> None:
    """Section "Nothing is known of a decided batch any more"."""
    settings = resting(broker)
    pipeline, topic = name_of(settings), settings["options"]["topic"]
    killed(broker, "before-note-ended", settings)
    rest(broker, *named(settings))

    assert run_child(settings).report["error"].startswith("DecisionBroken")
    seen = kafka_eos(broker, "transactions", "explain", pipeline)
    assert seen.code != 0 and {seen.decided[slot] for slot in "012"} == {"unknown"}
    assert kafka_eos(broker, "verify", pipeline).verdicts == [(0, "gone")]
    # The readers' word counts now; then once:
    assert run_child(with_options(settings, adopt_checkpoint="true")).report["resumed"] is True
    # ... and without it from then on.
    assert run_child(following(settings)).report["batch"] == 1

    must_be_verified(broker, pipeline, topic, rows_of(following(settings)), last=1)


def test_records_that_retention_removed_from_an_ended_batch_are_no_incident(broker: EmbeddedKafka) -> None:
    """Section "Nothing is known of a decided batch any more": of one that was ended enough is known."""
    settings = resting(broker)
    pipeline, topic = name_of(settings), settings["options"]["topic"]
    assert run_child(settings).report["batch"] == 0
    rest(broker, *named(settings))

    assert kafka_eos(broker, "verify", pipeline).verdicts == [(0, "gone")]
    assert read_all(broker, topic) == NOTHING
    assert run_child(following(settings)).report["batch"] == 1

    must_be_verified(broker, pipeline, topic, rows_of(following(settings)), last=1)
