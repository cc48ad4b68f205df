"""What a test of the commit writes, and what an independent reader (librdkafka) finds of it."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from tests.conftest import topics_of
from tests.support.brokers import AnyKafka

ROWS = [[f"slot-{slot} row-{row} " + "x" * 200 for row in range(400)] for slot in range(3)]
EXPECTED = Counter(value for values in ROWS for value in values)


def settings_for(broker: AnyKafka, batch: int = 0) -> dict[str, Any]:
    topic = topics_of(broker)()
    source = topics_of(broker)()
    return {
        "options": {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "pipeline": f"pipe-{topic}",
            "topic": topic,
            "kafka.batch.size": "8192",
        },
        "query": "query-1",
        "batch": batch,
        "rows": ROWS,
        "offsets": [[source, 0, 17], [source, 3, 4]],
    }


def read_all(broker: AnyKafka, topic: str, isolation: str = "read_committed") -> Counter[str]:
    """The values in all partitions."""
    return Counter(itertools.chain.from_iterable(read_in_order(broker, topic, isolation).values()))


def read_in_order(broker: AnyKafka, topic: str, isolation: str = "read_committed") -> dict[int, list[str]]:
    """The values of each partition, in the order of their offsets."""
    found = _messages_by_partition(broker, topic, isolation)
    return {number: [message.value().decode() for message in messages] for number, messages in found.items()}


def messages_of(broker: AnyKafka, topic: str, isolation: str = "read_committed") -> list[Message]:
    """Every message, a partition behind the other."""
    return list(itertools.chain.from_iterable(_messages_by_partition(broker, topic, isolation).values()))


def _messages_by_partition(broker: AnyKafka, topic: str, isolation: str) -> dict[int, list[Message]]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "judge",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            # What the broker holds a read at the end of a log for; hundreds of these reads are most of a test's time.
            "fetch.wait.max.ms": 10,
        }
    )
    try:
        # Asked by number: librdkafka takes half a second longer to find a beginning by itself.
        numbers = sorted(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
        starts = [_beginning(consumer, TopicPartition(topic, number)) for number in numbers]
        consumer.assign([TopicPartition(topic, number, start) for number, start in enumerate(starts)])
        found: dict[int, list[Message]] = {number: [] for number in numbers}
        ended: set[int] = set()
        while len(ended) < len(numbers):
            for message in consumer.consume(500, timeout=0.2):
                if message.error():
                    ended.add(message.partition())
                else:
                    found[message.partition()].append(message)
        return found
    finally:
        consumer.close()


def _beginning(consumer: Consumer, where: TopicPartition) -> int:
    """The first offset. A real broker says for a moment after a topic is made that it does not lead the partition."""
    deadline = time.monotonic() + 30
    while True:
        try:
            return int(consumer.get_watermark_offsets(where, 30)[0])
        except KafkaException as error:
            if error.args[0].code() != KafkaError.NOT_LEADER_FOR_PARTITION or time.monotonic() > deadline:
                raise
        time.sleep(0.05)


def committed_offsets(broker: AnyKafka, settings: dict[str, Any]) -> list[list[Any]]:
    """The group's offsets; -1001 for none. Asked without waiting for a decision that is still open: librdkafka asks
    for stable offsets only, again and again, where the consumer is read_committed."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": settings["options"]["pipeline"],
            "isolation.level": "read_uncommitted",
        }
    )
    try:
        wanted = [TopicPartition(topic, number) for topic, number, _ in settings["offsets"]]
        return [[each.topic, each.partition, each.offset] for each in consumer.committed(wanted, timeout=30)]
    finally:
        consumer.close()
