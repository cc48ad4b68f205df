"""Which right an error names, where one is missing that is not needed for writing."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AclOperation, ResourcePatternType, ResourceType

from embedded_kafka.real import LocalKafka
from tests.pyspark_kafka_eos.commit.child import run_child
from tests.pyspark_kafka_eos.commit.held import held_at
from tests.pyspark_kafka_eos.commit.judge import settings_for
from tests.pyspark_kafka_eos.commit.test_rights import LEDGER, guarded, without

__all__ = ["guarded"]

pytestmark = [pytest.mark.kafka, pytest.mark.real]


def test_without_read_on_the_ledger_the_error_says_so(guarded: LocalKafka) -> None:
    settings = settings_for(guarded)
    assert run_child(settings).report["batch"] == 0

    with without(guarded, AclOperation.READ, ResourceType.TOPIC, LEDGER):
        error = run_child(settings).report["error"]

    # It is no fault of the broker's, and nothing but this right mends it.
    assert error.startswith("AuthorizationFailed")
    assert "grant READ" in error
    assert LEDGER in error


def test_without_read_on_a_source_topic_the_error_names_topic_and_right(guarded: LocalKafka) -> None:
    settings = settings_for(guarded)

    with without(guarded, AclOperation.READ, ResourceType.TOPIC, settings["offsets"][0][0]):
        error = run_child(settings).report["error"]

    # Committing offsets needs READ on the topics that they are of.
    assert error.startswith("AuthorizationFailed: TxnOffsetCommit")
    assert "READ on the source topic" in error
    assert settings["offsets"][0][0] in error


def test_a_decision_that_may_not_be_ended_names_the_right(guarded: LocalKafka) -> None:
    settings = settings_for(guarded)
    ids = (ResourceType.TRANSACTIONAL_ID, settings["options"]["pipeline"], ResourcePatternType.PREFIXED)

    with held_at("decision-written", settings) as run, without(guarded, AclOperation.WRITE, *ids):
        error = run.release().report["error"]

    assert error.startswith("OutcomeUnknown")
    assert "WRITE on the transactional id" in error
