"""What happens to a source while its query runs, in Spark itself: topics grow, shrink, are recreated; the query is
stopped anywhere.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions
from confluent_kafka.cimpl import NewTopic
from pyspark.errors import StreamingQueryException

from embedded_kafka.embedded import EmbeddedKafka
from pyspark_kafka_eos import ExactlyOnceWriter
from pyspark_kafka_eos.client.requests import transactions
from pyspark_kafka_eos.spark.offset_json import position_of
from tests.conftest import MakeTopic
from tests.pyspark_kafka_eos.spark.source.source_query import (
    TIMEOUT_S,
    committed,
    produce,
    run,
    sink,
    stream_of,
    values,
)
from tests.support.brokers import AnyKafka, delete_records

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

Take = Callable[["DataFrame", int], None]


class Seen:
    """The rows of every batch, by the batch's last try."""

    def __init__(self) -> None:
        self.batches: dict[int, list[tuple[int, int, int]]] = {}

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        rows = frame.select("partition", "offset", "value").collect()
        self.batches[batch_id] = [(row[0], row[1], int(row[2])) for row in rows]

    @property
    def rows(self) -> list[tuple[int, int, int]]:
        """(partition, offset, number), in order."""
        return sorted(itertools.chain.from_iterable(self.batches.values()))

    @property
    def numbers(self) -> list[int]:
        """What the records say, in order."""
        return sorted(number for _, _, number in self.rows)


@contextmanager
def running(stream: DataFrame, take: Take, checkpoint: Path) -> Iterator[Any]:
    """A query until the block ends."""
    query = stream.writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint)).start()
    try:
        yield query
    finally:
        query.stop()


def failure(stream: DataFrame, take: Take, checkpoint: Path) -> str:
    """What Spark says of a query that fails by itself."""
    with running(stream, take, checkpoint) as query, pytest.raises(StreamingQueryException) as raised:
        assert not query.awaitTermination(TIMEOUT_S), "the query did not fail"
    return str(raised.value)


def take_all(stream: DataFrame, take: Take, checkpoint: Path) -> None:
    """Run a query over what is there."""
    with running(stream, take, checkpoint) as query:
        query.processAllAvailable()


def admin(kafka: AnyKafka) -> AdminClient:
    """Administers the broker."""
    return AdminClient({"bootstrap.servers": kafka.bootstrap_servers})


def delete_before(kafka: AnyKafka, topic: str, offset: int) -> None:
    """What retention does."""
    delete_records(kafka.bootstrap_servers, topic, 0, offset)


def delete(kafka: AnyKafka, topic: str) -> None:
    """The topic is gone when this returns."""
    client = admin(kafka)
    for answer in client.delete_topics([topic], operation_timeout=30).values():
        answer.result(30)


def make(kafka: AnyKafka, topic: str) -> None:
    """The topic, anew."""
    client = admin(kafka)
    for answer in client.create_topics([NewTopic(topic, 1)], operation_timeout=30).values():
        answer.result(30)


def logged_ends(checkpoint: Path) -> list[dict[Any, int]]:
    """The end of each batch in Spark's offset log."""
    files = [path for path in (checkpoint / "offsets").iterdir() if path.name.isdigit()]
    texts = [path.read_text().splitlines()[-1] for path in sorted(files, key=lambda path: int(path.name))]
    return [dict(position_of(json.loads(text)).offsets) for text in texts]


# ---- what the topic does


@pytest.mark.long
def test_records_that_retention_removes_from_a_planned_batch_stop_it_before_anything_of_it_shows(
    kafka: AnyKafka, spark: SparkSession, topic: MakeTopic, read_topic, tmp_path: Path
) -> None:
    source, out = topic(1), topic(1)
    produce(kafka, source, 0, range(10))
    writer = ExactlyOnceWriter(sink(kafka, out))

    def lose_then_write(frame: DataFrame, batch_id: int) -> None:
        delete_before(kafka, source, 4)
        writer(frame, batch_id)

    stream = stream_of(spark, kafka, subscribe=source)
    said = [failure(stream, take, tmp_path) for take in (lose_then_write, ExactlyOnceWriter(sink(kafka, out)))]

    # The second run is told the same: what was planned cannot be read, and nothing was skipped.
    assert all("DataLoss" in each and "offsets 0 to 3 are deleted" in each for each in said)
    assert read_topic(out) == []
    assert committed(kafka, f"p-{out}", source) == [None]
    tolerant = stream_of(spark, kafka, subscribe=source, failOnDataLoss="false")
    take_all(tolerant, ExactlyOnceWriter(sink(kafka, out)), tmp_path)
    assert values(read_topic(out)) == list(range(4, 10))
    assert committed(kafka, f"p-{out}", source) == [10]


