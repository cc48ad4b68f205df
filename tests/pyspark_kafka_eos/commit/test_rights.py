"""Rights that are taken away in mid-run: the run says which one is missing, and the next one finishes. Real Kafka's
ACLs.

Everybody is `User:ANONYMOUS` on a broker without TLS and SASL, so a right is taken away by denying it for one resource.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from embedded_kafka.real import LocalKafka
from tests.pyspark_kafka_eos.commit.child import run_child
from tests.pyspark_kafka_eos.commit.held import held_at
from tests.pyspark_kafka_eos.commit.judge import EXPECTED, committed_offsets, read_all, settings_for

pytestmark = [pytest.mark.kafka, pytest.mark.real]

LEDGER = "exactly-once-ledger"
WITHIN_S = 30
NO_OFFSET = -1001


@pytest.fixture(scope="module")
def guarded() -> Iterator[LocalKafka]:
    """A broker that asks an authorizer, which allows what no ACL speaks of."""
    config = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with LocalKafka(config=config, fast_start=True) as broker:
        yield broker


@contextmanager
def without(
    broker: LocalKafka,
    operation: AclOperation,
    resource: ResourceType,
    name: str,
    pattern: ResourcePatternType = ResourcePatternType.LITERAL,
) -> Iterator[None]:
    """Take one right on one resource away, for as long as the block lasts."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})

    def binding(right: AclOperation, permission: AclPermissionType) -> AclBinding:
        return AclBinding(resource, name, pattern, "User:ANONYMOUS", "*", right, permission)

    # The first ACL of a resource ends "allowed where there is none", so what is not denied has to be allowed again.
    acls = [
        binding(AclOperation.ALL, AclPermissionType.ALLOW),
        binding(operation, AclPermissionType.DENY),
    ]
    for done in admin.create_acls(acls).values():
        done.result(WITHIN_S)
    _await_acls(admin, resource, name, pattern, len(acls))
    try:
        yield
    finally:
        gone = AclBindingFilter(resource, name, pattern, None, None, AclOperation.ANY, AclPermissionType.ANY)
        for done in admin.delete_acls([gone]).values():
            done.result(WITHIN_S)
        _await_acls(admin, resource, name, pattern, 0)


def _await_acls(
    admin: AdminClient, resource: ResourceType, name: str, pattern: ResourcePatternType, count: int
) -> None:
    """Until the broker itself, and not only the controller, knows them."""
    wanted = AclBindingFilter(resource, name, pattern, None, None, AclOperation.ANY, AclPermissionType.ANY)
    deadline = time.monotonic() + WITHIN_S
    while len(admin.describe_acls(wanted).result(WITHIN_S)) != count:
        assert time.monotonic() < deadline, f"the broker does not know the ACLs of {name}"


def nothing_shows(broker: LocalKafka, settings: dict[str, Any]) -> bool:
    """Whether neither a record nor an offset of the batch can be read."""
    no_records = read_all(broker, settings["options"]["topic"]) == Counter()
    return no_records and {at for _, _, at in committed_offsets(broker, settings)} == {NO_OFFSET}


def each_record_is_there_once(broker: LocalKafka, settings: dict[str, Any]) -> bool:
    """Whether the whole batch can be read, records and offsets, and nothing twice."""
    all_records = read_all(broker, settings["options"]["topic"]) == EXPECTED
    return all_records and committed_offsets(broker, settings) == settings["offsets"]


# ---- before the decision: nothing shows, the error names the right, and with the right back the batch is written


def test_write_on_the_output_topic_taken_away_while_tasks_write(guarded: LocalKafka) -> None:
    settings = settings_for(guarded)
    topic = settings["options"]["topic"]

    with (
        held_at("mid-produce:3", settings) as run,
        without(guarded, AclOperation.WRITE, ResourceType.TOPIC, topic),
    ):
        error = run.release().report["error"]

    assert error.startswith("AuthorizationFailed")
    assert f"partition={topic}-" in error
    assert "grant WRITE on the topic" in error
    assert "the transaction is aborted" in error
    assert nothing_shows(guarded, settings)
    assert run_child(settings).report["resumed"] is False
    assert each_record_is_there_once(guarded, settings)


def test_write_on_the_transactional_ids_taken_away_before_the_decision(guarded: LocalKafka) -> None:
    settings = settings_for(guarded)
    pipeline = settings["options"]["pipeline"]
    ids = (ResourceType.TRANSACTIONAL_ID, pipeline, ResourcePatternType.PREFIXED)

    with held_at("before-check", settings) as run, without(guarded, AclOperation.WRITE, *ids):
        error = run.release().report["error"]
        meanwhile = run_child(settings).report["error"]

    assert error.startswith("AuthorizationFailed")
    assert "TRANSACTIONAL_ID_AUTHORIZATION_FAILED" in error
    assert "transactional id prefix" in error
    assert meanwhile.startswith("AuthorizationFailed")
    assert f"{pipeline}:driver" in meanwhile
    assert nothing_shows(guarded, settings)
    assert run_child(settings).report["resumed"] is False
    assert each_record_is_there_once(guarded, settings)


