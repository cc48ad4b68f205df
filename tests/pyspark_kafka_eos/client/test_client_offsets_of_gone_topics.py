"""A group's offsets in a transaction, where one of the topics was deleted since they were read."""

from __future__ import annotations

import logging
import uuid

import pytest

from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.reading.offsets import Offsets
from pyspark_kafka_eos.client.requests import transactions
from pyspark_kafka_eos.client.writing.producer import Producer
from pyspark_kafka_eos.model import placed
from tests.pyspark_kafka_eos.client.client_tools import Broker

pytestmark = pytest.mark.kafka


def test_the_group_gets_the_offsets_of_the_topics_that_are_there_and_the_transaction_is_committed(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(transactions, "GONE_MS", 200)
    there, gone = TopicPartition(broker.topic(), 0), TopicPartition(f"gone-{uuid.uuid4()}", 3)
    group = f"group-{uuid.uuid4()}"
    producer = Producer(broker.cluster, f"id-{uuid.uuid4()}", transaction_timeout_ms=60_000)
    producer.initialize()
    producer.begin()

    with caplog.at_level(logging.WARNING, "pyspark_kafka_eos.client.requests.transactions"):
        producer.send_offsets(group, {there: 7, gone: 9})
    producer.commit()

    # Asked by name: offsets of a partition that has none but undecided ones are in no list of all.
    assert Offsets(broker.cluster).committed(group, [there]) == placed({there: 7})
    assert f"group {group} gets no offsets of {gone}: the topic is gone" in caplog.text


def test_a_transaction_with_nothing_but_offsets_of_a_topic_that_is_gone_can_be_ended(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "GONE_MS", 200)
    gone = TopicPartition(f"gone-{uuid.uuid4()}", 0)
    group = f"group-{uuid.uuid4()}"
    producer = Producer(broker.cluster, f"id-{uuid.uuid4()}", transaction_timeout_ms=60_000)
    producer.initialize()
    producer.begin()

    producer.send_offsets(group, {gone: 9})
    producer.abort()

    assert Offsets(broker.cluster).committed(group) == {}
