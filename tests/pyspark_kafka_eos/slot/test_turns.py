"""Tasks that write in turn: what the log says and to whom, many small turns, holders that idle, fail or vanish."""

from __future__ import annotations

import functools
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from embedded_kafka.embedded import EmbeddedKafka
from kafka_core.errors import AttemptRefused, BrokerUnavailable, InvalidRow, ProtocolViolation
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.writing import appending
from pyspark_kafka_eos.commit.whole_batch.driver import WholeBatch
from pyspark_kafka_eos.commit.whole_batch.turns_end import DRIVER
from pyspark_kafka_eos.options import parsing
from pyspark_kafka_eos.slot import turn_sender as sending
from pyspark_kafka_eos.slot.plan import SharedPlan
from pyspark_kafka_eos.slot.shared_writer import write_shared
from pyspark_kafka_eos.slot.turn_log import TurnLog, from_json, to_json, turns_begin
from pyspark_kafka_eos.slot.turns import Event, Passed, Stopped, TaskStarted, Wanted
from tests.pyspark_kafka_eos.commit.batch_child import driver_of, write_all, write_one
from tests.pyspark_kafka_eos.commit.child import arrow_batches
from tests.pyspark_kafka_eos.commit.judge import EXPECTED, read_all, read_in_order, settings_for
from tests.support.brokers import AnyKafka

PLACE = TopicPartition("some.topic", 3)


def begun(settings: dict[str, Any]) -> tuple[WholeBatch, SharedPlan]:
    """A driver and the plan of a first try."""
    driver = driver_of(settings)
    assert driver.start(0) is None
    plan = driver.plan(0)
    assert isinstance(plan, SharedPlan)
    return driver, plan


# ---- what a record says


@pytest.mark.parametrize(
    "events",
    [
        [TaskStarted(2, "s")],
        [TaskStarted(2, "s"), Wanted(2, "s", PLACE)],
        [Passed(2, "s", PLACE, 2**31 - 1), Wanted(2, "s", PLACE), Wanted(2, "s", TopicPartition("t", 0))],
        [Stopped(2, "s", 'it says "no" — über')],
        [TaskStarted(DRIVER, "driver-s"), Stopped(DRIVER, "driver-s", "the turns are over")],
    ],
)
def test_what_is_said_is_what_is_read(events: list[Event]) -> None:
    assert from_json(to_json(5, events)) == (5, events)


@pytest.mark.parametrize(
    "value",
    [
        b"no json",
        b"{}",
        b'{"version":2,"task":0,"start":"s","number":0,"events":[["begun"]]}',
        b'{"version":1,"task":0,"start":"s","number":0,"events":[["lent","t",1]]}',
        b'{"version":1,"task":0,"start":"s","number":0,"events":[["passed","t",1]]}',
        b'{"version":1,"task":0,"start":"s","number":0,"events":[[]]}',
        b'{"version":1,"task":0,"start":"s","number":0,"events":[]}',
        b"[]",
        b"\xff\xfe",
    ],
)
def test_what_no_version_of_ours_wrote_is_refused(value: bytes) -> None:
    with pytest.raises(ProtocolViolation, match="not in the form that this version of the connector writes"):
        from_json(value)


# ---- the log


def read_until(log: TurnLog, count: int) -> list[Event]:
    found: list[Event] = []
    deadline = time.monotonic() + 20
    while len(found) < count and time.monotonic() < deadline:
        found += log.new_events()
    # What is there too many would be there by now.
    return found + list(log.new_events())


@pytest.mark.kafka
def test_all_read_what_all_said_in_one_order_and_nothing_of_another_try(broker: AnyKafka) -> None:
    driver, plan = begun(settings_for(broker))

    def log_of(key: str) -> TurnLog:
        return TurnLog(driver.run.cluster, plan.turns, key)

    speakers, other = [log_of(plan.key) for _ in range(3)], log_of(plan.key + "0")

    def speak(task: int) -> None:
        for number in range(5):
            speakers[task].append_events(
                [TaskStarted(task, f"s{task}")] if not number else [Passed(task, f"s{task}", PLACE, number)]
            )
            other.append_events([Stopped(task, "of another try", "boom")]) if task == 0 else None

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(speak, range(3)))

    first, second = read_until(log_of(plan.key), 15), read_until(log_of(plan.key), 15)
    assert first == second
    assert len(first) == 15
    for task in range(3):
        of_task = [event for event in first if event.task == task]
        assert of_task == [
            TaskStarted(task, f"s{task}"),
            *(Passed(task, f"s{task}", PLACE, number) for number in range(1, 5)),
        ]


