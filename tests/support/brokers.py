"""The broker that a test runs against: the embedded one, or with `--brokers real` Apache Kafka itself.

Owns: what tests may ask of either.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Protocol

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

_WAIT_S = 60.0


class AnyKafka(Protocol):
    """What `LocalKafka` and `EmbeddedKafka` have in common."""

    @property
    def bootstrap_servers(self) -> str:
        """For a client's configuration."""

    @property
    def data_dir(self) -> Path:
        """Where the broker keeps its data."""


def delete_records(bootstrap_servers: str, topic: str, partition: int, before: int) -> int:
    """Delete a partition's records before an offset; the log's start after it.

    A broker that has just made the topic may not lead the partition yet; librdkafka does not ask again then.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    deadline = time.monotonic() + _WAIT_S
    pause = threading.Event()
    while True:
        (answer,) = admin.delete_records([TopicPartition(topic, partition, before)]).values()
        try:
            return int(answer.result(_WAIT_S).low_watermark)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.NOT_LEADER_FOR_PARTITION or time.monotonic() > deadline:
                raise
        pause.wait(0.05)


def settle(bootstrap_servers: str, topic: str) -> None:
    """Wait until no transaction is open in the topic; an AssertionError after a minute.

    A broker acknowledges a commit or an abort before it writes the markers, so readers of committed records stop for
    some milliseconds longer. Call it before an assertion on the last stable offset, and never with a transaction left
    open.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    partitions = [TopicPartition(topic, each) for each in admin.list_topics(topic, _WAIT_S).topics[topic].partitions]

    def ends(isolation: IsolationLevel) -> list[int]:
        answers = admin.list_offsets(
            {partition: OffsetSpec.latest() for partition in partitions}, isolation_level=isolation
        )
        return [answers[partition].result(_WAIT_S).offset for partition in partitions]

    deadline = time.monotonic() + _WAIT_S
    pause = threading.Event()
    while ends(IsolationLevel.READ_COMMITTED) != ends(IsolationLevel.READ_UNCOMMITTED):
        assert time.monotonic() < deadline, f"a transaction in {topic} did not end"
        pause.wait(0.01)
