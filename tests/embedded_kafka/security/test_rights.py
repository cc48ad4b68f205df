"""ACLs of a broker that runs: made, listed and removed by librdkafka, kept over a restart, and what is refused without
them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
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

from embedded_kafka import EmbeddedKafka, Security
from embedded_kafka.wire.server import (
    CreateAclsRequest,
    DeleteAclsRequest,
    DeleteTopicsRequest,
    DescribeAclsRequest,
    MetadataRequest,
)
from kafka_core.errors import LogDamaged
from kafka_core.protocol.error_codes import Code
from tests.embedded_kafka.security.doors import Line

pytestmark = [pytest.mark.kafka, pytest.mark.embedded]

TIMEOUT_S = 30
USERS = {"root": "r", "alice": "a"}
TOPIC, GROUP, CLUSTER, ID = (
    ResourceType.TOPIC, ResourceType.GROUP, ResourceType.BROKER, ResourceType.TRANSACTIONAL_ID,
)  # fmt: skip
GUARDED = Security("SASL_PLAINTEXT", ("PLAIN",), USERS, acls=True, super_users=("root",))


@pytest.fixture
def kafka() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(in_process=True, security=GUARDED) as broker:
        make(broker, "t")
        yield broker


def admin(kafka: EmbeddedKafka, user: str = "root") -> AdminClient:
    return AdminClient({**kafka.client_settings(user), "log_level": 0})


def make(kafka: EmbeddedKafka, topic: str, user: str = "root") -> None:
    # A client that is not held ends with its first request.
    client = admin(kafka, user)
    client.create_topics([NewTopic(topic, 1)])[topic].result(TIMEOUT_S)


def acl(
    resource: ResourceType, name: str, operation: AclOperation, *, who: str = "User:alice",
    pattern: ResourcePatternType = ResourcePatternType.LITERAL,
    permission: AclPermissionType = AclPermissionType.ALLOW,
) -> AclBinding:  # fmt: skip
    return AclBinding(resource, name, pattern, who, "*", operation, permission)


def grant(kafka: EmbeddedKafka, *acls: AclBinding, user: str = "root") -> None:
    client = admin(kafka, user)
    for answer in client.create_acls(list(acls)).values():
        answer.result(TIMEOUT_S)


def every(name: str | None = None) -> AclBindingFilter:
    return AclBindingFilter(
        ResourceType.ANY, name, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )


def listed(kafka: EmbeddedKafka, user: str = "root") -> list[AclBinding]:
    client = admin(kafka, user)
    return sorted(client.describe_acls(every()).result(TIMEOUT_S))


def code(error: Any) -> str:
    return str(error.name() if isinstance(error, KafkaError) else error.value.args[0].name())


def written(kafka: EmbeddedKafka, topic: str = "t", **more: Any) -> str:
    """The error of alice's write; empty where it is acknowledged."""
    reports: list[Any] = []
    producer = Producer({**kafka.client_settings("alice"), "log_level": 0, **more})
    producer.produce(topic, b"value", on_delivery=lambda error, _message: reports.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    # Not ==: confluent_kafka's errors cannot be compared with None.
    return "" if reports[0] is None else code(reports[0])


def read(kafka: EmbeddedKafka, group: str = "g") -> str:
    """alice's first record in a group, or the error."""
    settings = {
        **kafka.client_settings("alice"),
        "group.id": group,
        "auto.offset.reset": "earliest",
        "log_level": 0,
    }
    consumer = Consumer(settings)
    try:
        consumer.subscribe(["t"])
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        if message.error():
            return code(message.error())
        consumer.commit(message, asynchronous=False)
        return message.value().decode()  # type: ignore[union-attr, no-any-return]
    finally:
        consumer.close()


ANY_FILTER = {
    "resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1, "principal_filter": None,
    "host_filter": None, "operation": 1, "permission_type": 1,
}  # fmt: skip
EVERY = DescribeAclsRequest(version=3, **ANY_FILTER)
WRITE = acl(TOPIC, "t", AclOperation.WRITE)


def test_a_right_opens_what_it_is_for_and_its_removal_closes_it(kafka: EmbeddedKafka) -> None:
    assert written(kafka) == "TOPIC_AUTHORIZATION_FAILED"
    grant(kafka, WRITE)
    assert written(kafka) == ""
    client = admin(kafka)
    (removed,) = client.delete_acls([every("t")]).values()
    assert removed.result(TIMEOUT_S) == [WRITE]
    assert written(kafka) == "TOPIC_AUTHORIZATION_FAILED"
    assert listed(kafka) == []


def test_a_reader_needs_the_topic_and_the_group(kafka: EmbeddedKafka) -> None:
    grant(kafka, WRITE)
    assert written(kafka) == ""
    assert read(kafka) == "GROUP_AUTHORIZATION_FAILED"
    grant(kafka, acl(GROUP, "g", AclOperation.READ))
    # Write on the topic includes Describe, so the member joins, and the fetch is refused.
    assert read(kafka) == "TOPIC_AUTHORIZATION_FAILED"
    grant(kafka, acl(TOPIC, "t", AclOperation.READ))
    assert read(kafka) == "value"
    assert read(kafka, "other") == "GROUP_AUTHORIZATION_FAILED"


def test_a_denial_takes_away_what_a_wildcard_gives(kafka: EmbeddedKafka) -> None:
    grant(kafka, acl(TOPIC, "*", AclOperation.ALL))
    assert written(kafka) == ""
    grant(kafka, acl(TOPIC, "t", AclOperation.WRITE, permission=AclPermissionType.DENY, who="User:*"))
    assert written(kafka) == "TOPIC_AUTHORIZATION_FAILED"


def test_a_transaction_needs_its_id(kafka: EmbeddedKafka) -> None:
    grant(kafka, WRITE)

    def transact() -> None:
        producer = Producer({**kafka.client_settings("alice"), "transactional.id": "p:0", "log_level": 0})
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
        producer.produce("t", b"value")
        producer.commit_transaction(TIMEOUT_S)

    with pytest.raises(KafkaException) as caught:
        transact()
    assert code(caught) == "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
    grant(kafka, acl(ID, "p:", AclOperation.WRITE, pattern=ResourcePatternType.PREFIXED))
    transact()


@pytest.mark.parametrize(
    "right",
    [
        acl(CLUSTER, "kafka-cluster", AclOperation.CREATE),
        acl(TOPIC, "new", AclOperation.CREATE),
        acl(TOPIC, "n", AclOperation.CREATE, pattern=ResourcePatternType.PREFIXED),
    ],
)
def test_a_topic_is_created_by_the_right_on_the_cluster_or_on_the_topic(
    kafka: EmbeddedKafka, right: AclBinding
) -> None:
    with pytest.raises(KafkaException) as caught:
        make(kafka, "new", "alice")
    assert code(caught) == "TOPIC_AUTHORIZATION_FAILED"
    grant(kafka, right)
    make(kafka, "new", "alice")


def test_an_idempotent_write_needs_the_right_to_write_to_any_topic(kafka: EmbeddedKafka) -> None:
    assert written(kafka, **{"enable.idempotence": True}) != ""
    grant(kafka, WRITE)
    assert written(kafka, **{"enable.idempotence": True}) == ""


def test_topics_without_a_right_are_not_listed_and_the_operations_are_those_of_the_acls(
    kafka: EmbeddedKafka,
) -> None:
    assert "t" not in admin(kafka, "alice").list_topics(timeout=TIMEOUT_S).topics
    grant(kafka, acl(TOPIC, "t", AclOperation.DESCRIBE))
    assert "t" in admin(kafka, "alice").list_topics(timeout=TIMEOUT_S).topics


def test_acls_are_made_listed_and_removed_by_those_who_may(kafka: EmbeddedKafka) -> None:
    alice = admin(kafka, "alice")
    for asked in (*alice.create_acls([WRITE]).values(), *alice.delete_acls([every()]).values()):
        with pytest.raises(KafkaException) as caught:
            asked.result(TIMEOUT_S)
        assert code(caught) == "CLUSTER_AUTHORIZATION_FAILED"
    with Line(kafka) as line:
        line.plain("alice", USERS["alice"])
        assert line.ask(EVERY).error_code == Code.CLUSTER_AUTHORIZATION_FAILED
    assert listed(kafka) == []
    grant(
        kafka,
        acl(CLUSTER, "kafka-cluster", AclOperation.ALTER),  # includes Describe
    )
    grant(kafka, WRITE, user="alice")
    assert WRITE in listed(kafka, "alice")


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (acl(CLUSTER, "another", AclOperation.ALTER), "only valid name for the CLUSTER resource"),
        (acl(TOPIC, "t", AclOperation.READ, who="alice"), "a colon between them"),
    ],
)
def test_an_acl_without_meaning_is_refused_and_the_others_of_its_request_are_made(
    kafka: EmbeddedKafka, wrong: AclBinding, reason: str
) -> None:
    client = admin(kafka)
    answers = client.create_acls([wrong, WRITE])
    with pytest.raises(KafkaException) as caught:
        answers[wrong].result(TIMEOUT_S)
    assert code(caught) == "INVALID_REQUEST"
    assert reason in caught.value.args[0].str()
    answers[WRITE].result(TIMEOUT_S)
    assert listed(kafka) == [WRITE]


