"""What another client reads of a topic as committed, one value after another.

Owns: librdkafka's settings of a reader that nothing moves on, the end of each partition.
Does not know: which values are right.
Invariants:
- The end is the one at the beginning: a topic that a query goes on writing to has no other that a reader would reach.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition


class Unreadable(Exception):
    """The topic could not be read to its end."""


def committed(settings: Mapping[str, Any], topic: str, partitions: int, wait_s: float) -> Iterator[bytes]:
    """The value of every committed record, up to the end that each partition has now; a record without one gives b"".
    `settings`: how librdkafka connects. Unreadable after an error, or after `wait_s` without an answer.
    """
    reader = Consumer({
        **settings, "group.id": "judge", "isolation.level": "read_committed", "enable.auto.commit": False,
        "enable.partition.eof": True, "auto.offset.reset": "earliest",
    })  # fmt: skip
    try:
        ends = {
            number: reader.get_watermark_offsets(TopicPartition(topic, number), timeout=wait_s)[1]
            for number in range(partitions)
        }
        reader.assign([TopicPartition(topic, number, 0) for number in ends])
        while ends:
            message = reader.poll(wait_s)
            if message is None:
                raise Unreadable(f"the judge got no answer about {topic}")
            error = message.error()
            # A marker is no message, so a partition ends behind its last one or where another comes after it.
            if error is None and message.offset() < ends.get(message.partition(), 0):
                yield message.value() or b""
            elif error is None or error.code() == KafkaError._PARTITION_EOF:
                if ends.pop(message.partition(), None) is not None:
                    reader.incremental_unassign([TopicPartition(topic, message.partition())])
            else:
                raise Unreadable(str(error))
    finally:
        reader.close()
