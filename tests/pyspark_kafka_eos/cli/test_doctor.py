"""`kafka-eos doctor`: finds before a query starts what its first micro-batch would meet, and changes nothing."""

from __future__ import annotations

import contextlib
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from embedded_kafka.embedded import EmbeddedKafka
from kafka_core.errors import AuthorizationFailed, OptionsError
from pyspark_kafka_eos.options import SourceOptions
from pyspark_kafka_eos.spark.sink.foreach_batch import ExactlyOnceWriter
from pyspark_kafka_eos.spark.source.source_view import SourceView
from tests.conftest import MakeTopic
from tests.pyspark_kafka_eos.cli.cli_tools import (
    Answer,
    call,
    committed,
    killed,
    name_of,
    shown,
    states,
    views,
)
from tests.pyspark_kafka_eos.cli.conftest import Denying
from tests.pyspark_kafka_eos.cli.processes import kafka_eos
from tests.pyspark_kafka_eos.commit.batch_child import run_batch
from tests.pyspark_kafka_eos.commit.child import run_child
from tests.pyspark_kafka_eos.commit.judge import read_all, settings_for
from tests.pyspark_kafka_eos.commit.ledger.test_ledger_lost import delete_ledger, own_ledger
from tests.pyspark_kafka_eos.spark.source.test_view import delete_before, write
from tests.support.brokers import AnyKafka

pytestmark = pytest.mark.kafka

LEDGER = "exactly-once-ledger"


def examine(broker: AnyKafka, settings: dict[str, Any], *words: str) -> Answer:
    """The doctor's answer for a run's options."""
    options = {**settings["options"]}
    del options["kafka.bootstrap.servers"]
    pairs = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    return call(broker, "doctor", *pairs, *words)


def check(answer: Answer, name: str) -> dict[str, Any]:
    """The one check of this name."""
    (found,) = [each for each in answer.document["checks"] if each["name"] == name]
    return found


def names_with(answer: Answer, status: str) -> list[str]:
    return [each["name"] for each in answer.document["checks"] if each["status"] == status]


def test_a_pipeline_that_can_start_has_no_failed_check_and_the_exit_code_0(broker: AnyKafka) -> None:
    settings = settings_for(broker)

    answer = examine(broker, settings)

    assert answer.code == 0
    assert names_with(answer, "fail") + names_with(answer, "unknown") == []
    assert {"brokers", "versions", "timeouts", "transactional-ids", "topic", "ledger", "group"} <= {
        each["name"] for each in answer.document["checks"]
    }
    assert all(set(each) == {"name", "about", "status", "seen", "do"} for each in answer.document["checks"])
    # What it promised holds: the run is not refused.
    assert run_child(settings).report["batch"] == 0


def test_it_says_which_transactions_the_broker_has(kafka: AnyKafka, kafka_zk: AnyKafka) -> None:
    new, old = (examine(each, settings_for(each)) for each in (kafka, kafka_zk))

    assert "transaction.version 2" in check(new, "versions")["seen"]
    assert "transactions of version 1" in check(old, "versions")["seen"]
    assert (check(new, "versions")["status"], check(old, "versions")["status"]) == ("ok", "ok")


def test_it_creates_no_topic_and_touches_no_transactional_id(kafka: AnyKafka) -> None:
    settings = killed(kafka, "before-decision")
    settings["options"]["ledger.topic"] = f"ledger-of-{name_of(settings)}"
    topics = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    before = (set(topics.list_topics(timeout=30).topics), views(kafka, settings))
    assert "Ongoing" in states(kafka, settings).values()

    answer = examine(kafka, settings)

    assert check(answer, "ledger")["seen"] == "it does not exist yet; the first run creates it"
    assert (set(topics.list_topics(timeout=30).topics), views(kafka, settings)) == before


def test_a_run_that_is_at_work_or_was_killed_is_named_with_its_open_transactions(broker: AnyKafka) -> None:
    settings = killed(broker, "before-decision")

    found = check(examine(broker, settings), "id-collisions")

    assert found["status"] == "warn"
    assert all(f"{name_of(settings)}:{slot} is Ongoing" in found["seen"] for slot in range(3))
    assert f"transactions explain {name_of(settings)}" in found["do"]


