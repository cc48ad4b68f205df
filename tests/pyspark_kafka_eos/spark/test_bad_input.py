"""Bad input is refused with a clear error, and nothing of the batch is visible. Real Spark, real Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import functions as sf

from kafka_core.errors import (
    BrokerUnavailable,
    InvalidRow,
    OptionsError,
    PipelineConflict,
    RecordTooLarge,
    UnknownTopic,
)
from pyspark_kafka_eos import ExactlyOnceWriter

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def value_only(source):
    return source.select(sf.col("value").cast("string").alias("value"))


def test_a_misspelt_option_names_the_nearest_real_one_before_a_query_exists() -> None:
    with pytest.raises(OptionsError, match="pipeline"):
        ExactlyOnceWriter({"kafka.bootstrap.servers": "127.0.0.1:1", "pipelin": "p", "topic": "t"})


def test_a_row_without_topic_is_refused_and_nothing_is_visible(run_query, read_topic, topic) -> None:
    name = topic()

    def shape(source):
        where = sf.when(sf.col("value") != 7, sf.lit(name))
        return source.select(sf.col("value").cast("string").alias("value"), where.alias("topic"))

    outcome = run_query(shape, {"pipeline": f"p-{name}"})

    assert isinstance(outcome.raised, InvalidRow)
    assert "has no topic" in str(outcome.raised)
    assert "has no topic" in outcome.spark_says
    assert read_topic(name) == []


def test_rows_without_any_topic_are_refused_before_a_task_runs(run_query) -> None:
    outcome = run_query(value_only, {"pipeline": "p-no-topic"})

    assert isinstance(outcome.raised, OptionsError)
    assert "there is no topic" in str(outcome.raised)


def test_a_record_larger_than_its_topic_allows_is_named_by_topic_and_key(run_query, read_topic, topic) -> None:
    name = topic(**{"max.message.bytes": "2000"})

    def shape(source):
        size = sf.when(sf.col("value") == 5, sf.lit(3000)).otherwise(sf.lit(10))
        return source.select(
            sf.concat(sf.lit("key-"), sf.col("value")).alias("key"), sf.expr("repeat('x', 10)").alias("small"),
            sf.rpad(sf.lit("x"), 10, "x").alias("unused"),
            sf.when(size == 3000, sf.expr("repeat('x', 3000)")).otherwise(sf.expr("repeat('x', 10)")).alias("value"),
        )  # fmt: skip

    outcome = run_query(shape, {"topic": name, "pipeline": f"p-{name}"})

    assert isinstance(outcome.raised, RecordTooLarge)
    assert outcome.raised.facts["topic"] == name
    assert outcome.raised.facts["key"] == "key-5"
    assert outcome.raised.facts["limit_bytes"] == 2000
    assert read_topic(name) == []


def test_a_batch_of_many_rows_respects_a_small_message_limit(run_query, read_topic, topic) -> None:
    name = topic(**{"max.message.bytes": "2000"})

    outcome = run_query(
        lambda source: source.select(sf.expr("repeat('x', 100)").alias("value")),
        {"topic": name, "pipeline": f"p-{name}"},
        rows=500,
    )

    assert outcome.raised is None
    assert len(read_topic(name)) == 500


def test_a_partition_that_the_topic_does_not_have_is_refused(run_query, read_topic, topic) -> None:
    name = topic()

    def shape(source):
        return source.select(
            sf.col("value").cast("string").alias("value"), sf.col("value").cast("int").alias("partition")
        )

    outcome = run_query(shape, {"topic": name, "pipeline": f"p-{name}"})

    assert isinstance(outcome.raised, InvalidRow)
    assert outcome.raised.facts["partitions"] == 4
    assert outcome.raised.facts["topic"] == name
    assert read_topic(name) == []


def test_a_null_timestamp_is_refused(run_query, read_topic, topic) -> None:
    name = topic()

    def shape(source):
        return source.select(
            sf.col("value").cast("string").alias("value"),
            sf.when(sf.col("value") != 4, sf.col("timestamp")).alias("timestamp"),
        )

    outcome = run_query(shape, {"topic": name, "pipeline": f"p-{name}"})

    assert isinstance(outcome.raised, InvalidRow)
    assert "null timestamp" in str(outcome.raised)
    assert read_topic(name) == []


def test_an_unknown_topic_is_refused_and_not_created(run_query, kafka) -> None:
    from confluent_kafka.admin import AdminClient

    outcome = run_query(value_only, {"topic": "never-created", "pipeline": "p-unknown-topic"})

    assert isinstance(outcome.raised, UnknownTopic)
    assert "never-created" in str(outcome.raised)
    topics = AdminClient({"bootstrap.servers": kafka.bootstrap_servers}).list_topics(timeout=30).topics
    assert "never-created" not in topics


def test_an_unknown_topic_named_by_a_row_is_refused(run_query, read_topic, topic) -> None:
    name = topic()

    def shape(source):
        where = sf.when(sf.col("value") != 7, sf.lit(name)).otherwise(sf.lit("never-created-either"))
        return source.select(sf.col("value").cast("string").alias("value"), where.alias("topic"))

    outcome = run_query(shape, {"pipeline": f"p-{name}"})

    assert isinstance(outcome.raised, UnknownTopic)
    assert read_topic(name) == []


def test_no_broker_is_said_within_the_time_allowed(run_query) -> None:
    outcome = run_query(
        value_only,
        {
            "kafka.bootstrap.servers": "127.0.0.1:1",
            "topic": "t",
            "pipeline": "p",
            "kafka.max.block.ms": "1500",
        },
    )

    assert isinstance(outcome.raised, BrokerUnavailable)
    assert "127.0.0.1:1" in str(outcome.raised)


def test_a_transaction_timeout_above_the_brokers_cap_is_refused(run_query, read_topic, topic) -> None:
    name = topic()

    outcome = run_query(value_only, {"topic": name, "pipeline": f"p-{name}", "kafka.transaction.timeout.ms": "900001"})

    assert isinstance(outcome.raised, OptionsError)
    assert "900001" in str(outcome.raised)
    assert "transaction.max.timeout.ms" in str(outcome.raised)
    assert read_topic(name, "read_uncommitted") == []


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["cast(value as string) as key"], "no column named value"),
        (["value"], "type bigint; it must be string or binary"),
        (["cast(value as string) as value", "value as key"], "the column key has type bigint"),
        (["cast(value as string) as value", "value as partition"], "it must be int"),
        (
            ["cast(value as string) as value", "array('a') as headers"],
            "array<struct<key:string,value:binary>>",
        ),
        (["cast(value as string) as value", "5 as topic"], "it must be string"),
        (["cast(value as string) as value", "'noon' as timestamp"], "it must be timestamp"),
    ],
)
def test_a_schema_that_cannot_be_written_is_refused(run_query, topic, read_topic, columns, message) -> None:
    name = topic()

    outcome = run_query(lambda source: source.selectExpr(*columns), {"topic": name, "pipeline": f"p-{name}"})

    assert isinstance(outcome.raised, OptionsError)
    assert message in str(outcome.raised)
    assert read_topic(name, "read_uncommitted") == []


def test_a_second_query_under_the_pipelines_name_is_refused_and_the_first_goes_on(
    run_query, read_topic, topic, tmp_path: Path
) -> None:
    name = topic()
    options = {"topic": name, "pipeline": f"p-{name}"}
    first = str(tmp_path / "first")
    run_query(value_only, options, checkpoint=first)
    before = len(read_topic(name))

    second = run_query(value_only, options, checkpoint=str(tmp_path / "second"))

    assert isinstance(second.raised, PipelineConflict)
    assert "adopt.checkpoint" in str(second.raised)
    assert len(read_topic(name)) == before
    assert run_query(value_only, options, checkpoint=first).raised is None
    assert len(read_topic(name)) > before


def test_a_checkpoint_older_than_the_output_is_refused(run_query, read_topic, topic, tmp_path: Path) -> None:
    import shutil

    name = topic()
    options = {"topic": name, "pipeline": f"p-{name}"}
    checkpoint, backup = tmp_path / "checkpoint", tmp_path / "backup"
    run_query(value_only, options, checkpoint=str(checkpoint))
    shutil.copytree(checkpoint, backup)
    run_query(value_only, options, batches=2, checkpoint=str(checkpoint))
    before = len(read_topic(name))

    shutil.rmtree(checkpoint)
    shutil.copytree(backup, checkpoint)
    outcome = run_query(value_only, options, checkpoint=str(checkpoint))

    assert isinstance(outcome.raised, PipelineConflict)
    assert "older than the output" in str(outcome.raised)
    assert len(read_topic(name)) == before


def test_a_new_checkpoint_is_adopted_where_the_user_says_so(run_query, read_topic, topic, tmp_path: Path) -> None:
    name = topic()
    options = {"topic": name, "pipeline": f"p-{name}"}
    run_query(value_only, options, checkpoint=str(tmp_path / "old"))
    before = len(read_topic(name))

    outcome = run_query(value_only, {**options, "adopt.checkpoint": "true"}, checkpoint=str(tmp_path / "new"))

    assert outcome.raised is None
    assert len(read_topic(name)) > before
