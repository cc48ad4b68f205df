"""The printed commands, carried out by Kafka's own tool, are enough for a pipeline, and none of them is too much."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from typer.testing import CliRunner

from embedded_kafka.child.ports import free_ports
from embedded_kafka.real import LocalKafka
from pyspark_kafka_eos.cli.app import app
from tests.pyspark_kafka_eos.client.test_login_real import MODULES
from tests.pyspark_kafka_eos.commit.child import run_child
from tests.pyspark_kafka_eos.commit.judge import EXPECTED, read_all, settings_for

pytestmark = [pytest.mark.kafka, pytest.mark.real, pytest.mark.slow]

WITHIN_S = 30
LEDGER = "exactly-once-ledger"
ANY = AclBindingFilter(
    ResourceType.ANY,
    None,
    ResourcePatternType.ANY,
    "User:alice",
    None,
    AclOperation.ANY,
    AclPermissionType.ANY,
)


@pytest.fixture(scope="module")
def guarded() -> Iterator[tuple[LocalKafka, str]]:
    """A broker that allows nobody anything but its operator (ANONYMOUS), and the address where alice logs in."""
    (port,) = free_ports(1)
    more = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "false",
        "super.users": "User:ANONYMOUS",
        "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": f'{MODULES}.plain.PlainLoginModule required user_alice="wonderland";',
    }
    with LocalKafka(config=more, listeners={"SASL": ("SASL_PLAINTEXT", "127.0.0.1", port)}, fast_start=True) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        topic = NewTopic(LEDGER, 2, 1, config={"cleanup.policy": "compact"})
        admin.create_topics([topic])[LEDGER].result(WITHIN_S)
        yield kafka, f"127.0.0.1:{port}"


def pipeline_of(kafka: LocalKafka, address: str) -> dict[str, Any]:
    """A new pipeline of alice's, with a topic and a source of its own."""
    settings = settings_for(kafka)
    settings["options"] |= {
        "kafka.bootstrap.servers": address, "kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": "alice", "kafka.sasl.password": "wonderland",
    }  # fmt: skip
    return settings


def grant(kafka: LocalKafka, settings: dict[str, Any]) -> list[AclBinding]:
    """Carry out what `kafka-eos acls` prints; the ACLs that the broker has then."""
    options, sources = settings["options"], {source for source, _, _ in settings["offsets"]}
    words = ["acls", options["pipeline"], "-b", kafka.bootstrap_servers, "-o", f"topic={options['topic']}"]
    words += [word for source in sources for word in ("--source", source)]
    printed = CliRunner().invoke(app, [*words, "--principal", "User:alice"])
    assert printed.exit_code == 0, printed.output
    for line in printed.output.splitlines():
        if not line.startswith("#"):
            name, *rest = shlex.split(line)
            assert name == "kafka-acls"
            at = rest.index("--command-config")
            del rest[at : at + 2]
            done = kafka.tool("org.apache.kafka.tools.AclCommand", *rest)
            assert done.returncode == 0, done.stdout + done.stderr
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    return list(admin.describe_acls(ANY).result(WITHIN_S))


def ungrant(kafka: LocalKafka, bindings: list[AclBinding]) -> None:
    """Take ACLs away."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    filters = [
        AclBindingFilter(each.restype, each.name, each.resource_pattern_type, each.principal, each.host, each.operation,
                         each.permission_type)
        for each in bindings
    ]  # fmt: skip
    for done in admin.delete_acls(filters).values():
        assert len(done.result(WITHIN_S)) == 1


def test_the_printed_rights_are_enough_and_none_is_too_much(guarded: tuple[LocalKafka, str]) -> None:
    kafka, address = guarded
    settings = pipeline_of(kafka, address)
    refused = run_child(settings)
    assert "AuthorizationFailed" in refused.report["error"]

    granted = grant(kafka, settings)
    assert len(granted) == 6

    for batch in (0, 1):
        done = run_child({**settings, "batch": batch})
        assert "error" not in done.report, done.report
    assert sum(read_all(kafka, settings["options"]["topic"]).values()) == 2 * sum(EXPECTED.values())
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for number, each in enumerate(granted):
        ungrant(kafka, [each])

        without = run_child({**settings, "batch": 2 + number})

        assert "AuthorizationFailed" in without.report["error"], (each, without.report)
        admin.create_acls([each])[each].result(WITHIN_S)
        again = run_child({**settings, "batch": 2 + number})
        assert "error" not in again.report, (each, again.report)
    assert sum(read_all(kafka, settings["options"]["topic"]).values()) == 8 * sum(EXPECTED.values())
