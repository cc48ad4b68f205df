"""`EmbeddedKafka(security=...)`: a user's test logs in as production does."""

from __future__ import annotations

import json
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from embedded_kafka import EmbeddedKafka, Security
from kafka_core.errors import LoginRefused, OptionsError
from pyspark_kafka_eos.options import SinkOptions
from tests.pyspark_kafka_eos.client.certificates import openssl
from tests.pyspark_kafka_eos.client.test_login import connects, refused

pytestmark = [pytest.mark.kafka, pytest.mark.embedded]

USERS = {"alice": "a,b=c", "bob/+\\ ü": "päss \"word'"}


def ours(settings: Mapping[str, str]) -> Any:
    """What the product's options make of a client's settings."""
    return SinkOptions.parse({"pipeline": "p", **{f"kafka.{name}": value for name, value in settings.items()}}).client


def round_trip(settings: Mapping[str, str]) -> None:
    """librdkafka writes a record and reads it in a group."""
    reports: list[Any] = []
    producer = Producer(dict(settings))
    producer.produce("t", b"value", on_delivery=lambda error, _message: reports.append(error))
    assert producer.flush(30) == 0
    assert reports == [None]
    consumer = Consumer({**settings, "group.id": "g", "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe(["t"])
        message = consumer.poll(30)
        assert message is not None
        assert message.value() == b"value"
    finally:
        consumer.close()


@pytest.mark.parametrize(
    "security",
    [
        "SASL_SSL",
        Security("SASL_PLAINTEXT", ("PLAIN",), USERS),
        Security("SASL_SSL", ("SCRAM-SHA-256", "PLAIN"), USERS, client_certificates=True),
        Security("SSL", users=USERS, client_certificates=True),
        Security("SSL"),
    ],
    ids=["default", "plain", "scram and certificate", "certificate", "tls"],
)
def test_every_user_logs_in_with_the_settings_that_the_broker_gives(security: Security | str) -> None:
    with EmbeddedKafka(in_process=True, security=security) as kafka:
        names = ["alice"] if isinstance(security, str) else list(security.users)
        for name in names:
            connects(ours(kafka.client_settings(name)))
        round_trip(kafka.client_settings())


def test_a_broker_in_a_child_process_keeps_its_users_over_a_restart_and_shows_no_password() -> None:
    with EmbeddedKafka(security="SASL_SSL") as kafka:
        kafka.kill()
        kafka.restart()
        connects(ours(kafka.client_settings()))
        arguments = Path(f"/proc/{kafka.pid}/cmdline").read_bytes()
    assert b"sasl.users.file" in arguments
    assert b"alice-secret" not in arguments


def test_the_certificates_pass_openssls_strict_checks_which_python_3_13_makes() -> None:
    security = Security("SSL", users=USERS, client_certificates=True)
    with EmbeddedKafka(in_process=True, security=security) as kafka:
        authority = kafka.client_settings()["ssl.ca.location"]
        users = [kafka.client_settings(name)["ssl.certificate.location"] for name in USERS]
        openssl("verify", "-x509_strict", "-purpose", "sslclient", "-CAfile", authority, *users)
        broker = Path(authority).with_name("broker.pem")
        openssl("verify", "-x509_strict", "-purpose", "sslserver", "-CAfile", authority, broker)


def test_the_files_are_the_owners_alone(tmp_path: Path) -> None:
    with EmbeddedKafka(in_process=True, data_dir=tmp_path / "data", security="SASL_SSL"):
        folder = tmp_path / "data" / "security"
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert json.loads((folder / "users.json").read_text()) == {"alice": "alice-secret"}
        secret = [path for path in folder.iterdir() if "PRIVATE KEY" in path.read_text() or path.name == "users.json"]
        assert {stat.S_IMODE(path.stat().st_mode) for path in secret} == {0o600}
        assert len(secret) == 4


def test_another_password_is_refused_and_an_unknown_user_has_no_settings() -> None:
    with EmbeddedKafka(in_process=True, security="SASL_SSL") as kafka:
        assert type(refused(ours({**kafka.client_settings(), "sasl.password": "x"}))) is LoginRefused
        with pytest.raises(OptionsError, match="no user 'mallory', only 'alice'"):
            kafka.client_settings("mallory")


def test_without_security_a_client_needs_the_address_alone() -> None:
    with EmbeddedKafka(in_process=True) as kafka:
        assert kafka.client_settings() == {"bootstrap.servers": kafka.bootstrap_servers}


@pytest.mark.parametrize("wrong", [{"protocol": "TLS"}, {"protocol": "SASL_PLAINTEXT", "client_certificates": True}])
def test_what_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(OptionsError, match="security: "):
        Security(**wrong)


def test_a_security_shows_no_password() -> None:
    assert "alice-secret" not in repr(Security())


@pytest.mark.parametrize("in_process", [True, False])
def test_a_broker_that_was_stopped_starts_again_with_new_files(in_process: bool) -> None:
    kafka = EmbeddedKafka(security="SASL_SSL", in_process=in_process)
    kafka.start()
    first = kafka.client_settings()["ssl.ca.location"]
    kafka.stop()
    try:
        kafka.start()
        assert kafka.client_settings()["ssl.ca.location"] != first
        connects(ours(kafka.client_settings()))
    finally:
        kafka.stop()


def test_without_openssl_the_command_is_named_and_nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(OptionsError, match="openssl command, which is not on the PATH"):
        EmbeddedKafka(in_process=True, security="SSL").start()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"users": {}}, "there are no users, so nobody could log in"),
        ({"users": ["a"]}, "users must be names with passwords"),
        ({"users": {"a": ""}}, "users must be names with passwords"),
        ({"users": {"a": 1}}, "users must be names with passwords"),
        ({"protocol": "SSL", "users": {}, "client_certificates": True}, "there are no users"),
        ({"mechanisms": ("SCRAM-SHA-521",)}, "unknown mechanism 'SCRAM-SHA-521'; did you mean SCRAM-SHA-512"),
        ({"mechanisms": "PLAIN"}, r"mechanisms must be a tuple, \('PLAIN',\)"),
        ({"mechanisms": ()}, "SASL_SSL needs a mechanism; known: PLAIN, SCRAM-SHA-256"),
        ({"acls": True, "super_users": ("zed",)}, "unknown super user 'zed'; known: alice"),
        ({"acls": True, "super_users": "alice"}, r"super_users must be a tuple, \('alice',\)"),
    ],
    ids=str,
)
def test_logins_with_which_nobody_could_log_in_are_refused_before_anything_starts(
    wrong: dict[str, Any], said: str
) -> None:
    with pytest.raises(OptionsError, match=said):
        Security(**wrong)


