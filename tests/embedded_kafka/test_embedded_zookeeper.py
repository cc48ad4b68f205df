"""The broker with its producer ids in a real ZooKeeper: shared with others, away for a while, garbled."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from kazoo.client import KazooClient

from embedded_kafka import EmbeddedKafka
from embedded_kafka.producer_ids.block import parse
from embedded_kafka.real.zookeeper import LocalZooKeeper
from embedded_kafka.wire.server import InitProducerIdRequest
from kafka_core.protocol.error_codes import Code
from tests.embedded_kafka.node_tools import ask_over_the_wire

pytestmark = [pytest.mark.kafka, pytest.mark.embedded]

PATH = "/latest_producer_id_block"
TIMEOUT_S = 30


@pytest.fixture
def zookeeper() -> Iterator[LocalZooKeeper]:
    with LocalZooKeeper() as server:
        yield server


@pytest.fixture
def client(zookeeper: LocalZooKeeper) -> Iterator[KazooClient]:
    judge = KazooClient(zookeeper.hosts)
    judge.start()
    try:
        yield judge
    finally:
        judge.stop()
        judge.close()


def writes_plain_records(kafka: EmbeddedKafka) -> bool:
    delivered: list[object] = []
    writer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    writer.produce("t", b"value", on_delivery=lambda error, _message: delivered.append(error))
    writer.flush(TIMEOUT_S)
    return delivered == [None]


def new_producer_id(kafka: EmbeddedKafka) -> tuple[int, int]:
    """(error code, producer id)."""
    request = InitProducerIdRequest(version=4, transactional_id=None, transaction_timeout_ms=1_000)
    answer = ask_over_the_wire(kafka.bootstrap_servers, request)
    return answer.error_code, answer.producer_id


def wait_for_producer_id(kafka: EmbeddedKafka) -> int:
    """As a client does: ask again for as long as the broker says that it is loading."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        code, producer_id = new_producer_id(kafka)
        if code == Code.NONE:
            return producer_id
        assert code == Code.COORDINATOR_LOAD_IN_PROGRESS
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_ids_come_from_the_node_that_kafkas_brokers_use(zookeeper: LocalZooKeeper, client: KazooClient) -> None:
    with EmbeddedKafka(zookeeper=zookeeper.hosts, config={"node.id": "35"}) as kafka:
        first = wait_for_producer_id(kafka)
        assert new_producer_id(kafka) == (Code.NONE, first + 1)

    data, _ = client.get(PATH)
    assert (parse(data).start, parse(data).end, first) == (0, 999, 0)
    assert b'"broker":35' in data


def test_while_zookeeper_is_down_only_new_producers_wait_and_they_go_on_when_it_is_back(
    zookeeper: LocalZooKeeper,
) -> None:
    zookeeper.kill()
    with EmbeddedKafka(zookeeper=zookeeper.hosts) as kafka:
        assert new_producer_id(kafka) == (Code.COORDINATOR_LOAD_IN_PROGRESS, -1)
        assert writes_plain_records(kafka)

        zookeeper.restart()
        assert wait_for_producer_id(kafka) == 0


def test_a_garbled_node_is_said_to_be_garbled_and_no_id_is_handed_out(
    zookeeper: LocalZooKeeper, client: KazooClient
) -> None:
    garbled = b'{"version":1,"broker":0,"block_start":"many"}'
    client.create(PATH, garbled)
    with EmbeddedKafka(zookeeper=zookeeper.hosts) as kafka:
        deadline = time.monotonic() + TIMEOUT_S
        while (found := new_producer_id(kafka)) == (Code.COORDINATOR_LOAD_IN_PROGRESS, -1):
            assert time.monotonic() < deadline
        assert found == (Code.UNKNOWN_SERVER_ERROR, -1)
        assert writes_plain_records(kafka)
        said = kafka.log_path.read_text()

    assert "no more producer ids are handed out" in said
    assert PATH in said
    assert client.get(PATH)[0] == garbled
