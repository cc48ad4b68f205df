"""The TLS listener by itself: handshakes that never end, the names in certificates."""

from __future__ import annotations

import socket
import ssl
import time
from pathlib import Path

import pytest

from embedded_kafka.security.tls import distinguished_name
from tests.embedded_kafka.security.doors import TIMEOUT_S, asking


def subject(*parts: tuple[tuple[str, str], ...]) -> dict[str, object]:
    return {"subject": parts}


@pytest.mark.parametrize(
    ("certificate", "name"),
    [
        (subject((("commonName", "alice"),)), "CN=alice"),
        (
            subject((("countryName", "DE"),), (("organizationName", "A, B"),), (("commonName", "x"),)),
            "CN=x,O=A\\, B,C=DE",
        ),
        (subject((("commonName", "a"), ("userId", "7"))), "CN=a+UID=7"),
        (subject((("commonName", "#a;b "),)), "CN=\\#a\\;b\\ "),
        (subject((("commonName", ' "q"\\'),)), 'CN=\\ \\"q\\"\\\\'),
        (subject(), ""),
    ],
)
def test_names_are_written_as_rfc_2253_and_kafka_have_them(certificate: dict[str, object], name: str) -> None:
    assert distinguished_name(certificate) == name


@pytest.mark.kafka
@pytest.mark.embedded
def test_a_handshake_that_never_comes_does_not_hold_up_the_brokers_stop(tmp_path: Path) -> None:
    with asking(tmp_path, "SSL") as kafka:
        host, _, port = kafka.bootstrap_servers.rpartition(":")
        silent = [socket.create_connection((host, int(port)), timeout=TIMEOUT_S) for _ in range(3)]
        began = time.monotonic()
        # Served while the others are silent: the broker has accepted those before.
        with (
            socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as open_,
            ssl._create_unverified_context().wrap_socket(open_) as shaken,
        ):
            assert shaken.version() == "TLSv1.3"
    took = time.monotonic() - began

    assert [each.recv(1) for each in silent] == [b""] * 3
    for each in silent:
        each.close()
    assert took < 5


@pytest.mark.kafka
@pytest.mark.embedded
def test_versions_of_tls_before_1_2_are_refused(tmp_path: Path) -> None:
    with asking(tmp_path, "SSL") as kafka:
        host, _, port = kafka.bootstrap_servers.rpartition(":")
        context = ssl._create_unverified_context()
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.options |= ssl.OP_NO_TLSv1_2
        with (
            socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as open_,
            pytest.raises(ssl.SSLError),
        ):
            context.wrap_socket(open_)
