"""What every Produce of the guarantee asks for: that all replicas in sync have the records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from embedded_kafka.wire.server import parse_header, parse_request
from kafka_core.protocol import messages as m
from kafka_core.values import ProducerIdentity, TopicPartition
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.wire.versions import Build, Versions
from pyspark_kafka_eos.client.writing.delivery import Delivery
from tests.pyspark_kafka_eos.client.client_tools import settings_for

ALL = -1


class Wire:
    """A cluster whose network keeps what is sent, as it goes to the socket."""

    def __init__(self, version: int) -> None:
        self.network = self
        self.settings = settings_for("127.0.0.1:1")
        self.frames: list[bytes] = []
        self._versions = Versions({m.ProduceRequest.API_KEY: (0, version)})
        self._later: list[Callable[[], None]] = []

    def leader(self, _where: TopicPartition) -> int:
        return 1

    def on_loop(self, action: Callable[[], None]) -> None:
        self._later.append(action)

    def send_on_loop(self, _node: object, build: Build, _done: Callable[[Any], None]) -> None:
        request = build(self._versions)
        request.with_header(correlation_id=1, client_id="me")
        self.frames.append(request.encode(header=True, framed=True))

    def run(self) -> None:
        """Let the loop do what it was given."""
        for action in self._later:
            action()


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("version", range(3, m.HIGHEST[m.ProduceRequest.API_KEY] + 1))
@pytest.mark.parametrize("transactional_id", ["pipe:0", None])
def test_every_produce_asks_for_all_replicas(transactional_id: str | None, version: int, partitions: int) -> None:
    """Rule: seed 000 §3 and seed 003 (use of idempotence): acks=all, whatever the shape of the request."""
    wire = Wire(version)
    sending = Delivery(
        cast(Cluster, wire), ProducerIdentity(7, 0), transactional_id=transactional_id, transaction_version=1
    )

    for number in range(partitions):
        sending.submit(TopicPartition("out", number), 1, lambda _base: b"batch")
    wire.run()

    (frame,) = wire.frames
    view = memoryview(frame)[4:]
    request = parse_request(parse_header(view), view)
    assert len(request.topic_data[0].partition_data) == partitions
    assert request.acks == ALL
