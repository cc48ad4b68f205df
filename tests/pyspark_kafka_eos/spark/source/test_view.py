"""Which partitions a source reads and from where to where, on a real broker, without Spark."""

from __future__ import annotations

import pickle

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions
from confluent_kafka.cimpl import NewTopic

from kafka_core.errors import DataLoss, OptionsError, UnknownTopic
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.options import SourceOptions
from pyspark_kafka_eos.options.source import Mode
from pyspark_kafka_eos.spark.source.batch_source import KafkaBatchReader
from pyspark_kafka_eos.spark.source.source import KafkaPartition, KafkaStreamReader
from pyspark_kafka_eos.spark.source.source_view import SourceView
from tests.conftest import MakeTopic, spark_is_at_least
from tests.pyspark_kafka_eos.spark.source.positions import bare
from tests.support.brokers import AnyKafka, delete_records, settle
from tests.support.logs import said_by

pytestmark = pytest.mark.kafka
SECOND_MS = 1_000


def options_of(kafka: AnyKafka, mode: Mode = "batch", **options: object) -> SourceOptions:
    """Options for this broker."""
    given = {"kafka.bootstrap.servers": kafka.bootstrap_servers, **options}
    return SourceOptions.parse(given, mode)  # type: ignore[arg-type]


def write(kafka: AnyKafka, topic: str, *counts: int) -> None:
    """Add so many records to partition 0, 1, ...; the n-th of a partition is n seconds old in the epoch."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": "0"})
    for partition, count in enumerate(counts):
        for number in range(count):
            producer.produce(topic, b"%d" % number, partition=partition, timestamp=(number + 1) * SECOND_MS)
    assert producer.flush(30) == 0


def make(kafka: AnyKafka, *names: str) -> None:
    """Topics with names of the test's own, of one partition."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for answer in admin.create_topics([NewTopic(name, 1) for name in names], operation_timeout=30).values():
        answer.result(30)


def delete_before(kafka: AnyKafka, topic: str, offset: int) -> None:
    """What retention does."""
    delete_records(kafka.bootstrap_servers, topic, 0, offset)


def ranges_of(kafka: AnyKafka, **options: object) -> list[tuple[int, int, int]]:
    """Partition, start and end of what a batch reads."""
    planned = KafkaBatchReader(options_of(kafka, **options)).partitions()
    found = [each.offsets for each in planned if isinstance(each, KafkaPartition)]
    assert len(found) == len(planned)
    return [(each.where.partition, each.start, each.end) for each in found]


# ---- topics


def test_a_pattern_is_found_anywhere_in_a_name_and_never_in_kafkas_own_topics(
    kafka: AnyKafka, topic: MakeTopic
) -> None:
    name = topic(2)
    make(kafka, f"{name}.x", f"other-{name}")
    committed = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": name})
    committed.init_transactions(30)  # makes __transaction_state

    found = SourceView(options_of(kafka, subscribePattern=f"{name}|__")).partitions()

    assert found == [
        TopicPartition(f"other-{name}", 0), TopicPartition(name, 0), TopicPartition(name, 1),
        TopicPartition(f"{name}.x", 0)]  # fmt: skip
    assert SourceView(options_of(kafka, subscribePattern=f"^{name}$")).partitions() == found[1:3]


def test_a_pattern_without_a_topic_reads_nothing_until_there_is_one_and_then_all_of_it(
    kafka: AnyKafka, topic: MakeTopic
) -> None:
    name = f"{topic(1)}-later"
    reader = KafkaStreamReader(options_of(kafka, "stream", subscribePattern=name))
    start = reader.initialOffset()
    assert start == reader.latestOffset(start) == {}
    make(kafka, name)
    write(kafka, name, 3)

    end = reader.latestOffset(start)

    assert bare(end) == {name: {"0": 3}}
    assert [(each.offsets.start, each.offsets.end) for each in reader.partitions(start, end)] == [(0, 3)]


def test_only_assigned_partitions_are_read_also_when_the_topic_grows(kafka: AnyKafka, topic: MakeTopic) -> None:
    name = topic(3)
    write(kafka, name, 1, 2, 3)
    view = SourceView(options_of(kafka, assign=f'{{"{name}":[2,0]}}'))
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for answer in admin.create_partitions([NewPartitions(name, 5)]).values():
        answer.result(timeout=30)

    ends = {where: end.offset for where, end in view.ends().items()}
    assert ends == {TopicPartition(name, 0): 1, TopicPartition(name, 2): 3}


