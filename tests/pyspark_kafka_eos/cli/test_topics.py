"""`kafka-eos topic create|list|delete`: what they change, what they refuse, and that a refusal changed nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource

from embedded_kafka.embedded import EmbeddedKafka
from tests.conftest import MakeTopic
from tests.pyspark_kafka_eos.cli.cli_tools import call, shown
from tests.pyspark_kafka_eos.cli.conftest import Denying
from tests.pyspark_kafka_eos.cli.processes import in_process
from tests.support.brokers import AnyKafka

pytestmark = [pytest.mark.kafka]


def partitions(broker: AnyKafka) -> dict[str, int]:
    """Topic -> its partitions, as librdkafka sees them."""
    found = AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=30).topics
    return {name: len(each.partitions) for name, each in found.items()}


def outcomes(document: dict) -> dict[str, str]:
    return {each["topic"]: each["outcome"] for each in document["done"]}


def test_topics_are_created_with_what_was_asked_and_listed(kafka: AnyKafka) -> None:
    names = ["made.orders", "made.clean"]

    made = call(kafka, "topic", "create", *names, "-p", "3", "-r", "1", "--config", "retention.ms=86400000")
    listed = call(kafka, "topic", "list", *names)

    assert (made.code, outcomes(made.document)) == (0, dict.fromkeys(names, "created"))
    assert {name: partitions(kafka)[name] for name in names} == dict.fromkeys(names, 3)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    (answer,) = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, names[0])]).values()
    assert answer.result(30)["retention.ms"].value == "86400000"
    assert listed.document["topics"] == [
        {"name": name, "partitions": 3, "replication_factor": 1, "internal": False, "without_leader": 0}
        for name in sorted(names)
    ]


def test_without_numbers_the_broker_chooses(kafka: AnyKafka) -> None:
    code, text = shown(kafka, "topic", "create", "by-default")

    assert code == 0 and "created" in text
    assert partitions(kafka)["by-default"] >= 1


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["fine", "bad name!"], "choose another name"),
        (["fine", "other", "--config", "no.such.setting=1"], "correct the setting"),
        (["fine", "other", "--config", "retention.ms=soon"], "correct the setting"),
    ],
)
def test_where_one_topic_is_refused_none_is_made(kafka: AnyKafka, words: list[str], reason: str) -> None:
    before = partitions(kafka)

    refused = call(kafka, "topic", "create", *words)

    assert refused.code == 1
    assert "created" not in outcomes(refused.document).values()
    assert any(reason in each["detail"] for each in refused.document["done"])
    assert partitions(kafka) == before


def test_a_topic_that_exists_is_refused_unless_it_may(kafka: AnyKafka, topic: MakeTopic) -> None:
    there = topic(partitions=2)

    refused = call(kafka, "topic", "create", there, f"{there}-new")
    taken = call(kafka, "topic", "create", there, f"{there}-new", "--if-not-exists", "-p", "5")

    assert (refused.code, outcomes(refused.document)) == (1, {there: "refused", f"{there}-new": "unchanged"})
    assert "--if-not-exists" in refused.document["done"][0]["detail"]
    assert (taken.code, outcomes(taken.document)) == (0, {there: "unchanged", f"{there}-new": "created"})
    assert (partitions(kafka)[there], partitions(kafka)[f"{there}-new"]) == (2, 5)


@pytest.mark.embedded
def test_a_creation_whose_answer_is_lost_counts_as_done(kafka: EmbeddedKafka) -> None:
    # The first one only asks whether it could be made.
    lost = kafka.fault("CreateTopics", "drop-answer", skip=1)
    try:
        made = call(kafka, "topic", "create", "answer-lost")
        assert lost.fired == 1
    finally:
        kafka.clear_faults()

    assert (made.code, outcomes(made.document)) == (0, {"answer-lost": "created"})
    assert "answer-lost" in partitions(kafka)


@pytest.mark.embedded
def test_without_the_right_a_topic_is_neither_made_nor_deleted(
    kafka: AnyKafka, topic: MakeTopic, denying: Denying
) -> None:
    there = topic()
    denying("CREATE", "TOPIC", "forbidden")
    denying("DELETE", "TOPIC", there)

    made = call(kafka, "topic", "create", "forbidden")
    deleted = call(kafka, "topic", "delete", there, "--yes")

    for answer, right in ((made, "CREATE"), (deleted, "DELETE")):
        assert (answer.code, *outcomes(answer.document).values()) == (1, "refused")
        assert f"grant {right}" in answer.document["done"][0]["detail"]
    assert there in partitions(kafka) and "forbidden" not in partitions(kafka)


def test_a_topic_is_deleted_after_a_yes_only(kafka: AnyKafka, topic: MakeTopic) -> None:
    first, second = topic(partitions=2), topic()

    asked = shown(kafka, "topic", "delete", first, answer="n\n")
    assert first in partitions(kafka)
    agreed = shown(kafka, "topic", "delete", first, answer="y\n")
    at_once = call(kafka, "topic", "delete", second, "--yes")

    assert asked[0] == 1 and "nothing was changed" in asked[1]
    assert f"{first} (2 partitions, replication factor 1)" in asked[1]
    assert agreed[0] == 0
    assert (at_once.code, outcomes(at_once.document)) == (0, {second: "deleted"})
    assert not {first, second} & set(partitions(kafka))


def test_an_unknown_topic_is_named_with_the_nearest_and_no_other_is_deleted(kafka: AnyKafka, topic: MakeTopic) -> None:
    there = topic()

    refused = call(kafka, "topic", "delete", there, f"{there}x", "--yes")

    assert refused.code == 1 and refused.document["error"]["class"] == "UnknownTopic"
    assert f"did you mean {there}?" in refused.document["error"]["message"]
    assert there in partitions(kafka)


def test_the_ledger_is_not_deleted(kafka: AnyKafka) -> None:
    for name, words in {"exactly-once-ledger": [], "mine-turns": ["-o", "ledger.topic=mine"]}.items():
        refused = call(kafka, "topic", "delete", name, "--yes", *words)

        assert (refused.code, refused.document["error"]["class"]) == (2, "OptionsError")
        assert "ledger" in refused.document["error"]["message"]


def test_a_list_leaves_the_brokers_own_topics_out_unless_they_are_wanted(kafka: AnyKafka, topic: MakeTopic) -> None:
    there = topic(partitions=3)
    # Looking for a coordinator makes the broker's own topic.
    call(kafka, "transactions", "list")

    mine = [each["name"] for each in call(kafka, "topic", "list").document["topics"]]
    every = call(kafka, "topic", "list", "--internal").document["topics"]
    code, text = shown(kafka, "topic", "list", there)

    assert there in mine
    assert set(mine) == {each["name"] for each in every if not each["internal"]}
    (row,) = [line.split() for line in text.splitlines() if line.startswith(there)]
    assert (code, row) == (0, [there, "3", "1"])


def test_the_words_that_are_wrong_are_named_before_a_broker_is_asked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    nobody = ["-b", "127.0.0.1:9", "--json"]
    for words, said in {
        ("create", "t", "t"): "named twice",
        ("create", "t", "--config", "retention.ms"): "NAME=VALUE",
        ("delete", "t"): "give --yes too",
        ("create", "t", "-p", "0"): "--partitions",
    }.items():
        ended = in_process(capsys, None, "topic", *words, *nobody)

        assert (ended.code, ended.document["error"]["class"]) == (2, "OptionsError")
        assert said in ended.document["error"]["message"]
        assert ended.document["command"] == f"topic {words[0]}"


def test_the_connection_of_a_jobs_file_is_used(kafka: AnyKafka, topic: MakeTopic, tmp_path: Path) -> None:
    there, file = topic(), tmp_path / "job.yaml"
    file.write_text(
        json.dumps({"kafka": {"bootstrap.servers": kafka.bootstrap_servers}, "source": {"subscribe": there}})
    )

    listed = call(kafka, "topic", "list", there, "-c", str(file))

    assert [each["name"] for each in listed.document["topics"]] == [there]
