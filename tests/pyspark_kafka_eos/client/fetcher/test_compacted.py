"""A topic that the embedded broker has compacted, with gaps and empty batches, read by three readers that share no
code.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Assigned
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer
from kafka.structs import TopicPartition as Place

from embedded_kafka.embedded import EmbeddedKafka
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.reading.fetcher import Fetcher, OffsetRange
from tests.pyspark_kafka_eos.client.fetcher.conftest import Writers, judged, records_of
from tests.support.brokers import AnyKafka

pytestmark = [pytest.mark.kafka, pytest.mark.embedded]

Connect = Callable[[AnyKafka], Cluster]
Shown = list[tuple[int, bytes | None, bytes | None]]
NAME = "compacted"
WITHIN_S = 60
KEYS = 5


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedKafka]:
    """One that cleans often, with a compacted topic that has been cleaned."""
    settings = {"log.cleaner.backoff.ms": "50"}
    with EmbeddedKafka(in_process=True, config=settings) as started:
        configs = {"cleanup.policy": "compact", "segment.ms": "1000", "min.cleanable.dirty.ratio": "0.01"}
        admin = AdminClient({"bootstrap.servers": started.bootstrap_servers})
        admin.create_topics([NewTopic(NAME, 1, 1, config=configs)])[NAME].result(WITHIN_S)
        fill(started)
        deadline = time.monotonic() + WITHIN_S
        while len(by_librdkafka(started, "read_uncommitted")) > 3 * KEYS:
            assert time.monotonic() < deadline, "it was never cleaned"
        yield started


def fill(broker: EmbeddedKafka) -> None:
    """Plain records, transactions of both kinds and tombstones of few keys, in segments of a few records each."""
    writers = Writers(broker.bootstrap_servers, compression="lz4")
    plain, transactional = writers.plain(), writers.transactional("one")
    # Each later than the one before by more than segment.ms, and later than the markers, which have the broker's time.
    first_ms = int(time.time() * 1000)
    for number in range(60):
        producer: Producer = transactional if number % 3 == 0 else plain
        if producer is transactional:
            producer.begin_transaction()
        for each in range(2):
            value = None if number % 7 == 6 else b"%d-%d" % (number, each)
            key = b"k%d" % ((number + each) % KEYS)
            producer.produce(NAME, value, key, 0, timestamp=first_ms + number * 10_000)
        producer.flush()
        if producer is transactional and number % 2:
            producer.abort_transaction()
        elif producer is transactional:
            producer.commit_transaction()


def end_of(broker: EmbeddedKafka) -> int:
    with closing(Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "end"})) as consumer:
        return int(consumer.get_watermark_offsets(Assigned(NAME, 0), WITHIN_S)[1])


def by_librdkafka(broker: EmbeddedKafka, isolation: str) -> Shown:
    return [(each[1], each[2], each[3]) for each in judged(broker.bootstrap_servers, NAME, 1, isolation)]


def by_kafka_python(broker: EmbeddedKafka, isolation: str) -> Shown:
    found: Shown = []
    end, deadline = end_of(broker), time.monotonic() + WITHIN_S
    with closing(KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, isolation_level=isolation)) as consumer:
        consumer.assign([Place(NAME, 0)])
        consumer.seek(Place(NAME, 0), 0)
        while consumer.position(Place(NAME, 0)) < end:
            assert time.monotonic() < deadline, f"at {consumer.position(Place(NAME, 0))} of {end}"
            for records in consumer.poll(200).values():
                found += [(record.offset, record.key, record.value) for record in records]
    return found


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_three_readers_find_the_same_records_in_a_compacted_topic(
    broker: EmbeddedKafka, connect: Connect, isolation: str
) -> None:
    fetcher, deadline = Fetcher(connect(broker), isolation), time.monotonic() + WITHIN_S

    def by_ours() -> Shown:
        ours = records_of(fetcher.read_ranges([OffsetRange(TopicPartition(NAME, 0), 0, end_of(broker))]))
        return [(record[1], record[2], record[3]) for record in ours]

    found, others, after = (
        by_ours(),
        (by_librdkafka(broker, isolation), by_kafka_python(broker, isolation)),
        by_ours(),
    )
    while found != after:
        # The cleaner was at work between the reads.
        assert time.monotonic() < deadline, "it is never done with cleaning"
        found = after
        others, after = (by_librdkafka(broker, isolation), by_kafka_python(broker, isolation)), by_ours()

    assert others == (found, found)
    offsets = [offset for offset, _, _ in found]
    assert offsets != list(range(offsets[0], offsets[-1] + 1)), "there are gaps"
    assert {key for _, key, _ in found} <= {b"k%d" % number for number in range(KEYS)}


def test_every_range_of_a_compacted_topic_is_read_to_its_end(broker: EmbeddedKafka, connect: Connect) -> None:
    where = TopicPartition(NAME, 0)
    fetcher, end = Fetcher(connect(broker)), end_of(broker)
    everything = [record[1] for record in records_of(fetcher.read_ranges([OffsetRange(where, 0, end)]))]

    for start in range(0, end, 7):
        got = [record[1] for record in records_of(fetcher.read_ranges([OffsetRange(where, start, start + 5)]))]
        assert got == [offset for offset in everything if start <= offset < start + 5]
