"""A real broker of each kind, for every test here; and a proxy before it for those that need one."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import pytest

with warnings.catch_warnings():
    # kafka-python reads its schemas by a function that Python 3.11 and 3.12 call deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka_core.protocol.messages  # noqa: F401

from confluent_kafka.admin import AdminClient

from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.writing.producer import Producer
from tests.pyspark_kafka_eos.client.client_tools import Broker, CuttingProxy, sealed, settings_for


@pytest.fixture(scope="module", params=["kafka", "kafka_zk"])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """The newest Kafka (transaction version 2) and the last one with ZooKeeper (version 1)."""
    servers: str = request.getfixturevalue(request.param).bootstrap_servers
    cluster = Cluster(settings_for(servers))
    try:
        broker = Broker(servers, cluster, AdminClient({"bootstrap.servers": servers}))
        # Opened before every test: by the time of the last one the coordinator has swept it away.
        broker.doomed = sealed(broker, broker.topic(), timeout_ms=100)
        yield broker
    finally:
        cluster.close()


@pytest.fixture
def proxy(broker: Broker) -> Iterator[CuttingProxy]:
    """A proxy before the broker, passing everything on until it is armed."""
    between = CuttingProxy(broker.bootstrap_servers)
    try:
        yield between
    finally:
        between.close()


@pytest.fixture
def through_proxy(proxy: CuttingProxy) -> Iterator[Cluster]:
    """Our client, connected through the proxy."""
    cluster = Cluster(settings_for(proxy.address))
    try:
        yield cluster
    finally:
        cluster.close()


Opened = Callable[..., Producer]


@pytest.fixture
def opened(broker: Broker) -> Opened:
    """A producer that has begun a transaction, under a new transactional id unless one is named."""

    def make(transactional_id: str | None = None, cluster: Cluster | None = None, timeout_ms: int = 60_000) -> Producer:
        producer = Producer(
            cluster or broker.cluster, transactional_id or broker.new_id(), transaction_timeout_ms=timeout_ms
        )
        producer.initialize()
        producer.begin()
        return producer

    return make
