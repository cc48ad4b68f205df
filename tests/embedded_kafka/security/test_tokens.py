"""Logins with OAUTHBEARER: unsecured tokens, tokens signed by a key of a key set, and what is no good token."""

from __future__ import annotations

import base64
import importlib.util
import json
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from embedded_kafka import EmbeddedKafka
from embedded_kafka.clock import Clock
from embedded_kafka.security.tokens import checks
from embedded_kafka.settings.config import SecurityConfig
from kafka_core.errors import OptionsError
from kafka_core.protocol.error_codes import Code
from tests.embedded_kafka.security.doors import Line, asking
from tests.pyspark_kafka_eos.client.certificates import openssl

pytestmark = [pytest.mark.kafka, pytest.mark.embedded]

REFUSED = b'{"status":"invalid_token"}'


def coded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def claims(**more: Any) -> dict[str, Any]:
    now = int(time.time())
    return {"sub": "alice", "iat": now, "exp": now + 600, "aud": "kafka", "iss": "us", **more}


def unsigned(head: dict[str, Any], body: dict[str, Any]) -> str:
    return f"{coded(json.dumps(head).encode())}.{coded(json.dumps(body).encode())}"


def unsecured(**more: Any) -> str:
    return unsigned({"alg": "none"}, claims(**more)) + "."


def message(token: str, *, other: str = "", extensions: str = "") -> bytes:
    return f"n,{other},\x01auth=Bearer {token}\x01{extensions}\x01".encode()


class Key:
    """An RSA key, by openssl."""

    def __init__(self, folder: Path, name: str, bits: int = 2048) -> None:
        self.name = name
        self._file = folder / f"{name}.key"
        openssl("genpkey", "-algorithm", "RSA", "-pkeyopt", f"rsa_keygen_bits:{bits}", "-out", self._file)

    def public(self) -> dict[str, str]:
        modulus = openssl("rsa", "-in", self._file, "-modulus", "-noout").strip().removeprefix("Modulus=")
        return {"kty": "RSA", "use": "sig", "kid": self.name, "n": coded(bytes.fromhex(modulus)), "e": "AQAB"}

    def token(self, head: dict[str, Any] | None = None, **more: Any) -> str:
        text = unsigned({"alg": "RS256", "kid": self.name, **(head or {})}, claims(**more))
        signature = subprocess.run(
            ["openssl", "dgst", "-sha256", "-sign", str(self._file)],
            input=text.encode(),
            capture_output=True,
            check=True,
        ).stdout
        return f"{text}.{coded(signature)}"


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Key:
    return Key(tmp_path_factory.mktemp("keys"), "k1")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    with asking(tmp_path_factory.mktemp("plain"), "SASL_PLAINTEXT", "OAUTHBEARER") as kafka:
        yield kafka


def signing(folder: Path, *keys: Key, **more: str) -> EmbeddedKafka:
    (folder / "jwks.json").write_text(json.dumps({"keys": [each.public() for each in keys]}))
    return asking(
        folder, "SASL_PLAINTEXT", "OAUTHBEARER",
        sasl_oauthbearer_jwks_endpoint_url=(folder / "jwks.json").as_uri(), **more,
    )  # fmt: skip


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory, key: Key) -> Iterator[EmbeddedKafka]:
    with signing(
        tmp_path_factory.mktemp("signed"), key, sasl_oauthbearer_expected_audience="spark, kafka",
        sasl_oauthbearer_expected_issuer="us",
    ) as kafka:  # fmt: skip
        yield kafka


def answer(kafka: EmbeddedKafka, first: bytes) -> Any:
    """The answer to a login's first message; after a good one requests are served."""
    with Line(kafka) as line:
        line.handshake("OAUTHBEARER")
        found = line.message(first)
        if found.error_code == Code.NONE and not found.auth_bytes:
            assert line.works()
        return found


def accepted(kafka: EmbeddedKafka, token: str) -> bool:
    """Whether the token is good; a bad one is answered with its status."""
    found = answer(kafka, message(token))
    assert (found.error_code, found.auth_bytes) in ((Code.NONE, b""), (Code.NONE, REFUSED))
    return not found.auth_bytes


def test_an_unsecured_token_logs_in_until_it_ends(plain: EmbeddedKafka) -> None:
    found = answer(plain, message(unsecured(), other="a=alice", extensions="traceId=1\x01"))
    assert found.error_code == Code.NONE
    assert 590_000 < found.session_lifetime_ms <= 600_000


@pytest.mark.parametrize(
    "token",
    [
        unsecured(exp=1),
        unsecured(exp=None),
        unsecured(exp="soon"),
        unsecured(exp=True),
        unsecured(sub=None),
        unsecured(sub=" "),
        unsecured(sub=7),
        unsecured(iat=int(time.time()) + 86_400),
        unsecured(nbf=int(time.time()) + 86_400),
        unsecured() + "AAAA",
        unsecured().rstrip("."),
        unsigned({"alg": "RS256"}, claims()) + ".",
        "e30.W10.",
        "a.b.c",
    ],
)
def test_a_bad_unsecured_token_is_answered_with_its_status_and_then_refused(plain: EmbeddedKafka, token: str) -> None:
    with Line(plain) as line:
        line.handshake("OAUTHBEARER")
        first = line.message(message(token))
        assert (first.error_code, first.auth_bytes) == (Code.NONE, REFUSED)
        refused = line.message(b"\x01")
        assert (refused.error_code, refused.error_message) == (
            Code.SASL_AUTHENTICATION_FAILED,
            REFUSED.decode(),
        )
        assert line.ended()


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=Basic abc\x01\x01",
        b"y,,\x01auth=Bearer a.b.c\x01\x01",
        b"n,,\xff",
    ],
)
def test_a_message_that_is_none_is_refused_at_once(plain: EmbeddedKafka, first: bytes) -> None:
    assert answer(plain, first).error_code == Code.SASL_AUTHENTICATION_FAILED


