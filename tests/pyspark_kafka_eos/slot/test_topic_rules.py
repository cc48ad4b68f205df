"""Rows that only a topic's settings refuse: found before they are packed, or named by the leader; none is tried again
for ever.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from embedded_kafka.embedded import EmbeddedKafka
from kafka_core.errors import AbortableError, InvalidRow, OptionsError, RecordTooLarge, UserError
from pyspark_kafka_eos import crash_points
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.requests.admin import list_transactions, topic_rules
from pyspark_kafka_eos.commit.drivers import driver_for
from pyspark_kafka_eos.commit.ledger.topic import Ledger
from pyspark_kafka_eos.commit.per_task import PerTask
from pyspark_kafka_eos.commit.run import Run
from pyspark_kafka_eos.commit.whole_batch.merging import merge
from pyspark_kafka_eos.model import Basis, Decision, Expired, Seal, TopicRules
from pyspark_kafka_eos.options import SinkOptions
from pyspark_kafka_eos.slot.dead_letters import require_topic
from pyspark_kafka_eos.slot.plan import SharedPlan, WritePlan
from pyspark_kafka_eos.slot.shared_writer import write_shared
from pyspark_kafka_eos.slot.writer import write_slot
from tests.conftest import MakeTopic, topics_of
from tests.pyspark_kafka_eos.commit.judge import messages_of
from tests.pyspark_kafka_eos.commit.test_repair import abort_slot
from tests.pyspark_kafka_eos.slot.test_dead_letters import Read, options_for, read, reasons
from tests.pyspark_kafka_eos.slot.test_routing import Topics, packed, plan, router, rows
from tests.support.brokers import AnyKafka

__all__ = ["read"]

pytestmark = pytest.mark.kafka

HOUR_MS = 3_600_000
HOURLY = {"message.timestamp.before.max.ms": str(HOUR_MS), "message.timestamp.after.max.ms": str(HOUR_MS)}
KINDS = {
    "no key": ({"cleanup.policy": "compact"}, {"key": None}, "cleanup.policy", "the row has no key and its topic is compacted"),
    "ahead": (HOURLY, {"hours": 2}, "message.timestamp.after.max.ms", "the timestamp is further ahead than the topic takes"),
    "back": (HOURLY, {"hours": -2}, "message.timestamp.before.max.ms", "the timestamp is further back than the topic takes"),
    "1969": ({}, {"hours": -1_000_000}, None, "the timestamp is before 1970"),
    "none": ({}, {"at": -1}, None, "the timestamp is before 1970"),
}  # fmt: skip
"""What is wrong with the second row: its topic's settings, the row, the setting that an error names, what a dead letter
says.
"""


def three(key: str | None = "bad", hours: float = 0, at: int | None = None) -> pa.RecordBatch:
    """Three rows; the second one has this key, and the time now or so many hours from now, or `at` milliseconds."""
    now = int(time.time() * 1000)
    times = [now, now + int(hours * HOUR_MS) if at is None else at, now]
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array(["first", key, "third"]),
            "value": pa.array(["1", "2", "3"]),
            "timestamp": pa.array(times, pa.timestamp("ms", tz="UTC")).cast(pa.timestamp("us", tz="UTC")),
        }
    )


def driver_of(options: SinkOptions) -> PerTask:
    return PerTask(Run(Cluster.shared(options.client), options, "query"))


def seal_of(driver: PerTask, batch: pa.RecordBatch, only: frozenset[int] | None = None) -> Seal:
    return write_slot(driver.plan(0, only), 0, [batch])


def open_transactions(kafka: AnyKafka, options: SinkOptions) -> list[str]:
    found = list_transactions(Cluster.shared(options.client), ["Ongoing"])
    return [name for name in found if name.startswith(options.pipeline)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_that_its_topic_would_not_take_is_refused_by_topic_key_and_setting(
    kafka: AnyKafka, topic: MakeTopic, read: Read, kind: str
) -> None:
    settings, row, setting, _ = KINDS[kind]
    name = topic(**settings)
    options = options_for(kafka, f"p-{name}", topic=name)
    driver = driver_of(options)
    driver.start(0)

    with pytest.raises(InvalidRow) as refused:
        seal_of(driver, three(**row))

    facts = refused.value.facts
    assert (facts["topic"], facts["key"], facts.get("setting")) == (name, row.get("key", "bad"), setting)
    assert "nothing of the micro-batch is visible" in refused.value.message
    assert setting is None or setting in refused.value.message
    assert read(name, "read_uncommitted") == []
    assert open_transactions(kafka, options) == []


@pytest.mark.parametrize("kind", KINDS)
def test_with_a_dead_letter_topic_such_a_row_is_a_dead_letter_and_the_others_are_written(
    kafka: AnyKafka, topic: MakeTopic, read: Read, kind: str
) -> None:
    settings, row, _, said = KINDS[kind]
    name, dead = topic(**settings), topic()
    driver = driver_of(options_for(kafka, f"p-{name}", topic=name, dead__letter__topic=dead))
    driver.start(0)

    report = driver.commit(0, [seal_of(driver, three(**row))], (), {})

    assert [each.value() for each in read(name)] == [b"1", b"3"]
    (letter,) = read(dead)
    assert (letter.value(), reasons(letter)["class"], reasons(letter)["message"]) == (
        b"2",
        "InvalidRow",
        said,
    )
    assert (report.records, report.dead_letters) == (3, 1)


@pytest.mark.parametrize("hours", [-2, 2])
def test_a_topic_that_has_the_brokers_time_takes_any_of_the_rows(
    kafka: AnyKafka, topic: MakeTopic, read: Read, hours: int
) -> None:
    name = topic(**HOURLY, **{"message.timestamp.type": "LogAppendTime"})
    driver = driver_of(options_for(kafka, f"p-{name}", topic=name))
    driver.start(0)

    driver.commit(0, [seal_of(driver, three(hours=hours))], (), {})

    assert len(read(name)) == 3


def ten_days_old(kafka: AnyKafka, name: str, **more: str) -> tuple[SinkOptions, pa.RecordBatch]:
    return options_for(kafka, f"p-{name}", topic=name, **more), three(hours=-240)


WEEK = {"retention.ms": str(168 * HOUR_MS)}


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_rows_that_their_topic_does_not_keep_are_written_with_a_warning(
    kafka: AnyKafka, topic: MakeTopic, caplog: pytest.LogCaptureFixture, guarantee: str
) -> None:
    name, kept = topic(**WEEK), topic(**WEEK, **{"message.timestamp.type": "LogAppendTime"})
    for each in (name, kept):
        options, batch = ten_days_old(kafka, each, delivery__guarantee=guarantee)
        driver = driver_for(Cluster.shared(options.client), options, "query")
        driver.start(0)

        report = driver.process(0, lambda _, driver=driver, batch=batch: [seal_of(driver, batch)], (), {})

        assert report.records == 3

    (said,) = [record.getMessage() for record in caplog.records if "keeps records" in record.getMessage()]
    assert said.startswith(f"1 rows of this batch are older than topic {name!r} keeps records (retention.ms=604800000")
    if guarantee == "exactly-once":
        pipelines = {
            each: Ledger(Cluster.shared(options.client), options.ledger_topic, f"p-{each}") for each in (name, kept)
        }
        found = {each: ledger.newest(settle=True) for each, ledger in pipelines.items()}
        assert {each: decision.warnings for each, decision in found.items() if decision} == {
            name: (said,),
            kept: (),
        }


@pytest.mark.parametrize("buried", [True, False])
def test_by_option_such_a_row_is_one_that_cannot_be_written(
    kafka: AnyKafka, topic: MakeTopic, read: Read, buried: bool
) -> None:
    name, dead = topic(**WEEK), topic()
    more = {"dead__letter__topic": dead} if buried else {}
    options, batch = ten_days_old(kafka, name, on__expired__record="refuse", **more)
    driver = driver_of(options)
    driver.start(0)

    if buried:
        seal = seal_of(driver, batch)
        driver.commit(0, [seal], (), {})
        assert [reasons(each)["message"] for each in read(dead)] == [
            "the timestamp is older than the topic keeps records"
        ]
        assert ([each.value() for each in read(name)], seal.expired) == ([b"1", b"3"], ())
        return
    with pytest.raises(InvalidRow, match=r"retention\.ms") as refused:
        seal_of(driver, batch)
    assert (refused.value.facts["key"], refused.value.facts["setting"]) == ("bad", "retention.ms")
    assert read(name, "read_uncommitted") == []


def test_expired_rows_of_several_tasks_are_one_warning_for_each_topic_in_both_scopes() -> None:
    tasks = [Seal(f"p:{slot}", slot, None, 2, expired=(Expired("t", 2, 100 - slot, 50),)) for slot in range(3)]
    assert Seal.from_json(tasks[1].to_driver()).expired == tasks[1].expired

    whole = merge(tasks, transactional_id="p:batch", identity=None, transaction_version=2, two_phase=False)

    assert Expired.of_all(each for seal in tasks for each in seal.expired) == (Expired("t", 6, 98, 50),)
    assert whole.expired == (Expired("t", 6, 98, 50),)


def test_rules_are_of_each_topic_and_hold_for_its_rows_only() -> None:
    rules = {"takes": TopicRules(), "needs": TopicRules(needs_keys=True)}
    how = replace(plan(), basis=Basis(topics=tuple(rules.items())))
    routes = router(Topics({"takes": 1, "needs": 1}), how)

    assert packed(routes, rows(["1", "2"], topic=["takes", "needs"], key=[None, "k"])) == {
        "takes-0": 1,
        "needs-0": 1,
    }
    with pytest.raises(InvalidRow) as refused:
        routes.pack(rows(["1", "2", "3"], topic=["takes", "needs", "needs"], key=[None, "k", None]))

    assert refused.value.facts["topic"] == "needs"
    assert list(routes.flush()) == []


# ---- a replay


def test_a_router_judges_by_the_moment_and_the_rules_of_the_decision() -> None:
    noon = 1_770_000_000_000
    basis = Basis("", noon, (("t", TopicRules(2_000, False, HOUR_MS, HOUR_MS)),))
    routes = router(Topics({"t": 1}, {"t": 900_000}), replace(plan("t"), basis=basis, planned_ms=noon + 5 * HOUR_MS))

    def at(hours: float) -> Any:
        return rows(["v"], timestamp=pa.array([int(noon + hours * HOUR_MS)], pa.timestamp("ms", tz="UTC")))

    assert packed(routes, at(1)) == {"t-0": 1}
    with pytest.raises(InvalidRow):
        routes.pack(at(1.1))
    assert routes.limit_of("t") == 2_000
    assert routes.basis == basis


@pytest.mark.parametrize("lost", [True, False])
def test_dead_letters_of_a_decided_batch_stay_dead_letters_whatever_the_topic_takes_by_now(
    broker: AnyKafka, lost: bool
) -> None:
    make = topics_of(broker)
    name, dead = make(1, **HOURLY), make(1)
    options = options_for(broker, f"p-{name}", topic=name, dead__letter__topic=dead)
    batch = three(hours=2)
    first = driver_of(options)
    first.start(0)
    crash_points.arm("before-end", 1, _killed)
    with pytest.raises(Killed):
        first.commit(0, [seal_of(first, batch)], ("-",), {})
    if lost:
        abort_slot(broker, {"options": {"pipeline": options.pipeline}}, 0)
    alter(broker, name, **{"message.timestamp.after.max.ms": str(24 * HOUR_MS)})

    # A process that has not read the settings of before.
    second = driver_of(replace(options, client=replace(options.client, client_id=f"later-{name}")))
    resumed = second.start(0, lambda only: [seal_of(second, batch, only)], ("-",))

    assert resumed is not None
    assert (resumed.repaired, resumed.dead_letters) == (int(lost), 1)
    assert (values_of(broker, name), values_of(broker, dead)) == ([b"1", b"3"], [b"2"])


def test_what_rows_were_judged_by_is_kept_by_the_decision_and_survives_its_json() -> None:
    rules = TopicRules(5_000, True, None, HOUR_MS)
    tasks = [Basis("Asia/Tokyo", 7, (("b", rules),)), None, Basis("", 7, (("a", TopicRules()),))]
    basis = Basis.of_all(tasks)

    assert basis == Basis("Asia/Tokyo", 7, (("a", TopicRules()), ("b", rules)))
    assert Basis.from_json(basis.to_json()) == basis
    assert Decision.from_bytes(Decision("p", "q", 0, (), basis=basis).to_bytes()).basis == basis
    seal = Seal("p:0", 0, None, 0, basis=basis)
    assert (Seal.from_json(seal.to_driver()).basis, Seal.from_json(seal.to_json()).basis) == (basis, None)


# ---- what the leader alone knows


@pytest.fixture(scope="module")
def alone() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(in_process=True) as kafka:
        yield kafka


@pytest.fixture
def embedded(alone: EmbeddedKafka) -> Iterator[EmbeddedKafka]:
    """A broker of this file, without faults."""
    yield alone
    alone.clear_faults()


@pytest.fixture
def hidden(embedded: EmbeddedKafka) -> Iterator[None]:
    """This client may not read the settings of topics."""
    fault = embedded.fault("DescribeConfigs", "error", times=100, code="TOPIC_AUTHORIZATION_FAILED")
    yield
    assert fault.fired >= 1


@pytest.mark.embedded
@pytest.mark.parametrize("kind", ["no key", "ahead", "back"])
def test_where_settings_are_hidden_the_leader_names_the_row_and_the_error_does(
    embedded: EmbeddedKafka, hidden: None, kind: str
) -> None:
    settings, row, setting, _ = KINDS[kind]
    name = topics_of(embedded)(1, **settings)
    options = options_for(embedded, f"p-{name}", topic=name)
    driver = driver_of(options)
    driver.start(0)

    with pytest.raises(InvalidRow, match="refuses a row") as refused:
        seal_of(driver, three(**row))

    facts = refused.value.facts
    assert (facts["topic"], facts["key"], facts["refused"]) == (name, row.get("key", "bad"), 1)
    assert str(setting) in refused.value.message
    assert "DESCRIBE_CONFIGS" in refused.value.message
    assert values_of(embedded, name) == []
    assert open_transactions(embedded, options) == []


@pytest.mark.embedded
@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("INVALID_RECORD", "does not say which"),
        ("POLICY_VIOLATION", "or the policy"),
        ("UNSUPPORTED_COMPRESSION_TYPE", "choose another kafka.compression.type"),
        ("INVALID_TOPIC_EXCEPTION", "write to another topic"),
    ],
)
def test_what_no_attempt_mends_is_the_authors_to_mend(embedded: EmbeddedKafka, code: str, said: str) -> None:
    name = topics_of(embedded)(1)
    options = options_for(embedded, f"p-{name}", topic=name)
    driver = driver_of(options)
    driver.start(0)
    fault = embedded.fault("Produce", "error", times=1, code=code)

    with pytest.raises(UserError, match=said) as refused:
        seal_of(driver, three())

    assert fault.fired == 1
    assert refused.value.facts["code"] == code
    assert values_of(embedded, name) == []
    assert open_transactions(embedded, options) == []


@pytest.mark.embedded
def test_an_error_without_a_code_is_not_asked_for_again_and_names_the_brokers_log(
    embedded: EmbeddedKafka,
) -> None:
    name = topics_of(embedded)(1)
    driver = driver_of(options_for(embedded, f"p-{name}", topic=name))
    driver.start(0)
    fault = embedded.fault("Produce", "error", times=100, code="UNKNOWN_SERVER_ERROR")

    with pytest.raises(AbortableError, match="the broker's log of this moment has the cause"):
        seal_of(driver, three())

    assert fault.fired == 1
    embedded.clear_faults()
    assert values_of(embedded, name) == []


@pytest.mark.embedded
def test_without_a_transaction_no_error_speaks_of_one(embedded: EmbeddedKafka) -> None:
    name = topics_of(embedded)(1)
    options = options_for(embedded, "p", topic=name, delivery__guarantee="at-least-once")
    embedded.fault("Produce", "error", times=1, code="POLICY_VIOLATION")

    with pytest.raises(InvalidRow) as refused:
        write_slot(WritePlan.for_batch(options, 0, None), 0, [three()])

    assert "transaction" not in refused.value.message
    assert "what was acknowledged stays written" in refused.value.message


def test_a_dead_letter_topic_that_takes_no_letter_without_a_key_is_refused_at_the_start(
    kafka: AnyKafka, topic: MakeTopic
) -> None:
    dead = topic(**{"cleanup.policy": "compact"})

    with pytest.raises(OptionsError, match=r"cleanup\.policy"):
        require_topic(Cluster.shared(options_for(kafka, "p").client), dead)


def test_the_older_setting_stands_for_both_spans_where_they_are_not_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = {
        "max.message.bytes": "5", "cleanup.policy": "delete,compact", "message.timestamp.before.max.ms": str(2**63 - 1),
        "message.timestamp.after.max.ms": "7", "message.timestamp.difference.max.ms": "9",
    }  # fmt: skip
    monkeypatch.setattr("pyspark_kafka_eos.client.requests.admin.topic_settings", lambda *_: told)

    assert topic_rules(None, "t") == TopicRules(5, True, 9, 7)  # type: ignore[arg-type]


def values_of(kafka: AnyKafka, topic: str) -> list[bytes | None]:
    return sorted((message.value() for message in messages_of(kafka, topic)), key=lambda value: value or b"")


class Killed(Exception):
    """Stands for the end of the driver."""


def _killed() -> None:
    raise Killed


def alter(kafka: AnyKafka, topic: str, **settings: str) -> None:
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for answer in admin.incremental_alter_configs([resource]).values():
        answer.result(30)


@pytest.mark.parametrize("scope", ["task", "batch"])
def test_a_batch_that_is_larger_than_its_topic_takes_by_now_is_judged_anew_by_the_next_attempt(
    embedded: EmbeddedKafka, scope: str
) -> None:
    """A worker reads a topic's settings once in some minutes."""
    name, dead = topics_of(embedded)(1), topics_of(embedded)(1)
    options = options_for(embedded, "p", topic=name, dead__letter__topic=dead, transaction__scope=scope)
    driver = driver_for(Cluster.shared(options.client), options, "query")
    driver.start(0)

    def write() -> Seal:
        rows_of = pa.RecordBatch.from_pydict({"value": pa.array(["small", "x" * 300])})
        plan = driver.plan(0)
        return write_shared(plan, 0, [rows_of]) if isinstance(plan, SharedPlan) else write_slot(plan, 0, [rows_of])

    write()
    alter(embedded, name, **{"max.message.bytes": "200"})

    with pytest.raises(AbortableError, match=r"max\.message\.bytes was 1048588 and is 200.*next attempt") as refused:
        write()

    assert refused.value.facts["topic"] == name
    again = write()
    assert (again.records, again.dead_letters) == (2, 1)


def test_a_row_that_was_too_large_for_its_topic_is_taken_as_soon_as_the_topic_takes_it(
    embedded: EmbeddedKafka,
) -> None:
    name = topics_of(embedded)(1, **{"max.message.bytes": "200"})
    options = options_for(embedded, "p", topic=name)
    large = pa.RecordBatch.from_pydict({"value": pa.array(["x" * 300])})
    plan = WritePlan.for_batch(options, 0, None, transaction_timeout_ms=60_000)
    with pytest.raises(RecordTooLarge):
        write_slot(plan, 0, [large])
    alter(embedded, name, **{"max.message.bytes": "1000"})

    with pytest.raises(AbortableError, match=r"was 200 and is 1000"):
        write_slot(plan, 0, [large])

    assert write_slot(plan, 0, [large]).records == 1
