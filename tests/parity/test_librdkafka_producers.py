"""librdkafka's producers: idempotent, in transactions, fenced, and from topic to topic with the offsets inside."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from operator import itemgetter

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.parity.brokers import Broker
from tests.parity.clients import LIBRDKAFKA
from tests.parity.judge import WAIT_S, ends, new_name, new_topic, read, values_of, wait_until, write
from tests.support.brokers import settle

pytestmark = [pytest.mark.kafka, pytest.mark.parity]
PARTITIONS = 2
FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)


def transactional(broker: Broker, transactional_id: str, **settings: int | str) -> Producer:
    """A producer that has taken the transactional id over."""
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": transactional_id, **settings}
    )
    producer.init_transactions(WAIT_S)
    return producer


@pytest.mark.shows(LIBRDKAFKA, "idempotent producer: every report's offset is right, keys keep their order")
def test_what_the_idempotent_producer_reports_is_what_lies_there_once_and_in_order(broker: Broker) -> None:
    topic = new_topic(broker, PARTITIONS)
    reported: set[tuple[int | None, int | None, bytes | None]] = set()

    def delivered(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        reported.add((message.partition(), message.offset(), message.value()))

    producer = Producer(
        # Small batches: several requests are under way at once.
        {"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True, "batch.num.messages": 50}
    )
    for number in range(5_000):
        producer.produce(topic, b"%d" % number, key=b"%d" % (number % 7), on_delivery=delivered)
        producer.poll(0)
    assert producer.flush(WAIT_S) == 0
    found = read(broker, topic)
    assert len(found) == 5_000
    assert {(each.partition, each.offset, each.value) for each in found} == reported
    for key in range(7):
        of_key = [int(each.value or b"-1") for each in found if each.key == b"%d" % key]
        assert of_key == list(range(key, 5_000, 7))


@pytest.mark.shows(LIBRDKAFKA, "transactions: commit and abort over two partitions")
def test_readers_get_what_was_committed_and_only_uncommitted_ones_what_was_aborted(broker: Broker) -> None:
    topic = new_topic(broker, PARTITIONS)
    producer = transactional(broker, new_name("mixed"))
    committed: list[tuple[int, bytes]] = []
    everything: list[tuple[int, bytes]] = []
    for number in range(20):
        producer.begin_transaction()
        records = [
            (partition, b"%d.%d.%d" % (number, partition, each))
            for partition in range(PARTITIONS)
            for each in range(10)
        ]
        for partition, value in records:
            producer.produce(topic, value, partition=partition)
        assert producer.flush(WAIT_S) == 0
        everything += records
        if number % 3:
            producer.commit_transaction(WAIT_S)
            committed += records
        else:
            producer.abort_transaction(WAIT_S)

    def found(isolation: str) -> list[tuple[int, bytes | None]]:
        return [(each.partition, each.value) for each in read(broker, topic, isolation=isolation)]

    # Sorting is stable: within a partition the order is that of sending.
    assert found("read_committed") == sorted(committed, key=itemgetter(0))
    assert found("read_uncommitted") == sorted(everything, key=itemgetter(0))
    # One marker for each transaction and partition.
    assert ends(broker, topic, PARTITIONS) == dict.fromkeys(range(PARTITIONS), 220)


@pytest.mark.shows(LIBRDKAFKA, "a second producer fences the first, whose transaction is aborted")
def test_a_second_instance_fences_the_first_and_its_records_are_never_seen(broker: Broker) -> None:
    topic, transactional_id = new_topic(broker), new_name("fenced")
    first = transactional(broker, transactional_id)
    first.begin_transaction()
    first.produce(topic, b"first")
    assert first.flush(WAIT_S) == 0
    second = transactional(broker, transactional_id)
    with pytest.raises(KafkaException) as refused:
        first.commit_transaction(WAIT_S)
    assert refused.value.args[0].code() in FENCED
    assert refused.value.args[0].fatal()
    second.begin_transaction()
    second.produce(topic, b"second")
    second.commit_transaction(WAIT_S)
    assert values_of(broker, topic) == [b"second"]
    assert values_of(broker, topic, isolation="read_uncommitted") == [b"first", b"second"]


@pytest.mark.shows(LIBRDKAFKA, "a transaction past its timeout is aborted by the broker")
def test_an_overdue_transaction_is_aborted_and_holds_readers_back_no_longer(broker: Broker) -> None:
    topic = new_topic(broker)
    producer = transactional(broker, new_name("overdue"), **{"transaction.timeout.ms": 1_000})
    producer.begin_transaction()
    producer.produce(topic, b"overdue")
    assert producer.flush(WAIT_S) == 0
    write(broker, topic, [b"behind"])
    settle(broker.bootstrap_servers, topic)
    assert values_of(broker, topic) == [b"behind"]
    with pytest.raises(KafkaException):
        producer.commit_transaction(WAIT_S)
    assert values_of(broker, topic) == [b"behind"]


class Transformer:
    """Copies to the end of the source, each value doubled, in transactions of twenty; every third is aborted and done
    again.
    """

    def __init__(self, broker: Broker, source: str, target: str, group: str) -> None:
        self.ended = Counter[str]()
        self._target = target
        self._producer = transactional(broker, f"{group}.0")
        self._at_end: set[int | None] = set()
        settings = {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
        self.consumer = Consumer(settings)
        self.consumer.subscribe([source])

    def step(self) -> bool:
        """One transaction, if there is anything to read; whether the end of every partition is reached and
        committed.
        """
        records = []
        for message in self.consumer.consume(20, 0.05):
            if message.error() is None:
                records.append(message)
                self._at_end.discard(message.partition())
            else:
                self._at_end.add(message.partition())
        if records:
            self._transform(records)
        return len(self._at_end) == PARTITIONS

    def _transform(self, records: list[Message]) -> None:
        self._producer.begin_transaction()
        for message in records:
            self._producer.produce(self._target, (message.value() or b"") * 2, key=message.key())
        positions = [where for where in self.consumer.position(self.consumer.assignment()) if where.offset >= 0]
        self._producer.send_offsets_to_transaction(positions, self.consumer.consumer_group_metadata(), WAIT_S)
        if self.ended.total() % 3 != 2:
            self._producer.commit_transaction(WAIT_S)
            self.ended["committed"] += 1
            return
        # What is still queued would be dropped by librdkafka itself.
        assert self._producer.flush(WAIT_S) == 0
        self._producer.abort_transaction(WAIT_S)
        self.ended["aborted"] += 1
        for where in self.consumer.committed(self.consumer.assignment(), WAIT_S):
            self.consumer.seek(TopicPartition(where.topic, where.partition, max(where.offset, 0)))
        self._at_end.clear()


@pytest.mark.shows(LIBRDKAFKA, "consume-transform-produce with the offsets in the transaction, aborts and a restart")
def test_a_transformed_topic_is_complete_and_without_doubles_after_aborts_and_a_restart(
    broker: Broker,
) -> None:
    source, target, group = new_topic(broker, PARTITIONS), new_topic(broker), new_name("transform")
    expected = []
    for run in range(2):
        for partition in range(PARTITIONS):
            values = [b"%d.%d.%d;" % (run, partition, number) for number in range(100)]
            write(broker, source, values, partition)
            expected += [value * 2 for value in values]
        transformer = Transformer(broker, source, target, group)
        with closing(transformer.consumer):
            wait_until(transformer.step, "the end of the source is reached")
        assert transformer.ended["aborted"] > 0 and transformer.ended["committed"] > 0
        assert sorted(values_of(broker, target)) == sorted(expected)
    assert len(values_of(broker, target, isolation="read_uncommitted")) > len(expected)


@pytest.mark.shows(LIBRDKAFKA, "offsets of an open transaction are not handed out")
def test_an_offset_in_an_open_transaction_is_had_only_when_it_is_committed(broker: Broker) -> None:
    topic, group = new_topic(broker), new_name("pending")
    where = TopicPartition(topic, 0)
    producer = transactional(broker, new_name("pending"))
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": group}
    with closing(Consumer(settings)) as consumer:
        consumer.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
        producer.begin_transaction()
        producer.send_offsets_to_transaction([TopicPartition(topic, 0, 5)], consumer.consumer_group_metadata(), WAIT_S)
        # Neither the old nor the new one: the next instance has to wait for the decision.
        with pytest.raises(KafkaException) as refused:
            consumer.committed([where], 1.0)
        assert refused.value.args[0].code() in (KafkaError._TIMED_OUT, KafkaError.UNSTABLE_OFFSET_COMMIT)
        producer.commit_transaction(WAIT_S)
        wait_until(lambda: consumer.committed([where], WAIT_S)[0].offset == 5, "the committed offset is had")
