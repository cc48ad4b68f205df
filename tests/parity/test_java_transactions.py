"""Kafka's tool for transactions: it sees an open one, knows that it is not hanging, and ends it from outside."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from tests.parity.brokers import Broker
from tests.parity.clients import JAVA
from tests.parity.java import java_tool, rows
from tests.parity.judge import WAIT_S, ends, new_name, new_topic, values_of, write
from tests.support.brokers import settle

pytestmark = [pytest.mark.kafka, pytest.mark.parity]
HOUR_MS = 3_600_000
FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)


def transactions(broker: Broker, *arguments: str) -> str:
    """TransactionsCommand's words."""
    command = ("--bootstrap-server", broker.bootstrap_servers, *arguments)
    return java_tool("org.apache.kafka.tools.TransactionsCommand", *command)


class Open:
    """A transaction of librdkafka that stays open, with three records of an hour ago in the only partition."""

    def __init__(self, broker: Broker) -> None:
        self.topic = new_topic(broker)
        self.id = new_name("open")
        self.producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": self.id})
        self.producer.init_transactions(WAIT_S)
        self.producer.begin_transaction()
        for value in (b"a", b"b", b"c"):
            # Older than any transaction may be: find-hanging has to look at it.
            self.producer.produce(self.topic, value, timestamp=int(time.time() * 1000) - HOUR_MS)
        assert self.producer.flush(WAIT_S) == 0


@pytest.fixture
def opened(broker: Broker) -> Open:
    """A transaction that nobody has ended yet."""
    return Open(broker)


@pytest.mark.shows(JAVA, "`TransactionsCommand` list, describe, describe-producers, find-hanging")
def test_the_tool_sees_an_open_transaction_and_that_it_does_not_hang(broker: Broker, opened: Open) -> None:
    listed = {row["TransactionalId"]: row for row in rows(transactions(broker, "list"))}
    assert listed[opened.id]["TransactionState"] == "Ongoing"
    producer_id = listed[opened.id]["ProducerId"]

    [described] = rows(transactions(broker, "describe", "--transactional-id", opened.id))
    assert described["TransactionState"] == "Ongoing"
    assert described["ProducerId"] == producer_id
    assert described["TopicPartitions"] == f"{opened.topic}-0"
    assert int(described["TransactionTimeoutMs"]) == 60_000

    where = ("--topic", opened.topic, "--partition", "0")
    [producer] = rows(transactions(broker, "describe-producers", *where))
    assert producer["ProducerId"] == producer_id
    assert producer["ProducerEpoch"] == described["ProducerEpoch"]
    assert producer["LastSequence"] == "2"
    assert producer["CurrentTransactionStartOffset"] == "0"

    assert rows(transactions(broker, "find-hanging", *where)) == []

    opened.producer.commit_transaction(WAIT_S)
    assert values_of(broker, opened.topic) == [b"a", b"b", b"c"]
    [producer] = rows(transactions(broker, "describe-producers", *where))
    assert producer["CurrentTransactionStartOffset"] == "None"
    assert rows(transactions(broker, "describe", "--transactional-id", opened.id))[0]["TransactionState"] == (
        "CompleteCommit"
    )


@pytest.mark.shows(JAVA, "`TransactionsCommand` abort: the marker of a transaction written by hand")
def test_the_tool_aborts_a_transaction_in_one_partition_and_readers_go_on(broker: Broker, opened: Open) -> None:
    write(broker, opened.topic, [b"behind"])
    assert values_of(broker, opened.topic, settled=False) == []
    transactions(broker, "abort", "--topic", opened.topic, "--partition", "0", "--start-offset", "0")
    assert values_of(broker, opened.topic) == [b"behind"]
    # Three records of the transaction, the one behind them, the marker.
    assert ends(broker, opened.topic, 1) == {0: 5}


@pytest.mark.shows(JAVA, "`TransactionsCommand` forceTerminateTransaction")
def test_the_tool_ends_an_open_transaction_and_its_producer_is_fenced(broker: Broker, opened: Open) -> None:
    transactions(broker, "forceTerminateTransaction", "--transactionalId", opened.id)
    settle(broker.bootstrap_servers, opened.topic)
    assert values_of(broker, opened.topic) == []
    with pytest.raises(KafkaException) as refused:
        opened.producer.commit_transaction(WAIT_S)
    assert refused.value.args[0].code() in FENCED
    [described] = rows(transactions(broker, "describe", "--transactional-id", opened.id))
    assert described["TransactionState"] == "Empty"
