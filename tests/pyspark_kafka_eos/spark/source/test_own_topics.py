"""A pattern reads what users write: neither the ledger nor the turns, whatever they are called and whoever made
them.
"""

from __future__ import annotations

import json
import logging

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from embedded_kafka.embedded import EmbeddedKafka
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.commit.ledger.topic import Ledger
from pyspark_kafka_eos.options.sink import DEFAULT_LEDGER_TOPIC
from pyspark_kafka_eos.slot.turn_log import prepare_turns, turns_topic
from pyspark_kafka_eos.spark.source.source import KafkaStreamReader
from pyspark_kafka_eos.spark.source.source_view import SourceView
from tests.conftest import MakeTopic
from tests.pyspark_kafka_eos.commit.requests import counting
from tests.pyspark_kafka_eos.spark.source.positions import bare
from tests.pyspark_kafka_eos.spark.source.test_view import options_of, write
from tests.support.brokers import AnyKafka

pytestmark = pytest.mark.kafka


def with_a_pipeline(kafka: AnyKafka, ledger: str) -> None:
    """What a pipeline of another application makes at its first start."""
    cluster = Cluster.shared(options_of(kafka, subscribe="t").client)
    Ledger(cluster, ledger, "p").prepare()
    prepare_turns(cluster, turns_topic(ledger), "p")


def found_by(kafka: AnyKafka, **asked: str) -> set[str]:
    """The topics that a new query reads."""
    return {where.topic for where in SourceView(options_of(kafka, **asked)).partitions()}  # type: ignore[arg-type]


@pytest.mark.parametrize("named", ["by default", "by the sink's option"])
def test_a_pattern_leaves_out_the_ledger_and_the_turns_and_a_name_reads_them(
    kafka: AnyKafka, topic: MakeTopic, caplog: pytest.LogCaptureFixture, named: str
) -> None:
    user = topic(1)
    ledger = DEFAULT_LEDGER_TOPIC if named == "by default" else f"{user}-decisions"
    with_a_pipeline(kafka, ledger)

    with caplog.at_level(logging.WARNING):
        assert found_by(kafka, subscribePattern=f"^({ledger}|{user})") == {user}

    assert f"subscribePattern matches {ledger}, {ledger}-turns, which this connector keeps for itself" in caplog.text
    assert found_by(kafka, subscribe=f"{ledger},{ledger}-turns") == {ledger, f"{ledger}-turns"}
    assert found_by(kafka, assign=json.dumps({ledger: [0]})) == {ledger}


@pytest.mark.embedded
def test_the_default_names_are_left_out_also_where_an_operator_made_them() -> None:
    """On a broker of its own: elsewhere a pipeline has made them, with the mark."""
    names = [DEFAULT_LEDGER_TOPIC, turns_topic(DEFAULT_LEDGER_TOPIC)]
    with EmbeddedKafka(in_process=True) as alone:
        admin = AdminClient({"bootstrap.servers": alone.bootstrap_servers})
        for made in admin.create_topics([NewTopic(name, 1) for name in names], operation_timeout=30).values():
            made.result(30)

        assert found_by(alone, subscribePattern=f"^{DEFAULT_LEDGER_TOPIC}") == set()


@pytest.mark.embedded
def test_a_ledger_that_comes_later_is_left_out_too_and_a_batch_is_planned_without_another_question(
    kafka: EmbeddedKafka, topic: MakeTopic
) -> None:
    name = topic(1)
    write(kafka, name, 3)
    reader = KafkaStreamReader(options_of(kafka, "stream", subscribePattern=f"^{name}", startingOffsets="earliest"))
    first = reader.latestOffset(reader.initialOffset(), None)
    with_a_pipeline(kafka, f"{name}-ledger")
    write(kafka, name, 3)

    with counting(kafka) as counter:
        second = reader.latestOffset(first, None)
        assert counter.taken().get("DescribeConfigs", 0) == 1
        assert reader.latestOffset(second, None) == second
        assert "DescribeConfigs" not in counter.taken()
    assert bare(second) == {name: {"0": 6}}


@pytest.mark.embedded
def test_a_user_who_may_not_read_settings_reads_what_the_pattern_matches(
    kafka: EmbeddedKafka, topic: MakeTopic
) -> None:
    name = topic(1)
    fault = kafka.fault("DescribeConfigs", "error", code="TOPIC_AUTHORIZATION_FAILED")

    assert found_by(kafka, subscribePattern=f"^{name}$") == {name}
    assert fault.fired == 1