@pytest.mark.kafka
def test_what_was_appended_twice_is_read_once(broker: AnyKafka) -> None:
    driver, plan = begun(settings_for(broker))
    log, late = (TurnLog(driver.run.cluster, plan.turns, plan.key) for _ in range(2))
    log.append_events([TaskStarted(0, "s")])
    log.append_events([Passed(0, "s", PLACE, 9)])
    # A first sending of the same record that arrives after its second one, and after the record behind it.
    late.append_events([TaskStarted(0, "s")])
    late.append_events([Passed(0, "s", PLACE, 9)])
    log.append_events([Passed(0, "s", PLACE, 12)])

    found = read_until(TurnLog(driver.run.cluster, plan.turns, plan.key), 3)

    assert found == [TaskStarted(0, "s"), Passed(0, "s", PLACE, 9), Passed(0, "s", PLACE, 12)]


@pytest.mark.kafka
def test_an_append_whose_answer_is_lost_is_heard_once() -> None:
    with EmbeddedKafka(in_process=True) as kafka:
        settings = settings_for(kafka)
        driver, plan = begun(settings)
        fault = kafka.fault("Produce", "drop-answer")
        log = TurnLog(driver.run.cluster, plan.turns, plan.key)
        log.append_events([TaskStarted(0, "s")])

        assert fault.fired == 1
        assert read_until(TurnLog(driver.run.cluster, plan.turns, plan.key), 1) == [TaskStarted(0, "s")]
        driver.run.cluster.close()


@pytest.mark.kafka
def test_a_log_that_lost_what_was_said_ends_the_task(broker: AnyKafka) -> None:
    driver, plan = begun(settings_for(broker))

    with pytest.raises(BrokerUnavailable, match="no longer has the turns"):
        list(TurnLog(driver.run.cluster, replace(plan.turns, offset=plan.turns.offset + 1_000), plan.key).new_events())


# ---- turns


