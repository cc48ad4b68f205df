"""What another client reads of a topic as committed, one value after another.

Owns: librdkafka's settings of a reader that nothing moves on, the end of each partition.
Does not know: which values are right.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition


class Unreadable(Exception):
    """The topic could not be read to its end."""


def committed(settings: Mapping[str, Any], topic: str, partitions: int, wait_s: float) -> Iterator[bytes]:
    """The value of every committed record, up to the end of each partition; a record without one gives b"". `settings`: how
    librdkafka connects. Unreadable after an error, or after `wait_s` without an answer."""
    reader = Consumer({
        **settings, "group.id": "judge", "isolation.level": "read_committed", "enable.auto.commit": False,
        "enable.partition.eof": True, "auto.offset.reset": "earliest",
    })  # fmt: skip
    try:
        reader.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        ended = 0
        while ended < partitions:
            message = reader.poll(wait_s)
            if message is None:
                raise Unreadable(f"the judge got no answer about {topic}")
            error = message.error()
            if error is None:
                yield message.value() or b""
            elif error.code() == KafkaError._PARTITION_EOF:
                ended += 1
            else:
                raise Unreadable(str(error))
    finally:
        reader.close()
