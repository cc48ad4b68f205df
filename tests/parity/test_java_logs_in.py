"""The Java client and Kafka's tools log in to the embedded broker, and make ACLs on it.

The same on Apache Kafka is tests/pyspark_kafka_eos/client/test_login_real.py with the product's client: there the
broker is beyond doubt.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from embedded_kafka import EmbeddedKafka, Security
from tests.parity.java import java_tool

pytestmark = [pytest.mark.kafka, pytest.mark.parity]

MODULES = "org.apache.kafka.common.security"
TOPICS = "org.apache.kafka.tools.TopicCommand"
USERS = {"root": "r,=secret", "alice": "a secret"}


@pytest.fixture(scope="module")
def kafka() -> Iterator[EmbeddedKafka]:
    security = Security(
        "SASL_SSL", ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"), USERS, acls=True, super_users=("root",),
        client_certificates=True,
    )  # fmt: skip
    with EmbeddedKafka(security=security) as broker:
        yield broker


def client(kafka: EmbeddedKafka, folder: Path, mechanism: str, user: str = "root", password: str | None = None) -> str:
    """The file of the Java client's settings."""
    given = kafka.client_settings(user, mechanism)
    secret = USERS[user] if password is None else password
    if mechanism == "OAUTHBEARER":
        login = f'{MODULES}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="{user}";'
    else:
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        login = f'{MODULES}.{module} required username="{user}" password="{secret}";'
    store = folder / "client.pem"
    store.write_text(Path(given["ssl.key.location"]).read_text() + Path(given["ssl.certificate.location"]).read_text())
    settings = {
        "security.protocol": "SASL_SSL", "sasl.mechanism": mechanism, "sasl.jaas.config": login,
        "ssl.truststore.type": "PEM", "ssl.truststore.location": given["ssl.ca.location"],
        "ssl.keystore.type": "PEM", "ssl.keystore.location": str(store),
    }  # fmt: skip
    path = folder / "client.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return str(path)


def topics(kafka: EmbeddedKafka, settings: str, *arguments: str) -> str:
    """What TopicCommand prints."""
    return java_tool(TOPICS, "--bootstrap-server", kafka.bootstrap_servers, "--command-config", settings, *arguments)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_kafkas_tool_creates_a_topic_after_its_login(kafka: EmbeddedKafka, tmp_path: Path, mechanism: str) -> None:
    settings = client(kafka, tmp_path, mechanism)
    name = f"of-{mechanism.lower()}"
    topics(kafka, settings, "--create", "--topic", name)
    assert name in topics(kafka, settings, "--list").split()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_kafkas_tool_is_told_of_a_wrong_password(kafka: EmbeddedKafka, tmp_path: Path, mechanism: str) -> None:
    settings = client(kafka, tmp_path, mechanism, password="wrong")
    with pytest.raises(AssertionError, match="SaslAuthenticationException"):
        topics(kafka, settings, "--list")


def test_kafkas_tool_makes_lists_and_removes_acls(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    def acls(*arguments: str) -> str:
        return java_tool(
            "org.apache.kafka.tools.AclCommand", "--bootstrap-server",
            kafka.bootstrap_servers, "--command-config", client(kafka, tmp_path, "PLAIN"), *arguments,
        )  # fmt: skip

    root, alice = tmp_path / "root", tmp_path / "alice"
    root.mkdir()
    alice.mkdir()
    topics(kafka, client(kafka, root, "PLAIN"), "--create", "--topic", "guarded")
    seen = client(kafka, alice, "PLAIN", "alice")
    assert "guarded" not in topics(kafka, seen, "--list").split()
    right = (
        "--allow-principal", "User:alice", "--operation", "Read", "--topic", "guard", "--resource-pattern-type", "prefixed",
    )  # fmt: skip
    acls("--add", *right)
    assert "principal=User:alice, host=*, operation=READ, permissionType=ALLOW" in acls("--list")
    assert "guarded" in topics(kafka, seen, "--list").split()
    acls("--remove", "--force", *right)
    assert "guarded" not in topics(kafka, seen, "--list").split()