def test_acls_outlive_a_kill_of_the_broker() -> None:
    with EmbeddedKafka(security=GUARDED) as kafka:
        grant(kafka, WRITE, acl(GROUP, "g", AclOperation.READ))
        before = listed(kafka)
        kafka.kill()
        kafka.restart()
        assert listed(kafka) == before
        assert len(before) == 2


def test_a_file_of_acls_that_cannot_be_read_keeps_the_broker_from_starting(tmp_path: Path) -> None:
    (tmp_path / "acls.json").write_text('[["TOPIC"]]')
    with pytest.raises(LogDamaged, match=r"file of the ACLs .*acls\.json"):
        EmbeddedKafka(in_process=True, data_dir=tmp_path, security=GUARDED).start()


def test_a_tests_denial_holds_beside_the_acls_and_for_super_users_too(kafka: EmbeddedKafka) -> None:
    grant(kafka, WRITE)
    kafka.deny("WRITE", "TOPIC", "t")
    assert written(kafka) == "TOPIC_AUTHORIZATION_FAILED"
    kafka.deny("CREATE", "CLUSTER")
    with pytest.raises(KafkaException):
        make(kafka, "new")
    kafka.allow_all()
    assert written(kafka) == ""


def test_the_name_in_a_certificate_is_the_principal_of_an_acl() -> None:
    users = {"root": "-", "alice": "-"}
    security = Security("SSL", users=users, client_certificates=True, acls=True, super_users=("root",))
    with EmbeddedKafka(in_process=True, security=security) as kafka:
        make(kafka, "t")
        grant(kafka, acl(TOPIC, "t", AclOperation.WRITE, who="User:alice"))
        assert written(kafka) == "TOPIC_AUTHORIZATION_FAILED"
        grant(kafka, acl(TOPIC, "t", AclOperation.WRITE, who=security.principal("alice")))
        assert written(kafka) == ""


