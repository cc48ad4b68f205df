"""Options and listener that do not belong together: each pair of protocols has its reason and its remedy, within three
seconds.

`test_login.py` has the listeners that answer as Kafka does; here are those that know less: a broker that has no SASL at
all, and one that ends the connection at the first request of a login.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from embedded_kafka.embedded import EmbeddedKafka
from kafka_core.errors import LoginRefused, OptionsError
from tests.pyspark_kafka_eos.client.certificates import Authority
from tests.pyspark_kafka_eos.client.listener import SASL_AUTHENTICATE, SASL_HANDSHAKE, Listener
from tests.pyspark_kafka_eos.client.test_login import login, refused, serving, settings

Opened = Callable[..., Listener]
SASL = (SASL_HANDSHAKE, SASL_AUTHENTICATE)


@pytest.fixture
def opened() -> Iterator[Opened]:
    """Listeners that are closed after the test."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(Listener(**options))


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, Path]:
    """A listener's context, and the file of its authority."""
    authority = Authority(tmp_path_factory.mktemp("mismatch") / "own")
    return serving(authority.issue("server")), authority.file


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
@pytest.mark.parametrize("hides", [True, False], ids=["not listed", "listed and closed"])
def test_a_login_at_a_broker_without_sasl_names_the_protocol_to_set(
    opened: Opened, mechanism: str, hides: bool
) -> None:
    listener = opened(lacks=SASL, hides=hides)

    error = refused(settings(listener.address, **login(mechanism=mechanism)))

    assert isinstance(error, OptionsError)
    assert f"{listener.address} takes no login (SASL)" in error.message
    assert "set it to PLAINTEXT" in error.message


@pytest.mark.parametrize("hides", [True, False], ids=["not listed", "listed and closed"])
def test_the_same_under_tls_names_ssl(opened: Opened, certified: tuple[ssl.SSLContext, Path], hides: bool) -> None:
    context, authority = certified
    listener = opened(tls=context, lacks=SASL, hides=hides)

    error = refused(settings(listener.address, ssl__ca__location=authority, **login("SASL_SSL", mechanism="PLAIN")))

    assert isinstance(error, OptionsError)
    assert "takes no login (SASL)" in error.message and "set it to SSL" in error.message


def test_a_listener_with_sasl_that_ends_logins_silently_still_refuses_the_login(opened: Opened) -> None:
    listener = opened(mechanisms=["PLAIN"], users={"alice": "other"}, silent=True)

    error = refused(settings(listener.address, **login(mechanism="PLAIN")))

    assert type(error) is LoginRefused and "in the middle of the login" in error.message


@pytest.mark.parametrize(
    ("asked", "offered", "says"),
    [
        ("SSL", "PLAINTEXT", "does not speak TLS, but kafka.security.protocol is SSL: connect to the listener with TLS, or set it to PLAINTEXT"),
        ("SSL", "SASL_PLAINTEXT", "does not speak TLS"),
        ("SASL_SSL", "PLAINTEXT", "does not speak TLS"),
        ("SASL_SSL", "SASL_PLAINTEXT", "or set it to SASL_PLAINTEXT"),
        ("SASL_SSL", "SSL", "takes no login (SASL), but kafka.security.protocol is SASL_SSL: set it to SSL"),
        ("SASL_PLAINTEXT", "PLAINTEXT", "takes no login (SASL), but kafka.security.protocol is SASL_PLAINTEXT: set it to PLAINTEXT"),
        ("SASL_PLAINTEXT", "SSL", "speaks TLS, but kafka.security.protocol is SASL_PLAINTEXT: set it to SASL_SSL"),
        ("SASL_PLAINTEXT", "SASL_SSL", "speaks TLS, but kafka.security.protocol is SASL_PLAINTEXT: set it to SASL_SSL"),
        ("PLAINTEXT", "SSL", "speaks TLS, but kafka.security.protocol is PLAINTEXT: set it to SSL"),
        ("PLAINTEXT", "SASL_SSL", "speaks TLS, but kafka.security.protocol is PLAINTEXT"),
        ("PLAINTEXT", "SASL_PLAINTEXT", "asks for a login (SASL: PLAIN), but kafka.security.protocol is PLAINTEXT: set it to SASL_PLAINTEXT"),
        ("SSL", "SASL_SSL", "asks for a login (SASL: PLAIN), but kafka.security.protocol is SSL: set it to SASL_SSL"),
    ],
)  # fmt: skip
def test_each_pair_of_protocols_has_its_reason(
    opened: Opened, certified: tuple[ssl.SSLContext, Path], asked: str, offered: str, says: str
) -> None:
    context, authority = certified
    listener = opened(
        tls=context if "SSL" in offered else None,
        mechanisms=["PLAIN"] if offered.startswith("SASL") else [],
        users={"alice": "wonderland"},
    )
    names: dict[str, str | Path] = {"security__protocol": asked}
    if asked.startswith("SASL"):
        names |= login(asked, mechanism="PLAIN")
    if "SSL" in asked.removeprefix("SASL_"):
        names["ssl__ca__location"] = authority

    error = refused(settings(listener.address, **names))

    assert isinstance(error, OptionsError)
    assert says in error.message


@pytest.mark.kafka
@pytest.mark.embedded
@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL", "SSL"])
def test_the_embedded_brokers_plain_listener_is_told_apart(protocol: str) -> None:
    with EmbeddedKafka(in_process=True) as kafka:
        names: dict[str, str | Path] = {"security__protocol": protocol}
        if protocol.startswith("SASL"):
            names |= login(protocol, mechanism="PLAIN")

        error = refused(settings(kafka.bootstrap_servers, **names))

    assert isinstance(error, OptionsError)
    assert ("takes no login" if protocol == "SASL_PLAINTEXT" else "does not speak TLS") in error.message
