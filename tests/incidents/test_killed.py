"""A job was killed, or killed twice: what the documents tell to type ends with a verified output.

Every test follows a section of docs/operating.md, "When something went wrong", and types nothing but `kafka-eos`. Where
the section has the query started again, that is the next run of the same pipeline.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.conftest import MakeTopic
from tests.incidents.operator import kafka_eos, must_be_verified, typed
from tests.pyspark_kafka_eos.cli.cli_tools import committed, killed, name_of
from tests.pyspark_kafka_eos.commit.batch_child import run_batch
from tests.pyspark_kafka_eos.commit.child import RunBatch, run, run_child
from tests.pyspark_kafka_eos.commit.judge import EXPECTED, committed_offsets, read_all, settings_for
from tests.pyspark_kafka_eos.commit.test_damage import following, rows_of
from tests.pyspark_kafka_eos.commit.test_repair import abort_slot
from tests.support.brokers import AnyKafka

pytestmark = [pytest.mark.kafka, pytest.mark.judged]

KILLED = -9
SCOPES = [pytest.param(run, id="task"), pytest.param(run_batch, id="batch")]


def topic_of(settings: dict[str, Any]) -> str:
    return str(settings["options"]["topic"])


@pytest.mark.parametrize("run_it", SCOPES)
def test_killed_before_the_decision_and_not_to_come_back_soon(kafka: AnyKafka, run_it: RunBatch) -> None:
    """Section "Killed before the decision"."""
    settings = settings_for(kafka)
    pipeline = name_of(settings)
    point = "before-decision" if run_it is run else "turn-passed"
    assert run_child(settings, point, run_it).exitcode == KILLED

    seen = kafka_eos(kafka, "transactions", "explain", pipeline)
    assert "Ongoing" in seen.states.values() and seen.readers_wait
    assert set(seen.decided.values()) == {None}
    ended = kafka_eos(kafka, "transactions", "abort", pipeline, "--yes")
    assert ended.code == 0 and "aborted" in ended.outcomes.values()

    # Readers go on, with nothing of it.
    assert not kafka_eos(kafka, "transactions", "explain", pipeline).readers_wait
    assert read_all(kafka, topic_of(settings)) == Counter()
    report = run_child(settings, run_batch=run_it).report
    assert (report["records"], report["resumed"]) == (1200, False)
    must_be_verified(kafka, pipeline, topic_of(settings), EXPECTED)
    assert committed_offsets(kafka, settings) == settings["offsets"]


def test_killed_after_the_decision_and_not_to_come_back_soon(kafka: AnyKafka) -> None:
    """Section "Killed after the decision"."""
    settings = killed(kafka, "ends-arrived:1")
    pipeline = name_of(settings)

    seen = kafka_eos(kafka, "transactions", "explain", pipeline)
    assert (seen.code, seen.decided["2"]) == (1, "open") and seen.readers_wait
    assert kafka_eos(kafka, "verify", pipeline).verdicts == [(0, "open")]
    refused = kafka_eos(kafka, "transactions", "abort", pipeline, "--yes")
    assert (refused.code, refused.outcomes["2"]) == (1, "refused")
    ended = kafka_eos(kafka, "transactions", "commit", pipeline, "--yes")
    assert (ended.code, ended.outcomes["2"]) == (0, "committed")

    must_be_verified(kafka, pipeline, topic_of(settings), EXPECTED)
    assert committed_offsets(kafka, settings) == settings["offsets"]
    assert run_child(settings).report["resumed"] is True
    assert read_all(kafka, topic_of(settings)) == EXPECTED


def test_a_decided_slot_that_the_broker_aborted_is_written_again_by_the_query(kafka: AnyKafka) -> None:
    """Section "A decided batch was aborted"."""
    settings = killed(kafka, "before-end")
    pipeline = name_of(settings)
    abort_slot(kafka, settings, 1)

    found = kafka_eos(kafka, "verify", pipeline)
    assert (found.code, found.verdicts) == (1, [(0, "aborted")])
    assert kafka_eos(kafka, "transactions", "explain", pipeline).decided["1"] == "aborted"
    # Readers need not wait for the query to see the rest.
    ended = kafka_eos(kafka, "transactions", "commit", pipeline, "--yes")
    assert (ended.code, ended.outcomes) == (1, {"0": "committed", "1": "refused", "2": "committed"})
    assert run_child(settings).report["repaired"] == 1

    (own,) = kafka_eos(kafka, "ledger", pipeline, "-n", "1").document["pipelines"]
    assert own["decisions"][0]["repaired"] == 1
    must_be_verified(kafka, pipeline, topic_of(settings), EXPECTED)
    assert committed_offsets(kafka, settings) == settings["offsets"]


def test_killed_again_while_the_aborted_slot_is_written_again(kafka: AnyKafka) -> None:
    """Section "A decided batch was aborted": as often as it takes."""
    settings = killed(kafka, "before-end")
    abort_slot(kafka, settings, 1)
    assert run_child(settings, "after-rewrite").exitcode == KILLED

    assert kafka_eos(kafka, "verify", name_of(settings)).code != 0
    assert run_child(settings).report["repaired"] == 1

    must_be_verified(kafka, name_of(settings), topic_of(settings), EXPECTED)


# ---- two terminals at once


def test_two_people_commit_at_once(kafka: AnyKafka) -> None:
    """Section "Two terminals at once"."""
    settings = killed(kafka, "before-end")
    pipeline = name_of(settings)

    both = [typed(kafka, "transactions", "commit", pipeline, "--yes") for _ in range(2)]
    answers = [each.answer() for each in both]
    again = kafka_eos(kafka, "transactions", "commit", pipeline, "--yes")

    assert {each.code for each in answers} <= {0, 3}, answers
    assert (again.code, set(again.outcomes.values())) == (0, {"unchanged"})
    must_be_verified(kafka, pipeline, topic_of(settings), EXPECTED)


def test_one_commits_while_another_wants_to_end_what_is_not_decided(kafka: AnyKafka) -> None:
    """Section "Two terminals at once"."""
    settings = killed(kafka, "before-end")
    pipeline = name_of(settings)

    both = [typed(kafka, "transactions", command, pipeline, "--yes") for command in ("commit", "fence")]
    for each in both:
        each.answer()
    again = kafka_eos(kafka, "transactions", "commit", pipeline, "--yes")

    assert again.code == 0, again.document
    must_be_verified(kafka, pipeline, topic_of(settings), EXPECTED)
    assert run_child(settings).report["repaired"] == 0


def test_somebody_aborts_while_the_query_is_started_again(kafka: AnyKafka) -> None:
    """Section "Two terminals at once": the query stops or goes on; started once more, it is done."""
    settings = killed(kafka, "before-decision", following(committed(kafka)))
    pipeline = name_of(settings)

    abort = typed(kafka, "transactions", "abort", pipeline, "--yes")
    run_child(settings)
    abort.answer()
    again = run_child(settings).report

    assert again["batch"] == 1, again
    everything = EXPECTED + rows_of(settings)
    must_be_verified(kafka, pipeline, topic_of(settings), everything, batches=2)


# ---- rows that could not be written


def test_killed_with_dead_letters_in_the_batch(kafka: AnyKafka, topic: MakeTopic) -> None:
    """Section "Rows in the dead-letter topic"."""
    settings = settings_for(kafka)
    good, dead = topic(**{"max.message.bytes": "20000"}), topic()
    settings["options"] |= {"topic": good, "dead.letter.topic": dead}
    large = "too large " + "x" * 30_000
    settings["rows"] = [[*values, large] for values in settings["rows"]]
    pipeline = name_of(settings)
    assert run_child(settings, "ends-arrived:1").exitcode == KILLED

    assert kafka_eos(kafka, "transactions", "commit", pipeline, "--yes").code == 0

    (own,) = kafka_eos(kafka, "ledger", pipeline).document["pipelines"]
    (decided,) = own["decisions"]
    assert (decided["records"], decided["dead_letters"]) == (1203, 3)
    must_be_verified(kafka, pipeline, good, EXPECTED)
    assert read_all(kafka, dead) == Counter({large: 3})
