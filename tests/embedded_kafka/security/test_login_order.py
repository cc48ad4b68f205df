"""What a listener with SASL lets a client do, and in which order: played request by request."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from embedded_kafka import EmbeddedKafka
from embedded_kafka.wire.server import FetchRequest, MetadataRequest, SaslAuthenticateRequest
from kafka_core.protocol.error_codes import Code
from tests.embedded_kafka.security.doors import USERS, Line, ScramClient, asking, plain, versions

pytestmark = [pytest.mark.kafka, pytest.mark.embedded]

PASSWORD = USERS["alice"]
SESSION_MS = 60_000


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    folder = tmp_path_factory.mktemp("doors")
    with asking(folder, "SASL_PLAINTEXT", "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512") as broker:
        yield broker


@pytest.fixture
def line(kafka: EmbeddedKafka) -> Iterator[Line]:
    with Line(kafka) as made:
        yield made


def test_after_the_login_requests_are_served(line: Line) -> None:
    assert line.ask(versions()).error_code == Code.NONE
    shaken = line.handshake("PLAIN")
    assert (shaken.error_code, shaken.mechanisms) == (Code.NONE, ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
    done = line.message(plain("alice", PASSWORD))
    assert (done.error_code, done.auth_bytes, done.session_lifetime_ms) == (Code.NONE, b"", 0)
    assert line.works()


@pytest.mark.parametrize("asks_first", [False, True], ids=["at once", "after ApiVersions"])
def test_a_request_before_the_login_ends_the_connection_without_an_answer(line: Line, asks_first: bool) -> None:
    if asks_first:
        line.ask(versions())
    with pytest.raises(ConnectionError):
        line.works()


def test_before_the_login_the_apis_are_listed_once(line: Line) -> None:
    line.ask(versions())
    with pytest.raises(ConnectionError):
        line.ask(versions())


def test_a_message_of_no_mechanism_ends_the_connection(line: Line) -> None:
    with pytest.raises(ConnectionError):
        line.message(plain("alice", PASSWORD))


def test_another_request_between_a_logins_messages_is_illegal(line: Line) -> None:
    line.handshake("SCRAM-SHA-256")
    line.message(ScramClient("alice", PASSWORD).first())
    refused = line.ask(MetadataRequest(version=13, topics=[]))
    assert refused.error_code == Code.ILLEGAL_SASL_STATE
    assert line.ended()


def test_a_mechanism_that_is_not_there_is_refused_with_the_list_of_those_that_are(line: Line) -> None:
    refused = line.handshake("GSSAPI")
    assert refused.error_code == Code.UNSUPPORTED_SASL_MECHANISM
    assert refused.mechanisms == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
    assert line.ended()


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (plain("alice", "wrong"), "Authentication failed: Invalid username or password"),
        (plain("nobody", PASSWORD), "Authentication failed: Invalid username or password"),
        (plain("", PASSWORD), "Authentication failed: username not specified"),
        (plain("alice", ""), "Authentication failed: password not specified"),
        (b"alice", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (plain("alice", PASSWORD, "bob"), "authorization id that is different from username"),
        (b"\0\xff\0x", "due to invalid credentials with SASL mechanism PLAIN"),
    ],
)
def test_plain_is_refused_with_kafkas_reason_and_the_connection_ends(line: Line, message: bytes, reason: str) -> None:
    line.handshake("PLAIN")
    refused = line.message(message)
    assert refused.error_code == Code.SASL_AUTHENTICATION_FAILED
    assert reason in refused.error_message
    assert line.ended()


@pytest.mark.parametrize(("mechanism", "hash_name"), [("SCRAM-SHA-256", "sha256"), ("SCRAM-SHA-512", "sha512")])
def test_scram_proves_both_sides(line: Line, mechanism: str, hash_name: str) -> None:
    client = ScramClient("alice", PASSWORD, hash_name)
    line.handshake(mechanism)
    challenge = line.message(client.first())
    done = line.message(client.final(challenge.auth_bytes))
    assert (done.error_code, done.auth_bytes) == (Code.NONE, client.signature)
    assert line.works()


@pytest.mark.parametrize("wrong", ["password", "nonce", "binding", "user"])
def test_scram_does_not_tell_what_was_wrong(line: Line, wrong: str) -> None:
    client = ScramClient("nobody" if wrong == "user" else "alice", "wrong" if wrong == "password" else PASSWORD)
    line.handshake("SCRAM-SHA-256")
    answer = line.message(client.first())
    if wrong != "user":
        given = {"nonce": "other"} if wrong == "nonce" else {"binding": "eSws"} if wrong == "binding" else {}
        answer = line.message(client.final(answer.auth_bytes, **given))
    assert answer.error_code == Code.SASL_AUTHENTICATION_FAILED
    assert answer.error_message == (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256"
    )
    assert line.ended()


def test_a_proof_of_one_login_is_none_for_another(kafka: EmbeddedKafka) -> None:
    client = ScramClient("alice", PASSWORD)
    with Line(kafka) as first:
        first.handshake("SCRAM-SHA-256")
        proof = client.final(first.message(client.first()).auth_bytes)
        assert first.message(proof).error_code == Code.NONE
    with Line(kafka) as second:
        second.handshake("SCRAM-SHA-256")
        second.message(client.first())
        assert second.message(proof).error_code == Code.SASL_AUTHENTICATION_FAILED


def test_after_the_login_a_message_is_refused_and_the_connection_stays(line: Line) -> None:
    line.plain()
    assert line.message(b"").error_code == Code.ILLEGAL_SASL_STATE
    assert line.works()


def test_before_the_login_a_large_request_gets_no_memory(kafka: EmbeddedKafka) -> None:
    host, _, port = kafka.bootstrap_servers.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        size = 1_000_000
        head = size.to_bytes(4, "big") + SaslAuthenticateRequest.API_KEY.to_bytes(2, "big")
        connection.sendall(head)
        assert connection.recv(1) == b""
    with Line(kafka) as known:
        known.plain()
        topics = [FetchRequest.FetchTopic(topic="t" * 249, partitions=[])] * 4000
        assert known.ask(FetchRequest(
            version=11, replica_id=-1, max_wait_ms=0, min_bytes=0, max_bytes=1, isolation_level=0, session_id=0,
            session_epoch=-1, topics=topics, forgotten_topics_data=[], rack_id="",
        )).error_code == Code.NONE  # fmt: skip


@pytest.mark.parametrize("api", ["handshake", "message"])
def test_a_listener_without_sasl_says_so(api: str) -> None:
    with EmbeddedKafka(in_process=True) as plaintext, Line(plaintext) as made:
        answer = made.handshake("PLAIN") if api == "handshake" else made.message(b"")
        assert answer.error_code == Code.ILLEGAL_SASL_STATE
        assert made.works()


# The sessions of KIP-368.


@pytest.fixture
def short(tmp_path: Path) -> Iterator[EmbeddedKafka]:
    with asking(tmp_path, "SASL_PLAINTEXT", "PLAIN,SCRAM-SHA-256", connections_max_reauth_ms=str(SESSION_MS)) as broker:
        yield broker


def test_an_ended_session_is_closed_at_its_next_request(short: EmbeddedKafka) -> None:
    with Line(short) as made:
        assert made.plain().session_lifetime_ms == SESSION_MS
        short.advance(SESSION_MS - 10_000)
        assert made.works()
        short.advance(10_001)
        with pytest.raises(ConnectionError):
            made.works()


def test_a_renewed_login_keeps_the_connection_also_after_the_sessions_end(short: EmbeddedKafka) -> None:
    with Line(short) as made:
        made.plain()
        for _ in range(2):
            short.advance(SESSION_MS + 1)
            assert made.handshake("PLAIN").error_code == Code.NONE
            assert made.message(plain("alice", PASSWORD)).session_lifetime_ms == SESSION_MS
            assert made.works()


def test_a_login_is_renewed_at_most_once_a_second(short: EmbeddedKafka) -> None:
    with Line(short) as made:
        made.plain()
        assert made.plain().error_code == Code.NONE
        assert made.handshake("PLAIN").error_code == Code.ILLEGAL_SASL_STATE
        assert made.works()


def test_a_renewed_login_is_of_the_same_mechanism(short: EmbeddedKafka) -> None:
    with Line(short) as made:
        made.plain()
        assert made.handshake("SCRAM-SHA-256").error_code == Code.UNSUPPORTED_SASL_MECHANISM
        assert made.ended()


def test_a_renewed_login_with_a_wrong_password_ends_the_connection(short: EmbeddedKafka) -> None:
    with Line(short) as made:
        made.plain()
        assert made.plain(password="wrong").error_code == Code.SASL_AUTHENTICATION_FAILED
        assert made.ended()


def test_a_renewed_login_is_of_the_same_user(tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text('{"alice": "a", "bob": "b"}')
    config = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.users.file": str(users),
    }
    with EmbeddedKafka(in_process=True, config=config) as kafka, Line(kafka) as made:
        made.plain("alice", "a")
        refused = made.plain("bob", "b")
        assert refused.error_code == Code.SASL_AUTHENTICATION_FAILED
        assert "Cannot change principals" in refused.error_message
        assert made.ended()


def test_no_request_is_served_while_a_login_is_renewed(short: EmbeddedKafka) -> None:
    with Line(short) as made:
        made.plain()
        made.handshake("PLAIN")
        assert made.ask(MetadataRequest(version=13, topics=[])).error_code == Code.ILLEGAL_SASL_STATE
        assert made.ended()