def test_two_clients_at_once_have_each_their_own_rights(kafka: EmbeddedKafka) -> None:
    # A read that waits at the broker keeps its own principal while others ask.
    grant(kafka, acl(TOPIC, "t", AclOperation.READ), acl(GROUP, "g", AclOperation.READ))
    waiting = Consumer({**kafka.client_settings("alice"), "group.id": "g", "fetch.wait.max.ms": 2000,
                        "auto.offset.reset": "earliest"})  # fmt: skip
    try:
        waiting.subscribe(["t"])
        assert waiting.poll(1) is None
        for _ in range(3):
            assert written(kafka) == "TOPIC_AUTHORIZATION_FAILED"
        root = Producer({**kafka.client_settings("root")})
        root.produce("t", b"of root")
        assert root.flush(TIMEOUT_S) == 0
        message = waiting.poll(TIMEOUT_S)
        assert message is not None
        assert message.value() == b"of root"
    finally:
        waiting.close()


def test_a_broker_without_an_authorizer_says_so() -> None:
    with EmbeddedKafka(in_process=True) as kafka:
        client = AdminClient(kafka.client_settings())
        for asked in (*client.create_acls([WRITE]).values(), *client.delete_acls([every()]).values()):
            with pytest.raises(KafkaException) as caught:
                asked.result(TIMEOUT_S)
            assert code(caught) == "SECURITY_DISABLED"
        with Line(kafka) as line:
            assert line.ask(EVERY).error_code == Code.SECURITY_DISABLED


