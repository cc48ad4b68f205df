"""`kafka-eos ledger`: what was decided, as far back as the topic goes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.pyspark_kafka_eos.cli.cli_tools import Answer, call, committed, killed, name_of, shown
from tests.pyspark_kafka_eos.commit.child import run_child
from tests.pyspark_kafka_eos.commit.test_damage import following, put
from tests.support.brokers import AnyKafka

pytestmark = pytest.mark.kafka


def decisions(answer: Answer) -> list[dict[str, Any]]:
    (pipeline,) = answer.document["pipelines"]
    return list(pipeline["decisions"])


def test_decisions_are_shown_newest_first_with_slots_records_and_source_offsets(broker: AnyKafka) -> None:
    settings = committed(broker)
    assert run_child(following(settings)).report["batch"] == 1

    answer = call(broker, "ledger", name_of(settings))

    assert answer.code == 0
    newest, oldest = decisions(answer)
    assert (newest["batch_id"], oldest["batch_id"]) == (1, 0)
    assert (newest["status"], newest["query_id"], newest["records"]) == ("decided", "query-1", 1200)
    assert [slot["records"] for slot in newest["slots"]] == [400, 400, 400]
    assert settings["offsets"][0][0] in newest["source_offsets"][0]
    assert all(len(slot["digest"]) == 16 for slot in newest["slots"])
    assert [each["batch_id"] for each in decisions(call(broker, "ledger", name_of(settings), "-n", "1"))] == [1]


def test_without_a_name_all_pipelines_are_shown(kafka: AnyKafka) -> None:
    names = {name_of(committed(kafka)) for _ in range(2)}

    answer = call(kafka, "ledger")

    assert names <= {each["pipeline"] for each in answer.document["pipelines"]}


def test_a_decision_whose_transaction_has_no_end_is_shown_as_open(kafka: AnyKafka) -> None:
    settings = killed(kafka, "decision-written")

    (found,) = decisions(call(kafka, "ledger", name_of(settings)))

    assert (found["status"], found["batch_id"]) == ("open", 0)


def test_a_record_that_is_no_decision_is_shown_with_its_place_and_hides_no_other(kafka: AnyKafka) -> None:
    settings = committed(kafka)
    put(kafka, settings, b"garbage")

    answer = call(kafka, "ledger", name_of(settings))

    assert answer.code == 1
    broken, good = decisions(answer)
    assert broken["status"] == "unreadable"
    assert "is not a decision" in broken["problem"]
    assert broken["offset"] > good["offset"]
    assert "is not a decision" in shown(kafka, "ledger", name_of(settings))[1]


def test_a_ledger_that_does_not_exist_is_said_to_be_missing(kafka: AnyKafka) -> None:
    answer = call(kafka, "ledger", "-o", "ledger.topic=nobody-made-it")

    assert answer.code == 1
    assert answer.document["error"]["class"] == "UnknownTopic"
