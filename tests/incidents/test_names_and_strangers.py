"""Wrong names, a new checkpoint, and somebody else's writer in the topic: the documents' way out, and a verified
output.

Every test follows a section of docs/operating.md, "When something went wrong", and types nothing but `kafka-eos`. Where
the section has the query started again, that is the next run of the same pipeline.
"""

from __future__ import annotations

from collections import Counter

import pytest
from confluent_kafka import Producer

from tests.incidents.operator import kafka_eos, must_be_verified
from tests.pyspark_kafka_eos.cli.cli_tools import committed, killed, name_of, states
from tests.pyspark_kafka_eos.commit.child import run_child
from tests.pyspark_kafka_eos.commit.judge import EXPECTED, read_all, settings_for
from tests.pyspark_kafka_eos.commit.ledger.test_ledger_lost import delete
from tests.pyspark_kafka_eos.commit.test_damage import following, put, put_as_a_stranger, rows_of, with_options
from tests.support.brokers import AnyKafka, settle

pytestmark = [pytest.mark.kafka, pytest.mark.judged]

WITHIN_S = 30


def stranger(broker: AnyKafka, topic: str, transactional_id: str, timeout_ms: int = 60_000) -> Producer:
    """A producer that is not ours, with an open transaction in every partition."""
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": timeout_ms,
        }
    )
    producer.init_transactions(WITHIN_S)
    producer.begin_transaction()
    for number in range(4):
        producer.produce(topic, b"stranger", partition=number)
    assert producer.flush(WITHIN_S) == 0
    return producer


# ---- names


def test_a_query_under_a_mistyped_pipeline_is_started_again_under_its_own(kafka: AnyKafka) -> None:
    """Section "A name is wrong"."""
    settings = committed(kafka)
    pipeline, topic = name_of(settings), settings["options"]["topic"]
    second = following(settings)
    mistyped = with_options(second, pipeline=f"{pipeline}x")

    assert run_child(mistyped).report["error"].startswith("PipelineConflict")

    # The ledger has the query under the right name, and nothing under the wrong one.
    found = kafka_eos(kafka, "ledger").document["pipelines"]
    (own,) = (each for each in found if each["pipeline"].startswith(pipeline))
    assert (own["pipeline"], own["decisions"][0]["query_id"]) == (pipeline, settings["query"])
    assert run_child(second).report["batch"] == 1
    must_be_verified(kafka, pipeline, topic, rows_of(settings, second), batches=2)


def test_a_renamed_pipeline_goes_on_under_its_new_name_and_its_old_one_is_refused(kafka: AnyKafka) -> None:
    """Section "A pipeline gets another name"."""
    settings = settings_for(kafka)
    # In the ledger that the tests share no other pipeline may be of this query.
    settings["query"] = f"query of {name_of(settings)}"
    assert run_child(settings).report["batch"] == 0
    old, topic = name_of(settings), settings["options"]["topic"]
    new = f"{old}-new"
    second = following(settings)
    third = following(second, 2)

    kafka_eos(kafka, "transactions", "commit", old, "--yes")
    told = kafka_eos(kafka, "transactions", "explain", old).document["transactions"]
    assert {each["state"] for each in told} <= {"CompleteCommit", "Empty"}
    moved = run_child(with_options(second, pipeline=new, adopt_checkpoint="true")).report
    assert moved.get("batch") == 1, moved

    rolled_back = run_child(third).report["error"]
    assert rolled_back.startswith("PipelineConflict") and f"wrote as pipeline '{new}' until batch 1" in rolled_back
    assert run_child(with_options(third, pipeline=new)).report["batch"] == 2
    must_be_verified(kafka, new, topic, rows_of(settings, second, third), batches=2)


