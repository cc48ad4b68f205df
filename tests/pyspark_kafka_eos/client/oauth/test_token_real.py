"""Apache Kafka judges our logins by token: it checks signature, issuer, audience and end against the endpoint's
JWKS.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pytest

from embedded_kafka.child.ports import free_ports
from embedded_kafka.real import LocalKafka
from kafka_core import runtime
from kafka_core.errors import LoginRefused
from pyspark_kafka_eos.client.cluster import Cluster
from tests.pyspark_kafka_eos.client.oauth.test_login_by_token import MODULE, SECRET, credentials, wanted
from tests.pyspark_kafka_eos.client.oauth.token_endpoint import JWT_BEARER, PACKAGE, Keys, TokenEndpoint
from tests.pyspark_kafka_eos.client.test_login import refused

pytestmark = [pytest.mark.kafka, pytest.mark.real]

LIFE_S = 20.0
WATCHED_S = 50.0


def issued(port_of: Mapping[str, int], more: Mapping[str, str], endpoint: TokenEndpoint) -> LocalKafka:
    """A broker, not started, with these SASL listeners, that may ask this token issuer for its keys."""
    return LocalKafka(
        config=more,
        listeners={name: ("SASL_PLAINTEXT", "127.0.0.1", port) for name, port in port_of.items()},
        system_properties={"org.apache.kafka.sasl.oauthbearer.allowed.urls": endpoint.jwks},
        fast_start=True,
    )


@dataclass(frozen=True)
class Doors:
    """The broker's listeners, and the issuer that it trusts."""

    kafka: LocalKafka
    signed: str
    unsecured: str
    endpoint: TokenEndpoint


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory, keys: Keys) -> Iterator[Doors]:
    folder = tmp_path_factory.mktemp("issuer")
    signed, unsecured = free_ports(2)
    with TokenEndpoint(folder, keys.issuer, clients={"alice": SECRET}, assertions=keys.public) as endpoint:
        more = {
            # The session ends with the token, where that is sooner (KIP-368).
            "listener.name.signed.oauthbearer.connections.max.reauth.ms": "600000",
            **endpoint.judged_by("signed"),
            "listener.name.unsecured.sasl.enabled.mechanisms": "OAUTHBEARER",
            "listener.name.unsecured.oauthbearer.sasl.jaas.config": (
                f'{PACKAGE}.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'
            ),
        }
        with issued({"SIGNED": signed, "UNSECURED": unsecured}, more, endpoint) as kafka:
            yield Doors(kafka, f"127.0.0.1:{signed}", f"127.0.0.1:{unsecured}", endpoint)


@pytest.fixture(autouse=True)
def usual(doors: Doors) -> Iterator[None]:
    """Each test begins with an endpoint that issues good tokens."""
    yield
    doors.endpoint.plan.claims, doors.endpoint.plan.life_s = {}, 60.0


def test_kafka_accepts_the_tokens_of_client_credentials(doors: Doors) -> None:
    cluster = Cluster(wanted(doors.signed, **credentials(doors.endpoint.url)))
    try:
        assert cluster.cluster_id()
    finally:
        cluster.close()
    assert any(each.path == "/jwks" for each in doors.endpoint.asked), "Kafka has not asked for the keys"


def test_kafka_accepts_the_tokens_of_signed_assertions_and_extensions_beside_them(doors: Doors, keys: Keys) -> None:
    made = wanted(
        doors.signed,
        sasl__oauthbearer__grant__type=JWT_BEARER,
        sasl__oauthbearer__token__endpoint__url=doors.endpoint.url,
        sasl__oauthbearer__assertion__private__key__file=keys.private,
        sasl__oauthbearer__assertion__claim__sub="svc",
        sasl__oauthbearer__assertion__claim__aud=doors.endpoint.url,
        sasl__oauthbearer__extensions="logicalCluster=lkc-1",
    )
    cluster = Cluster(made)
    try:
        assert cluster.cluster_id()
    finally:
        cluster.close()


def test_kafka_accepts_an_unsecured_token_where_it_is_told_to(doors: Doors) -> None:
    cluster = Cluster(
        wanted(doors.unsecured, sasl__jaas__config=f'{MODULE} required unsecuredLoginStringClaim_sub="alice";')
    )
    try:
        assert cluster.cluster_id()
    finally:
        cluster.close()


@pytest.mark.parametrize(
    "claims",
    [{"aud": "others"}, {"iss": "http://elsewhere.example"}, {"exp": time.time() - 100_000}, {"sub": ""}],
)
def test_a_token_that_kafka_refuses_is_a_refused_login_in_every_try(doors: Doors, claims: dict[str, object]) -> None:
    doors.endpoint.plan.claims = claims
    # Another scope is another login: no token of an earlier test is used.
    login = credentials(doors.endpoint.url, sasl__oauthbearer__scope="-".join(claims))
    for number in range(3):
        issued = len(doors.endpoint.issued)

        error = refused(wanted(doors.signed, client__id=f"refused-{number}", **login))

        assert type(error) is LoginRefused and "refused the token of the token endpoint" in error.message
        assert len(doors.endpoint.issued) == issued + 1, "the refused token was not thrown away"
        assert doors.endpoint.issued[-1] not in str(error)


def test_a_connection_outlives_its_tokens(doors: Doors, caplog: pytest.LogCaptureFixture) -> None:
    doors.endpoint.plan.life_s = LIFE_S
    before = len(doors.endpoint.issued)
    cluster = Cluster(wanted(doors.signed, **credentials(doors.endpoint.url, sasl__oauthbearer__scope="short")))
    asked, lost = 0, list[str]()
    try:
        until, pause = runtime.monotonic() + WATCHED_S, threading.Event()
        while runtime.monotonic() < until:
            assert cluster.call_any(cluster.metadata_request([])).brokers
            asked += 1
            pause.wait(0.05)
        lost = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    finally:
        cluster.close()
    renewed = len(doors.endpoint.issued) - before

    assert asked > 10
    assert lost == []
    # One at the start, then one in each 17 to 19 s of a session (less would be too close to its end on a busy machine);
    # a token for each login would be far more.
    assert WATCHED_S / LIFE_S - 1 <= renewed <= WATCHED_S / LIFE_S * 3
