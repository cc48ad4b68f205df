"""The ledger as a DataFrame: the same decisions as `kafka-eos ledger`, by the reader as Spark calls it, and in
Spark.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from kafka_core.errors import ExactlyOnceError, OptionsError, UnknownTopic
from pyspark_kafka_eos import DefaultSource
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.commit.ledger.topic import Ledger
from pyspark_kafka_eos.options import SinkOptions
from tests.conftest import MakeTopic
from tests.pyspark_kafka_eos.cli.cli_tools import call, committed, killed, name_of
from tests.pyspark_kafka_eos.commit.child import run_child
from tests.pyspark_kafka_eos.commit.test_damage import following, put
from tests.support.brokers import AnyKafka

pytestmark = pytest.mark.kafka


def source(kafka: AnyKafka, ledger: str, **more: str) -> DefaultSource:
    """The data source that Spark makes of the options."""
    return DefaultSource({"kafka.bootstrap.servers": kafka.bootstrap_servers, "ledger": ledger, **more})


def rows(kafka: AnyKafka, ledger: str, **more: str) -> list[dict[str, Any]]:
    """What Spark gets, without Spark."""
    found = source(kafka, ledger, **more)
    reader = found.reader(found.schema())
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


def test_a_decision_is_a_row_with_its_slots_and_source_offsets(kafka: AnyKafka) -> None:
    settings = committed(kafka)
    assert run_child(following(settings)).report["batch"] == 1
    name = name_of(settings)

    newest, oldest = rows(kafka, name)

    (shown,) = call(kafka, "ledger", name).document["pipelines"]
    for row, decision in zip((newest, oldest), shown["decisions"], strict=True):
        slots = [{**each, "partitions": list(each["partitions"])} for each in decision["slots"]]
        assert row["slots"] == slots
        alike = (
            "status",
            "query_id",
            "batch_id",
            "records",
            "bytes",
            "dead_letters",
            "repaired",
            "warnings",
            "offset",
            "partition",
        )
        assert {each: row[each] for each in alike} == {each: decision[each] for each in alike}
        assert row["source_offsets"] == decision["source_offsets"]
        assert round(row["decided"].timestamp() * 1000) == decision["decided_ms"]
        assert round(row["written"].timestamp() * 1000) == decision["written_ms"]
    assert (newest["pipeline"], newest["batch_id"], newest["problem"]) == (name, 1, None)


def test_what_was_warned_of_a_batch_stands_beside_it(kafka: AnyKafka) -> None:
    settings = committed(kafka)
    options = SinkOptions.parse(settings["options"])
    decision = Ledger(Cluster.shared(options.client), options.ledger_topic, name_of(settings)).newest(settle=True)
    assert decision is not None
    put(kafka, settings, replace(decision, warnings=("linger.ms has no effect",)).to_bytes())

    newest, before = rows(kafka, name_of(settings))

    assert newest["warnings"] == ["linger.ms has no effect"]
    assert before["warnings"] == list(decision.warnings)


def test_all_pipelines_are_rows_where_a_star_asks_for_them(kafka: AnyKafka) -> None:
    names = {name_of(committed(kafka)) for _ in range(2)}

    assert names <= {row["pipeline"] for row in rows(kafka, "*")}


def test_a_decision_whose_transaction_has_no_end_is_a_row_that_is_open(kafka: AnyKafka) -> None:
    (found,) = rows(kafka, name_of(killed(kafka, "decision-written")))

    assert (found["status"], found["batch_id"]) == ("open", 0)


def test_a_record_that_is_no_decision_is_a_row_with_the_reason(kafka: AnyKafka) -> None:
    settings = committed(kafka)
    put(kafka, settings, b"garbage")

    broken, good = rows(kafka, name_of(settings))

    assert (broken["status"], broken["batch_id"], broken["slots"]) == ("unreadable", None, None)
    assert "is not a decision" in broken["problem"]
    assert good["status"] == "decided"


def test_an_unknown_pipeline_stops_the_read_with_the_name_that_was_meant(kafka: AnyKafka) -> None:
    name = name_of(committed(kafka))

    with pytest.raises(ExactlyOnceError, match=f"no pipeline is named '{name}x'.*did you mean {name}"):
        rows(kafka, f"{name}x")


def test_a_ledger_that_does_not_exist_is_an_error_and_not_made(kafka: AnyKafka) -> None:
    for ledger in ("*", "some-pipeline"):
        with pytest.raises((UnknownTopic, ExactlyOnceError), match="no-such-ledger"):
            rows(kafka, ledger, **{"ledger.topic": "no-such-ledger"})
    assert call(kafka, "topic", "list", "no-such-ledger").code != 0


def test_the_ledger_is_no_stream_and_has_its_own_columns(kafka: AnyKafka) -> None:
    found = source(kafka, "*")

    with pytest.raises(OptionsError, match=r"Use spark\.read instead of spark\.readStream"):
        found.streamReader(found.schema())
    with pytest.raises(OptionsError, match="kafka_eos has its own schema"):
        found.reader(StructType([StructField("value", StringType())]))


@pytest.mark.spark
def test_spark_counts_the_records_of_the_decisions(spark: SparkSession, kafka: AnyKafka, topic: MakeTopic) -> None:
    name = topic(2)
    servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    for batch in (1, 2):
        (
            spark.range(7 * batch).selectExpr("cast(id as string) as value")
            .write.format("kafka_eos").options(**servers, topic=name, pipeline=f"p-{name}")
            .option("batch.id", batch).mode("append").save()
        )  # fmt: skip

    decisions = spark.read.format("kafka_eos").options(**servers, ledger=f"p-{name}").load()

    found = decisions.selectExpr("batch_id", "records", "status", "size(slots) > 0 as has_slots").orderBy("batch_id")
    assert [tuple(row) for row in found.collect()] == [(1, 7, "decided", True), (2, 14, "decided", True)]
