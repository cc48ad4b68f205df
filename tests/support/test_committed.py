"""The judge of the soak and of the mistakes reads a topic that somebody goes on writing to."""

from __future__ import annotations

import threading
from collections import Counter

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.brokers import AnyKafka
from tests.support.committed import committed

pytestmark = pytest.mark.kafka
PARTITIONS = 3


def test_it_ends_where_each_partition_ended_when_it_began(kafka: AnyKafka) -> None:
    servers = {"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0}
    admin = AdminClient(servers)
    admin.create_topics([NewTopic("busy", PARTITIONS, 1)])["busy"].result(30)
    producer = Producer({**servers, "transactional.id": "busy", "linger.ms": 0})
    producer.init_transactions(30)

    def write(name: str) -> None:
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.produce("busy", name, partition=partition)
        producer.commit_transaction(30)

    for number in range(50):
        write(f"before {number}")
    over = threading.Event()

    def go_on() -> None:
        while not over.is_set():
            write("later")

    # Faster than a Fetch waits for records, so no answer is ever empty.
    writer = threading.Thread(target=go_on)
    writer.start()
    try:
        found = Counter(value.decode() for value in committed(servers, "busy", PARTITIONS, 30))
    finally:
        over.set()
        writer.join()

    found.pop("later", None)
    assert found == {f"before {number}": PARTITIONS for number in range(50)}


def test_an_empty_partition_and_a_value_that_is_missing(kafka: AnyKafka) -> None:
    servers = {"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0}
    admin = AdminClient(servers)
    admin.create_topics([NewTopic("quiet", PARTITIONS, 1)])["quiet"].result(30)
    producer = Producer(servers)
    producer.produce("quiet", None, key="k", partition=1)
    assert producer.flush(30) == 0

    assert list(committed(servers, "quiet", PARTITIONS, 30)) == [b""]