def test_an_assigned_partition_that_does_not_exist_is_named_before_anything_is_read(
    kafka: AnyKafka, topic: MakeTopic
) -> None:
    name = topic(2)

    with pytest.raises(UnknownTopic, match=f"{name}-7"):
        SourceView(options_of(kafka, assign=f'{{"{name}":[0,7]}}')).partitions()
    with pytest.raises(UnknownTopic, match="no-such-topic"):
        SourceView(options_of(kafka, assign='{"no-such-topic":[0]}')).partitions()


def test_a_view_travels_with_its_reader(kafka: AnyKafka, topic: MakeTopic) -> None:
    view = SourceView(options_of(kafka, subscribe=topic(1)))
    before = view.partitions()

    assert pickle.loads(pickle.dumps(view)).partitions() == before


# ---- beginnings and ends


def test_a_batch_reads_what_is_there_from_one_end_to_the_other(kafka: AnyKafka, topic: MakeTopic) -> None:
    name = topic(3)
    write(kafka, name, 4, 0, 2)

    assert ranges_of(kafka, subscribe=name) == [(0, 0, 4), (2, 0, 2)]


def test_a_batch_reads_between_the_offsets_that_it_is_given(kafka: AnyKafka, topic: MakeTopic) -> None:
    name = topic(2)
    write(kafka, name, 9, 9)
    start, end = f'{{"{name}":{{"0":3,"1":-2}}}}', f'{{"{name}":{{"0":-1,"1":5}}}}'

    assert ranges_of(kafka, subscribe=name, startingOffsets=start, endingOffsets=end) == [
        (0, 3, 9),
        (1, 0, 5),
    ]


def test_a_time_begins_at_the_first_record_that_is_not_older_and_ends_before_it(
    kafka: AnyKafka, topic: MakeTopic
) -> None:
    name = topic(1)
    write(kafka, name, 6)

    assert ranges_of(kafka, subscribe=name, startingTimestamp=3 * SECOND_MS) == [(0, 2, 6)]
    assert ranges_of(kafka, subscribe=name, startingTimestamp=3 * SECOND_MS + 1) == [(0, 3, 6)]
    assert ranges_of(kafka, subscribe=name, endingTimestamp=3 * SECOND_MS) == [(0, 0, 2)]
    assert ranges_of(kafka, subscribe=name, endingTimestamp=99 * SECOND_MS) == [(0, 0, 6)]
    by_partition = {
        "startingOffsetsByTimestamp": f'{{"{name}":{{"0":{2 * SECOND_MS}}}}}',
        "endingOffsetsByTimestamp": f'{{"{name}":{{"0":{5 * SECOND_MS}}}}}',
    }
    assert ranges_of(kafka, subscribe=name, **by_partition) == [(0, 1, 4)]


def test_a_beginning_that_no_record_is_as_new_as_stops_the_query_or_is_the_end(
    kafka: AnyKafka, topic: MakeTopic
) -> None:
    name = topic(2)
    write(kafka, name, 6, 1)
    late = {"subscribe": name, "startingTimestamp": 2 * SECOND_MS}

    with pytest.raises(OptionsError, match=f"No offset matched .* {name}-1 and timestamp 2000"):
        SourceView(options_of(kafka, **late)).beginning()
    tolerant = SourceView(options_of(kafka, **late, startingOffsetsByTimestampStrategy="latest"))
    assert tolerant.beginning() == {TopicPartition(name, 0): 1, TopicPartition(name, 1): 1}