def test_a_second_query_under_the_name_of_another_gets_a_name_of_its_own(kafka: AnyKafka) -> None:
    """Section "A name is wrong"."""
    settings = committed(kafka)
    pipeline, topic = name_of(settings), settings["options"]["topic"]
    second = {**following(settings), "query": "query-2", "batch": 0}

    assert run_child(second).report["error"].startswith("PipelineConflict")
    (own,) = kafka_eos(kafka, "ledger", pipeline).document["pipelines"]
    assert own["decisions"][0]["query_id"] == settings["query"]
    renamed = with_options(second, pipeline=f"{pipeline}-2")
    assert run_child(renamed).report["batch"] == 0

    both = rows_of(settings, second)
    must_be_verified(kafka, pipeline, topic, both)
    must_be_verified(kafka, f"{pipeline}-2", topic, both)


def test_a_command_with_a_mistyped_pipeline_changes_nothing_of_the_right_one(kafka: AnyKafka) -> None:
    """Section "A name is wrong"."""
    settings = killed(kafka, "before-end")
    pipeline, topic = name_of(settings), settings["options"]["topic"]
    before = states(kafka, settings)

    assert kafka_eos(kafka, "verify", f"{pipeline}x").code != 0
    kafka_eos(kafka, "transactions", "commit", f"{pipeline}x", "--yes")
    assert states(kafka, settings) == before

    assert kafka_eos(kafka, "transactions", "commit", pipeline, "--yes").code == 0
    must_be_verified(kafka, pipeline, topic, EXPECTED)


# ---- a new checkpoint


def test_a_new_checkpoint_is_adopted_once(kafka: AnyKafka) -> None:
    """Section "The checkpoint is new, or the ledger is lost"."""
    settings = killed(kafka, "before-end")
    pipeline, topic = name_of(settings), settings["options"]["topic"]
    new = {**following(settings), "query": "query-2", "batch": 0}

    assert run_child(new).report["error"].startswith("PipelineConflict")
    (own,) = kafka_eos(kafka, "ledger", pipeline).document["pipelines"]
    assert own["decisions"][0]["query_id"] == settings["query"]
    assert kafka_eos(kafka, "transactions", "commit", pipeline, "--yes").code == 0
    must_be_verified(kafka, pipeline, topic, EXPECTED)
    assert run_child(with_options(new, adopt_checkpoint="true")).report["batch"] == 0
    third = {**following(settings, 2), "query": "query-2", "batch": 1}
    assert run_child(third).report["batch"] == 1

    must_be_verified(kafka, pipeline, topic, rows_of(settings, new, third), batches=3)


def test_a_lost_ledger_is_recreated_and_the_checkpoint_adopted_once(kafka: AnyKafka) -> None:
    """Section "The checkpoint is new, or the ledger is lost"."""
    settings = with_options(settings_for(kafka), ledger_topic=f"ledger-of-{settings_for(kafka)['options']['topic']}")
    pipeline, topic, ledger = (settings["options"][name] for name in ("pipeline", "topic", "ledger.topic"))
    assert run_child(settings).report["batch"] == 0
    delete(kafka, ledger)
    second, third = following(settings), following(settings, 2)

    assert run_child(second).report["error"].startswith("PipelineConflict")
    assert read_all(kafka, topic) == EXPECTED
    assert run_child(with_options(second, adopt_checkpoint="true")).report["batch"] == 1
    assert run_child(third).report["batch"] == 2

    everything = rows_of(settings, second, third)
    must_be_verified(kafka, pipeline, topic, everything, batches=2, options=("-o", f"ledger.topic={ledger}"))


def test_a_strangers_record_over_a_decision_counts_for_nothing(kafka: AnyKafka) -> None:
    """Section "The ledger holds something that is no decision"."""
    settings = killed(kafka, "ends-arrived:1")
    pipeline, topic = name_of(settings), settings["options"]["topic"]
    put_as_a_stranger(kafka, settings, b"garbage")

    assert kafka_eos(kafka, "transactions", "commit", pipeline, "--yes").code == 0
    (own,) = kafka_eos(kafka, "ledger", pipeline).document["pipelines"]
    assert [each["status"] for each in own["decisions"]] == ["foreign", "decided"]

    must_be_verified(kafka, pipeline, topic, EXPECTED)
    assert run_child(settings).report["resumed"] is True
    assert run_child(following(settings)).report["batch"] == 1
    must_be_verified(kafka, pipeline, topic, rows_of(settings, following(settings)), batches=2)