@pytest.fixture
def small_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns are asked for and passed on every few batches, as with rows for minutes."""
    monkeypatch.setattr(sending, "ASK_BYTES", 4_000)
    monkeypatch.setattr(sending, "MOST_HELD_BYTES", 16_000)
    monkeypatch.setattr(sending, "_STEP_BYTES", 4_000)
    monkeypatch.setattr(parsing, "STICKY_BATCHES", 1)


@pytest.mark.kafka
def test_many_tasks_write_the_same_partitions_in_many_turns_and_every_record_is_there_once(
    broker: AnyKafka, small_turns: None
) -> None:
    settings = settings_for(broker)
    settings["options"] |= {"kafka.batch.size": "2048"}
    rows = [[f"{task:02d} {row:05d} " + "x" * 200 for row in range(600)] for task in range(6)]
    settings["rows"] = rows
    driver, plan = begun(settings)

    seals = write_all(plan, settings)

    report = driver.commit(0, seals, (), {})
    topic = settings["options"]["topic"]
    assert report.records == 3600
    assert read_all(broker, topic) == Counter(value for values in rows for value in values)
    events = read_until(TurnLog(driver.run.cluster, plan.turns, plan.key), 1)
    passed = [event for event in events if isinstance(event, Passed)]
    # More turns than one for each task and partition, or this would show nothing.
    assert len(passed) > 2 * 6 * 4
    for number, values in read_in_order(broker, topic).items():
        for task in range(6):
            of_task = [value for value in values if value.startswith(f"{task:02d}")]
            assert of_task == sorted(of_task), f"task {task} is out of order in partition {number}"


@pytest.mark.kafka
def test_a_task_that_waits_for_its_rows_keeps_nobody_waiting(broker: AnyKafka, small_turns: None) -> None:
    settings = settings_for(broker)
    driver, plan = begun(settings)
    go_on = threading.Event()

    def slow_rows() -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(arrow_batches(settings["rows"][0])):
            if number == 2:
                assert go_on.wait(60)
            yield batch

    with ThreadPoolExecutor(3) as pool:
        slow = pool.submit(write_shared, plan, 0, slow_rows())
        others = [pool.submit(write_one, plan, settings, task) for task in (1, 2)]
        done = [other.result(timeout=30) for other in others]
        assert not slow.done()
        go_on.set()
        seals = [slow.result(timeout=30), *done]

    assert driver.commit(0, seals, (), {}).records == 1200
    assert read_all(broker, settings["options"]["topic"]) == EXPECTED


@pytest.mark.kafka
def test_a_task_never_holds_more_than_its_bound(
    broker: AnyKafka, small_turns: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_for(broker)
    driver, plan = begun(settings)
    TurnLog(driver.run.cluster, plan.turns, plan.key).append_events(
        [TaskStarted(9, "x"), *(Wanted(9, "x", TopicPartition(settings["options"]["topic"], n)) for n in range(4))]
    )
    given: list[int] = []
    give = sending.TurnSender.give

    def counted(self: sending.TurnSender, where: TopicPartition, count: int, batch: memoryview) -> None:
        give(self, where, count, batch)
        given.append(self._bytes)

    monkeypatch.setattr(sending.TurnSender, "give", counted)
    plan = replace(plan, writing=replace(plan.writing, delivery_timeout_ms=1_500))

    # Somebody has every turn and passes none on: the task fills up, waits, and gives up.
    with pytest.raises(AttemptRefused, match="did not pass its turn on"):
        write_one(plan, settings, 0)

    assert 16_000 <= max(given) < 16_000 + 8_192 + 100


@pytest.mark.kafka
def test_when_a_task_fails_the_others_stop_and_say_why(broker: AnyKafka, small_turns: None) -> None:
    settings = settings_for(broker)
    driver, plan = begun(settings)
    wait_for_others = threading.Event()

    def bad_rows() -> Iterator[pa.RecordBatch]:
        yield from list(arrow_batches(settings["rows"][0]))[:2]
        assert wait_for_others.wait(30)
        yield pa.RecordBatch.from_pydict({"value": ["a"], "topic": pa.array([None], pa.string())})

    def endless_rows() -> Iterator[pa.RecordBatch]:
        for number in range(100_000):
            yield from arrow_batches(settings["rows"][1])
            if number == 3:
                wait_for_others.set()

    elsewhere = replace(plan, writing=replace(plan.writing, topic=None))
    named = pa.array([settings["options"]["topic"]] * 400, pa.string())

    def with_topic(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            known = batch.schema.names
            yield batch if "topic" in known else batch.append_column("topic", named[: batch.num_rows])

    with ThreadPoolExecutor(2) as pool:
        bad = pool.submit(write_shared, elsewhere, 0, with_topic(bad_rows()))
        other = pool.submit(write_shared, elsewhere, 1, with_topic(endless_rows()))
        with pytest.raises(InvalidRow, match="has no topic"):
            bad.result(timeout=60)
        with pytest.raises(AttemptRefused, match=r"task 0 failed: .*has no topic"):
            other.result(timeout=60)

    driver.abandon(0, (), "a bad row")
    assert read_all(broker, settings["options"]["topic"]) == Counter()


@pytest.mark.kafka
def test_a_start_in_whose_place_another_came_stops_without_having_written(broker: AnyKafka) -> None:
    settings = settings_for(broker)
    driver, plan = begun(settings)
    log = TurnLog(driver.run.cluster, plan.turns, plan.key)
    places = [TopicPartition(settings["options"]["topic"], number) for number in range(4)]
    log.append_events([TaskStarted(9, "x"), *(Wanted(9, "x", place) for place in places)])

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(write_one, plan, settings, 0)
        others = TurnLog(driver.run.cluster, plan.turns, plan.key)
        while not any(isinstance(event, Wanted) and event.task == 0 for event in others.new_events()):
            pass
        TurnLog(driver.run.cluster, plan.turns, plan.key).append_events([TaskStarted(0, "again")])
        log.append_events([Passed(9, "x", place, 0) for place in places])
        with pytest.raises(AttemptRefused, match="started again before this start had its turn"):
            first.result(timeout=30)

    assert read_all(broker, settings["options"]["topic"], "read_uncommitted") == Counter()


@pytest.mark.kafka
def test_a_task_without_rows_says_nothing(broker: AnyKafka) -> None:
    settings = {**settings_for(broker), "rows": [[]]}
    driver, plan = begun(settings)

    seal = write_one(plan, settings, 0)

    assert (seal.identity, seal.records, seal.partitions) == (None, 0, ())
    assert turns_begin(driver.run.cluster, plan.turns.where).offset == plan.turns.offset


@pytest.mark.kafka
@pytest.mark.embedded
def test_a_log_that_takes_nothing_ends_the_task_and_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    # The read of the turns is held for longer than the append is tried, which no options can have.
    monkeypatch.setattr(appending, "append", functools.partial(appending.append, deadline_ms=500))
    monkeypatch.setattr("pyspark_kafka_eos.slot.turn_log._WAIT_MS", 3_000)
    with EmbeddedKafka(in_process=True) as kafka:
        settings = settings_for(kafka)
        driver, plan = begun(settings)
        kafka.fault("Produce", "error", times=1000, code="NOT_LEADER_OR_FOLLOWER")
        before = set(threading.enumerate())

        with pytest.raises(BrokerUnavailable, match="turn was not acknowledged"):
            write_one(plan, settings, 0)

        # No last record of the task wakes the one that reads the turns.
        of_the_task = {"kafka-eos-send", "kafka-eos-turns"}
        assert [each.name for each in set(threading.enumerate()) - before if each.name in of_the_task] == []

        kafka.clear_faults()
        assert read_all(kafka, settings["options"]["topic"], "read_uncommitted") == Counter()
        driver.run.cluster.close()
