"""The names of connections: one for each broker and lane, wherever the broker is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from connector.client.network import Network
from connector.model import ClientSettings


@pytest.fixture
def network() -> Iterator[Network]:
    made = Network(ClientSettings(("127.0.0.1:1",)))
    yield made
    made.close()


def test_a_lane_keeps_its_name_and_another_one_has_its_own(network: Network) -> None:
    names = [
        network.dedicated(node, lane, "one", 9092)
        for node, lane in ((1, 0), (1, 1), (1, "turns"), (2, 0), (1, 0))
    ]

    assert names[0] == names[4]
    assert len(set(names)) == 4


def test_a_broker_that_moved_is_connected_to_where_it_is(network: Network) -> None:
    known = network._manager.cluster.broker_metadata
    for host, port in (("one", 9092), ("two", 9092), ("two", 9093), ("one", 9092)):
        name = network.dedicated(1, 0, host, port)
        found = known(name)
        assert (found.host, found.port) == (host, port)
