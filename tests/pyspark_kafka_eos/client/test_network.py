"""The names of connections: one for each broker and use, wherever the broker is; and how connections end."""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import threading
from collections.abc import Iterator

import pytest

from embedded_kafka import EmbeddedKafka
from kafka_core.errors import BrokerUnavailable, UnsupportedVersion
from kafka_core.protocol import messages as m
from pyspark_kafka_eos.client.net.network import Network
from pyspark_kafka_eos.client.net.transport import PlainTransport
from pyspark_kafka_eos.client.wire.versions import NO_TRANSACTION, Versions
from pyspark_kafka_eos.model import ClientSettings
from tests.pyspark_kafka_eos.client.listener import METADATA, Listener

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
    for host, port in (("one", 9092), ("two", 9092), ("two", 9093), ("one", 9092)):
        found = network._pool.place_of(network.dedicated(1, 0, host, port))
        assert found is not None and (found.host, found.port) == (host, port)


def test_a_node_without_an_address_is_an_error_that_says_so(network: Network) -> None:
    (answer,) = network.call_many([(7, object())])

    assert isinstance(answer, BrokerUnavailable)
    assert "no answer from broker 7: its address is not known" in answer.message
    assert not network.knows(7)


def test_a_connection_is_closed_when_its_bytes_are_written_and_not_in_the_middle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ctrl-C while the first question is on its way: the command reported a defect of this package, or the loop's
    traceback came before its answer.
    """
    writing, closing = threading.Event(), threading.Event()
    write = PlainTransport._write_now
    failed: list[BaseException] = []

    def write_late(transport: PlainTransport) -> None:
        writing.set()
        closing.wait(WAIT_S)
        try:
            write(transport)
        except BaseException as error:
            failed.append(error)
            raise

    monkeypatch.setattr(PlainTransport, "_write_now", write_late)
    failures: list[Exception] = []

    def ask(network: Network) -> None:
        try:
            network.bootstrap(WAIT_S * 1000)
        except Exception as failure:  # noqa: BLE001 -- which one is what is tested
            failures.append(failure)

    with socket.create_server(("127.0.0.1", 0)) as silent:
        network = Network(ClientSettings((f"127.0.0.1:{silent.getsockname()[1]}",)))
        asking = threading.Thread(target=ask, args=(network,))
        asking.start()
        assert writing.wait(WAIT_S)
        closer = threading.Thread(target=network.close)
        closer.start()
        closing.set()
        closer.join(WAIT_S)
        asking.join(WAIT_S)

    assert not failed
    assert [type(failure) for failure in failures] == [BrokerUnavailable]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_network_whose_loop_has_failed_is_closed_all_the_same() -> None:
    network = Network(ClientSettings(("127.0.0.1:1",)))

    def end() -> None:
        raise SystemExit

    network.on_loop(end)
    network._loop._thread.join(WAIT_S)
    with pytest.raises(BrokerUnavailable, match="closed or broken: the loop has ended"):
        network.on_loop(lambda: None)

    network.close()

    assert network._loop.asyncio.is_closed()


@pytest.mark.parametrize("loop_is", ["busy", "in the work"])
def test_an_interrupt_leaves_no_work_behind_and_no_word_of_it(
    loop_is: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Ctrl-C ended the coroutine on the caller's thread while the loop had it in its hands: asyncio's traceback came
    behind the command's answer.
    """
    over, at_work, cancelled = threading.Event(), threading.Event(), threading.Event()
    network = Network(ClientSettings(("127.0.0.1:1",)))

    async def work() -> None:
        at_work.set()
        try:
            await asyncio.sleep(WAIT_S)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    class Interrupted(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            if loop_is == "in the work":
                assert at_work.wait(WAIT_S)
            raise KeyboardInterrupt

    if loop_is == "busy":
        network.on_loop(lambda: over.wait(WAIT_S))
    with monkeypatch.context() as patched:
        patched.setattr("kafka_core.runtime.event", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            network._wait_for(work())
    over.set()
    if loop_is == "in the work":
        assert cancelled.wait(WAIT_S)
    looked = threading.Event()
    network.on_loop(lambda: network.later(0, looked.set))
    assert looked.wait(WAIT_S)
    left = [each for each in network._loop._tasks if not each.done()]
    network.close()
    gc.collect()

    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING] == []
    assert len(left) <= 1, "the pool's own"


# ---- versions


def metadata(versions: Versions) -> m.Message:
    return m.MetadataRequest(
        version=versions.of(m.MetadataRequest, NO_TRANSACTION), topics=[], allow_auto_topic_creation=False
    )


@pytest.mark.kafka
@pytest.mark.parametrize("first", ["old", "new"])
def test_each_broker_is_asked_in_its_own_versions_whichever_was_met_first(first: str) -> None:
    """A rolling upgrade: a process that met the new broker first spoke its versions to all."""
    with EmbeddedKafka(in_process=True) as new, Listener() as old:
        addresses = {"new": new.bootstrap_servers, "old": old.address}
        network = Network(ClientSettings((addresses[first],)))
        try:
            network.bootstrap(WAIT_S * 1000)
            names = {}
            for each, number in (("new", 0), ("old", 1)):
                host, port = addresses[each].split(":")
                names[each] = network.dedicated(number, each, host, int(port))

            answers = network.call_many([(names[each], metadata) for each in ("old", "new", "old", "new")])

            assert [answer.API_VERSION for answer in answers] == [1, 13, 1, 13]
            assert network.versions_of(names["old"]).apis[METADATA] == (1, 1)
            assert network.versions_of(names["new"]).offers(m.MetadataRequest, 12)
            assert not all(each.offers(m.MetadataRequest, 2) for each in network.known_versions())
        finally:
            network.close()


@pytest.mark.kafka
def test_a_request_that_a_broker_has_no_version_of_is_its_callers_error_and_ends_no_connection() -> None:
    with Listener() as old:
        network = Network(ClientSettings((old.address,)))
        try:
            network.bootstrap(WAIT_S * 1000)
            node = network.any_node()
            before = old.connections

            def build(versions: Versions) -> m.Message:
                return m.InitProducerIdRequest(version=versions.of(m.InitProducerIdRequest, NO_TRANSACTION))

            refused, answered = network.call_many([(node, build), (node, metadata)])

            assert isinstance(refused, UnsupportedVersion)
            assert "InitProducerId" in refused.message
            assert answered.API_VERSION == 1
            assert old.connections <= before + 1
        finally:
            network.close()


def test_the_versions_of_a_broker_that_says_nothing_are_not_waited_for_longer_than_asked() -> None:
    with Listener() as first, socket.create_server(("127.0.0.1", 0)) as silent:
        network = Network(ClientSettings((first.address,)))
        try:
            network.bootstrap(WAIT_S * 1000)
            node = network.dedicated(7, "silent", *silent.getsockname())

            with pytest.raises(BrokerUnavailable, match="not open within 50 ms"):
                network.versions_of(node, 50)
            (answer,) = network.call_many([(node, metadata)], 50)
        finally:
            network.close()

    assert isinstance(answer, BrokerUnavailable)