@pytest.mark.versions
def test_partitions_that_are_added_while_a_query_runs_are_read_from_their_first_record_once(
    kafka: AnyKafka, spark: SparkSession, topic: MakeTopic, tmp_path: Path
) -> None:
    source, seen = topic(1), Seen()
    produce(kafka, source, 0, range(5))
    stream = stream_of(spark, kafka, subscribe=source)
    with running(stream, seen, tmp_path) as query:
        query.processAllAvailable()
        client = admin(kafka)
        for answer in client.create_partitions([NewPartitions(source, 3)], operation_timeout=30).values():
            answer.result(30)
        produce(kafka, source, 2, range(5, 9))
        query.processAllAvailable()
    produce(kafka, source, 1, range(9, 12))

    take_all(stream, seen, tmp_path)

    assert seen.numbers == list(range(12))
    assert len(seen.rows) == 12


@pytest.mark.long
def test_a_topic_recreated_stops_the_query_and_where_loss_is_allowed_is_read_from_its_first_record(
    kafka: AnyKafka, spark: SparkSession, topic: MakeTopic, tmp_path: Path
) -> None:
    source, seen = topic(1), Seen()
    produce(kafka, source, 0, range(8))
    take_all(stream_of(spark, kafka, subscribe=source), seen, tmp_path)
    delete(kafka, source)
    make(kafka, source)
    produce(kafka, source, 0, range(100, 103))

    said = failure(stream_of(spark, kafka, subscribe=source), seen, tmp_path)

    assert "the topic was recreated: the query's offset 8 is of the topic with the id" in said, said
    assert len(logged_ends(tmp_path)) == 1
    take_all(stream_of(spark, kafka, subscribe=source, failOnDataLoss="false"), seen, tmp_path)
    assert seen.numbers == [*range(8), *range(100, 103)]


@pytest.mark.long
def test_a_topic_deleted_while_its_batch_runs_is_left_out_where_loss_is_allowed_and_the_rest_goes_on(
    kafka: AnyKafka,
    spark: SparkSession,
    topic: MakeTopic,
    read_topic,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transactions, "GONE_MS", 500)
    gone, stays, out = topic(1), topic(1), topic(1)
    produce(kafka, gone, 0, range(5))
    produce(kafka, stays, 0, range(100, 105))
    writer, deleted = ExactlyOnceWriter(sink(kafka, out)), []

    def delete_then_write(frame: DataFrame, batch_id: int) -> None:
        if not deleted:
            delete(kafka, gone)
            deleted.append(batch_id)
        writer(frame, batch_id)

    stream = stream_of(spark, kafka, subscribePattern=f"^({gone}|{stays})$", failOnDataLoss="false")
    take_all(stream, delete_then_write, tmp_path)
    produce(kafka, stays, 0, range(105, 110))
    take_all(stream, ExactlyOnceWriter(sink(kafka, out)), tmp_path)

    assert deleted
    assert values(read_topic(out)) == list(range(100, 110))
    assert committed(kafka, f"p-{out}", stays) == [10]


# ---- what the query does


@pytest.mark.long
@pytest.mark.embedded
@pytest.mark.parametrize("moment", ["Metadata", "ListOffsets", "Fetch"])
def test_a_query_that_is_stopped_while_it_waits_for_an_answer_goes_on_where_it_was(
    kafka: EmbeddedKafka, spark: SparkSession, topic: MakeTopic, read_topic, tmp_path: Path, moment: str
) -> None:
    source, out = topic(1), topic(1)
    produce(kafka, source, 0, range(5))
    stream = stream_of(spark, kafka, subscribe=source)
    take_all(stream, ExactlyOnceWriter(sink(kafka, out)), tmp_path)
    produce(kafka, source, 0, range(5, 10))
    stopped = threading.Event()
    # The answer comes when the query has been stopped; a delay alone would be a guess.
    fault = kafka.fault(moment, "delay", topic=source, delay_ms=3_000)

    with running(stream, ExactlyOnceWriter(sink(kafka, out)), tmp_path) as query:
        while not fault.fired:
            assert query.isActive, query.exception()
        query.stop()
        stopped.set()
    take_all(stream, ExactlyOnceWriter(sink(kafka, out)), tmp_path)

    assert values(read_topic(out)) == list(range(10))
    assert committed(kafka, f"p-{out}", source) == [10]


