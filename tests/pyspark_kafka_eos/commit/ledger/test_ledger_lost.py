"""A ledger that has lost what it knew, or says what no driver of this pipeline wrote; and an older driver that goes
on.
"""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from embedded_kafka.embedded import EmbeddedKafka
from tests.conftest import topics_of
from tests.pyspark_kafka_eos.commit.child import run_child
from tests.pyspark_kafka_eos.commit.held import held_at, run_as_the_writer_does
from tests.pyspark_kafka_eos.commit.judge import EXPECTED, read_all, settings_for
from tests.pyspark_kafka_eos.commit.test_damage import (
    LEDGER,
    WITHIN_S,
    following,
    newest_value,
    put,
    rows_of,
    with_options,
)
from tests.support.brokers import AnyKafka

pytestmark = pytest.mark.kafka


def own_ledger(broker: AnyKafka) -> dict[str, Any]:
    """A pipeline whose ledger no other test uses, so that it may be destroyed."""
    settings = settings_for(broker)
    return with_options(settings, ledger_topic=f"ledger-of-{settings['options']['pipeline']}")


def delete_ledger(broker: AnyKafka, settings: dict[str, Any]) -> None:
    delete(broker, settings["options"]["ledger.topic"])


def delete(broker: AnyKafka, name: str) -> None:
    """Delete a topic and return when the broker has forgotten it."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for done in admin.delete_topics([name], operation_timeout=WITHIN_S).values():
        done.result(WITHIN_S)
    deadline = time.monotonic() + WITHIN_S
    while name in admin.list_topics(timeout=WITHIN_S).topics:
        assert time.monotonic() < deadline, f"{name} is still there"


# ---- the ledger has lost what it knew: nobody can say whether the batch is decided


def test_with_the_ledger_gone_a_batch_that_it_had_decided_is_not_written_again(kafka: AnyKafka) -> None:
    settings = own_ledger(kafka)
    assert run_child(settings).report["batch"] == 0
    delete_ledger(kafka, settings)

    report = run_child(settings).report

    # Killed after the decision and before Spark's commit log, batch 0 is begun again: written, it would show twice.
    assert read_all(kafka, settings["options"]["topic"]) == EXPECTED
    assert "adopt.checkpoint" in report.get("error", "")


def test_with_the_ledger_gone_a_later_batch_is_refused_until_the_checkpoint_is_adopted(
    kafka: AnyKafka,
) -> None:
    settings = own_ledger(kafka)
    topic = settings["options"]["topic"]
    assert run_child(settings).report["batch"] == 0
    delete_ledger(kafka, settings)

    error = run_child(following(settings)).report.get("error", "")

    assert error.startswith(("LedgerUnreadable", "PipelineConflict"))
    assert settings["options"]["ledger.topic"] in error
    assert "adopt.checkpoint" in error
    assert read_all(kafka, topic, "read_uncommitted") == EXPECTED
    adopted = run_child(with_options(following(settings), adopt_checkpoint="true")).report
    assert (adopted["batch"], adopted["resumed"]) == (1, False)
    assert read_all(kafka, topic) == rows_of(settings, following(settings))


def test_a_ledger_with_partitions_added_still_knows_the_decided_batch_and_goes_on(kafka: AnyKafka) -> None:
    """More partitions move a pipeline's key; 8 to 9 moves eight keys of nine."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    settings = own_ledger(kafka)
    assert run_child(settings).report["batch"] == 0
    name = settings["options"]["ledger.topic"]
    # A prime that is far from 8: that a key stays where it is has a chance of one in 61.
    for done in admin.create_partitions([NewPartitions(name, 61)], operation_timeout=WITHIN_S).values():
        done.result(WITHIN_S)

    report = run_child(settings).report

    assert read_all(kafka, settings["options"]["topic"]) == EXPECTED
    assert report.get("resumed") is True, report
    assert run_child(following(settings)).report["batch"] == 1


def test_a_pipeline_whose_decision_was_deleted_is_refused_while_its_ids_are_known(kafka: AnyKafka) -> None:
    settings = settings_for(kafka)
    assert run_child(settings).report["batch"] == 0
    good = newest_value(kafka, settings)
    put(kafka, settings, None)

    error = run_child(following(settings)).report.get("error", "")

    # A tombstone says that there is no such pipeline, and the coordinators say that there is.
    assert error.startswith("PipelineConflict")
    assert read_all(kafka, settings["options"]["topic"], "read_uncommitted") == EXPECTED
    put(kafka, settings, good)
    assert run_child(following(settings)).report["batch"] == 1


def test_a_decision_of_another_pipeline_under_this_key_is_refused(kafka: AnyKafka) -> None:
    other, settings = settings_for(kafka), settings_for(kafka)
    assert run_child(other).report["batch"] == 0
    put(kafka, settings, newest_value(kafka, other))

    report = run_child(settings).report

    # Taken at its word it would say that this batch is done, and none of its rows would ever be written.
    assert "resumed" not in report
    assert report["error"].startswith("LedgerUnreadable")
    assert read_all(kafka, settings["options"]["topic"], "read_uncommitted") == Counter()


