"""`kafka-eos doctor` against Apache Kafka's own authorizer: it sees the rights that are missing, and touches
nothing.
"""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AclOperation, ResourcePatternType, ResourceType

from embedded_kafka.real import LocalKafka
from tests.pyspark_kafka_eos.cli.cli_tools import name_of
from tests.pyspark_kafka_eos.cli.test_doctor import check, examine
from tests.pyspark_kafka_eos.commit.judge import settings_for
from tests.pyspark_kafka_eos.commit.test_rights import guarded, without

__all__ = ["guarded"]

pytestmark = [pytest.mark.kafka, pytest.mark.real]


@pytest.mark.parametrize(
    ("operation", "resource", "name"),
    [
        (AclOperation.WRITE, ResourceType.TOPIC, "topic"),
        (AclOperation.DESCRIBE, ResourceType.TOPIC, "topic"),
        (AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, "transactional-ids"),
        (AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, "transactional-ids"),
        (AclOperation.READ, ResourceType.GROUP, "group"),
    ],
)
def test_a_right_that_is_denied_fails_its_check_and_no_other(
    guarded: LocalKafka, operation: AclOperation, resource: ResourceType, name: str
) -> None:
    settings = settings_for(guarded)
    denied = settings["options"]["topic"] if resource == ResourceType.TOPIC else name_of(settings)
    prefixed = resource == ResourceType.TRANSACTIONAL_ID
    pattern = ResourcePatternType.PREFIXED if prefixed else ResourcePatternType.LITERAL
    assert examine(guarded, settings).code == 0

    with without(guarded, operation, resource, denied, pattern):
        answer = examine(guarded, settings)

    assert answer.code == 1
    assert check(answer, name)["status"] == "fail"
    assert [each["name"] for each in answer.document["checks"] if each["status"] == "fail"] == [name]
    assert examine(guarded, settings).code == 0
