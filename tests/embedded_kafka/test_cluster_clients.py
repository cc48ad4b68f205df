"""Foreign clients on three brokers while leaders and coordinators move and one broker is killed: every record once, in
order.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaProducer

from embedded_kafka import EmbeddedKafka
from tests.embedded_kafka.node_tools import until
from tests.parity.java import java_process

pytestmark = [pytest.mark.kafka, pytest.mark.embedded, pytest.mark.judged]

TRANSACTIONS = 24
EACH = 5
COPIED = 2_000
WITHIN_S = 60


@pytest.fixture(scope="module")
def kafka() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(brokers=3) as cluster:
        yield cluster


def happens(kafka: EmbeddedKafka, number: int, seed: int, *, same_port: bool = False) -> None:
    """Something to the cluster, before the commit of each transaction."""
    if number % 4 == 1:
        assert kafka.move_leaders(seed=seed + number) > 0
    elif number % 8 == 2:
        gone = kafka.coordinator_of(transactional_id=f"writer-{seed}")
        kafka.kill_broker(gone)
        assert kafka.coordinator_of(transactional_id=f"writer-{seed}") not in (gone, -1)
        kafka.start_broker(gone, port=None if same_port or number < 8 else 0)
    elif number % 4 == 3:
        before = kafka.coordinator_of(transactional_id=f"writer-{seed}")
        assert kafka.move_coordinator(transactional_id=f"writer-{seed}") != before


def test_librdkafka_writes_each_record_once_while_leaders_and_coordinators_move_and_a_broker_is_killed(
    kafka: EmbeddedKafka,
) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.create_topics([NewTopic("moved", 3, replication_factor=3)])["moved"].result(WITHIN_S)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": "writer-7"})
    producer.init_transactions(WITHIN_S)
    wanted: dict[int, list[int]] = {0: [], 1: [], 2: []}
    for number in range(TRANSACTIONS):
        producer.begin_transaction()
        for record in range(number * EACH, (number + 1) * EACH):
            producer.produce("moved", b"%d" % record, partition=record % 3)
        happens(kafka, number, 7)
        retried(producer.commit_transaction)
        for record in range(number * EACH, (number + 1) * EACH):
            wanted[record % 3].append(record)
    assert committed(kafka, "moved", TRANSACTIONS * EACH) == wanted


def retried(commit: Callable[[float], object]) -> None:
    """As librdkafka asks its callers to."""
    deadline = time.monotonic() + WITHIN_S
    while True:
        try:
            commit(WITHIN_S)
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise
        else:
            return


def test_kafka_python_writes_each_record_once_while_leaders_and_coordinators_move_and_a_broker_is_killed(
    kafka: EmbeddedKafka,
) -> None:
    """Where its coordinator refuses a connection, kafka-python may forget that it has partitions to add. The records
    wait until they fail, and the transaction is committed without them (`Sender._maybe_send_transactional_request`).
    Its futures say so, and what they call written is judged.
    """
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.create_topics([NewTopic("python", 3, replication_factor=3)])["python"].result(WITHIN_S)
    wanted: dict[int, list[int]] = {0: [], 1: [], 2: []}
    kills = 0
    with KafkaProducer(
        bootstrap_servers=kafka.bootstrap_servers,
        transactional_id="writer-11",
        request_timeout_ms=10_000,
        delivery_timeout_ms=20_000,
    ) as producer:
        producer.init_transactions()
        for number in range(TRANSACTIONS):
            producer.begin_transaction()
            records = range(number * EACH, (number + 1) * EACH)
            sent = [(record, producer.send("python", b"%d" % record, partition=record % 3)) for record in records]
            # It waits for as long as a request may take for a coordinator that came back under another port.
            happens(kafka, number, 11, same_port=True)
            kills += number % 8 == 2
            producer.commit_transaction()
            for record, written in sent:
                if written.succeeded():
                    wanted[record % 3].append(record)
    count = sum(map(len, wanted.values()))
    assert count >= (TRANSACTIONS - kills) * EACH
    assert committed(kafka, "python", count) == wanted


def test_javas_copiers_copy_exactly_once_while_leaders_and_coordinators_move_and_a_broker_is_killed(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    """Offsets move with the records, so the groups' coordinators move as well. One copier for each partition, and a
    trouble whenever both have copied some more."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for made in admin.create_topics(
        [NewTopic(name, 2, replication_factor=3) for name in ("source", "copies")]
    ).values():
        made.result(WITHIN_S)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in range(COPIED):
        producer.produce("source", b"%d" % number, partition=number % 2)
    assert producer.flush(WITHIN_S) == 0
    logs = [tmp_path / f"copier-{partition}.log" for partition in range(2)]
    copiers = [
        java_process(
            "org.apache.kafka.tools.TransactionalMessageCopier",
            *("--broker-list", kafka.bootstrap_servers, "--consumer-group", "copiers", "--input-topic", "source"),
            *("--input-partition", str(partition), "--output-topic", "copies", "--use-group-metadata"),
            *("--transactional-id", f"writer-{partition}", "--transaction-size", "10", "--enable-random-aborts"),
            log_path=log,
        )
        for partition, log in enumerate(logs)
    ]
    try:
        for trouble, more in enumerate(range(COPIED // 20, COPIED // 2, COPIED // 20)):
            until(lambda more=more: all(done(log) >= more for log in logs))  # type: ignore[misc]
            # Of writer-0 and of writer-1 in turn.
            happens(kafka, trouble, trouble % 2, same_port=True)
            kafka.move_coordinator(group_id="copiers")
        for copier, log in zip(copiers, logs, strict=True):
            assert copier.wait(WITHIN_S * 1000) == 0, log.read_text()[-3000:]
    finally:
        for copier in copiers:
            copier.kill_tree()
    wanted = {partition: list(range(partition, COPIED, 2)) for partition in range(2)}
    assert committed(kafka, "copies", COPIED) == {**wanted, 2: []}


def done(log: Path) -> int:
    """How many messages a copier says that it has committed."""
    return max(map(int, re.findall(r'"totalProcessed":(\d+)', log.read_text() if log.exists() else "")), default=0)


def committed(kafka: EmbeddedKafka, topic: str, count: int) -> dict[int, list[int]]:
    """What a reader of committed records gets of each partition, while leaders and its coordinator move."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers, "group.id": f"{topic}-readers", "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )  # fmt: skip
    found: dict[int, list[int]] = {0: [], 1: [], 2: []}
    try:
        consumer.subscribe([topic])
        deadline = time.monotonic() + WITHIN_S
        while sum(map(len, found.values())) < count:
            assert time.monotonic() < deadline, {where: len(values) for where, values in found.items()}
            message = consumer.poll(1)
            if message is None or message.error() is not None:
                continue
            value = message.value()
            partition = message.partition()
            assert value is not None and partition is not None
            found[partition].append(int(value))
            if sum(map(len, found.values())) == count // 2:
                kafka.move_leaders(topic, seed=count)
                kafka.move_coordinator(group_id=f"{topic}-readers")
        assert consumer.poll(0.5) is None, "nothing comes twice"
    finally:
        consumer.close()
    return found