def test_a_token_is_of_the_user_who_shows_it(plain: EmbeddedKafka) -> None:
    refused = answer(plain, message(unsecured(), other="a=bob"))
    assert refused.error_code == Code.SASL_AUTHENTICATION_FAILED
    assert "different from the token's principal name (alice)" in refused.error_message


def test_a_token_that_ends_within_the_session_ends_it(plain: EmbeddedKafka) -> None:
    # A clock of its own: other tests of the module use this broker.
    with (
        EmbeddedKafka(
            in_process=True,
            config={"security.protocol": "SASL_PLAINTEXT", "sasl.enabled.mechanisms": "OAUTHBEARER"},
        ) as kafka,
        Line(kafka) as line,
    ):
        line.handshake("OAUTHBEARER")
        line.message(message(unsecured()))
        assert line.works()
        kafka.advance(601_000)
        with pytest.raises(ConnectionError):
            line.works()


def test_a_token_that_a_key_of_the_set_signed_is_good(signed: EmbeddedKafka, key: Key) -> None:
    assert accepted(signed, key.token())
    assert accepted(signed, key.token(aud=["other", "spark"]))


def test_a_signed_token_is_refused_where_anything_is_wrong_with_it(
    signed: EmbeddedKafka, key: Key, tmp_path: Path
) -> None:
    other = Key(tmp_path, "k1")
    good = key.token()
    head, body, signature = good.split(".")
    wrong = {
        "signed by another key": other.token(),
        "without a signature": unsecured(),
        "alg none, signed": key.token({"alg": "none"}),
        "alg HS256": key.token({"alg": "HS256"}),
        "signature cut": f"{head}.{body}.{signature[:-4]}",
        "signature of zeros": f"{head}.{body}.{coded(bytes(256))}",
        "other claims": f"{head}.{coded(json.dumps(claims(sub='mallory')).encode())}.{signature}",
        "ended": key.token(exp=int(time.time()) - 31),
        "audience": key.token(aud="elsewhere"),
        "no audience": key.token(aud=None),
        "issuer": key.token(iss="them"),
        "unknown key": key.token({"kid": "k9"}),
    }
    assert accepted(signed, good)
    assert [name for name, token in wrong.items() if accepted(signed, token)] == []


def test_a_key_that_is_too_short_signs_nothing(tmp_path: Path) -> None:
    short = Key(tmp_path, "short", 1024)
    with signing(tmp_path, short) as kafka:
        assert not accepted(kafka, short.token())


def test_a_new_key_is_found_when_the_last_fetch_is_ten_seconds_old(tmp_path: Path, key: Key) -> None:
    new = Key(tmp_path, "k2")
    with signing(tmp_path, key) as kafka:
        assert accepted(kafka, key.token())
        (tmp_path / "jwks.json").write_text(json.dumps({"keys": [new.public()]}))
        assert not accepted(kafka, new.token())
        kafka.advance(10_000)
        assert accepted(kafka, new.token())


def test_librdkafka_writes_with_a_token_of_its_own_and_with_a_given_one(
    plain: EmbeddedKafka, signed: EmbeddedKafka, key: Key
) -> None:
    common = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
    own = {
        "bootstrap.servers": plain.bootstrap_servers, **common, "enable.sasl.oauthbearer.unsecure.jwt": "true",
        "sasl.oauthbearer.config": "principal=alice",
    }  # fmt: skip
    given = {
        "bootstrap.servers": signed.bootstrap_servers, **common,
        "oauth_cb": lambda _: (key.token(), time.time() + 500),
    }  # fmt: skip
    for client in (own, given):
        reports: list[Any] = []
        producer = Producer(client)
        producer.produce("t", b"value", on_delivery=lambda error, _m, to=reports: to.append(error))
        assert producer.flush(30) == 0
        assert reports == [None]


def test_no_token_is_in_the_log(plain: EmbeddedKafka, caplog: pytest.LogCaptureFixture) -> None:
    token = unsecured(exp=1)
    with caplog.at_level("DEBUG"):
        assert not accepted(plain, token)
    logged = " ".join(record.getMessage() for record in caplog.records if record.name.startswith("embedded_kafka"))
    assert not re.search(re.escape(token.split(".")[1]), logged)


@pytest.mark.parametrize("missing", ["jwt", "cryptography"])
def test_signed_tokens_without_the_extra_are_refused_before_anything_listens(
    monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    there = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == missing else there(name))
    with pytest.raises(OptionsError, match=r"pyspark-kafka-eos\[oauth\]"):
        checks(SecurityConfig(jwks_url="file:///keys.json"), Clock())
    assert checks(SecurityConfig(), Clock())
