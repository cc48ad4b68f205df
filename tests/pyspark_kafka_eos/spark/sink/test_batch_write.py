"""`df.write.format("kafka_eos")`: a DataFrame is there as a whole or not at all. Real Spark; librdkafka reads."""

from __future__ import annotations

import time
from collections import Counter

import pytest
from pyspark.sql import functions as sf

from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.requests.admin import list_transactions
from pyspark_kafka_eos.commit.dataframe_write import BATCH_WRITES
from pyspark_kafka_eos.commit.ledger.topic import Ledger
from pyspark_kafka_eos.model import ClientSettings

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


@pytest.fixture
def save(spark, kafka):
    """save(frame, mode="append", **options): writes the frame; dots in names are written as double underscores."""

    def write(frame, mode="append", **options):
        writer = frame.write.format("kafka_eos").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        for name, value in options.items():
            writer = writer.option(name.replace("__", "."), value)
        writer.mode(mode).save()

    return write


def numbers(spark, count=100, slots=3):
    return spark.range(0, count, 1, slots).select(
        sf.col("id").cast("string").alias("value"), sf.lit("dropped").alias("other")
    )


def values(messages) -> Counter[int]:
    return Counter(int(message.value()) for message in messages)


ONCE = Counter(range(100))


def newest_decision(kafka, pipeline):
    cluster = Cluster(ClientSettings((kafka.bootstrap_servers,)))
    try:
        return Ledger(cluster, "exactly-once-ledger", pipeline).newest(settle=True)
    finally:
        cluster.close()


def open_transactions(kafka) -> list[str]:
    cluster = Cluster(ClientSettings((kafka.bootstrap_servers,)))
    try:
        return list(list_transactions(cluster, ["Ongoing"]))
    finally:
        cluster.close()


def test_every_row_is_there_once_and_the_ledger_says_so(spark, kafka, save, topic, read_topic) -> None:
    name = topic()

    save(numbers(spark), topic=name, pipeline=f"p-{name}", batch__id=12)

    assert values(read_topic(name)) == ONCE
    decision = newest_decision(kafka, f"p-{name}")
    assert (decision.query_id, decision.batch_id, decision.records) == (BATCH_WRITES, 12, 100)
    assert [seal.slot for seal in decision.seals] == [0, 1, 2]


@pytest.mark.versions
@pytest.mark.parametrize("scope", ["task", "batch"])
def test_the_job_run_again_writes_nothing_and_the_next_batch_id_writes(spark, save, topic, read_topic, scope) -> None:
    name = topic()
    options = {"topic": name, "pipeline": f"p-{name}", "transaction__scope": scope}
    save(numbers(spark), **options, batch__id=1)

    # The same rows are told from other ones, also in another number of tasks.
    save(numbers(spark).coalesce(1), **options, batch__id=1, batch__rows__differ="fail")
    with pytest.raises(Exception, match=r"PipelineConflict.*is committed already with 100 records.*has 50 records"):
        save(numbers(spark).limit(50), **options, batch__id=1, batch__rows__differ="fail")
    assert values(read_topic(name, "read_uncommitted")) == ONCE

    save(numbers(spark), **options, batch__id=2)
    assert values(read_topic(name)) == ONCE + ONCE
    with pytest.raises(Exception, match=r"PipelineConflict.*batch.id=1 is lower than 2"):
        save(numbers(spark), topic=name, pipeline=f"p-{name}", batch__id=1)
    assert values(read_topic(name, "read_uncommitted")) == ONCE + ONCE


@pytest.mark.versions
def test_without_pipeline_all_rows_are_written_all_columns_as_they_are(spark, kafka, save, topic, read_topic) -> None:
    name = topic()
    frame = numbers(spark).select(
        sf.concat(sf.lit("k"), "value").alias("KEY"),
        "value",
        sf.array(sf.struct(sf.lit("h").alias("key"), sf.lit(b"1").alias("value"))).alias("headers"),
        sf.lit(name).alias("topic"),
        (sf.col("value").cast("int") % 4).alias("partition"),
        sf.timestamp_millis(sf.lit(1_700_000_000_123)).alias("timestamp"),
    )

    save(frame)

    found = read_topic(name)
    assert values(found) == ONCE
    for message in found:
        number = int(message.value())
        assert (message.key(), message.partition()) == (f"k{number}".encode(), number % 4)
        assert (message.headers(), message.timestamp()[1]) == ([("h", b"1")], 1_700_000_000_123)