@pytest.mark.long
def test_a_batch_under_load_is_never_smaller_than_asked_before_the_delay_nor_larger_than_the_limit(
    kafka: AnyKafka, spark: SparkSession, topic: MakeTopic, tmp_path: Path
) -> None:
    source, seen, done = topic(2), Seen(), threading.Event()
    pace = {"minOffsetsPerTrigger": 40, "maxOffsetsPerTrigger": 70, "maxTriggerDelay": "5m"}

    def load() -> None:
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 0, "log_level": "0"})
        for number in range(600):
            producer.produce(source, b"%d" % number, partition=number % 2)
            producer.flush(30)
        done.set()

    thread = threading.Thread(target=load)
    thread.start()
    with running(stream_of(spark, kafka, subscribe=source, **pace), seen, tmp_path):
        thread.join(TIMEOUT_S)
        assert done.is_set()
        # What is left after the last batch is less than the least, so it waits for 5 minutes.
        while len(seen.numbers) <= 600 - 40:
            assert not done.wait(0) or thread.join(0.05) is None

    sizes = [len(rows) for _, rows in sorted(seen.batches.items())]
    assert max(sizes) <= 70
    # The first batch of a run never waits.
    assert all(size >= 40 for size in sizes[1:])
    assert seen.numbers == list(range(sum(sizes)))
    take_all(stream_of(spark, kafka, subscribe=source), seen, tmp_path)
    assert Counter(seen.numbers) == dict.fromkeys(range(600), 1)


@pytest.mark.long
def test_a_query_of_uncommitted_records_reads_open_and_aborted_ones_once_across_a_restart(
    kafka: AnyKafka, spark: SparkSession, topic: MakeTopic, tmp_path: Path
) -> None:
    source, seen = topic(1), Seen()
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": source, "log_level": "0"})
    producer.init_transactions(30)

    def write(numbers: range) -> None:
        producer.begin_transaction()
        for number in numbers:
            producer.produce(source, b"%d" % number, partition=0)
        assert producer.flush(30) == 0

    stream = stream_of(spark, kafka, subscribe=source, **{"kafka.isolation.level": "read_uncommitted"})
    write(range(5))
    take_all(stream, seen, tmp_path)
    assert seen.numbers == list(range(5))
    producer.abort_transaction(30)
    write(range(5, 8))

    take_all(stream, seen, tmp_path)

    assert seen.numbers == list(range(8))
    committed_only = Seen()
    take_all(stream_of(spark, kafka, subscribe=source), committed_only, tmp_path / "another")
    assert committed_only.numbers == []
    producer.commit_transaction(30)


@pytest.mark.long
def test_a_query_from_latest_reads_each_record_once_that_comes_after_its_first_position_is_logged(
    kafka: AnyKafka, spark: SparkSession, topic: MakeTopic, tmp_path: Path
) -> None:
    source, seen, enough = topic(1), Seen(), threading.Event()
    produce(kafka, source, 0, range(50))
    written: list[int] = []

    def load() -> None:
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 0, "log_level": "0"})
        for number in itertools.count(50):
            producer.produce(source, b"%d" % number, partition=0)
            producer.flush(30)
            written.append(number)
            if enough.is_set():
                return

    fails = [0]

    def fail_once(frame: DataFrame, batch_id: int) -> None:
        seen(frame, batch_id)
        if fails:
            fails.clear()
            raise RuntimeError("the first batch fails once")

    stream = stream_of(spark, kafka, subscribe=source, startingOffsets="latest")
    thread = threading.Thread(target=load)
    thread.start()
    try:
        assert "fails once" in failure(stream, fail_once, tmp_path)
        with running(stream, fail_once, tmp_path) as query:
            while max(seen.batches) < 4:
                assert query.isActive, query.exception()
    finally:
        enough.set()
        thread.join(TIMEOUT_S)
    take_all(stream, fail_once, tmp_path)

    # One partition and no markers: the n-th record is at offset n. The first batch's end says where it began.
    end = position_of(json.loads((tmp_path / "offsets" / "0").read_text().splitlines()[-1]))
    assert end.began is not None
    (first,) = end.began.offsets.values()
    assert 50 <= first <= seen.numbers[0]
    assert seen.numbers == list(range(first, len(written) + 50))


