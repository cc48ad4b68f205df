"""Logins by Kerberos with a stand-in of the package gssapi: which tickets are asked for, and the messages of RFC 4752.

`tests/security/test_doors_real.py` has a KDC and Apache Kafka.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from kafka_core.errors import LoginRefused, OptionsError
from pyspark_kafka_eos.client.net.credentials import kerberos
from pyspark_kafka_eos.client.net.credentials.kerberos import Gssapi, Kerberos
from pyspark_kafka_eos.client.net.refusals import Asked, refusal_of

KDC_IS_AWAY = -1765328228
NO_KEY = -1765328203


class GSSError(Exception):
    """gssapi's."""

    def __init__(self, text: str, min_code: int) -> None:
        super().__init__(text)
        self.min_code = min_code


GSSError.__module__ = "gssapi.raw.misc"


class Context:
    """Two messages, as Kerberos with mutual authentication has them."""

    def __init__(self, **given: Any) -> None:
        self.given, self.complete, self.wrapped = given, False, b""

    def step(self, token: bytes | None = None) -> bytes | None:
        if token is None:
            return b"request"
        assert token == b"reply"
        self.complete = True
        return None

    def unwrap(self, data: bytes) -> Any:
        return SimpleNamespace(message=data.removeprefix(b"wrapped:"))

    def wrap(self, data: bytes, encrypt: bool) -> Any:
        assert encrypt is False
        return SimpleNamespace(message=b"wrapped:" + data)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    found = ModuleType("gssapi")
    found.Name = lambda text, kind: (text, kind)  # type: ignore[attr-defined]
    found.NameType = SimpleNamespace(hostbased_service="host", kerberos_principal="principal")  # type: ignore[attr-defined]
    found.MechType = SimpleNamespace(kerberos="krb5")  # type: ignore[attr-defined]
    found.Credentials = lambda **given: given  # type: ignore[attr-defined]
    found.SecurityContext = Context  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "gssapi", found)
    return found


def exchanged(mechanism: Gssapi, offer: bytes) -> bytes:
    """The client's choice of a layer."""
    assert mechanism.auth_bytes() == b"request"
    mechanism.receive(b"reply")
    assert mechanism.auth_bytes() == b"" and not mechanism.is_done()
    mechanism.receive(b"wrapped:" + offer)
    return mechanism.auth_bytes()


@pytest.mark.usefixtures("library")
def test_no_layer_is_chosen_and_the_exchange_ends_with_the_brokers_last_answer() -> None:
    mechanism = Gssapi(Kerberos(), "b1.example")

    assert exchanged(mechanism, b"\x07\x00\xff\xff") == b"wrapped:\x01\x00\x00\x00"
    assert not mechanism.is_done()
    mechanism.receive(b"")
    assert mechanism.is_done() and mechanism.is_authenticated()


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("offer", [b"\x06\x00\xff\xff", b"\x01", b"", b"\x01\x00\x00\x00\x00"])
def test_a_broker_without_a_connection_without_layers_is_refused(offer: bytes) -> None:
    with pytest.raises(ValueError, match="without a security layer"):
        exchanged(Gssapi(Kerberos(), "b1.example"), offer)


@pytest.mark.usefixtures("library")
def test_a_broker_that_goes_on_after_the_end_is_refused() -> None:
    mechanism = Gssapi(Kerberos(), "b1.example")
    exchanged(mechanism, b"\x01\x00\x00\x00")

    with pytest.raises(ValueError, match="goes on"):
        mechanism.receive(b"more")


@pytest.mark.usefixtures("library")
def test_the_broker_is_asked_for_by_its_name_and_tickets_by_what_is_given() -> None:
    def given(wanted: Kerberos) -> Any:
        return Gssapi(wanted, "b1.example")._context.given

    cached = given(Kerberos("brokers"))
    assert (cached["name"], cached["creds"]) == (("brokers@b1.example", "host"), None)
    named = given(Kerberos(principal="a@B"))["creds"]
    assert named == {"name": ("a@B", "principal"), "usage": "initiate"}
    assert given(Kerberos(cache="/tmp/cc"))["creds"]["store"] == {"ccache": "/tmp/cc"}
    one = given(Kerberos(principal="a@B", keytab="/a.keytab"))["creds"]["store"]
    two = given(Kerberos(principal="b@B", keytab="/a.keytab"))["creds"]["store"]
    assert one["client_keytab"] == two["client_keytab"] == "FILE:/a.keytab"
    assert one["ccache"].startswith("MEMORY:") and one["ccache"] != two["ccache"]


def test_no_ticket_is_a_refused_login_and_a_kdc_that_is_away_is_none() -> None:
    asked = Asked("SASL_SSL", "GSSAPI", None, kerberos=Kerberos(principal="a@B", keytab="/a.keytab"))

    error = refusal_of(GSSError("no key", NO_KEY), "b1.example:9092", asked)
    assert type(error) is LoginRefused
    assert "kafka@b1.example" in error.message and "/a.keytab" in error.message
    assert refusal_of(GSSError("no KDC", KDC_IS_AWAY), "b1.example:9092", asked) is None
    assert refusal_of(GSSError("no KDC", KDC_IS_AWAY % 2**32), "b1.example:9092", asked) is None


@pytest.mark.usefixtures("library")
def test_a_keytab_is_looked_at_before_anything_is_opened(tmp_path: Path) -> None:
    file = tmp_path / "a.keytab"
    file.write_bytes(b"\x05\x02more")
    kerberos.check(Kerberos(principal="a@B", keytab=str(file)))
    file.write_bytes(b"text")

    with pytest.raises(OptionsError, match="is not a keytab"):
        kerberos.check(Kerberos(principal="a@B", keytab=str(file)))
    file.unlink()
    with pytest.raises(OptionsError, match="cannot be read"):
        kerberos.check(Kerberos(principal="a@B", keytab=str(file)))


def test_a_package_without_krb5s_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)

    with pytest.raises(OptionsError, match="pyspark-kafka-eos\\[kerberos\\]"):
        kerberos.check(Kerberos())
