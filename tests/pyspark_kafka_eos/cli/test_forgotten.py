"""A pipeline that rested until its ids had expired and retention had taken its records: what the commands say of its
newest decision.

Where it was ended, all is well. Where its run was killed before that, nobody can say how it ended: every command says
so, names one way on, and that way ends in a pipeline that goes on.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from embedded_kafka.embedded import EmbeddedKafka
from kafka_core.errors import DecisionBroken
from pyspark_kafka_eos.spark.sink.foreach_batch import ExactlyOnceWriter
from tests.pyspark_kafka_eos.cli.cli_tools import call, killed, name_of
from tests.pyspark_kafka_eos.cli.processes import Ended, all_of, in_process, kafka_eos
from tests.pyspark_kafka_eos.cli.test_doctor import check, examine
from tests.pyspark_kafka_eos.commit.child import run, run_child
from tests.pyspark_kafka_eos.commit.judge import EXPECTED, read_all
from tests.pyspark_kafka_eos.commit.resting import rest
from tests.pyspark_kafka_eos.commit.test_damage import following, with_options
from tests.pyspark_kafka_eos.commit.test_long_rest import named, resting
from tests.pyspark_kafka_eos.commit.test_repair import abort_slot

pytestmark = [pytest.mark.kafka, pytest.mark.embedded]


@pytest.fixture
def broker() -> Iterator[EmbeddedKafka]:
    """A broker whose clock moves on for one test only."""
    with EmbeddedKafka(in_process=True) as kafka:
        yield kafka


def doctor_words(settings: dict[str, Any]) -> list[str]:
    """The doctor's words for a run's options."""
    options = {name: value for name, value in settings["options"].items() if name != "kafka.bootstrap.servers"}
    return [
        "doctor",
        "--json",
        *(word for name, value in options.items() for word in ("-o", f"{name}={value}")),
    ]


def decision(ended: Ended) -> dict[str, Any]:
    """What the doctor says of the newest decision."""
    (found,) = [each for each in ended.document["checks"] if each["name"] == "decision"]
    return found


def test_a_pipeline_that_ended_cleanly_is_explained_as_committed_and_the_next_run_goes_on(
    broker: EmbeddedKafka, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = resting(broker)
    run(settings)
    rest(broker, *named(settings))
    name = name_of(settings)

    explained, listed, examined = all_of(
        broker, [["transactions", "explain", name, "--json"], ["transactions", "list", name, "--json"], doctor_words(settings)]
    )  # fmt: skip
    committed_again = in_process(capsys, broker, "transactions", "commit", name, "--yes", "--json")

    stories = {each["part"]: each["story"] for each in explained.document["transactions"]}
    assert (explained.code, listed.code) == (0, 0)
    assert [stories[slot] for slot in "012"] == ["committed, as decided (batch 0)"] * 3
    assert {each["decided_outcome"] for each in listed.document["transactions"]} == {"committed"}
    assert (examined.code, decision(examined)["status"]) == (0, "ok")
    assert {each["outcome"] for each in committed_again.document["done"]} == {"unchanged"}
    assert run(following(settings))["resumed"] is False


def test_a_decision_that_nobody_can_judge_any_more_has_one_way_on_that_every_command_names(
    broker: EmbeddedKafka, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = resting(broker)
    assert run_child(settings, "before-end").exitcode == -signal.SIGKILL
    rest(broker, *named(settings))
    name = name_of(settings)

    examined = kafka_eos(broker, *doctor_words(settings))
    explained = call(broker, "transactions", "explain", name)
    ended = [kafka_eos(broker, "transactions", "commit", name, "--yes", "--json")]
    for each in ("abort", "fence"):
        ended.append(in_process(capsys, broker, "transactions", each, name, "--yes", "--json"))

    # The doctor fails with what the run raises.
    assert (examined.code, decision(examined)["status"]) == (1, "fail")
    error = run_child(settings).report["error"]
    assert error.startswith("DecisionBroken")
    assert decision(examined)["seen"] in error
    with pytest.raises(DecisionBroken, match=r"adopt\.checkpoint=true"):
        ExactlyOnceWriter(settings["options"]).validate()
    # The way on is the same everywhere.
    way = decision(examined)["do"]
    assert "start the query once with adopt.checkpoint=true" in way
    assert explained.code == 3
    assert all(way in row["story"] for row in explained.document["transactions"] if row["part"] in "012")
    assert [each.code for each in ended] == [3, 1, 1]
    for answer in ended:
        details = {row["transactional_id"]: row["detail"] for row in answer.document["done"]}
        assert all(way in details[f"{name}:{slot}"] for slot in range(3))
    # It leads out.
    assert run_child(with_options(settings, adopt_checkpoint="true")).report["resumed"] is True
    assert examine(broker, settings).code == 0
    assert call(broker, "transactions", "explain", name).code == 0
    assert run_child(following(settings)).report["resumed"] is False


def test_with_adopt_checkpoint_the_doctor_takes_it_on_trust_as_the_run_does(broker: EmbeddedKafka) -> None:
    settings = resting(broker)
    assert run_child(settings, "before-end").exitcode == -signal.SIGKILL
    rest(broker, *named(settings))

    answer = examine(broker, with_options(settings, adopt_checkpoint="true"))

    assert (answer.code, check(answer, "decision")["status"]) == (0, "ok")


# ---- decisions that a run can still finish


def test_a_decision_that_is_not_ended_is_warned_of_and_the_run_ends_it(broker: EmbeddedKafka) -> None:
    settings = killed(broker, "ends-arrived:1")

    found = check(examine(broker, settings), "decision")

    assert (found["status"], found["seen"]) == (
        "warn",
        "batch 0 is decided, but not ended in slots 1, 2",
    )
    assert f"kafka-eos transactions commit {name_of(settings)}" in found["do"]
    assert run_child(settings).report["resumed"] is True
    assert check(examine(broker, settings), "decision")["status"] == "ok"


def test_a_decision_whose_slot_the_broker_aborted_is_warned_of_and_the_run_repairs_it(
    broker: EmbeddedKafka,
) -> None:
    settings = killed(broker, "before-end")
    abort_slot(broker, settings, 1)

    answer = examine(broker, settings)

    assert (answer.code, check(answer, "decision")["status"]) == (0, "warn")
    assert "the broker aborted slot 1" in check(answer, "decision")["seen"]
    assert run_child(settings).report["repaired"] == 1
    assert read_all(broker, settings["options"]["topic"]) == EXPECTED


def test_a_decision_that_is_being_recorded_is_warned_of(broker: EmbeddedKafka) -> None:
    settings = killed(broker, "decision-written")

    answer = examine(broker, settings)

    assert (answer.code, check(answer, "decision")["status"]) == (0, "warn")
    assert "neither committed nor aborted" in check(answer, "decision")["seen"]
    assert run_child(settings).report["resumed"] is False
