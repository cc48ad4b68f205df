"""Apache Kafka with a listener for every way to log in.

Owns: its listeners and their settings, the users, the certificates and the issuer of tokens.
Does not know: what is done with a door.
Invariants: each listener takes its own way alone, so that a client that comes in has used it; the operator's listener
is a plaintext one that only the test knows.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from embedded_kafka.child.ports import free_ports
from embedded_kafka.real import LocalKafka
from tests.pyspark_kafka_eos.client.certificates import Authority, openssl
from tests.pyspark_kafka_eos.client.oauth.token_endpoint import TokenEndpoint
from tests.security import ways
from tests.security.kdc import BROKER, HOST, REALM, NoKerberos, Realm
from tests.security.ways import Closed, Door

VERSIONS = ("3.9.1", "4.4.0")
MODULES = "org.apache.kafka.common.security"
WITHIN_S = 60
_LISTENERS = {
    "OPEN": "PLAINTEXT",
    "TLS": "SSL",
    "MUTUAL": "SSL",
    "PLAIN": "SASL_SSL",
    "S256": "SASL_SSL",
    "S512": "SASL_SSL",
    "BEARER": "SASL_SSL",
    "TOKEN": "SASL_SSL",
    "KERBEROS": "SASL_SSL",
}
_SCRAM = {"S256": "SCRAM-SHA-256", "S512": "SCRAM-SHA-512", "TOKEN": "SCRAM-SHA-256"}
_TOKENS_KEY = "of the test"


@contextmanager
def opened(version: str, folder: Path, realm: Realm | NoKerberos) -> Iterator[list[Door | Closed]]:
    """A broker of this version, and its doors in the order of the table. `realm`: a running KDC, or why there is
    none.
    """
    with ExitStack() as stack:
        authority = Authority(folder / "authority")
        key = folder / "issuer.key"
        openssl("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", key)
        issuer = stack.enter_context(TokenEndpoint(folder / "issuer", key, clients={ways.USER: ways.PASSWORD}))
        more = {
            **_tls_settings(authority),
            **_sasl_settings(issuer),
            "delegation.token.secret.key": _TOKENS_KEY,
        }
        java = {"org.apache.kafka.sasl.oauthbearer.allowed.urls": issuer.jwks}
        names = dict(_LISTENERS)
        if isinstance(realm, Realm):
            more |= _kerberos_settings(realm)
            java["java.security.krb5.conf"] = str(realm.settings)
        else:
            # Its Java would end without a ticket.
            del names["KERBEROS"]
        ports = dict(zip(names, free_ports(len(names)), strict=True))
        addresses = {name: (HOST if name == "KERBEROS" else "127.0.0.1", ports[name]) for name in names}
        listeners = {name: (protocol, *addresses[name]) for name, protocol in names.items()}
        kafka = stack.enter_context(
            LocalKafka(version, config=more, listeners=listeners, system_properties=java, fast_start=True)
        )
        operator = {"bootstrap.servers": kafka.bootstrap_servers}
        _make_users(operator)
        client = authority.issue("client")
        given = _given(authority.file, client, issuer)
        jaas = _token(kafka, f"127.0.0.1:{ports['S512']}", authority.file, folder)
        sasl = {"security.protocol": "SASL_SSL", "ssl.ca.location": str(authority.file)}
        given[ways.TOKEN] = ("TOKEN", {**sasl, "sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": jaas})
        if isinstance(realm, Realm):
            tickets = {"sasl.kerberos.principal": realm.principal, "sasl.kerberos.keytab": str(realm.user)}
            given[ways.KERBEROS] = ("KERBEROS", {**sasl, "sasl.mechanism": "GSSAPI", **tickets})
        doors: list[Door | Closed] = []
        for way, (listener, settings) in given.items():
            host, port = addresses[listener]
            doors.append(Door(way, ways.product({"bootstrap.servers": f"{host}:{port}", **settings}), operator))
        yield doors if isinstance(realm, Realm) else [*doors, Closed(ways.KERBEROS, str(realm))]


def _given(trusted: Path, client: tuple[Path, Path], issuer: TokenEndpoint) -> dict[str, tuple[str, dict[str, str]]]:
    """Way -> its listener and the client's settings."""
    tls = {"ssl.ca.location": str(trusted)}
    sasl = {"security.protocol": "SASL_SSL", **tls}
    user = {"sasl.username": ways.USER, "sasl.password": ways.PASSWORD}
    certificate, key = map(str, client)
    return {
        ways.PLAINTEXT: ("OPEN", {"security.protocol": "PLAINTEXT"}),
        ways.TLS: ("TLS", {"security.protocol": "SSL", **tls}),
        ways.MUTUAL: (
            "MUTUAL",
            {
                "security.protocol": "SSL",
                **tls,
                "ssl.certificate.location": certificate,
                "ssl.key.location": key,
            },
        ),
        ways.PLAIN: ("PLAIN", {**sasl, "sasl.mechanism": "PLAIN", **user}),
        ways.SCRAM_256: ("S256", {**sasl, "sasl.mechanism": "SCRAM-SHA-256", **user}),
        ways.SCRAM_512: ("S512", {**sasl, "sasl.mechanism": "SCRAM-SHA-512", **user}),
        ways.BEARER: ("BEARER", {**sasl, "sasl.mechanism": "OAUTHBEARER", **bearer(issuer)}),
    }