def test_of_a_pipeline_that_has_run_it_says_which_query_and_batch_were_last(kafka: AnyKafka) -> None:
    found = check(examine(kafka, committed(kafka)), "pipeline")

    assert found["seen"].startswith("batch 0 of query query-1 was decided")
    assert "adopt.checkpoint" in found["do"]


def test_a_topic_that_does_not_exist_fails(kafka: AnyKafka) -> None:
    settings = settings_for(kafka)
    settings["options"]["topic"] = "nobody-made-it"

    answer = examine(kafka, settings)

    assert answer.code == 1
    assert check(answer, "topic")["seen"] == "it does not exist"
    assert "UnknownTopic" in run_child(settings).report["error"]


def test_a_timeout_above_the_brokers_cap_fails(kafka: AnyKafka) -> None:
    settings = settings_for(kafka)
    settings["options"]["kafka.transaction.timeout.ms"] = "900001"

    answer = examine(kafka, settings)

    assert answer.code == 1
    assert "transaction.max.timeout.ms=900000" in check(answer, "timeouts")["seen"]


def test_a_margin_that_takes_most_of_the_time_is_warned_of(kafka: AnyKafka) -> None:
    settings = settings_for(kafka)
    settings["options"] |= {"kafka.transaction.timeout.ms": "60000", "transaction.margin.ms": "40000"}

    answer = examine(kafka, settings)

    assert (answer.code, check(answer, "timeouts")["status"]) == (0, "warn")


def test_a_ledger_that_deletes_fails(kafka: AnyKafka, topic: MakeTopic) -> None:
    settings = settings_for(kafka)
    ledger = settings["options"]["ledger.topic"] = topic(**{"cleanup.policy": "delete"})
    topics = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    while ledger not in topics.list_topics(timeout=30).topics:
        pass

    answer = examine(kafka, settings)

    assert answer.code == 1
    assert "cleanup.policy=delete" in check(answer, "ledger")["seen"]


def test_settings_of_the_topic_that_will_hurt_are_warned_of(kafka: AnyKafka, topic: MakeTopic) -> None:
    settings = settings_for(kafka)
    settings["options"] |= {
        "topic": topic(**{"max.message.bytes": "20000", "retention.ms": "3600000"}),
        "kafka.max.request.size": "900000",
    }

    answer = examine(kafka, settings)

    assert answer.code == 0
    assert {"largest-record", "retention", "topic"} <= set(names_with(answer, "warn"))
    assert "20000" in check(answer, "largest-record")["seen"]


def test_a_dead_letter_topic_that_takes_too_little_fails_as_the_first_batch_would(
    kafka: AnyKafka, topic: MakeTopic
) -> None:
    settings = settings_for(kafka)
    dead = topic(**{"max.message.bytes": "1000"})
    settings["options"] |= {"on.bad.record": "dead-letter", "dead.letter.topic": dead}
    pairs = [
        word
        for name in ("topic", "on.bad.record", "dead.letter.topic")
        for word in ("-o", f"{name}={settings['options'][name]}")
    ]

    ended = kafka_eos(kafka, "doctor", name_of(settings), *pairs, "--json")

    (found,) = [each for each in ended.document["checks"] if each["name"] == "dead-letters"]
    assert (ended.code, found["status"], found["about"]) == (1, "fail", dead)
    assert "max.message.bytes=1000" in found["seen"]
    assert f"raise max.message.bytes of topic {dead} to 16384" in found["do"]
    with pytest.raises(OptionsError, match=r"max\.message\.bytes=1000") as validated:
        ExactlyOnceWriter(settings["options"]).validate()
    # The run raises the same, and nothing was written.
    assert run_child(settings).report["error"] == f"OptionsError: {validated.value}"
    assert read_all(kafka, settings["options"]["topic"], "read_uncommitted") == Counter()