def test_numbers_without_a_meaning_are_refused_and_change_nothing(kafka: EmbeddedKafka) -> None:
    grant(kafka, WRITE)
    right = {
        "resource_type": 2, "resource_name": "t", "resource_pattern_type": 3, "principal": "User:a", "host": "*",
        "operation": 3, "permission_type": 3,
    }  # fmt: skip
    wrong = [
        {name: number}
        for name in ("resource_type", "resource_pattern_type", "operation", "permission_type")
        for number in (0, 1, 99)
    ]
    wrong += [{"resource_pattern_type": 2}, {"resource_name": ""}]
    with Line(kafka) as line:
        line.plain("root", USERS["root"])
        made = CreateAclsRequest.AclCreation
        answer = line.ask(CreateAclsRequest(version=3, creations=[made(**{**right, **each}) for each in wrong]))
        assert {each.error_code for each in answer.results} == {int(Code.INVALID_REQUEST)}
        filters = [
            DeleteAclsRequest.DeleteAclsFilter(**{**ANY_FILTER, name: 99})
            for name in ("resource_type_filter", "pattern_type_filter", "operation", "permission_type")
        ]
        answer = line.ask(DeleteAclsRequest(version=3, filters=filters))
        assert {each.error_code for each in answer.filter_results} == {int(Code.INVALID_REQUEST)}
        assert (
            line.ask(DescribeAclsRequest(version=3, **{**ANY_FILTER, "operation": 0})).error_code
            == Code.INVALID_REQUEST
        )
    assert listed(kafka) == [WRITE]


def test_a_stranger_does_not_learn_which_topics_there_are(kafka: EmbeddedKafka) -> None:
    """By name a topic that is there and one that is not are answered alike; an id is answered without its name."""
    with Line(kafka) as root, Line(kafka) as alice:
        root.plain("root", "r")
        alice.plain("alice", "a")
        (there,) = root.ask(MetadataRequest(version=12, topics=[named("t")])).topics

        for version in (5, 6):
            answers = {}
            for name in ("t", "missing"):
                by_name = {"topic_names": [name]} if version == 5 else {"topics": [doomed(name=name)]}
                (answers[name],) = alice.ask(
                    DeleteTopicsRequest(version=version, timeout_ms=1_000, **by_name)
                ).responses
            assert {each.error_code for each in answers.values()} == {Code.TOPIC_AUTHORIZATION_FAILED}
            assert not any(each.topic_id for each in answers.values())
            assert len({each.error_message for each in answers.values()}) == 1

        by_id = [doomed(name=None, topic_id=there.topic_id)]
        both = [*by_id, doomed(name="t")]
        for topics in (by_id, both):
            answer = alice.ask(DeleteTopicsRequest(version=6, timeout_ms=1_000, topics=topics)).responses
            assert {each.error_code for each in answer} == {Code.TOPIC_AUTHORIZATION_FAILED}
            assert [each.name for each in answer] == [None, *(["t"] if topics is both else [])]
            assert "t" not in str(answer[0].error_message).split()
        (shown,) = alice.ask(MetadataRequest(version=12, topics=[named(None, topic_id=there.topic_id)])).topics
        assert (shown.error_code, shown.name, shown.topic_id) == (
            Code.TOPIC_AUTHORIZATION_FAILED, None, there.topic_id,
        )  # fmt: skip
        assert shown.partitions == []
        assert root.ask(MetadataRequest(version=12, topics=[named("t")])).topics[0].error_code == 0


def doomed(**fields: Any) -> Any:
    return DeleteTopicsRequest.DeleteTopicState(**fields)


def named(name: str | None, **fields: Any) -> Any:
    return MetadataRequest.MetadataRequestTopic(name=name, **fields)
