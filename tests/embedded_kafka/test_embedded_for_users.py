"""`EmbeddedKafka` as a user's test uses it: in a child process and in a thread, with faults, time and rights."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from embedded_kafka import EmbeddedKafka
from kafka_core.errors import OptionsError

pytestmark = [pytest.mark.kafka, pytest.mark.embedded]

TIMEOUT_S = 30


@pytest.fixture(params=[False, True], ids=["child", "thread"])
def kafka(request: pytest.FixtureRequest) -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(in_process=request.param) as broker:
        yield broker


def transactional(kafka: EmbeddedKafka, transactional_id: str = "x", timeout_ms: int = 60_000) -> Producer:
    made = Producer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": timeout_ms,
            "log_level": 0,
        }
    )
    made.init_transactions(TIMEOUT_S)
    return made


def commit_one(writer: Producer) -> None:
    writer.begin_transaction()
    writer.produce("t", b"value")
    writer.commit_transaction(TIMEOUT_S)


@pytest.mark.parametrize(
    ("action", "more"),
    [
        ("delay", {"delay_ms": 200}),
        ("drop-request", {}),
        ("drop-answer", {}),
        ("cut", {"after_bytes": 3}),
        ("error", {"code": "COORDINATOR_LOAD_IN_PROGRESS"}),
    ],
)
def test_a_commit_survives_each_fault_and_the_fault_says_that_it_fired(
    kafka: EmbeddedKafka, action: str, more: dict[str, int | str]
) -> None:
    writer = transactional(kafka)
    fault = kafka.fault("EndTxn", action, **more)
    assert fault.fired == 0
    commit_one(writer)

    assert fault.fired == 1
    commit_one(writer)
    assert fault.fired == 1


def test_a_coordinator_that_is_stopped_at_a_step_goes_on_when_it_is_released(kafka: EmbeddedKafka) -> None:
    writer = transactional(kafka)
    fault = kafka.fault_at_step("end-prepared", "stop")
    writer.begin_transaction()
    writer.produce("t", b"value")
    with pytest.raises(KafkaException):
        writer.commit_transaction(1)
    assert fault.fired == 1

    fault.release()
    writer.commit_transaction(TIMEOUT_S)


def test_time_that_is_moved_times_transactions_out(kafka: EmbeddedKafka) -> None:
    writer = transactional(kafka, timeout_ms=600_000)
    writer.begin_transaction()
    writer.produce("t", b"value")
    assert writer.flush(TIMEOUT_S) == 0

    kafka.advance(600_001)
    with pytest.raises(KafkaException) as refused:
        writer.commit_transaction(TIMEOUT_S)
    assert refused.value.args[0].code() in (KafkaError._FENCED, KafkaError.INVALID_TXN_STATE)


def test_a_right_that_is_taken_away_is_missed_until_it_is_given_back(kafka: EmbeddedKafka) -> None:
    kafka.deny("WRITE", "TRANSACTIONAL_ID", "x")
    with pytest.raises(KafkaException) as refused:
        transactional(kafka)
    assert refused.value.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

    kafka.allow_all()
    commit_one(transactional(kafka))


def test_data_and_port_outlive_a_stop_where_a_directory_is_named(tmp_path: Path) -> None:
    kafka = EmbeddedKafka(data_dir=tmp_path)
    with kafka:
        commit_one(transactional(kafka))
        before = kafka.bootstrap_servers
        kafka.restart()
        assert kafka.bootstrap_servers == before
        assert "t" in AdminClient({"bootstrap.servers": before}).list_topics(timeout=TIMEOUT_S).topics
    with EmbeddedKafka(data_dir=tmp_path) as again:
        topics = AdminClient({"bootstrap.servers": again.bootstrap_servers}).list_topics(timeout=TIMEOUT_S).topics
        assert "t" in topics


def test_nothing_is_left_where_no_directory_is_named() -> None:
    with EmbeddedKafka() as kafka:
        directory, pid = kafka.data_dir, kafka.pid
        assert directory.is_dir()
    assert not directory.exists()
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize("setting", ["message.max.byte", "num.partitions"])
def test_a_setting_that_cannot_work_is_the_same_error_from_a_child_and_from_a_thread(
    tmp_path: Path, setting: str
) -> None:
    refused = []
    for in_process in (False, True):
        with pytest.raises(OptionsError) as error:
            EmbeddedKafka(data_dir=tmp_path, config={setting: "-1"}, in_process=in_process).start()
        refused.append((str(error.value), error.value.facts))

    assert refused[0] == refused[1] and refused[0][1]["setting"] == setting
    assert [path for path in tmp_path.iterdir() if path.name != "broker.log"] == []


def test_a_fault_for_an_api_that_is_none_is_refused(kafka: EmbeddedKafka) -> None:
    with pytest.raises(OptionsError, match="unknown API 'EndTransaction'"):
        kafka.fault("EndTransaction", "delay")


def test_a_broker_in_a_thread_cannot_be_killed_and_says_so() -> None:
    with EmbeddedKafka(in_process=True) as kafka:
        with pytest.raises(OptionsError, match="cannot be killed"):
            kafka.kill()
        with pytest.raises(OptionsError, match="cannot be killed"):
            kafka.fault_at_step("end-prepared", "kill")


def test_the_fixture_of_three_brokers_is_there_by_itself(embedded_kafka_cluster: EmbeddedKafka) -> None:
    assert len(embedded_kafka_cluster.bootstrap_servers.split(",")) == 3
    commit_one(transactional(embedded_kafka_cluster, f"id-{time.time_ns()}"))


@pytest.mark.parametrize("kind", ["group_id", "transactional_id"])
def test_a_coordinator_that_nobody_has_asked_yet_is_another_one_when_its_broker_is_killed(kind: str) -> None:
    with EmbeddedKafka(brokers=3) as cluster:
        gone = cluster.coordinator_of(**{kind: "g"})
        cluster.kill_broker(gone)
        assert cluster.coordinator_of(**{kind: "g"}) not in (gone, -1)
        assert cluster.coordinator_of(**{kind: "other"}) not in (gone, -1)


def test_the_fixture_is_there_by_itself(embedded_kafka: EmbeddedKafka) -> None:
    commit_one(transactional(embedded_kafka, f"id-{time.time_ns()}"))


def test_a_partition_that_is_not_there_has_no_leader_to_name(embedded_kafka_cluster: EmbeddedKafka) -> None:
    commit_one(transactional(embedded_kafka_cluster, f"id-{time.time_ns()}"))
    with pytest.raises(OptionsError, match="there is no topic nope"):
        embedded_kafka_cluster.leader_of("nope", 0)
    with pytest.raises(OptionsError, match=r"there is no partition __transaction_state-10000; the topic has \d+"):
        embedded_kafka_cluster.leader_of("__transaction_state", 10_000)


def test_a_broker_that_is_not_there_is_named_with_those_that_are() -> None:
    with EmbeddedKafka(brokers=3) as cluster:
        for wrong in (
            cluster.kill_broker, cluster.freeze_broker, cluster.thaw_broker, cluster.start_broker, cluster.cut_off_broker,
            cluster.rejoin_broker, lambda broker: cluster.set_in_sync("topic", 0, [0, broker]),
        ):  # fmt: skip
            with pytest.raises(OptionsError, match=r"there is no broker 3; there are 0, 1, 2"):
                wrong(3)