@pytest.mark.versions
@pytest.mark.parametrize("trigger", ["once", "availableNow"])
def test_a_run_of_one_batch_reads_from_a_time_although_another_partition_has_no_record_as_new(
    kafka: AnyKafka, spark: SparkSession, topic: MakeTopic, read_topic, tmp_path: Path, trigger: str
) -> None:
    source, out = topic(2), topic(1)
    produce(kafka, source, 0, range(5), timestamp=1_000)
    produce(kafka, source, 0, range(5, 25), timestamp=9_000)
    produce(kafka, source, 1, range(25, 30), timestamp=1_000)
    late = {"startingTimestamp": 9_000, "startingOffsetsByTimestampStrategy": "latest"}
    stream = stream_of(spark, kafka, subscribe=source, **late)

    assert run(stream, "foreachBatch", sink(kafka, out), tmp_path, **{trigger: True}) == ""

    assert values(read_topic(out)) == list(range(5, 25))
    assert committed(kafka, f"p-{out}", source, 2) == [25, 5]


@pytest.mark.parametrize("way", ["format", "foreachBatch"])
def test_a_query_with_async_progress_tracking_is_refused_with_the_reason_before_anything_is_written(
    kafka: AnyKafka, spark: SparkSession, topic: MakeTopic, read_topic, tmp_path: Path, way: str
) -> None:
    source, out = topic(1), topic(1)
    produce(kafka, source, 0, range(5))
    # Spark refuses it for every sink but its own, unless this check of Spark's is off.
    tracking = {
        "asyncProgressTrackingEnabled": "true", "_asyncProgressTrackingOverrideSinkSupportCheck": "true"
    }  # fmt: skip
    writer = stream_of(spark, kafka, subscribe=source).select("value").writeStream.options(**tracking)
    writer = writer.option("checkpointLocation", str(tmp_path))
    options = sink(kafka, out)
    if way == "format":
        writer = writer.format("kafka_eos").options(**options)
    else:
        writer = writer.foreachBatch(ExactlyOnceWriter(options))

    query = writer.start()
    with pytest.raises(
        StreamingQueryException, match=r"asyncProgressTrackingEnabled is .*it cannot be determined which"
    ):
        query.awaitTermination(TIMEOUT_S)

    assert read_topic(out, "read_uncommitted") == []


# ---- what a batch does


@pytest.mark.versions
def test_a_dataframe_written_inside_foreach_batch_is_there_once_also_when_the_batch_is_done_again(
    kafka: AnyKafka, spark: SparkSession, topic: MakeTopic, read_topic, tmp_path: Path
) -> None:
    source, out = topic(1), topic(1)
    produce(kafka, source, 0, range(5))
    fails = [0]

    def save(frame: DataFrame, batch_id: int) -> None:
        write = frame.select("value").write.format("kafka_eos").mode("append").options(**sink(kafka, out))
        write.option("batch.id", batch_id).save()
        if fails:
            fails.clear()
            raise RuntimeError("the batch fails after its write")

    stream = stream_of(spark, kafka, subscribe=source)
    assert "fails after its write" in failure(stream, save, tmp_path)
    produce(kafka, source, 0, range(5, 8))

    take_all(stream, save, tmp_path)

    assert values(read_topic(out)) == list(range(8))
    assert values(read_topic(out, "read_uncommitted")) == list(range(8))


@pytest.mark.long
def test_a_task_that_fails_after_others_have_sealed_leaves_nothing_and_the_next_run_writes_all_once(
    kafka: AnyKafka, spark: SparkSession, topic: MakeTopic, read_topic, tmp_path: Path
) -> None:
    source, out = topic(2), topic(1)
    produce(kafka, source, 0, range(5))
    produce(kafka, source, 1, range(5, 10))
    servers, flag = kafka.bootstrap_servers, tmp_path / "failed"

    def fail_last(batches: Iterator[Any]) -> Iterator[Any]:
        from confluent_kafka import Consumer, TopicPartition

        for batch in batches:
            if not flag.exists() and batch["value"][0].as_py() == b"5":
                # The other task's records are there, so it has only its seal left to give.
                settings = {"group.id": "waits", "isolation.level": "read_uncommitted"}
                consumer = Consumer({"bootstrap.servers": servers, **settings})
                while consumer.get_watermark_offsets(TopicPartition(out, 0), timeout=30)[1] < 5:
                    pass
                consumer.close()
                flag.touch()
                raise RuntimeError("the last task fails")
            yield batch

    stream = stream_of(spark, kafka, subscribe=source).select("value").mapInArrow(fail_last, "value binary")

    said = run(stream, "format", sink(kafka, out), tmp_path / "checkpoint")
    assert "the last task fails" in said
    assert len(read_topic(out, "read_uncommitted")) >= 5
    assert read_topic(out) == []
    assert run(stream, "format", sink(kafka, out), tmp_path / "checkpoint") == ""

    assert values(read_topic(out)) == list(range(10))
    assert committed(kafka, f"p-{out}", source, 2) == [5, 5]
