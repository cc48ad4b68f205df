"""Refused logins by Apache Kafka itself: the reason arrives, at once, after one try; and what is accepted works."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from embedded_kafka.child.ports import free_ports
from embedded_kafka.real import LocalKafka
from kafka_core.errors import BrokerNotTrusted, LoginRefused, OptionsError
from pyspark_kafka_eos.client.cluster import Cluster
from tests.pyspark_kafka_eos.client.certificates import Authority
from tests.pyspark_kafka_eos.client.test_login import login, refused, settings

pytestmark = [pytest.mark.kafka, pytest.mark.real]

MODULES = "org.apache.kafka.common.security"
ODD = "a,b=c"
TRIES = 10


@dataclass(frozen=True)
class Doors:
    """One broker's listeners."""

    kafka: LocalKafka
    sasl: str
    tls: str
    mutual: str
    elsewhere: str
    authority: Authority
    client: tuple[Path, Path]


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    authority = Authority(tmp_path_factory.mktemp("real") / "own")
    own, elsewhere = authority.issue("server"), authority.issue("elsewhere", host="DNS:kafka.example")
    ports = free_ports(4)
    listeners = {
        "SASL": ("SASL_PLAINTEXT", "127.0.0.1", ports[0]),
        "TLS": ("SSL", "127.0.0.1", ports[1]),
        "MUTUAL": ("SSL", "127.0.0.1", ports[2]),
        "ELSEWHERE": ("SSL", "127.0.0.1", ports[3]),
    }
    more = {
        "listener.name.sasl.sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN",
        "listener.name.sasl.scram-sha-512.sasl.jaas.config": f"{MODULES}.scram.ScramLoginModule required;",
        "listener.name.sasl.plain.sasl.jaas.config": f'{MODULES}.plain.PlainLoginModule required user_alice="wonderland";',
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.mutual.ssl.truststore.type": "PEM",
        "listener.name.mutual.ssl.truststore.location": str(authority.file),
    }
    for name, pair in (("tls", own), ("mutual", own), ("elsewhere", elsewhere)):
        store = pair[0].with_suffix(".store")
        store.write_text(pair[1].read_text() + pair[0].read_text() + authority.file.read_text())
        more[f"listener.name.{name}.ssl.keystore.type"] = "PEM"
        more[f"listener.name.{name}.ssl.keystore.location"] = str(store)
    with LocalKafka(config=more, listeners=listeners, fast_start=True) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        made = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        users = [UserScramCredentialUpsertion(name, made, b"wonderland") for name in ("alice", ODD)]
        for answer in admin.alter_user_scram_credentials(users).values():
            answer.result(30)
        addresses = [f"127.0.0.1:{port}" for port in ports]
        yield Doors(kafka, *addresses, authority, authority.issue("client"))


def refusals(kafka: LocalKafka) -> int:
    """How many logins the broker has refused, by its log."""
    return kafka.log_path.read_text().count("Failed authentication with")


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "PLAIN"])
@pytest.mark.parametrize("name", ["alice", "nobody"])
def test_a_wrong_password_or_user_is_refused_with_kafkas_words_in_every_try(
    doors: Doors, mechanism: str, name: str
) -> None:
    before = refusals(doors.kafka)

    for _ in range(TRIES):
        error = refused(settings(doors.sasl, **login(mechanism=mechanism, name=name, password="x")))

        assert type(error) is LoginRefused
        assert "Authentication failed" in error.message

    assert refusals(doors.kafka) - before == TRIES


@pytest.mark.parametrize(("mechanism", "name"), [("SCRAM-SHA-512", "alice"), ("SCRAM-SHA-512", ODD), ("PLAIN", "alice")])  # fmt: skip
def test_the_right_password_connects(doors: Doors, mechanism: str, name: str) -> None:
    cluster = Cluster(settings(doors.sasl, **login(mechanism=mechanism, name=name)))
    try:
        assert cluster.cluster_id()
    finally:
        cluster.close()


def test_a_mechanism_that_kafka_does_not_offer_is_named_with_those_that_it_does(doors: Doors) -> None:
    error = refused(settings(doors.sasl, **login(mechanism="SCRAM-SHA-256")))

    assert isinstance(error, OptionsError)
    assert set(error.facts["offered"] or ()) == {"SCRAM-SHA-512", "PLAIN"}  # type: ignore[arg-type]


def test_another_protocol_than_the_listeners_is_named(doors: Doors) -> None:
    plain = doors.kafka.bootstrap_servers
    tls = {"security__protocol": "SSL", "ssl__ca__location": doors.authority.file}
    cases = [
        (settings(plain, **tls), "does not speak TLS"),
        (settings(doors.sasl, **tls), "does not speak TLS"),
        (settings(doors.tls), "speaks TLS"),
        (settings(doors.sasl), "asks for a login (SASL: "),
        (settings(plain, **login()), "takes no login (SASL)"),
        (settings(doors.tls, **{**tls, **login("SASL_SSL")}), "takes no login (SASL)"),
    ]
    for wanted, said in cases:
        error = refused(wanted)

        assert isinstance(error, OptionsError), (said, error)
        assert said in error.message


def test_kafkas_certificate_is_judged_and_ours_is(doors: Doors, tmp_path: Path) -> None:
    tls = {"security__protocol": "SSL", "ssl__ca__location": doors.authority.file}
    strange = Authority(tmp_path / "strange").issue("strange")
    own = {"ssl__certificate__location": doors.client[0], "ssl__key__location": doors.client[1]}

    for _ in range(TRIES):
        elsewhere = refused(settings(doors.elsewhere, **tls))
        none = refused(settings(doors.mutual, **tls))
        other = refused(
            settings(doors.mutual, **tls, ssl__certificate__location=strange[0], ssl__key__location=strange[1])
        )

        assert type(elsewhere) is BrokerNotTrusted and "is for another host" in elsewhere.message
        assert isinstance(none, OptionsError) and "asks for a certificate of this client" in none.message
        assert type(other) is LoginRefused and str(strange[0]) in other.message
    for wanted in (settings(doors.tls, **tls), settings(doors.mutual, **tls, **own)):
        cluster = Cluster(wanted)
        try:
            assert cluster.cluster_id()
        finally:
            cluster.close()
