"""Pauses, limits and looks that are the client's own, as docs/options.md says of Kafka's options without effect."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kafka_core.errors import BrokerUnavailable, OptionsError
from pyspark_kafka_eos.client.net import known, pool
from pyspark_kafka_eos.client.net.known import Known
from pyspark_kafka_eos.client.net.network import Network
from pyspark_kafka_eos.client.net.opening import Place
from pyspark_kafka_eos.model import ClientSettings
from pyspark_kafka_eos.options.kafka import BOTH, Ignore
from tests.pyspark_kafka_eos.client.client_tools import wait_until
from tests.pyspark_kafka_eos.client.listener import Listener
from tests.pyspark_kafka_eos.client.test_reaching import NAME, WAIT_MS, Names, metadata

PLACE = Place("a", 1)
FOR_EVER = 1 << 30


def said_of(option: str) -> str:
    row = BOTH[option]
    assert isinstance(row, Ignore)
    return row.why


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    return Names(monkeypatch)


@pytest.fixture
def even(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known, "_JITTER", (1.0, 1.0))


@contextmanager
def network_of(*servers: str, **settings: int) -> Iterator[Network]:
    network = Network(ClientSettings(servers, **settings))  # type: ignore[arg-type]
    try:
        yield network
    finally:
        network.close()


@pytest.mark.usefixtures("even")
@pytest.mark.parametrize("option", ["reconnect.backoff.ms", "reconnect.backoff.max.ms"])
def test_each_failure_makes_the_next_attempt_wait_longer_up_to_a_second(
    option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known.runtime, "monotonic", lambda: 100.0)
    of, pauses = Known(["a:1"]), []
    for _ in range(8):
        of.failed(PLACE, "refused")
        pauses.append(round(of.delay_s(PLACE), 6))

    assert pauses == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0]
    assert "50 ms" in said_of(option) and "up to 1 s" in said_of(option)
    of.reached(PLACE)
    assert of.delay_s(PLACE) == 0.0


def test_the_pauses_of_many_clients_differ() -> None:
    of = Known(["a:1"])
    of.failed(PLACE, "refused")

    assert len({of.allowed_s(PLACE) for _ in range(20)}) > 10


@pytest.mark.usefixtures("even")
@pytest.mark.parametrize("option", ["socket.connection.setup.timeout.ms", "socket.connection.setup.timeout.max.ms"])
def test_a_connection_has_ten_seconds_and_after_failures_up_to_thirty(option: str) -> None:
    of, allowed = Known(["a:1"]), []
    for _ in range(4):
        allowed.append(of.allowed_s(PLACE))
        of.failed(PLACE, "silent")

    assert allowed == [10.0, 20.0, 30.0, 30.0]
    assert "10 s" in said_of(option) and "up to 30 s" in said_of(option)


def test_a_server_that_takes_connections_and_says_nothing_ends_the_attempt_in_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(known, "CONNECTING_S", 0.1)
    with Listener() as listener, network_of(listener.address) as network:
        listener.silent_from = FOR_EVER

        with pytest.raises(BrokerUnavailable, match=r"no answer to ApiVersions within|took longer than"):
            network.bootstrap(1_000)

    assert listener.connections > 1


@pytest.mark.slow
def test_where_no_broker_answers_for_long_the_bootstrap_servers_are_asked_again(
    names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Open connections, so it is not the rule of those that cannot be reached (KIP-899).
    monkeypatch.setattr(pool, "_REBOOTSTRAP_AFTER_S", 1e9)
    with Listener() as before, Listener() as after:
        names.lead_to(before.address)
        with network_of(f"{NAME}:1", request_timeout_ms=300) as network:
            network.bootstrap(WAIT_MS)
            network.call_many([(1, metadata)])
            before.silent_from = FOR_EVER
            names.lead_to(after.address)
            (unanswered,) = network.call_many([(1, metadata)])
            assert isinstance(unanswered, BrokerUnavailable)
            assert network._pool.place_of(1).port == before.port  # type: ignore[union-attr]
            monkeypatch.setattr(pool, "_NOT_ANSWERING_S", 0.5)

            wait_until(lambda: network._pool.place_of(1).port == after.port, "the brokers are those of the name")  # type: ignore[union-attr]

    assert "5 minutes" in said_of("metadata.recovery.rebootstrap.trigger.ms")


def test_a_name_that_does_not_exist_is_an_error_at_once_and_is_looked_up_anew_at_each_attempt(
    names: Names,
) -> None:
    began = time.monotonic()
    with network_of("no-such-host.invalid:9092") as network:
        for _ in range(2):
            with pytest.raises(OptionsError, match="no machine has the name"):
                network.bootstrap(WAIT_MS)
    assert time.monotonic() - began < WAIT_MS / 2_000

    with Listener() as listener, network_of(f"{NAME}:1") as network:
        with pytest.raises(BrokerUnavailable, match="has no address"):
            network.bootstrap(300)
        names.lead_to(listener.address)
        network.bootstrap(WAIT_MS)

    assert "anew" in said_of("bootstrap.resolve.timeout.ms")