@pytest.mark.versions
@pytest.mark.parametrize(
    "beginning",
    [
        {"startingOffsets": "latest"},
        {"startingOffsets": '{"TOPIC":{"0":2,"1":-1}}'},
        {"startingTimestamp": 3 * SECOND_MS, "startingOffsetsByTimestampStrategy": "latest"},
        {"startingTimestamp": 9 * SECOND_MS, "startingOffsetsByTimestampStrategy": "latest"},
    ],
)
def test_a_first_batch_reads_what_is_there_wherever_it_begins_and_the_same_when_it_is_done_again(
    kafka: AnyKafka, topic: MakeTopic, beginning: dict[str, object]
) -> None:
    name = topic(2)
    write(kafka, name, 6, 2)
    given = {option: str(value).replace("TOPIC", name) for option, value in beginning.items()}

    def reader() -> KafkaStreamReader:
        return KafkaStreamReader(options_of(kafka, "stream", subscribe=name, **given))

    first = reader()
    start = first.initialOffset()
    write(kafka, name, 1, 4)

    # With trigger(once=True), and before Spark 4.2 with availableNow, this batch is the run's only one.
    end = first.latestOffset(start, None)
    planned = first.partitions(start, end)

    assert bare(end) == {name: {"0": 7, "1": 6}}
    begins = {each.offsets.where.partition: each.offsets.start for each in planned}
    assert begins == {0: start[name]["0"], 1: 2}
    # Killed before that batch was done: the beginning is asked for again, when the partitions end elsewhere.
    write(kafka, name, 3, 3)
    again = reader()
    assert [each.offsets for each in again.partitions(again.initialOffset(), end)] == [each.offsets for each in planned]


def test_a_first_batch_that_is_done_again_after_retention_has_not_forgotten_what_it_was_to_read(
    kafka: AnyKafka, topic: MakeTopic
) -> None:
    name = topic(1)
    write(kafka, name, 6)
    options = options_of(kafka, "stream", subscribe=name, startingOffsets="earliest")
    first = KafkaStreamReader(options)
    end = first.latestOffset(first.initialOffset(), None)
    delete_before(kafka, name, 4)

    again = KafkaStreamReader(options)
    (planned,) = again.partitions(again.initialOffset(), end)

    assert (planned.offsets.start, planned.offsets.end) == (0, 6)
    with pytest.raises(DataLoss, match="offsets 0 to 3 are deleted"):
        list(again.read(planned))


@pytest.mark.parametrize("side", ["startingOffsetsByTimestamp", "endingOffsetsByTimestamp", "endingOffsets"])
def test_an_option_that_leaves_a_partition_out_is_refused(kafka: AnyKafka, topic: MakeTopic, side: str) -> None:
    name = topic(2)
    view = SourceView(options_of(kafka, subscribe=name, **{side: f'{{"{name}":{{"0":5}}}}'}))

    with pytest.raises(OptionsError, match=f"{side} must name every partition.*missing {name}-1"):
        view.ending(view.beginning())


def test_a_start_that_turns_out_to_lie_behind_the_end_is_refused(kafka: AnyKafka, topic: MakeTopic) -> None:
    name = topic(1)
    write(kafka, name, 6)
    start = f'{{"{name}":{{"0":4}}}}'

    with pytest.raises(OptionsError, match="resolved start offset 4 is greater than the resolved end offset 1"):
        ranges_of(kafka, subscribe=name, startingOffsets=start, endingTimestamp=2 * SECOND_MS)


def test_offsets_that_are_gone_or_not_there_yet_are_a_loss_unless_the_user_allows_it(
    kafka: AnyKafka, topic: MakeTopic
) -> None:
    name = topic(1)
    write(kafka, name, 6)
    delete_before(kafka, name, 3)
    too_early = {"subscribe": name, "startingOffsets": f'{{"{name}":{{"0":1}}}}'}
    too_late = {"subscribe": name, "endingOffsets": f'{{"{name}":{{"0":9}}}}'}

    with pytest.raises(DataLoss, match="offset 1, but the partition begins at 3"):
        ranges_of(kafka, **too_early)
    with pytest.raises(DataLoss, match="offset 9, but the partition ends at 6"):
        ranges_of(kafka, **too_late)
    assert ranges_of(kafka, **too_early, failOnDataLoss="false") == [(0, 3, 6)]
    assert ranges_of(kafka, **too_late, failOnDataLoss="false") == [(0, 3, 6)]


# ---- pace and tasks


def test_a_batch_is_divided_over_tasks_as_it_is_asked(kafka: AnyKafka, topic: MakeTopic) -> None:
    name = topic(1)
    write(kafka, name, 10)

    assert ranges_of(kafka, subscribe=name, minPartitions=2) == [(0, 0, 5), (0, 5, 10)]
    assert ranges_of(kafka, subscribe=name, maxRecordsPerPartition=4) == [(0, 0, 3), (0, 3, 6), (0, 6, 10)]


