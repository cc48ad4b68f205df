"""Clients of other makers log in, as they do to Apache Kafka: librdkafka, kafka-python and the product's own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient

from embedded_kafka import EmbeddedKafka
from kafka_core.errors import LoginRefused, OptionsError
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.requests.admin import list_transactions
from tests.embedded_kafka.security.doors import USERS, asking
from tests.pyspark_kafka_eos.client.certificates import Authority, encrypted
from tests.pyspark_kafka_eos.client.test_login import connects, login, refused, settings
from tests.support.logs import said_by

pytestmark = [pytest.mark.kafka, pytest.mark.embedded]

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
TIMEOUT_S = 30


@dataclass(frozen=True)
class Door:
    """A listener with its authority."""

    kafka: EmbeddedKafka
    ca: Path
    folder: Path

    @property
    def address(self) -> str:
        return self.kafka.bootstrap_servers

    def librdkafka(self, **settings: str) -> dict[str, Any]:
        """Its settings by their names, with underscores for dots."""
        return {
            "bootstrap.servers": self.address, "ssl.ca.location": str(self.ca), "log_level": 0,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }  # fmt: skip


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    folder = tmp_path_factory.mktemp("both")
    with asking(folder, "SASL_SSL", ",".join(MECHANISMS)) as kafka:
        yield Door(kafka, folder / "authority" / "ca.pem", folder)


@pytest.fixture(scope="module")
def mutual(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    folder = tmp_path_factory.mktemp("mutual")
    own = Authority(folder / "clients")
    with asking(folder, "SSL", ssl_client_auth="required", ssl_truststore_location=str(own.file)) as kafka:
        own.issue("alice")
        Authority(folder / "strangers").issue("mallory")
        yield Door(kafka, folder / "authority" / "ca.pem", folder)


def delivers(client: dict[str, Any]) -> None:
    """A record is written and acknowledged."""
    reports: list[Any] = []
    producer = Producer(client)
    producer.produce("t", b"value", on_delivery=lambda error, _message: reports.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    assert reports == [None]


def reason(config: dict[str, Any]) -> str:
    """Why librdkafka cannot log in."""
    said: list[str] = []
    client = AdminClient({**config, "error_cb": lambda error: said.append(str(error))})
    deadline = time.monotonic() + TIMEOUT_S
    while not said or "brokers are down" in said[-1]:
        assert time.monotonic() < deadline, said
        client.poll(0.1)
    return said[-1]


@pytest.mark.parametrize("name", USERS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_writes_after_its_login(both: Door, mechanism: str, name: str) -> None:
    delivers(
        both.librdkafka(
            security_protocol="SASL_SSL",
            sasl_mechanism=mechanism,
            sasl_username=name,
            sasl_password=USERS[name],
        )
    )


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_is_told_of_a_wrong_password(both: Door, mechanism: str) -> None:
    said = reason(
        both.librdkafka(
            security_protocol="SASL_SSL",
            sasl_mechanism=mechanism,
            sasl_username="alice",
            sasl_password="wrong",
        )
    )
    assert "Authentication failed" in said


def test_librdkafka_is_told_of_a_mechanism_that_is_not_there(tmp_path: Path) -> None:
    with asking(tmp_path, "SASL_PLAINTEXT", "SCRAM-SHA-512") as kafka:
        said = reason(
            {
                "bootstrap.servers": kafka.bootstrap_servers, "log_level": 0, "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": USERS["alice"],
            }
        )  # fmt: skip
    assert "SCRAM-SHA-512" in said


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_lists_topics_after_its_login(both: Door, mechanism: str) -> None:
    with closing(
        KafkaAdminClient(
            bootstrap_servers=both.address, security_protocol="SASL_SSL", ssl_cafile=str(both.ca),
            sasl_mechanism=mechanism, sasl_plain_username="alice", sasl_plain_password=USERS["alice"],
        )
    ) as admin:  # fmt: skip
        assert isinstance(admin.list_topics(), list)


@pytest.mark.parametrize("name", USERS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_products_client_logs_in(both: Door, mechanism: str, name: str) -> None:
    connects(settings(both.address, **login("SASL_SSL", mechanism, name, USERS[name]), ssl__ca__location=both.ca))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_products_client_is_refused_with_the_brokers_words(both: Door, mechanism: str) -> None:
    wrong = login("SASL_SSL", mechanism, "alice", "wrong")
    error = refused(settings(both.address, **wrong, ssl__ca__location=both.ca))
    assert type(error) is LoginRefused
    assert "Authentication failed" in error.message


def test_the_products_client_does_not_trust_another_authority(both: Door, tmp_path: Path) -> None:
    other = Authority(tmp_path / "other")
    error = refused(
        settings(both.address, **login("SASL_SSL", "PLAIN", "alice", USERS["alice"]), ssl__ca__location=other.file)
    )
    assert type(error) is OptionsError
    assert "signed by an authority" in error.message


def test_a_client_with_a_certificate_of_the_authority_is_served(mutual: Door) -> None:
    key, certificate = mutual.folder / "clients" / "alice.key", mutual.folder / "clients" / "alice.pem"
    delivers(
        mutual.librdkafka(security_protocol="SSL", ssl_key_location=str(key), ssl_certificate_location=str(certificate))
    )
    connects(
        settings(
            mutual.address, security__protocol="SSL", ssl__ca__location=mutual.ca, ssl__key__location=key,
            ssl__certificate__location=certificate,
        )
    )  # fmt: skip


def test_a_client_without_a_certificate_is_not_served(mutual: Door) -> None:
    assert "certificate required" in reason(mutual.librdkafka(security_protocol="SSL"))


def test_a_client_with_a_certificate_of_another_authority_is_not_served(mutual: Door) -> None:
    stranger = mutual.folder / "strangers"
    said = reason(
        mutual.librdkafka(
            security_protocol="SSL",
            ssl_key_location=str(stranger / "mallory.key"),
            ssl_certificate_location=str(stranger / "mallory.pem"),
        )
    )
    assert "unknown ca" in said


def test_a_client_without_tls_is_not_served(mutual: Door) -> None:
    with pytest.raises(KafkaException) as caught:
        AdminClient({"bootstrap.servers": mutual.address, "log_level": 0}).list_topics(timeout=5)
    assert caught.value.args[0].code() == KafkaError._TRANSPORT


@pytest.mark.parametrize(
    ("settings_", "named"),
    [
        ({"security.protocol": "SSL"}, "ssl.keystore.location"),
        ({"security.protocol": "SSL", "ssl.keystore.location": "{away}"}, "cannot be read: No such file"),
        ({"security.protocol": "SSL", "ssl.keystore.location": "{locked}"}, "no unencrypted key"),
        ({"security.protocol": "SSL", "ssl.keystore.location": "{users}"}, "no unencrypted key"),
        (
            {"security.protocol": "SSL", "ssl.keystore.location": "{store}", "ssl.client.auth": "required"},
            "ssl.truststore.location",
        ),
        ({"security.protocol": "TLS"}, "security.protocol must be one of"),
        ({"security.protocol": "SASL_PLAINTEXT"}, "sasl.enabled.mechanisms"),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.enabled.mechanisms": "PLAIN"}, "sasl.users.file"),
        (
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.enabled.mechanisms": "GSSAPI",
                "sasl.users.file": "{users}",
            },
            "not GSSAPI",
        ),
        (
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.enabled.mechanisms": "PLAIN",
                "sasl.users.file": "{store}",
            },
            "is not JSON",
        ),
    ],
)
def test_a_listener_that_cannot_work_is_refused_by_setting_and_file(
    tmp_path: Path, settings_: dict[str, str], named: str
) -> None:
    certificate, key = Authority(tmp_path / "own").issue("broker")
    places = {name: tmp_path / name for name in ("away", "locked", "users", "store")}
    places["locked"].write_text(encrypted(key, "opens it").read_text() + certificate.read_text())
    places["users"].write_text("{}")
    places["store"].write_text(key.read_text() + certificate.read_text())
    config = {name: value.format(**places) for name, value in settings_.items()}

    with pytest.raises(OptionsError) as caught:
        EmbeddedKafka(in_process=True, config=config).start()

    assert named in caught.value.message


SESSION_MS = 1_500


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    folder = tmp_path_factory.mktemp("short")
    with asking(folder, "SASL_PLAINTEXT", "PLAIN,SCRAM-SHA-512", connections_max_reauth_ms=str(SESSION_MS)) as kafka:
        yield kafka


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_librdkafka_renews_its_login_and_goes_on_writing(
    short: EmbeddedKafka, mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    errors: list[Any] = []
    reports: list[Any] = []
    logins = short.fault("SaslHandshake", "delay", times=1_000)
    producer = Producer(
        {
            "bootstrap.servers": short.bootstrap_servers, "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism, "sasl.username": "alice", "sasl.password": USERS["alice"],
            "error_cb": errors.append,
        }
    )  # fmt: skip
    ends = time.monotonic() + 3 * SESSION_MS / 1000
    while time.monotonic() < ends:
        producer.produce("t", b"value", on_delivery=lambda error, _message: reports.append(error))
        assert producer.flush(TIMEOUT_S) == 0
        time.sleep(0.05)
    logins.release()
    assert [each for each in reports if each is not None] == []
    assert errors == []
    # A bootstrap connection and one to the broker, and each renewal of them.
    assert logins.fired > 3
    # Not by a new connection after the broker has ended the old one.
    assert said_by(caplog, "embedded_kafka") == []


def test_the_products_client_renews_its_login_and_goes_on_asking(
    short: EmbeddedKafka, caplog: pytest.LogCaptureFixture
) -> None:
    logins = short.fault("SaslHandshake", "delay", times=1_000)
    cluster = Cluster(settings(short.bootstrap_servers, **login(password=USERS["alice"])))
    try:
        ends = time.monotonic() + 3 * SESSION_MS / 1000
        while time.monotonic() < ends:
            assert list_transactions(cluster) == {}
            time.sleep(0.05)
    finally:
        cluster.close()
        logins.release()
    assert logins.fired > 2
    assert said_by(caplog, "embedded_kafka") == []