def test_describe_on_the_transactional_ids_taken_away_before_the_decision(guarded: LocalKafka) -> None:
    settings = settings_for(guarded)
    ids = (ResourceType.TRANSACTIONAL_ID, settings["options"]["pipeline"], ResourcePatternType.PREFIXED)

    with held_at("before-check", settings) as run, without(guarded, AclOperation.DESCRIBE, *ids):
        error = run.release().report["error"]

    assert error.startswith("AuthorizationFailed")
    assert "DESCRIBE on the transactional id prefix" in error
    assert nothing_shows(guarded, settings)
    assert run_child(settings).report["resumed"] is False
    assert each_record_is_there_once(guarded, settings)


def test_write_on_the_ledger_taken_away_before_the_decision(guarded: LocalKafka) -> None:
    settings = settings_for(guarded)

    with (
        held_at("before-decision", settings) as run,
        without(guarded, AclOperation.WRITE, ResourceType.TOPIC, LEDGER),
    ):
        error = run.release().report["error"]

    assert error.startswith("AuthorizationFailed")
    assert f"partition={LEDGER}-" in error
    assert "grant WRITE on the topic" in error
    assert nothing_shows(guarded, settings)
    assert run_child(settings).report["resumed"] is False
    assert each_record_is_there_once(guarded, settings)


def test_where_the_groups_offsets_are_refused_the_batch_is_not_decided(guarded: LocalKafka) -> None:
    settings = settings_for(guarded)
    group = settings["options"]["pipeline"]

    with (
        held_at("before-decision", settings) as run,
        without(guarded, AclOperation.READ, ResourceType.GROUP, group),
    ):
        error = run.release().report["error"]
        # Asked while it would still be refused: the records were all written, and none may show.
        meanwhile = run_child(settings).report["error"]

    assert error.startswith("AuthorizationFailed: TxnOffsetCommit")
    assert "GROUP_AUTHORIZATION_FAILED" in error
    assert "READ on the group" in error
    assert "no record of the open transaction is visible" in error
    assert meanwhile.startswith("AuthorizationFailed: TxnOffsetCommit")
    assert nothing_shows(guarded, settings)
    assert run_child(settings).report["resumed"] is False
    assert each_record_is_there_once(guarded, settings)


def test_where_offsets_of_a_source_topic_may_not_be_committed_the_batch_is_not_decided(
    guarded: LocalKafka,
) -> None:
    settings = settings_for(guarded)
    source = settings["offsets"][0][0]

    with (
        held_at("before-decision", settings) as run,
        without(guarded, AclOperation.READ, ResourceType.TOPIC, source),
    ):
        error = run.release().report["error"]

    assert error.startswith("AuthorizationFailed: TxnOffsetCommit")
    assert "TOPIC_AUTHORIZATION_FAILED" in error
    assert nothing_shows(guarded, settings)
    assert run_child(settings).report["resumed"] is False
    assert each_record_is_there_once(guarded, settings)


def test_a_right_lost_while_the_decision_is_on_its_way_leaves_it_to_the_next_run(guarded: LocalKafka) -> None:
    settings = settings_for(guarded)
    ids = (ResourceType.TRANSACTIONAL_ID, settings["options"]["pipeline"], ResourcePatternType.PREFIXED)

    with held_at("decision-written", settings) as run, without(guarded, AclOperation.WRITE, *ids):
        error = run.release().report["error"]

    # A refused EndTxn says nothing of an earlier sending of it, so this is no definite refusal.
    assert error.startswith("OutcomeUnknown")
    assert "no slot was ended; the next run asks" in error
    assert nothing_shows(guarded, settings)
    assert run_child(settings).report["resumed"] is False
    assert each_record_is_there_once(guarded, settings)


# ---- after the decision: it stands, and the next run ends what this one may not


@pytest.mark.parametrize(("point", "arrived"), [("before-end", 0), ("ends-arrived:1", 1)])
def test_write_on_the_transactional_ids_taken_away_after_the_decision(
    guarded: LocalKafka, point: str, arrived: int
) -> None:
    settings = settings_for(guarded)
    topic, pipeline = settings["options"]["topic"], settings["options"]["pipeline"]
    ids = (ResourceType.TRANSACTIONAL_ID, pipeline, ResourcePatternType.PREFIXED)

    with held_at(point, settings) as run, without(guarded, AclOperation.WRITE, *ids):
        error = run.release().report["error"]

    assert error.startswith("AuthorizationFailed: the batch is decided")
    assert f"the right to end '{pipeline}:0' is gone" in error
    assert "grant WRITE on the transactional id prefix" in error
    assert "nothing is skipped" in error
    # The offsets were part of the decision; of the slots those show that were ended.
    assert committed_offsets(guarded, settings) == settings["offsets"]
    assert read_all(guarded, topic) == Counter(value for values in settings["rows"][:arrived] for value in values)
    again = run_child(settings).report
    assert (again["resumed"], again["repaired"]) == (True, 0)
    assert each_record_is_there_once(guarded, settings)


# ---- rights that are not needed any more


@pytest.mark.parametrize(
    ("operation", "point"),
    [(AclOperation.WRITE, "before-end"), (AclOperation.READ, "before-check")],
    ids=["write", "read"],
)
def test_sealed_slots_are_committed_without_rights_on_the_output_topic(
    guarded: LocalKafka, operation: AclOperation, point: str
) -> None:
    settings = settings_for(guarded)
    topic = settings["options"]["topic"]

    with held_at(point, settings) as run, without(guarded, operation, ResourceType.TOPIC, topic):
        report = run.release().report

    assert report == {"batch": 0, "records": 1200, "resumed": False, "repaired": 0}
    assert each_record_is_there_once(guarded, settings)