def test_a_micro_batch_is_divided_over_tasks_as_it_is_asked(kafka: AnyKafka, topic: MakeTopic) -> None:
    name = topic(1)
    write(kafka, name, 10)
    reader = KafkaStreamReader(options_of(kafka, "stream", subscribe=name, maxRecordsPerPartition=5))

    planned = reader.partitions({name: {"0": 0}}, {name: {"0": 10}})

    assert [(each.offsets.start, each.offsets.end) for each in planned] == [(0, 5), (5, 10)]


def test_a_micro_batch_waits_for_enough_offsets_but_not_for_ever(kafka: AnyKafka, topic: MakeTopic) -> None:
    name = topic(1)
    write(kafka, name, 2)
    pace = {"minOffsetsPerTrigger": 5, "maxTriggerDelay": "1m", "startingOffsets": "earliest"}
    now_s = 100.0
    reader = KafkaStreamReader(options_of(kafka, "stream", subscribe=name, **pace), lambda: now_s)
    start = reader.initialOffset()

    first = reader.latestOffset(start)
    write(kafka, name, 4)
    waiting = reader.latestOffset(first)
    write(kafka, name, 1)
    enough = reader.latestOffset(first)
    write(kafka, name, 1)
    now_s += 59
    waiting_again = reader.latestOffset(enough)
    now_s += 1
    after_the_delay = reader.latestOffset(enough)

    ends = [each[name]["0"] for each in (start, first, waiting, enough, waiting_again, after_the_delay)]
    assert ends == [0, 2, 2, 7, 7, 8]


def test_a_run_of_available_now_does_not_wait_for_more(kafka: AnyKafka, topic: MakeTopic) -> None:
    name = topic(1)
    write(kafka, name, 8)
    pace = {"minOffsetsPerTrigger": 5, "maxOffsetsPerTrigger": 5, "startingOffsets": "earliest"}
    reader = KafkaStreamReader(options_of(kafka, "stream", subscribe=name, **pace))
    reader.prepareForTriggerAvailableNow()

    ends = [reader.initialOffset()]
    while len(ends) < 2 or ends[-1] != ends[-2]:
        ends.append(reader.latestOffset(ends[-1], reader.getDefaultReadLimit()))

    assert [end[name]["0"] for end in ends] == [0, 5, 8, 8]


def test_a_run_that_ends_with_offsets_unread_says_so_where_spark_makes_it_one_batch(
    kafka: AnyKafka, topic: MakeTopic, caplog: pytest.LogCaptureFixture
) -> None:
    name = topic(1)
    write(kafka, name, 8)
    limited = {"maxOffsetsPerTrigger": 5, "startingOffsets": "earliest"}
    reader = KafkaStreamReader(options_of(kafka, "stream", subscribe=name, **limited))
    start = reader.initialOffset()
    end = reader.latestOffset()
    assert len(reader.partitions(start, end)) == 1

    reader.stop()

    said = [line for line in said_by(caplog, "pyspark_kafka_eos.spark.source.source") if "offsets unread" in line]
    before_admission_control = not spark_is_at_least(4, 2)
    assert len(said) == before_admission_control
    assert all("at least 3 offsets unread" in message for message in said)


def test_ranges_that_begin_and_end_in_markers_and_aborted_records_are_read_without_a_wait(
    kafka: AnyKafka, topic: MakeTopic
) -> None:
    name = topic(1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": name, "log_level": "0"})
    producer.init_transactions(30)
    committed = []
    for number in range(6):
        producer.begin_transaction()
        for _ in range(3):
            producer.produce(name, b"%d" % number, partition=0)
        producer.flush(30)
        if number % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
            committed += [b"%d" % number] * 3
    settle(kafka.bootstrap_servers, name)
    # A task for each offset, so that some have nothing but a marker or an aborted record.
    options = options_of(kafka, subscribe=name, maxRecordsPerPartition=1)
    reader = KafkaBatchReader(options)
    tasks = reader.partitions()
    assert len(tasks) == 6 * (3 + 1)

    read = [[value.as_py() for batch in reader.read(task) for value in batch["value"]] for task in tasks]

    assert [value for task in read for value in task] == committed
    assert read[4:8] == [[], [], [], []]
    # The same after retention has removed all of it.
    delete_before(kafka, name, 6 * (3 + 1))
    assert KafkaBatchReader(options).partitions() == []
    assert KafkaStreamReader(options).partitions({name: {"0": 24}}, {name: {"0": 24}}) == []