def bearer(issuer: TokenEndpoint) -> dict[str, str]:
    """Client credentials by the Java client's names."""
    return {
        "sasl.oauthbearer.token.endpoint.url": issuer.url,
        "sasl.oauthbearer.client.credentials.client.id": ways.USER,
        "sasl.oauthbearer.client.credentials.client.secret": ways.PASSWORD,
    }


def _tls_settings(authority: Authority) -> dict[str, str]:
    certificate, key = authority.issue("server")
    store = key.with_suffix(".store")
    store.touch(mode=0o600)
    store.write_text(key.read_text() + certificate.read_text() + authority.file.read_text())
    more = {
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.mutual.ssl.truststore.type": "PEM",
        "listener.name.mutual.ssl.truststore.location": str(authority.file),
    }
    for name, protocol in _LISTENERS.items():
        if protocol.endswith("SSL"):
            more[f"listener.name.{name.lower()}.ssl.keystore.type"] = "PEM"
            more[f"listener.name.{name.lower()}.ssl.keystore.location"] = str(store)
    return more


def _sasl_settings(issuer: TokenEndpoint) -> dict[str, str]:
    more = {
        "listener.name.plain.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.plain.plain.sasl.jaas.config": (
            f'{MODULES}.plain.PlainLoginModule required user_{ways.USER}="{ways.PASSWORD}";'
        ),
        **issuer.judged_by("bearer"),
    }
    for listener, mechanism in _SCRAM.items():
        name = f"listener.name.{listener.lower()}"
        more[f"{name}.sasl.enabled.mechanisms"] = mechanism
        more[f"{name}.{mechanism.lower()}.sasl.jaas.config"] = f"{MODULES}.scram.ScramLoginModule required;"
    return more


def _kerberos_settings(realm: Realm) -> dict[str, str]:
    module = "com.sun.security.auth.module.Krb5LoginModule"
    return {
        "listener.name.kerberos.sasl.enabled.mechanisms": "GSSAPI",
        "listener.name.kerberos.gssapi.sasl.jaas.config": (
            f'{module} required useKeyTab=true storeKey=true keyTab="{realm.broker}" principal="{BROKER}@{REALM}";'
        ),
        "sasl.kerberos.service.name": "kafka",
    }


def _token(kafka: LocalKafka, address: str, trusted: Path, folder: Path) -> str:
    """The JAAS line of a delegation token that the user has had made, as Kafka's own tool makes it."""
    login = f'{MODULES}.scram.ScramLoginModule required username="{ways.USER}" password="{ways.PASSWORD}";'
    file = folder / "token.properties"
    file.touch(mode=0o600)
    file.write_text(
        f"security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\nsasl.jaas.config={login}\n"
        f"ssl.truststore.type=PEM\nssl.truststore.location={trusted}\n"
    )
    done = kafka.tool(
        "org.apache.kafka.tools.DelegationTokenCommand",
        *("--bootstrap-server", address, "--create", "--max-life-time-period", "-1"),
        *("--command-config", str(file)),
    )
    rows = [row for line in done.stdout.splitlines() if (row := line.split())]
    at = next((number for number, row in enumerate(rows) if row[:2] == ["TOKENID", "HMAC"]), None)
    assert at is not None, done.stdout + done.stderr
    name, hmac = rows[at + 1][:2]
    _wait_for_token(kafka, address, file, name)
    return f'{MODULES}.scram.ScramLoginModule required tokenauth="true" username="{name}" password="{hmac}";'


def _wait_for_token(kafka: LocalKafka, address: str, file: Path, name: str) -> None:
    """With KRaft the controller answers before the broker knows the token."""
    until = time.monotonic() + WITHIN_S
    while True:
        done = kafka.tool(
            "org.apache.kafka.tools.DelegationTokenCommand",
            *("--bootstrap-server", address, "--describe", "--command-config", str(file)),
            # Without it the tool asks for the tokens of no owner.
            *("--owner-principal", f"User:{ways.USER}"),
        )
        if name in done.stdout:
            return
        assert time.monotonic() < until, done.stdout


def _make_users(operator: Mapping[str, str]) -> None:
    admin = AdminClient(dict(operator))
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        made = UserScramCredentialUpsertion(ways.USER, ScramCredentialInfo(mechanism, 4096), ways.PASSWORD.encode())
        for answer in admin.alter_user_scram_credentials([made]).values():
            answer.result(WITHIN_S)
