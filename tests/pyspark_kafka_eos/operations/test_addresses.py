"""Each address of kafka.bootstrap.servers is looked at: whether it answers, and of which cluster it is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from embedded_kafka.child.ports import free_ports
from embedded_kafka.embedded import EmbeddedKafka
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.operations.checks import addresses
from pyspark_kafka_eos.options import SinkOptions

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def clusters() -> Iterator[tuple[EmbeddedKafka, EmbeddedKafka]]:
    with EmbeddedKafka() as one, EmbeddedKafka() as other:
        yield one, other


def seen(*servers: str) -> list[tuple[str, str]]:
    options = SinkOptions.parse({"kafka.bootstrap.servers": ",".join(servers), "pipeline": "p", "topic": "t"})
    return [(each.status, each.seen) for each in addresses(options.client)]


def cluster_id(broker: EmbeddedKafka) -> str:
    options = SinkOptions.parse({"kafka.bootstrap.servers": broker.bootstrap_servers, "pipeline": "p", "topic": "t"})
    cluster = Cluster(options.client)
    try:
        return cluster.cluster_id()
    finally:
        cluster.close()


def test_addresses_of_one_cluster(clusters: tuple[EmbeddedKafka, EmbeddedKafka]) -> None:
    one, _ = clusters
    again = one.bootstrap_servers.replace("127.0.0.1", "localhost")

    ((status, said),) = seen(one.bootstrap_servers, again)

    assert (status, said) == ("ok", f"{one.bootstrap_servers}, {again}: cluster {cluster_id(one)}")


def test_addresses_of_two_clusters_are_named_with_theirs(clusters: tuple[EmbeddedKafka, EmbeddedKafka]) -> None:
    one, other = clusters

    ((status, said),) = seen(one.bootstrap_servers, other.bootstrap_servers)

    assert status == "fail" and said.startswith("kafka.bootstrap.servers names 2 clusters: ")
    for broker in clusters:
        assert f"{broker.bootstrap_servers}: cluster {cluster_id(broker)}" in said


def test_an_address_where_nobody_answers_is_named(clusters: tuple[EmbeddedKafka, EmbeddedKafka]) -> None:
    one, _ = clusters
    dead = f"127.0.0.1:{free_ports(1)[0]}"

    ((status, said),) = seen(one.bootstrap_servers, dead)

    assert status == "warn" and said.startswith(f"{dead}: ") and "ECONNREFUSED" in said


def test_a_name_that_no_machine_has_is_named_beside_one_that_answers(
    clusters: tuple[EmbeddedKafka, EmbeddedKafka],
) -> None:
    one, _ = clusters

    ((status, said),) = seen(one.bootstrap_servers, "kafka1.no-such-host.invalid:9092")

    assert status == "warn" and "no machine has the name kafka1.no-such-host.invalid" in said