def test_a_record_that_is_no_decision_is_named_by_topic_partition_and_offset(kafka: AnyKafka) -> None:
    settings = settings_for(kafka)
    assert run_child(settings).report["batch"] == 0
    good = newest_value(kafka, settings)
    put(kafka, settings, b"garbage")

    error = run_child(following(settings)).report["error"]
    put(kafka, settings, good)

    assert LEDGER in error
    assert "offset=" in error
    assert settings["options"]["pipeline"] in error


def test_another_pipelines_open_decision_hides_nothing_of_what_this_one_has_decided(
    broker: AnyKafka,
) -> None:
    """A driver that dies in its decision holds the ledger partition's last stable offset until it is fenced or times
    out.
    """
    ledger = topics_of(broker)(partitions=1, **{"cleanup.policy": "compact"})
    holder, settings = (with_options(settings_for(broker), ledger_topic=ledger) for _ in range(2))
    assert run_child(holder, "decision-written").exitcode == -signal.SIGKILL
    assert run_child(settings).report["batch"] == 0

    report = run_child(following(settings)).report

    assert (report.get("batch"), report.get("resumed")) == (1, False), report
    assert read_all(broker, settings["options"]["topic"]) == rows_of(settings, following(settings))


# ---- an older driver that goes on


@pytest.mark.parametrize("newer_at", ["before-check", "before-end"])
def test_an_older_driver_that_is_fenced_leaves_the_newer_ones_transactions_alone(
    broker: AnyKafka, newer_at: str
) -> None:
    settings = settings_for(broker)

    with held_at("before-decision", settings) as older, held_at(newer_at, settings) as newer:
        assert older.release().report["error"].startswith("ProducerFenced")
        report = newer.release().report

    assert report == {"batch": 0, "records": 1200, "resumed": False, "repaired": 0}
    assert read_all(broker, settings["options"]["topic"]) == EXPECTED
    assert read_all(broker, settings["options"]["topic"], "read_uncommitted") == EXPECTED + EXPECTED


def test_an_older_driver_whose_slots_were_taken_over_does_not_write_its_batch_again(
    kafka: AnyKafka,
) -> None:
    """`PerTask.process` takes slots that a newer run owns for timed-out ones and does the batch again over them."""
    settings = settings_for(kafka)
    older_at = held_at("before-check", settings, run_as_the_writer_does)

    with older_at as older, held_at("before-end", settings, run_as_the_writer_does) as newer:
        assert older.release().report["error"].startswith("ProducerFenced")
        report = newer.release().report

    assert report == {"batch": 0, "repaired": 0, "redone": 0}
    # The older one's first try, which the newer aborted, and the newer's own.
    assert read_all(kafka, settings["options"]["topic"], "read_uncommitted") == EXPECTED + EXPECTED


# ---- an output topic of before is gone


def warnings_of(broker: AnyKafka, settings: dict[str, Any]) -> list[str]:
    """What the pipeline's newest decision warns of."""
    found: list[str] = json.loads(newest_value(broker, settings)).get("warnings", [])
    return found


def test_a_pipeline_goes_on_with_another_topic_when_the_one_before_was_deleted(kafka: AnyKafka) -> None:
    settings = settings_for(kafka)
    assert run_child(settings).report["batch"] == 0
    delete(kafka, settings["options"]["topic"])
    before = settings["options"]["topic"]
    settings["options"]["topic"] = settings_for(kafka)["options"]["topic"]

    assert run_child({**settings, "batch": 1}).report["batch"] == 1
    assert read_all(kafka, settings["options"]["topic"]) == EXPECTED
    # Where the earlier records are stands beside the new ones, for who reads the ledger only.
    (warning,) = warnings_of(kafka, settings)
    assert f"wrote to {before}; from now on it writes to" in warning
    assert run_child({**settings, "batch": 2}).report["batch"] == 2
    assert warnings_of(kafka, settings) == []


@pytest.mark.embedded
def test_a_deleted_topic_of_before_is_waited_for_by_one_start_and_no_further_one(
    kafka: EmbeddedKafka,
) -> None:
    """A broker that has just started lacks its topics for a moment, and something may hang in one of them."""

    def asked_by_the_next_runs(*, deleted: bool) -> list[int]:
        settings = settings_for(kafka)
        assert run_child(settings).report["batch"] == 0
        if deleted:
            delete(kafka, settings["options"]["topic"])
        settings["options"]["topic"] = settings_for(kafka)["options"]["topic"]
        asked = []
        for batch in (1, 2):
            counter = kafka.fault("Metadata", "delay", times=10_000, delay_ms=1)
            assert run_child({**settings, "batch": batch}).report["batch"] == batch
            asked.append(counter.fired)
            kafka.clear_faults()
        return asked

    kept, gone = asked_by_the_next_runs(deleted=False), asked_by_the_next_runs(deleted=True)

    assert 0 < kept[0] < gone[0]
    assert gone[1] <= kept[1] + 2