def test_a_ledger_with_a_record_of_another_version_is_left_for_another_one(kafka: AnyKafka) -> None:
    """Section "The ledger holds something that is no decision"."""
    settings = committed(kafka)
    pipeline, topic = name_of(settings), settings["options"]["topic"]
    put(kafka, settings, b"garbage")
    ledger = f"ledger-of-{topic}"
    second = with_options(following(settings), ledger_topic=ledger)
    third = with_options(following(settings, 2), ledger_topic=ledger)

    assert run_child(following(settings)).report["error"].startswith("LedgerUnreadable")
    assert kafka_eos(kafka, "verify", pipeline).document["error"]["class"] == "LedgerUnreadable"
    (own,) = kafka_eos(kafka, "ledger", pipeline).document["pipelines"]
    assert [each["status"] for each in own["decisions"]] == ["unreadable", "decided"]
    assert read_all(kafka, topic) == EXPECTED
    assert run_child(second).report["error"].startswith("PipelineConflict")
    assert run_child(with_options(second, adopt_checkpoint="true")).report["batch"] == 1
    assert run_child(third).report["batch"] == 2

    everything = rows_of(settings, second, third)
    must_be_verified(kafka, pipeline, topic, everything, batches=2, options=("-o", f"ledger.topic={ledger}"))


# ---- strangers


def test_records_of_strangers_beside_ours_are_none_of_our_batchs(kafka: AnyKafka) -> None:
    """Section "Somebody else writes to the topic"."""
    settings = settings_for(kafka)
    pipeline, topic = name_of(settings), settings["options"]["topic"]
    stranger(kafka, topic, f"stranger-of-{topic}").commit_transaction(WITHIN_S)
    assert run_child(settings, "ends-arrived:1").exitcode == -9
    stranger(kafka, topic, f"stranger-of-{topic}").abort_transaction(WITHIN_S)

    assert kafka_eos(kafka, "transactions", "commit", pipeline, "--yes").code == 0
    settle(kafka.bootstrap_servers, topic)

    must_be_verified(kafka, pipeline, topic, EXPECTED + Counter({"stranger": 4}))


def test_a_strangers_open_transaction_holds_readers_until_it_is_ended(kafka: AnyKafka) -> None:
    """Section "Somebody else writes to the topic"."""
    settings = settings_for(kafka)
    pipeline, topic = name_of(settings), settings["options"]["topic"]
    holding = stranger(kafka, topic, f"stranger-of-{topic}")
    assert run_child(settings).report["batch"] == 0

    found = kafka_eos(kafka, "verify", pipeline)
    assert (found.code, found.verdicts) == (3, [(0, "open")])
    assert read_all(kafka, topic) == Counter()
    # None of this pipeline's is open, so there is nothing that an operation on it could end.
    assert "Ongoing" not in kafka_eos(kafka, "transactions", "explain", pipeline).states.values()
    assert kafka_eos(kafka, "transactions", "commit", pipeline, "--yes").code == 0
    assert kafka_eos(kafka, "verify", pipeline).code == 3
    holding.abort_transaction(WITHIN_S)
    settle(kafka.bootstrap_servers, topic)

    must_be_verified(kafka, pipeline, topic, EXPECTED)


def test_a_stranger_that_writes_under_one_of_our_ids_costs_a_repair(kafka: AnyKafka) -> None:
    """Section "Somebody else writes to the topic": under a transactional id of the pipeline."""
    settings = killed(kafka, "before-end")
    pipeline, topic = name_of(settings), settings["options"]["topic"]
    holding = stranger(kafka, topic, f"{pipeline}:1")

    seen = kafka_eos(kafka, "transactions", "explain", pipeline)
    assert (seen.code, seen.decided["1"], seen.states["1"]) == (1, "aborted", "Ongoing")
    assert run_child(settings).report["repaired"] == 1

    must_be_verified(kafka, pipeline, topic, EXPECTED)
    # It is fenced: nothing that it wrote can come to show.
    with pytest.raises(Exception, match=r"(?i)fenced|epoch"):
        holding.commit_transaction(WITHIN_S)
    assert read_all(kafka, topic) == EXPECTED