def test_users_are_not_needed_where_tokens_name_them() -> None:
    security = Security("SASL_PLAINTEXT", ("OAUTHBEARER",), users={}, acls=True, super_users=("carol",))
    with EmbeddedKafka(in_process=True, security=security) as kafka:
        assert kafka.client_settings()["sasl.mechanism"] == "OAUTHBEARER"


@pytest.mark.parametrize(
    ("security", "asked", "said"),
    [
        (None, ("alice",), "has no logins, because it was made without security"),
        (None, (None, "PLAIN"), "has no logins"),
        (Security("SSL"), (None, "PLAIN"), "'PLAIN'; it offers: none, because it has SSL"),
        (Security("SSL"), ("bob",), "no user 'bob'"),
        (Security("SASL_PLAINTEXT"), ("alice", "NONSENSE"), "'NONSENSE'; it offers: SCRAM-SHA-512"),
        (Security("SASL_PLAINTEXT"), ("alice", "PLAIN"), "'PLAIN'; it offers: SCRAM-SHA-512"),
    ],
    ids=str,
)
def test_settings_with_which_no_client_could_log_in_are_not_given(
    security: Security | None, asked: tuple[str | None, ...], said: str
) -> None:
    with (
        EmbeddedKafka(in_process=True, security=security) as kafka,
        pytest.raises(OptionsError, match=said),
    ):
        kafka.client_settings(*asked)


def test_what_is_no_security_is_refused() -> None:
    with pytest.raises(OptionsError, match="must be a protocol, a Security or None"):
        EmbeddedKafka(security=3)  # type: ignore[arg-type]