def test_a_ledger_that_was_deleted_fails_as_the_run_does(kafka: AnyKafka) -> None:
    settings = own_ledger(kafka)
    assert run_child(settings).report["batch"] == 0
    delete_ledger(kafka, settings)

    answer = examine(kafka, settings)

    assert (answer.code, check(answer, "pipeline")["status"]) == (1, "fail")
    error = run_child(settings).report["error"]
    assert error.startswith("PipelineConflict")
    assert check(answer, "pipeline")["seen"] in error


def test_a_group_that_has_members_of_its_own_is_warned_of(kafka: AnyKafka) -> None:
    settings = settings_for(kafka)
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": name_of(settings)})
    try:
        consumer.subscribe([settings["options"]["topic"]])
        while not consumer.assignment():
            consumer.poll(0.1)

        found = check(examine(kafka, settings), "group")
    finally:
        consumer.close()

    assert found["status"] == "warn"
    assert found["seen"].startswith("it has 1 members")


def test_a_jobs_file_gives_options_and_the_source_whose_retention_is_looked_at(
    kafka: AnyKafka, topic: MakeTopic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = topic(**{"retention.ms": "60000"})
    conf = tmp_path / "job.yaml"
    conf.write_text(
        "app_name: job\nkafka:\n  bootstrap.servers: ${SERVERS}\n"
        f"source:\n  subscribe: {source}\nsink:\n  topic: {topic()}\n  pipeline: ${{NAME:-from-a-file}}\n"
    )
    monkeypatch.setenv("SERVERS", kafka.bootstrap_servers)

    answer = call(kafka, "doctor", "-c", str(conf))

    assert answer.document["pipeline"] == "from-a-file"
    assert (check(answer, "source")["about"], check(answer, "source")["status"]) == (source, "warn")
    assert "stands still" in check(answer, "source")["do"]


def test_where_no_broker_answers_it_says_so_and_where_it_looked(unused_port: str) -> None:
    nobody = type("Nobody", (), {"bootstrap_servers": unused_port, "data_dir": Path()})()

    answer = call(nobody, "doctor", "p", "-o", "topic=t", "-o", "kafka.max.block.ms=300")

    assert answer.code == 1
    assert [each["name"] for each in answer.document["checks"]] == ["brokers"]
    assert "kafka.bootstrap.servers" in check(answer, "brokers")["do"]


@pytest.fixture
def unused_port() -> str:
    """An address at which nobody listens."""
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{listener.getsockname()[1]}"


# ---- rights


@pytest.mark.embedded
@pytest.mark.parametrize(
    ("operation", "resource", "where", "name", "do"),
    [
        ("WRITE", "TOPIC", "topic", "topic", "grant WRITE on topic"),
        ("DESCRIBE", "TOPIC", "topic", "topic", "grant DESCRIBE and WRITE"),
        ("WRITE", "TRANSACTIONAL_ID", "slot", "transactional-ids", "transactional ids with the prefix"),
        ("DESCRIBE", "TRANSACTIONAL_ID", "slot", "transactional-ids", ""),
        ("READ", "GROUP", "group", "group", "grant READ on group"),
        ("WRITE", "TOPIC", "ledger", "ledger", "grant WRITE on topic exactly-once-ledger"),
        ("READ", "TOPIC", "ledger", "ledger", "grant READ on topic exactly-once-ledger"),
    ],
)
def test_a_right_that_a_run_needs_fails_and_the_run_is_refused_too(
    kafka: AnyKafka, denying: Denying, operation: str, resource: str, where: str, name: str, do: str
) -> None:
    settings = committed(kafka)
    pipeline, topic = name_of(settings), settings["options"]["topic"]
    denied = {"topic": topic, "slot": f"{pipeline}:0", "group": pipeline, "ledger": LEDGER}[where]
    before = read_all(kafka, topic, "read_uncommitted")
    denying(operation, resource, denied)

    answer = examine(kafka, settings)

    assert answer.code == 1
    assert check(answer, name)["status"] == "fail"
    assert do in check(answer, name)["do"]
    with pytest.raises(AuthorizationFailed):
        ExactlyOnceWriter(settings["options"]).validate()
    # The run meets the same; the doctor's own asking has left nothing.
    again = run_child({**settings, "batch": 1})
    assert again.report["error"].startswith("AuthorizationFailed")
    assert isinstance(kafka, EmbeddedKafka)
    kafka.allow_all()
    assert read_all(kafka, topic) == before


@pytest.mark.embedded
@pytest.mark.parametrize("operation", ["WRITE", "READ"])
def test_with_scope_batch_the_rights_on_the_topic_of_the_turns_are_looked_at_too(
    kafka: AnyKafka, denying: Denying, operation: str
) -> None:
    settings = settings_for(kafka)
    settings["options"]["transaction.scope"] = "batch"
    turns = f"{LEDGER}-turns"
    assert check(examine(kafka, settings), "turns")["status"] in ("ok", "warn")
    run_batch(settings)
    denying(operation, "TOPIC", turns)

    answer = examine(kafka, settings)

    assert answer.code == 1
    assert f"grant {operation} on topic {turns}" in check(answer, "turns")["do"]
    # The run meets the same.
    with pytest.raises(AuthorizationFailed):
        run_batch({**settings, "batch": 1})
    # A pipeline of the other scope does not need it.
    settings["options"]["transaction.scope"] = "task"
    assert [each for each in examine(kafka, settings).document["checks"] if each["name"] == "turns"] == []


@pytest.mark.embedded
def test_without_the_right_to_create_the_ledger_it_says_how_to_create_it(kafka: AnyKafka, denying: Denying) -> None:
    settings = settings_for(kafka)
    settings["options"]["ledger.topic"] = f"ledger-of-{name_of(settings)}"
    denying("CREATE", "TOPIC")

    answer = examine(kafka, settings)

    assert answer.code == 1
    assert "cleanup.policy=compact" in check(answer, "ledger")["do"]
    assert "no right to create" in run_child(settings).report["error"]


@pytest.mark.embedded
def test_rights_that_are_only_good_to_have_are_warned_of_and_the_run_does_without(
    kafka: AnyKafka, denying: Denying
) -> None:
    settings = settings_for(kafka)
    topic = settings["options"]["topic"]
    denying("READ", "TOPIC", topic)
    denying("DESCRIBE_CONFIGS", "TOPIC", topic)
    denying("DESCRIBE_CONFIGS", "CLUSTER")

    answer = examine(kafka, settings)

    assert answer.code == 0
    assert {"topic-rights", "timeouts"} <= set(names_with(answer, "warn"))
    assert run_child(settings).report["batch"] == 0


# ---- for people


def test_the_table_shows_every_check_and_what_to_do(kafka: AnyKafka) -> None:
    settings = settings_for(kafka)
    settings["options"]["topic"] = "nobody-made-it"

    code, text = shown(kafka, "doctor", name_of(settings), "-o", "topic=nobody-made-it")

    assert code == 1
    assert "create it or correct the name" in text
    assert "1 fail" in text


# ---- as a Python call


def test_validate_returns_the_same_findings(kafka: AnyKafka) -> None:
    settings = settings_for(kafka)

    found = ExactlyOnceWriter(settings["options"]).validate()

    told = examine(kafka, settings).document["checks"]
    assert [(each.name, each.status, each.about) for each in found] == [
        (each["name"], each["status"], each["about"]) for each in told
    ]


# ---- what the query would refuse


@pytest.mark.parametrize(
    ("option", "value", "status", "seen"),
    [
        ("startingOffsets", '{"T":{"0":0,"1":-1}}', "ok", "names what the topics have"),
        ("startingOffsets", '{"T":{"0":500,"1":-2}}', "fail", "T-0, which ends at 0"),
        ("startingOffsets", '{"T":{"0":0}}', "fail", "missing T-1"),
        ("startingOffsets", '{"T":{"0":0,"1":0,"2":0}}', "fail", "nonexistent T-2"),
        ("startingOffsetsByTimestamp", '{"T":{"0":1,"1":1}}', "fail", "partition T-0 and timestamp 1"),
        ("startingTimestamp", "1", "fail", "partition T-0 and timestamp 1"),
    ],
)
def test_where_the_source_is_to_begin_is_judged_as_the_query_judges_it(
    kafka: AnyKafka, topic: MakeTopic, tmp_path: Path, option: str, value: str, status: str, seen: str
) -> None:
    source = topic(2)
    given = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": source}
    given[option] = value.replace("T", source)
    conf = tmp_path / "job.yaml"
    conf.write_text(json.dumps({"source": given, "sink": {"topic": topic(), "pipeline": f"begins-{source}"}}))

    answer = call(kafka, "doctor", "-c", str(conf))

    found = check(answer, "start")
    assert (found["status"], seen.replace("T", source) in found["seen"]) == (status, True)
    assert answer.document["can_start"] is (status == "ok")
    assert answer.code == (0 if status == "ok" else 1)
    view = SourceView(SourceOptions.parse(given, "stream"))
    with contextlib.nullcontext() if status == "ok" else pytest.raises(OptionsError, match=re.escape(found["seen"])):
        view.beginning()


def test_offsets_that_the_topic_has_no_more_are_lost_data_as_for_the_query(
    kafka: AnyKafka, topic: MakeTopic, tmp_path: Path
) -> None:
    source = topic(1)
    write(kafka, source, 5)
    delete_before(kafka, source, 3)
    given = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": source}
    given["startingOffsets"] = json.dumps({source: {"0": 1}})
    conf = tmp_path / "job.yaml"

    conf.write_text(json.dumps({"source": given}))
    strict = call(kafka, "doctor", "-c", str(conf))
    conf.write_text(json.dumps({"source": given | {"failOnDataLoss": "false"}}))
    lenient = call(kafka, "doctor", "-c", str(conf))

    assert (check(strict, "start")["status"], strict.code, strict.document["can_start"]) == ("fail", 1, False)
    assert (check(lenient, "start")["status"], lenient.code, lenient.document["can_start"]) == (
        "warn",
        0,
        True,
    )
    assert f"{source}-0: startingOffsets has offset 1, but the partition begins at 3" in check(lenient, "start")["seen"]


def test_fields_that_a_job_refuses_fail_and_those_of_a_job_of_ones_own_are_warned_of(
    kafka: AnyKafka, topic: MakeTopic, tmp_path: Path
) -> None:
    conf = tmp_path / "job.yaml"
    sides = f"kafka:\n  bootstrap.servers: {kafka.bootstrap_servers}\nsink:\n  topic: {topic()}\n  pipeline: fields\n"

    def examined(more: str) -> tuple[int, str, str]:
        conf.write_text(sides + more)
        answer = call(kafka, "doctor", "-c", str(conf))
        found = next((each for each in answer.document["checks"] if each["name"] == "file"), None)
        return (answer.code, "", "") if found is None else (answer.code, found["status"], found["seen"])

    good = "app_name: a\ncheckpoint_location: /tmp/c\n"
    assert examined("") == examined(good) == (0, "", "")
    assert examined(good + "weather: {}\n") == (0, "warn", "weather: there is no such field")
    assert examined(good + "tigger: {}\n") == (1, "fail", "tigger: there is no such field; did you mean trigger?")
    assert examined("app_name: a\n") == (1, "fail", "checkpoint_location: this field is missing")
    code, status, seen = examined(good + "trigger:\n  processing_tme: 1 second\n")
    assert (code, status) == (1, "fail") and "trigger.processing_tme: there is no such field" in seen


def test_the_last_line_says_whether_the_query_can_start(kafka: AnyKafka, topic: MakeTopic) -> None:
    assert shown(kafka, "doctor", "starts", "-o", f"topic={topic()}")[1].splitlines()[-1] == "can start: yes"
    code, said = shown(kafka, "doctor", "starts", "-o", "topic=never-made")
    assert (code, said.splitlines()[-1]) == (1, "can start: no: it stops at what fails above")
