"""Faults of one broker of several: the others answer as always."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from embedded_kafka import EmbeddedKafka
from embedded_kafka.wire.server import MetadataRequest
from kafka_core.errors import OptionsError
from kafka_core.protocol.error_codes import Code
from tests.embedded_kafka.node_tools import ask_over_the_wire

pytestmark = [pytest.mark.kafka, pytest.mark.embedded]


@pytest.fixture(scope="module")
def kafka() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(brokers=3) as cluster:
        ask(cluster, 0, create=True)
        yield cluster


def ask(kafka: EmbeddedKafka, broker: int, *, create: bool = False) -> Code:
    """The code of the topic in the metadata of one broker; ConnectionError."""
    address = kafka.bootstrap_servers.split(",")[broker]
    topics = [MetadataRequest.MetadataRequestTopic(name="t")]
    request = MetadataRequest(version=8, topics=topics, allow_auto_topic_creation=create)
    (topic,) = ask_over_the_wire(address, request).topics
    return Code(topic.error_code)


def test_a_fault_of_one_broker_is_met_by_no_request_at_another(kafka: EmbeddedKafka) -> None:
    fault = kafka.fault("Metadata", "drop-request", broker=1)
    assert [ask(kafka, 0), ask(kafka, 2)] == [Code.NONE, Code.NONE]
    assert fault.fired == 0
    with pytest.raises(ConnectionError):
        ask(kafka, 1)
    assert fault.fired == 1
    assert ask(kafka, 1) is Code.NONE


def test_answers_of_one_broker_are_altered_and_those_of_the_others_are_not(kafka: EmbeddedKafka) -> None:
    fault = kafka.fault_in_answer("Metadata", "leave-out-topic", topic="t", broker=2)
    assert [ask(kafka, 0), ask(kafka, 1)] == [Code.NONE, Code.NONE]
    assert fault.fired == 0
    assert ask(kafka, 2) is Code.UNKNOWN_TOPIC_OR_PARTITION
    assert fault.fired == 1


@pytest.mark.parametrize("broker", [3, -1, "1"])
def test_a_broker_that_there_is_none_of_is_refused(kafka: EmbeddedKafka, broker: object) -> None:
    with pytest.raises(OptionsError, match="broker"):
        kafka.fault("Metadata", "drop-request", broker=broker)  # type: ignore[arg-type]
