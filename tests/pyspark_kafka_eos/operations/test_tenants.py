"""Tenants of one cluster, each with the rights of `kafka-eos acls --tenant`: each writes exactly once, none reaches
another's names.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from embedded_kafka import EmbeddedKafka, Security
from pyspark_kafka_eos.operations.acls import GROUP, IDS, TOPIC, of_tenant
from tests.pyspark_kafka_eos.commit.child import run

pytestmark = [pytest.mark.kafka, pytest.mark.embedded]

TENANTS = ("acme", "acme-eu", "globex")
"""The second one's name begins with the first one's."""

WITHIN_S = 30
ROWS = [["a 1", "a 2"], ["b 1"]]
_RESOURCES = {TOPIC: ResourceType.TOPIC, GROUP: ResourceType.GROUP, IDS: ResourceType.TRANSACTIONAL_ID}


@pytest.fixture(scope="module")
def kafka() -> Iterator[EmbeddedKafka]:
    users = {"root": "r", **dict.fromkeys(TENANTS, "secret")}
    security = Security("SASL_PLAINTEXT", ("PLAIN",), users, acls=True, super_users=("root",))
    with EmbeddedKafka(security=security) as broker:
        admin = AdminClient({**broker.client_settings("root"), "log_level": 0})
        for name in TENANTS:
            admin.create_topics([NewTopic(f"{name}.orders", 2)])[f"{name}.orders"].result(WITHIN_S)
            for done in admin.create_acls(bindings(name)).values():
                done.result(WITHIN_S)
        yield broker


def bindings(tenant: str) -> list[AclBinding]:
    """What the printed commands add."""
    return [
        AclBinding(
            _RESOURCES[each.resource], each.name,
            ResourcePatternType.PREFIXED if each.prefixed else ResourcePatternType.LITERAL,
            f"User:{tenant}", "*", AclOperation[operation.upper()], AclPermissionType.ALLOW,
        )
        for each in of_tenant(tenant, create=True).acls
        for operation in each.operations
    ]  # fmt: skip


def settings_of(kafka: EmbeddedKafka, tenant: str, batch: int, **options: str) -> dict[str, Any]:
    login = {f"kafka.{name}": value for name, value in kafka.client_settings(tenant).items()}
    ours = {"pipeline": f"{tenant}.orders", "topic": f"{tenant}.orders", "ledger.topic": f"{tenant}.ledger"}
    offsets = [[f"{tenant}.orders", 0, batch]]
    return {
        "options": {**login, **ours, **options}, "query": f"q-{tenant}", "batch": batch, "rows": ROWS, "offsets": offsets,
    }  # fmt: skip


def rows_of(kafka: EmbeddedKafka, tenant: str) -> list[str]:
    """The committed records of its output, by librdkafka."""
    consumer = Consumer({
        **kafka.client_settings(tenant), "group.id": f"{tenant}.judge", "isolation.level": "read_committed",
        "auto.offset.reset": "earliest", "enable.partition.eof": True, "log_level": 0,
    })  # fmt: skip
    try:
        consumer.assign([TopicPartition(f"{tenant}.orders", number, 0) for number in range(2)])
        found, ended = [], set()
        while len(ended) < 2:
            message = consumer.poll(WITHIN_S)
            assert message is not None
            if message.error():
                ended.add(message.partition())
            else:
                found.append(message.value().decode())
        return sorted(found)
    finally:
        consumer.close()


@pytest.mark.parametrize("tenant", TENANTS)
def test_a_tenant_writes_its_batches_exactly_once_and_makes_its_ledger_itself(
    kafka: EmbeddedKafka, tenant: str
) -> None:
    assert run(settings_of(kafka, tenant, 0))["records"] == 3
    # Spark repeats a batch that is committed.
    assert run(settings_of(kafka, tenant, 0))["resumed"]
    assert run(settings_of(kafka, tenant, 1))["records"] == 3

    assert rows_of(kafka, tenant) == sorted([*ROWS[0], *ROWS[1]] * 2)


OTHERS = [(one, other) for one in TENANTS for other in TENANTS if one != other]


@pytest.mark.parametrize(("one", "other"), OTHERS)
def test_none_fences_writes_reads_or_sees_what_is_another_tenants(kafka: EmbeddedKafka, one: str, other: str) -> None:
    theirs = settings_of(kafka, other, 0, pipeline=f"{other}.before-{one}")
    run(theirs)
    login = {**kafka.client_settings(one), "log_level": 0}

    for name in (f"{other}.before-{one}:driver", f"{other}.before-{one}:0", f"{other}.before-{one}:batch"):
        with pytest.raises(KafkaException, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
            Producer({**login, "transactional.id": name}).init_transactions(WITHIN_S)
    for topic in (f"{other}.ledger", f"{other}.orders"):
        assert written(login, topic) == "TOPIC_AUTHORIZATION_FAILED"
    assert joined(login, f"{other}.orders", f"{one}.orders") == "GROUP_AUTHORIZATION_FAILED"
    seen = AdminClient(login).list_topics(timeout=WITHIN_S).topics
    assert f"{one}.orders" in seen and not [name for name in seen if name.startswith(f"{other}.")]

    assert run(theirs)["resumed"]


def written(login: dict[str, Any], topic: str) -> str:
    """The error of a write."""
    reports: list[Any] = []
    producer = Producer(login)
    producer.produce(topic, b"forged", b"key", on_delivery=lambda error, _message: reports.append(error))
    assert producer.flush(WITHIN_S) == 0
    return "" if reports[0] is None else str(reports[0].name())


def joined(login: dict[str, Any], group: str, topic: str) -> str:
    """The error of a member of a group."""
    consumer = Consumer({**login, "group.id": group})
    try:
        consumer.subscribe([topic])
        message = consumer.poll(WITHIN_S)
        return "" if message is None or message.error() is None else str(message.error().name())
    finally:
        consumer.close()