def test_a_task_that_fails_leaves_nothing_visible_and_nothing_open(spark, kafka, save, topic, read_topic) -> None:
    name = topic()
    failing = sf.when(sf.col("value") == "99", sf.raise_error(sf.lit("task 2 fails"))).otherwise(sf.col("value"))
    frame = numbers(spark).select(failing.cast("string").alias("value"))

    with pytest.raises(Exception, match="task 2 fails"):
        save(frame, topic=name, pipeline=f"p-{name}", batch__id=1)

    assert read_topic(name) == []
    # Spark calls abort while other tasks may still run: what those open, the next run of the pipeline ends.
    save(numbers(spark), topic=name, pipeline=f"p-{name}", batch__id=1)
    assert values(read_topic(name)) == ONCE
    assert [each for each in open_transactions(kafka) if each.startswith(f"p-{name}:")] == []


@pytest.mark.parametrize("scope", ["task", "batch"])
def test_a_bad_row_is_refused_with_its_class_and_what_was_written_is_aborted_at_once(
    spark, kafka, save, topic, read_topic, scope
) -> None:
    name = topic()
    frame = numbers(spark).withColumn("partition", sf.when(sf.col("value") == "99", 7).cast("int"))

    with pytest.raises(Exception, match=r"InvalidRow.*names a partition that its topic does not have"):
        save(frame, topic=name, pipeline=f"p-{name}", transaction__scope=scope)

    assert len(read_topic(name, "read_uncommitted")) > 0
    assert read_topic(name) == []
    deadline = time.monotonic() + 20
    while mine := [each for each in open_transactions(kafka) if each.startswith(f"p-{name}:")]:
        assert time.monotonic() < deadline, mine


def test_dead_letters_and_guarantees_are_there_for_a_batch_write_too(spark, save, topic, read_topic) -> None:
    name, dead, plain = topic(), topic(), topic()
    frame = numbers(spark).withColumn("partition", sf.when(sf.col("value") == "99", 7).cast("int"))

    save(frame, topic=name, pipeline=f"p-{name}", dead__letter__topic=dead)
    save(numbers(spark), topic=plain, delivery__guarantee="at-least-once")

    assert values(read_topic(name)) == Counter(range(99))
    assert values(read_topic(dead)) == Counter([99])
    assert values(read_topic(plain)) == ONCE


@pytest.mark.parametrize(
    ("mode", "options", "said"),
    [
        ("overwrite", {"pipeline": "p"}, 'mode."overwrite". is refused.*mode."append"'),
        ("ignore", {"pipeline": "p"}, "Append"),
        ("error", {"pipeline": "p"}, "Append"),
        ("append", {"pipelin": "p"}, "did you mean pipeline"),
        ("append", {"batch.id": "1"}, "batch.id needs pipeline"),
        ("append", {"batch.id": "one", "pipeline": "p"}, "batch.id"),
        ("append", {"checkpointLocation": "/c"}, "a batch write has no checkpoint"),
    ],
)
def test_what_cannot_be_done_is_refused_with_the_way_to_do_it(
    spark, save, topic, read_topic, mode, options, said
) -> None:
    name = topic()

    with pytest.raises(Exception, match=said):
        save(numbers(spark), mode, topic=name, **options)

    assert read_topic(name, "read_uncommitted") == []


def test_columns_that_cannot_become_records_are_refused_before_a_task_runs(spark, save, topic, read_topic) -> None:
    name = topic()

    with pytest.raises(Exception, match="the column value has type bigint"):
        save(spark.range(3).select(sf.col("id").alias("value")), topic=name)
    with pytest.raises(Exception, match="there is no topic"):
        save(numbers(spark))

    assert read_topic(name, "read_uncommitted") == []
