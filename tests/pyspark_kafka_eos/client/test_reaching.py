"""Brokers that are not where they were, or never were: each is found again, or named with its address and a remedy."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.metadata import ApiVersionsResponse, MetadataResponse

from embedded_kafka.embedded import EmbeddedKafka
from kafka_core.errors import BrokerUnavailable, ExactlyOnceError, OptionsError
from kafka_core.protocol import messages as m
from kafka_core.protocol.error_codes import Code
from pyspark_kafka_eos.client.net import addresses, connection, opening, pool
from pyspark_kafka_eos.client.net.failures import ConnectionFailed, TimedOut
from pyspark_kafka_eos.client.net.network import Network
from pyspark_kafka_eos.client.wire.versions import NO_TRANSACTION, Versions
from pyspark_kafka_eos.model import ClientSettings
from pyspark_kafka_eos.operations import checks
from tests.pyspark_kafka_eos.client.certificates import Authority
from tests.pyspark_kafka_eos.client.client_tools import wait_until
from tests.pyspark_kafka_eos.client.listener import Listener
from tests.pyspark_kafka_eos.client.test_login import nobody, serving

WAIT_S = 30.0
WAIT_MS = 30_000
NAME = "kafka.example"
Opened = Callable[..., Listener]


def metadata(versions: Versions) -> m.Message:
    version = versions.of(m.MetadataRequest, NO_TRANSACTION)
    return m.MetadataRequest(version=version, topics=[], allow_auto_topic_creation=False)


@pytest.fixture
def opened() -> Iterator[Opened]:
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(Listener(**options))


class Names:
    """A name service with one name; other hosts are looked up as they are."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.places: list[tuple[str, int]] = []
        self._real = addresses.look_up
        monkeypatch.setattr(addresses, "look_up", self._look_up)

    def lead_to(self, *servers: str) -> None:
        self.places = [(host, int(port)) for host, _, port in (each.rpartition(":") for each in servers)]

    def _look_up(self, host: str, port: int) -> addresses.Found:
        if host != NAME:
            return self._real(host, port)
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, place) for place in self.places]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    return Names(monkeypatch)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything begins again as soon as no broker is reached."""
    monkeypatch.setattr(pool, "_REBOOTSTRAP_AFTER_S", 0.0)


def answered(network: Network) -> m.Message:
    """An answer of any broker, however often it takes to get one. An error that does not pass is raised."""
    give_up = time.monotonic() + WAIT_S
    while True:
        try:
            (found,) = network.call_many([(network.any_node(), metadata)])
        except BrokerUnavailable as error:
            found = error
        if not isinstance(found, BrokerUnavailable):
            if isinstance(found, ExactlyOnceError):
                raise found
            return found
        assert time.monotonic() < give_up, found


# ---- several addresses of a name (C3)


def test_a_silent_address_of_a_name_does_not_hold_up_the_next_one(
    opened: Opened, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener = opened()
    names.lead_to("192.0.2.1:9092", listener.address)
    connect, tried = addresses._connect, []

    async def connected(loop: Any, family: int, kind: int, number: int, address: Any, more: int) -> Any:
        tried.append(address)
        if address[0] == "192.0.2.1":
            await asyncio.get_running_loop().create_future()
        return await connect(loop, family, kind, number, address, more)

    monkeypatch.setattr(addresses, "_connect", connected)
    monkeypatch.setattr(addresses.random, "randrange", lambda count: 0)
    network = Network(ClientSettings((f"{NAME}:1",)))
    try:
        network.bootstrap(WAIT_MS)
    finally:
        network.close()

    assert tried[:2] == [("192.0.2.1", 9092), ("127.0.0.1", listener.port)]


def test_the_reason_of_each_address_is_told(names: Names) -> None:
    names.lead_to(nobody(), nobody())
    network = Network(ClientSettings((f"{NAME}:1",)))
    try:
        with pytest.raises(BrokerUnavailable) as caught:
            network.bootstrap(300)
    finally:
        network.close()

    assert caught.value.message.count("ECONNREFUSED") == 2


@pytest.mark.parametrize("begin", [0, 1, 2])
def test_each_family_has_its_turn_wherever_the_order_begins(begin: int) -> None:
    six, four = socket.AF_INET6, socket.AF_INET
    found: addresses.Found = [(six, 1, 6, ("a",)), (six, 1, 6, ("b",)), (four, 1, 6, ("c",))]

    ordered = addresses._alternating(found[begin:] + found[:begin])

    assert sorted(each[3] for each in ordered) == [("a",), ("b",), ("c",)]
    assert ordered[0][0] != ordered[1][0]


# ---- begin again (C2)


@pytest.mark.usefixtures("impatient")
def test_a_cluster_that_moved_is_found_by_the_bootstrap_name(opened: Opened, names: Names) -> None:
    before, after = Listener(), opened()
    names.lead_to(before.address)
    network = Network(ClientSettings((f"{NAME}:1",)))
    try:
        with before:
            network.bootstrap(WAIT_MS)
            assert answered(network).brokers[0].port == before.port
        names.lead_to(after.address)

        assert answered(network).brokers[0].port == after.port
        assert network._pool.place_of(1).port == after.port  # type: ignore[union-attr]
    finally:
        network.close()


@pytest.mark.kafka
@pytest.mark.embedded
@pytest.mark.usefixtures("impatient")
def test_a_bootstrap_name_that_leads_to_another_cluster_is_an_error_that_says_so(names: Names) -> None:
    network = Network(ClientSettings((f"{NAME}:1",)))
    try:
        with EmbeddedKafka(in_process=True) as other:
            with EmbeddedKafka(in_process=True) as first:
                names.lead_to(first.bootstrap_servers)
                network.bootstrap(WAIT_MS)
                cluster_id = answered(network).cluster_id
            names.lead_to(other.bootstrap_servers)

            with pytest.raises(OptionsError, match="leads to another cluster now") as caught:
                answered(network)
    finally:
        network.close()

    assert caught.value.facts["cluster_before"] == cluster_id != caught.value.facts["cluster"]


def test_a_broker_that_has_the_client_begin_again_is_believed(opened: Opened, names: Names) -> None:
    # KIP-1102: the broker itself goes on answering.
    before, after = opened(), opened()
    names.lead_to(before.address)
    network = Network(ClientSettings((f"{NAME}:1",)))
    try:
        network.bootstrap(WAIT_MS)
        assert answered(network).brokers[0].port == before.port
        names.lead_to(after.address)

        with pytest.raises(BrokerUnavailable, match="KIP-1102"):
            network.take_brokers(
                MetadataResponse(version=13, error_code=int(Code.REBOOTSTRAP_REQUIRED), brokers=[], topics=[])
            )

        wait_until(lambda: network._pool.place_of(1).port == after.port, "the brokers are those of the name")  # type: ignore[union-attr]
    finally:
        network.close()


# ---- the advertised address (C5)


def test_what_a_server_has_said_stands_where_the_time_is_over_within_the_next_attempt() -> None:
    """The last attempt has as much time as is left, which says nothing of the server."""
    network = Network(ClientSettings(("127.0.0.1:1",)))
    allowed: list[float] = []

    async def attempted(_: opening.Place, allowed_s: float) -> Exception:
        allowed.append(allowed_s)
        if len(allowed) == 1:
            return ConnectionFailed("it knows no brokers")
        await asyncio.sleep(allowed_s)
        return TimedOut("no answer to ApiVersions within 0 ms")

    network._first._from = attempted
    try:
        with pytest.raises(BrokerUnavailable, match=r"127\.0\.0\.1:1: it knows no brokers;"):
            network.bootstrap(400)
    finally:
        network.close()
    assert len(allowed) == 2


def test_an_advertised_address_that_cannot_be_reached_is_named_with_its_broker_and_the_setting(opened: Opened) -> None:
    dead = nobody()
    listener = opened(advertises=int(dead.rpartition(":")[2]))
    network = Network(ClientSettings((listener.address,)))
    try:
        network.bootstrap(WAIT_MS)
        (first,) = network.call_many([(1, metadata)])
        with pytest.raises(BrokerUnavailable) as caught:
            network.any_node()
    finally:
        network.close()

    assert isinstance(first, BrokerUnavailable) and f"broker 1 ({dead})" in first.message
    assert f"broker 1 at {dead}: cannot connect to 127.0.0.1: ECONNREFUSED" in caught.value.message
    assert listener.address in caught.value.message and "advertised.listeners" in caught.value.message


def test_the_doctor_of_an_advertised_address_advises_its_setting_and_not_the_bootstrap_servers(opened: Opened) -> None:
    dead = nobody()
    listener = opened(advertises=int(dead.rpartition(":")[2]))

    found = checks._connected(ClientSettings((listener.address,)), 300)

    assert isinstance(found, checks.Check)
    assert dead in found.seen and "ECONNREFUSED" in found.seen and "advertised.listeners" in found.seen
    assert "correct advertised.listeners" in found.do and dead in found.do
    assert "bootstrap" not in found.do


def test_a_server_that_was_given_and_is_down_is_no_matter_of_its_advertised_address(opened: Opened) -> None:
    dead = nobody()
    listener = opened(advertises=int(dead.rpartition(":")[2]))
    network = Network(ClientSettings((listener.address, dead)))
    try:
        network.bootstrap(WAIT_MS)
        (answer,) = network.call_many([(1, metadata)])
    finally:
        network.close()

    assert isinstance(answer, BrokerUnavailable) and f"broker 1 ({dead})" in answer.message
    assert "advertised" not in answer.message and "advertised" not in answer.facts


def test_a_broker_that_was_reached_before_is_no_matter_of_its_advertised_address() -> None:
    with Listener() as listener:
        network = Network(ClientSettings((listener.address,)))
        network.bootstrap(WAIT_MS)
        answered(network)
    try:
        give_up = time.monotonic() + WAIT_S
        while True:
            try:
                network.call_many([(network.any_node(), metadata)])
            except BrokerUnavailable as error:
                message = error.message
                break
            assert time.monotonic() < give_up
    finally:
        network.close()

    assert f"broker 1 at {listener.address}: " in message
    assert "advertised.listeners" not in message


# ---- another broker (C6, KIP-1242)


@pytest.mark.kafka
@pytest.mark.embedded
def test_a_broker_that_has_another_id_is_not_taken_for_the_one_that_is_meant() -> None:
    with EmbeddedKafka(in_process=True) as kafka:
        network = Network(ClientSettings((kafka.bootstrap_servers,)))
        try:
            network.bootstrap(WAIT_MS)
            host, port = kafka.bootstrap_servers.split(":")
            (answer,) = network.call_many([(network.dedicated(3, "x", host, int(port)), metadata)])
        finally:
            network.close()

    assert isinstance(answer, BrokerUnavailable)
    assert f"({kafka.bootstrap_servers}): it is not broker 3 of cluster" in answer.message


def test_a_broker_whose_address_is_another_one_now_is_asked_there_although_the_former_one_answers(
    opened: Opened,
) -> None:
    former, now = opened(), opened()
    network = Network(ClientSettings((former.address,)))
    try:
        network.bootstrap(WAIT_MS)
        asked = []
        for each in (former, now):
            node = network.dedicated(1, "x", "127.0.0.1", each.port)
            (answer,) = network.call_many([(node, metadata)])
            asked.append(answer.brokers[0].port)
    finally:
        network.close()

    assert asked == [former.port, now.port]


@pytest.mark.parametrize("others_have_tls", [False, True])
def test_one_listener_with_another_protocol_than_the_others_is_named_with_the_remedy(
    opened: Opened, tmp_path: Path, others_have_tls: bool
) -> None:
    authority = Authority(tmp_path / "own")
    context: ssl.SSLContext = serving(authority.issue("server"))
    plain, safe = opened(), opened(tls=context)
    trust = {"security_protocol": "SSL", "ssl_cafile": str(authority.file), "ssl_check_hostname": True}
    security = tuple(trust.items()) if others_have_tls else ()
    server, other = (safe, plain) if others_have_tls else (plain, safe)
    found: list[str] = []

    def said() -> bool:
        (answer,) = network.call_many([(network.dedicated(2, "x", "127.0.0.1", other.port), metadata)])
        assert isinstance(answer, BrokerUnavailable)
        found.append(answer.message)
        return "kafka.security.protocol is" in answer.message

    network = Network(ClientSettings((server.address,), security=security))
    try:
        network.bootstrap(WAIT_MS)
        wait_until(said, "the reason is what the listener speaks")
    finally:
        network.close()

    assert f"no answer from broker 2.x ({other.address}): " in found[-1]
    assert ("does not speak TLS" if others_have_tls else "speaks TLS") in found[-1]


# ---- what a broker has not heard of yet (C8)


def test_a_feature_is_known_by_the_broker_that_knows_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    async def told(connection: Any, request: m.Message, until: float) -> m.Message:
        epoch, level = said.pop(0)
        feature = ApiVersionsResponse.FinalizedFeatureKey(
            name="transaction.version", max_version_level=level, min_version_level=level
        )
        return ApiVersionsResponse(
            version=4, error_code=0, api_keys=[], finalized_features_epoch=epoch, finalized_features=[feature]
        )

    said = [(7, 2), (6, 1)]
    network = Network(ClientSettings(("127.0.0.1:1",)))
    try:
        opener = network._opener
        monkeypatch.setattr(connection.BrokerConnection, "ask_now", told)
        for place in (opening.Place("a", 1), opening.Place("b", 1)):
            made = connection.BrokerConnection(network._loop, "a", "a", "t", lambda _: None)
            asyncio.run(opener.learn_versions(made, place, 0.0))
    finally:
        network.close()

    assert said == []
    assert network.features == {"transaction.version": 2}


# ---- connections that are still (C4)


def test_an_idle_connection_is_closed_and_the_next_request_opens_another_one(opened: Opened) -> None:
    listener = opened()
    network = Network(ClientSettings((listener.address,), connections_max_idle_ms=50))
    try:
        network.bootstrap(WAIT_MS)
        for _ in range(3):
            before = listener.connections
            answered(network)
            give_up = time.monotonic() + WAIT_S
            while network.connections:
                assert time.monotonic() < give_up
            assert listener.connections == before + 1
    finally:
        network.close()


def test_a_request_on_a_connection_that_was_forgotten_goes_to_a_new_one(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener = opened()
    network = Network(ClientSettings((listener.address,)))
    try:
        network.bootstrap(WAIT_MS)
        answered(network)
        # As if a box on the way drops all packets of the connections that there are.
        listener.silent_from = listener.connections + 1
        monkeypatch.setattr(connection, "_STILL_S", 0.0)
        monkeypatch.setattr(connection, "_TRIED_FIRST_S", 0.2)
        began = time.monotonic()

        (answer,) = network.call_many([(1, metadata)])
    finally:
        network.close()

    assert answer.brokers[0].node_id == 1
    assert time.monotonic() - began < WAIT_S / 2, "its own time would have been half a minute"


# ---- names


@pytest.mark.parametrize(
    ("host", "port", "said"),
    [("no-such-host.invalid", 9092, "no-such-host.invalid"), ("a..b", 9092, "is no address")],
)
def test_an_address_that_a_broker_names_and_that_is_none_is_named(host: str, port: int, said: str) -> None:
    with pytest.raises(ConnectionFailed, match=said):
        addresses.look_up(host, port)
