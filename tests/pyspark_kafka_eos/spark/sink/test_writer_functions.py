"""What people write into the function of `foreachBatch`: a return for an empty frame, threads, `df.write`, a name on
two clusters.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from embedded_kafka.embedded import EmbeddedKafka
from kafka_core.errors import OptionsError
from pyspark_kafka_eos import ExactlyOnceWriter
from tests.pyspark_kafka_eos.commit.judge import messages_of
from tests.pyspark_kafka_eos.spark.sink.test_writer import newest_decision
from tests.pyspark_kafka_eos.spark.sink.test_writer_calls import (
    ALL,
    LOW,
    Function,
    high,
    low,
    options_of,
    run,
)
from tests.pyspark_kafka_eos.spark.sink.test_writer_resume import found, open_ids
from tests.support.brokers import AnyKafka

__all__ = ["run"]

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

Run = Callable[[Function, int], str]


def test_a_function_that_returns_for_an_empty_frame_may_do_so_for_the_first_batch_too(
    run: Run, read_topic: Any, topic: Any, kafka: AnyKafka
) -> None:
    name = topic()
    writer = ExactlyOnceWriter(options_of(kafka, name))

    def write(frame: Any, batch_id: int) -> None:
        frame = frame.where("cast(value as int) >= 10 and cast(value as int) < 20 or cast(value as int) >= 30")
        if frame.isEmpty():
            return
        writer(frame, batch_id)

    # Batches 0 and 2 are empty; the second run begins behind an empty one.
    assert run(write, 2) == ""
    assert run(write, 4) == ""

    assert found(read_topic(name)) == Counter(str(each) for each in (*range(10, 20), *range(30, 40)))
    decision = newest_decision(kafka, f"p-{name}")
    assert (decision.batch_id, decision.records) == (3, 10)
    assert any("does not have batch 2 of this query" in warning for warning in decision.warnings)


def test_writers_may_be_called_in_threads_of_the_function(
    run: Run, read_topic: Any, topic: Any, kafka: AnyKafka
) -> None:
    one, two = topic(), topic()
    writers = [ExactlyOnceWriter(options_of(kafka, name)) for name in (one, two)]
    raised: list[BaseException] = []

    def write(frame: Any, batch_id: int) -> None:
        def call(number: int, part: Any) -> None:
            try:
                writers[number](part, batch_id)
            except BaseException as error:  # noqa: BLE001 -- shown by the test
                raised.append(error)

        threads = [
            threading.Thread(target=call, args=(0, low(frame))),
            threading.Thread(target=call, args=(1, high(frame))),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not raised

    assert run(write, 2) == ""
    assert found(read_topic(one)) == LOW
    assert found(read_topic(two)) == Counter(str(number) for number in range(5, 20))
    assert newest_decision(kafka, f"p-{one}").query_id == newest_decision(kafka, f"p-{two}").query_id


def test_a_frame_of_no_query_is_refused_and_the_way_for_threads_is_named(
    spark: Any, read_topic: Any, topic: Any, kafka: AnyKafka
) -> None:
    name = topic()

    with pytest.raises(OptionsError, match="no micro-batch of a running query") as refused:
        ExactlyOnceWriter(options_of(kafka, name))(spark.range(1).selectExpr("string(id) value"), 0)

    assert "pyspark.inheritable_thread_target" in str(refused.value)
    assert read_topic(name, "read_uncommitted") == []


# ---- df.write in a micro-batch


def test_df_write_without_batch_id_in_a_micro_batch_is_refused_by_its_name(
    run: Run, read_topic: Any, topic: Any, kafka: AnyKafka
) -> None:
    name = topic()

    def write(frame: Any, batch_id: int) -> None:
        frame.write.format("kafka_eos").options(**options_of(kafka, name)).mode("append").save()

    said = run(write, 1)

    assert "batch.id is missing" in said and "micro-batch 0 of a streaming query" in said
    assert "nothing was written" in said
    assert read_topic(name, "read_uncommitted") == []
    assert open_ids(kafka, f"p-{name}") == []


def test_with_the_micro_batchs_number_a_repeated_micro_batch_is_written_once(
    run: Run, read_topic: Any, topic: Any, kafka: AnyKafka
) -> None:
    name = topic()
    left = [1]

    def write(frame: Any, batch_id: int) -> None:
        frame.write.format("kafka_eos").options(**options_of(kafka, name)).option("batch.id", batch_id).mode(
            "append"
        ).save()
        if left:
            left.clear()
            raise RuntimeError("the user's own code fails after the write")

    assert "after the write" in run(write, 1)
    assert run(write, 1) == ""
    assert found(read_topic(name)) == ALL


# ---- one name on two clusters


def test_one_pipeline_name_on_two_clusters_is_two_pipelines(
    spark: Any, kafka: AnyKafka, topic: Any, tmp_path: Path
) -> None:
    name = topic(1)
    with EmbeddedKafka(in_process=True) as elsewhere:
        admin = AdminClient({"bootstrap.servers": elsewhere.bootstrap_servers})
        admin.create_topics([NewTopic(name, 1)])[name].result(30)
        written = [threading.Event(), threading.Event()]
        queries = []
        try:
            for number, broker in enumerate((kafka, elsewhere)):
                writer = ExactlyOnceWriter(options_of(broker, name))

                def write(frame: Any, batch_id: int, writer: Any = writer, done: Any = written[number]) -> None:
                    writer(frame, batch_id)
                    done.set()

                source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()
                queries.append(
                    source.selectExpr("string(value) value")
                    .writeStream.foreachBatch(write)
                    .option("checkpointLocation", str(tmp_path / str(number)))
                    .start()
                )
                # The first goes on while the second begins.
                assert written[number].wait(120), queries[-1].exception()
            assert all(query.isActive for query in queries)
        finally:
            for query in queries:
                query.stop()
        first = [len(messages_of(broker, name, "read_committed")) for broker in (kafka, elsewhere)]
        assert min(first) >= 5
