"""A topic's settings, asked of a broker that has not heard of the topic yet."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from embedded_kafka.embedded import EmbeddedKafka
from kafka_core.errors import UnknownTopic
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.requests import admin
from pyspark_kafka_eos.model import ClientSettings

pytestmark = [pytest.mark.kafka, pytest.mark.embedded]


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka() as broker:
        yield broker


def test_one_answer_that_does_not_know_a_topic_is_no_proof_that_it_is_missing(broker: EmbeddedKafka) -> None:
    cluster = Cluster(ClientSettings((broker.bootstrap_servers,)))
    admin.ensure_topic(cluster, "made-a-moment-ago", partitions=1, settings={"max.message.bytes": "2000"})
    fault = broker.fault("DescribeConfigs", "error", code="UNKNOWN_TOPIC_OR_PARTITION", times=2)

    assert admin.max_message_bytes(cluster, "made-a-moment-ago") == 2000

    assert fault.fired == 2
    with pytest.raises(UnknownTopic, match="never-made"):
        admin.topic_settings(cluster, "never-made", ["cleanup.policy"])
    cluster.close()
