"""The names of connections: one for each broker and use, wherever the broker is; and how connections end."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from kafka_core.errors import BrokerUnavailable
from pyspark_kafka_eos.client.net.network import Network
from pyspark_kafka_eos.client.net.transport import PlainTransport
from pyspark_kafka_eos.model import ClientSettings

WAIT_S = 30


@pytest.fixture
def network() -> Iterator[Network]:
    made = Network(ClientSettings(("127.0.0.1:1",)))
    yield made
    made.close()


def test_a_connection_keeps_its_name_and_another_one_has_its_own(network: Network) -> None:
    names = [network.dedicated(node, use, "one", 9092) for node, use in ((1, 0), (1, 1), (1, "turns"), (2, 0), (1, 0))]

    assert names[0] == names[4]
    assert len(set(names)) == 4


def test_a_broker_that_moved_is_connected_to_where_it_is(network: Network) -> None:
    known = network._manager.cluster.broker_metadata
    for host, port in (("one", 9092), ("two", 9092), ("two", 9093), ("one", 9092)):
        name = network.dedicated(1, 0, host, port)
        found = known(name)
        assert (found.host, found.port) == (host, port)


def test_a_connection_is_closed_when_its_bytes_are_written_and_not_in_the_middle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ctrl-C while the first question is on its way: the command reported a defect of this package, or the loop's
    traceback came before its answer.
    """
    writing, closing = threading.Event(), threading.Event()
    drop = PlainTransport._drop

    def drop_late(transport: PlainTransport, sent: int) -> None:
        writing.set()
        closing.wait(WAIT_S)
        time.sleep(0.1)  # the other thread is inside of `close` by now
        drop(transport, sent)

    monkeypatch.setattr(PlainTransport, "_drop", drop_late)
    failures: list[Exception] = []

    def ask(network: Network) -> None:
        try:
            network.bootstrap(WAIT_S * 1000)
        except Exception as failure:  # noqa: BLE001 -- which one is what is tested
            failures.append(failure)

    with socket.create_server(("127.0.0.1", 0)) as silent:
        network = Network(ClientSettings((f"127.0.0.1:{silent.getsockname()[1]}",)))
        loop: Any = network._selector
        asking = threading.Thread(target=ask, args=(network,))
        asking.start()
        assert writing.wait(WAIT_S)
        closing.set()
        network.close()
        asking.join(WAIT_S)

    assert loop._exception is None
    assert [type(failure) for failure in failures] == [BrokerUnavailable]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_network_whose_loop_has_failed_is_closed_all_the_same() -> None:
    network = Network(ClientSettings(("127.0.0.1:1",)))
    thread: Any = network._selector._io_thread

    def fail() -> None:
        raise ValueError

    network.on_loop(lambda: network._selector.at_end_of_round(fail))
    thread.join(WAIT_S)
    assert isinstance(network._selector._exception, ValueError)

    network.close()

    assert network._manager.closed
    assert network._selector._closed
