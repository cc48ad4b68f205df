"""Java's producers and consumers: what they were told is acknowledged is there, once, and nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from embedded_kafka.child.processes import Child
from embedded_kafka.real import NEWEST_KAFKA, NEWEST_ZOOKEEPER_KAFKA
from tests.parity.brokers import Broker
from tests.parity.clients import JAVA, OLDER_JAVA
from tests.parity.java import java_process, java_tool
from tests.parity.judge import WAIT_S, ends, new_name, new_topic, read, values_of, wait_until, write
from tests.support.brokers import settle

pytestmark = [pytest.mark.kafka, pytest.mark.parity]
RECORDS = 5_000
PARTITIONS = 2
IN_TRANSACTIONS = "`ProducerPerformance` in transactions"


@pytest.mark.shows(JAVA, "`VerifiableProducer`, acks=all: every message acknowledged and there")
def test_every_message_that_the_verifiable_producer_calls_acknowledged_is_where_it_says(
    broker: Broker,
) -> None:
    topic = new_topic(broker, PARTITIONS)
    said = java_tool(
        "org.apache.kafka.tools.VerifiableProducer",
        *("--bootstrap-server", broker.bootstrap_servers, "--topic", topic),
        *("--max-messages", str(RECORDS), "--acks", "-1", "--repeating-keys", "100"),
    )
    lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    acknowledged = {
        (line["partition"], line["offset"], line["value"].encode())
        for line in lines
        if line["name"] == "producer_send_success"
    }
    assert len(acknowledged) == RECORDS
    found = read(broker, topic)
    assert {(each.partition, each.offset, each.value) for each in found} == acknowledged
    assert sorted(int(each.value or b"-1") for each in found) == list(range(RECORDS))


@pytest.mark.parametrize(
    "version",
    [
        pytest.param(NEWEST_KAFKA, marks=pytest.mark.shows(JAVA, IN_TRANSACTIONS), id="newest"),
        pytest.param(NEWEST_ZOOKEEPER_KAFKA, marks=pytest.mark.shows(OLDER_JAVA, IN_TRANSACTIONS), id="older"),
    ],
)
def test_the_performance_tool_commits_all_it_produces_in_transactions(broker: Broker, version: str) -> None:
    topic = new_topic(broker, PARTITIONS)
    said = java_tool(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", topic, "--num-records", str(RECORDS), "--record-size", "100", "--throughput", "5000"),
        *("--producer-props", f"bootstrap.servers={broker.bootstrap_servers}"),
        *("--transactional-id", new_name("performance"), "--transaction-duration-ms", "100"),
        version=version,
    )
    assert f"{RECORDS} records sent" in said
    assert len(values_of(broker, topic)) == RECORDS
    # What is no record is a marker: a second of transactions of 100 ms, of which each wrote to one partition at least.
    markers = sum(ends(broker, topic, PARTITIONS).values()) - RECORDS
    assert markers >= 5


@pytest.mark.shows(JAVA, "`ConsoleConsumer`, read_committed, in a group")
def test_the_console_consumer_prints_what_was_committed_and_nothing_aborted(broker: Broker) -> None:
    topic = new_topic(broker)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": new_name("console")})
    producer.init_transactions(WAIT_S)
    for number, commit in enumerate((True, False, True)):
        producer.begin_transaction()
        for each in range(50):
            producer.produce(topic, f"{number}.{each}", key=f"key-{each}")
        producer.flush(WAIT_S)
        if commit:
            producer.commit_transaction(WAIT_S)
        else:
            producer.abort_transaction(WAIT_S)
    settle(broker.bootstrap_servers, topic)
    said = java_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", broker.bootstrap_servers, "--topic", topic, "--from-beginning"),
        *("--isolation-level", "read_committed", "--max-messages", "100", "--timeout-ms", "60000"),
        *("--group", new_name("console"), "--formatter-property", "print.key=true"),
    )
    assert said.splitlines() == [f"key-{each}\t{number}.{each}" for number in (0, 2) for each in range(50)]


class Copiers:
    """TransactionalMessageCopier, one for each partition, with what they print."""

    def __init__(self, broker: Broker, directory: Path) -> None:
        self._broker = broker
        self._directory = directory
        self._group = new_name("copiers")
        self._running: list[Child] = []
        self.source = new_topic(broker, PARTITIONS)
        self.target = new_topic(broker, PARTITIONS)

    def start(self, partition: int) -> tuple[Child, Path]:
        """A copier of that partition, under the partition's transactional id; and what it prints."""
        log = self._directory / f"copier-{len(self._running)}.log"
        child = java_process(
            "org.apache.kafka.tools.TransactionalMessageCopier",
            *("--broker-list", self._broker.bootstrap_servers, "--consumer-group", self._group),
            *(
                "--input-topic",
                self.source,
                "--input-partition",
                str(partition),
                "--output-topic",
                self.target,
            ),
            *("--transactional-id", f"{self._group}.{partition}", "--transaction-size", "20"),
            # An offset that the killed one left pending is waited for until its transaction has timed out.
            *("--transaction-timeout", "5000", "--enable-random-aborts", "--use-group-metadata"),
            log_path=log,
        )
        self._running.append(child)
        return child, log

    def stop(self) -> None:
        """End what still runs."""
        for child in self._running:
            child.kill_tree()


@pytest.fixture
def copiers(broker: Broker, tmp_path: Path) -> Iterator[Copiers]:
    """Two empty topics, and nothing running afterwards."""
    found = Copiers(broker, tmp_path)
    yield found
    found.stop()


def copied(log: Path) -> int:
    """How many messages a copier says that it has committed."""
    return max(map(int, re.findall(r'"totalProcessed":(\d+)', log.read_text())), default=0)


@pytest.mark.shows(JAVA, "`TransactionalMessageCopier`: two, random aborts, SIGKILL and restart")
def test_copiers_copy_exactly_once_although_they_abort_at_random_and_one_is_killed(
    broker: Broker, copiers: Copiers
) -> None:
    messages = 2_000
    for partition in range(PARTITIONS):
        values = [f"{partition}.{number}".encode() for number in range(messages)]
        write(broker, copiers.source, values, partition)

    (victim, log), (other, other_log) = copiers.start(0), copiers.start(1)
    wait_until(lambda: copied(log) >= 100, "the victim has committed something")
    assert victim.kill() == -9
    assert copied(log) < messages, "the victim was done before it could be killed"
    successor, successor_log = copiers.start(0)

    assert other.wait(int(WAIT_S * 1000)) == 0, other_log.read_text()[-3000:]
    assert successor.wait(int(WAIT_S * 1000)) == 0, successor_log.read_text()[-3000:]
    assert copied(other_log) == messages
    copies, originals = (
        [(each.partition, each.value) for each in read(broker, topic)] for topic in (copiers.target, copiers.source)
    )
    assert copies == originals
    # The aborts were real.
    assert len(values_of(broker, copiers.target, isolation="read_uncommitted")) > PARTITIONS * messages
