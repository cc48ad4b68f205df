"""`kafka-eos verify`: the output against the ledger's counts and digests, read from the log."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.commit.per_task import PerTask
from pyspark_kafka_eos.commit.run import Run
from pyspark_kafka_eos.options import SinkOptions
from pyspark_kafka_eos.slot.writer import write_slot
from tests.conftest import MakeTopic
from tests.pyspark_kafka_eos.cli.cli_tools import Answer, call, committed, killed, name_of, shown
from tests.pyspark_kafka_eos.cli.processes import kafka_eos
from tests.pyspark_kafka_eos.commit.child import run_child
from tests.pyspark_kafka_eos.commit.judge import read_all, settings_for
from tests.pyspark_kafka_eos.commit.ledger.test_ledger_lost import delete
from tests.pyspark_kafka_eos.commit.test_damage import following, newest_value, put, with_options
from tests.pyspark_kafka_eos.commit.test_repair import abort_slot
from tests.support.brokers import AnyKafka, delete_records

pytestmark = pytest.mark.kafka


def verdicts(answer: Answer) -> list[tuple[int, str]]:
    """(batch, verdict) of every batch that was verified."""
    return [(each["batch_id"], each["verdict"]) for each in answer.document["batches"]]


def by_slot(answer: Answer) -> dict[int, str]:
    (batch,) = answer.document["batches"]
    return {slot: each["verdict"] for each in batch["transactions"] for slot in each["slots"]}


def test_what_was_committed_matches_and_an_independent_reader_counts_the_same(broker: AnyKafka) -> None:
    settings = committed(broker)

    answer = call(broker, "verify", name_of(settings))

    assert (answer.code, verdicts(answer)) == (0, [(0, "matches")])
    (batch,) = answer.document["batches"]
    found = sum(each["found_records"] for each in batch["transactions"])
    assert found == read_all(broker, settings["options"]["topic"]).total() == 1200
    assert all(each["found_digest"] == each["expected_digest"] for each in batch["transactions"])


def test_older_batches_are_verified_as_long_as_the_ledger_has_them(kafka: AnyKafka) -> None:
    settings = committed(kafka)
    assert run_child(following(settings)).report["batch"] == 1

    newest, both = (call(kafka, "verify", name_of(settings), *more) for more in ((), ("-n", "5")))

    assert verdicts(newest) == [(1, "matches")] and newest.document["older"] == [name_of(settings)]
    assert verdicts(both) == [(0, "matches"), (1, "matches")] and both.document["older"] == []

    # Whoever reads the table is told of batches that were not read.
    assert "older batches" in shown(kafka, "verify", name_of(settings))[1]
    assert "older batches" not in shown(kafka, "verify", name_of(settings), "-n", "2")[1]


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_records_with_timestamps_of_their_own_keys_and_headers_match_compressed_too(
    kafka: AnyKafka, topic: MakeTopic, compression: str
) -> None:
    options = SinkOptions.parse(
        {
            "kafka.bootstrap.servers": kafka.bootstrap_servers,
            "pipeline": f"stamped-{compression}",
            "topic": topic(),
            "kafka.compression.type": compression,
        }
    )
    cluster = Cluster.shared(options.client)
    rows = pa.RecordBatch.from_pydict(
        {
            "key": pa.array([str(number).encode() for number in range(100)], pa.binary()),
            "value": pa.array([b"x" * number for number in range(100)], pa.binary()),
            "timestamp": pa.array(range(100), pa.timestamp("ms")),
        }
    )
    driver = PerTask(Run(cluster, options, "query"))
    driver.start(0)
    driver.process(0, lambda only: [write_slot(driver.plan(0), 0, [rows])], (), {})

    answer = call(kafka, "verify", options.pipeline)

    assert (answer.code, by_slot(answer)) == (0, {0: "matches"})


def test_records_of_others_in_between_change_nothing(kafka: AnyKafka) -> None:
    settings = settings_for(kafka)
    strangers = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in range(200):
        strangers.produce(settings["options"]["topic"], value=b"stranger", partition=number % 4)
    assert strangers.flush(30) == 0
    assert run_child(settings).report["batch"] == 0
    strangers.produce(settings["options"]["topic"], value=b"stranger", partition=0)
    assert strangers.flush(30) == 0

    answer = call(kafka, "verify", name_of(settings))

    assert (answer.code, verdicts(answer)) == (0, [(0, "matches")])


# ---- what is not as decided


def _other_digest(said: dict[str, Any]) -> None:
    said["seals"][1]["digest"] = f"{int(said['seals'][1]['digest'], 16) ^ 1:016x}"


def _one_record_more(said: dict[str, Any]) -> None:
    said["seals"][1]["records"] += 1
    said["seals"][1]["partitions"][0][4] += 1


@pytest.mark.parametrize(
    ("change", "why"),
    [(_other_digest, "other contents"), (_one_record_more, "records of")],
    ids=["digest", "count"],
)
def test_an_output_that_is_not_what_the_ledger_says_differs_in_that_slot(
    kafka: AnyKafka, change: Callable[[dict[str, Any]], None], why: str
) -> None:
    settings = committed(kafka)
    said = json.loads(newest_value(kafka, settings))
    change(said)
    put(kafka, settings, json.dumps(said).encode())

    answer = call(kafka, "verify", name_of(settings))

    assert answer.code == 1
    assert by_slot(answer) == {0: "matches", 1: "differs", 2: "matches"}
    assert why in answer.document["batches"][0]["transactions"][1]["reason"]


def test_a_record_that_is_no_decision_stops_the_verification(kafka: AnyKafka) -> None:
    settings = committed(kafka)
    put(kafka, settings, b"garbage")

    answer = call(kafka, "verify", name_of(settings))

    assert answer.code == 1
    assert answer.document["error"]["class"] == "LedgerUnreadable"


def test_what_was_decided_behind_a_record_that_cannot_be_read_is_verified(kafka: AnyKafka) -> None:
    settings = committed(kafka)
    good = newest_value(kafka, settings)
    put(kafka, settings, b"garbage")
    put(kafka, settings, good)

    answer = call(kafka, "verify", name_of(settings), "-n", "5")

    assert (answer.code, verdicts(answer)) == (0, [(0, "matches")])


def test_a_decided_slot_that_nobody_ended_is_open_and_matches_when_the_next_run_has_ended_it(
    broker: AnyKafka,
) -> None:
    settings = killed(broker, "ends-arrived:1")

    answer = call(broker, "verify", name_of(settings))

    assert (answer.code, verdicts(answer)) == (3, [(0, "open")])
    assert by_slot(answer)[2] == "open"
    assert run_child(settings).report["resumed"] is True
    again = call(broker, "verify", name_of(settings))
    assert (again.code, verdicts(again)) == (0, [(0, "matches")])


def test_a_decided_slot_that_the_broker_aborted_is_named_and_matches_after_its_repair(
    broker: AnyKafka,
) -> None:
    settings = killed(broker, "before-end")
    abort_slot(broker, settings, 1)

    answer = call(broker, "verify", name_of(settings))

    assert answer.code == 1
    assert by_slot(answer)[1] == "aborted"
    assert run_child(settings).report["repaired"] == 1
    again = call(broker, "verify", name_of(settings), "-n", "5")
    # The repaired decision stands in for the one before it.
    assert (again.code, verdicts(again)) == (0, [(0, "matches")])


def test_a_batch_behind_somebodys_open_transaction_is_not_yet_what_readers_see(kafka: AnyKafka) -> None:
    settings = settings_for(kafka)
    topic = settings["options"]["topic"]
    holder = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": f"holder-of-{topic}"})
    holder.init_transactions(30)
    holder.begin_transaction()
    for number in range(4):
        holder.produce(topic, value=b"held", partition=number)
    assert holder.flush(30) == 0
    assert run_child(settings).report["batch"] == 0

    behind = call(kafka, "verify", name_of(settings))
    holder.abort_transaction(30)
    free = call(kafka, "verify", name_of(settings))

    assert (behind.code, verdicts(behind)) == (3, [(0, "open")])
    assert "another transaction" in behind.document["batches"][0]["transactions"][0]["reason"]
    assert (free.code, verdicts(free)) == (0, [(0, "matches")])


@pytest.mark.parametrize("how", ["records", "topic"])
def test_records_that_retention_or_somebody_removed_are_gone_which_is_no_verdict(kafka: AnyKafka, how: str) -> None:
    settings = committed(kafka)
    topic = settings["options"]["topic"]
    if how == "topic":
        delete(kafka, topic)
    else:
        delete_records(kafka.bootstrap_servers, topic, 2, 5)

    answer = call(kafka, "verify", name_of(settings))

    assert (answer.code, verdicts(answer)) == (3, [(0, "gone")])


def test_without_a_decision_there_is_nothing_to_verify_and_it_says_so(kafka: AnyKafka) -> None:
    settings = killed(kafka, "before-decision")

    assert call(kafka, "verify", name_of(settings)).code == 3
    assert "no decision" in shown(kafka, "verify", name_of(settings))[1]


def test_after_a_checkpoint_was_adopted_each_batch_is_shown_with_its_query(kafka: AnyKafka) -> None:
    settings = committed(kafka)
    assert run_child(following(settings)).report["batch"] == 1
    adopted = with_options({**settings, "query": "query-2"}, adopt_checkpoint="true")
    assert run_child(adopted).report["batch"] == 0

    ended = kafka_eos(kafka, "verify", name_of(settings), "-n", "5")

    assert ended.code == 0
    found = [line.split()[1:3] for line in ended.out.splitlines()[1:-2]]
    assert list(dict.fromkeys(map(tuple, found))) == [("query-1", "0"), ("query-1", "1"), ("query-2", "0")]
