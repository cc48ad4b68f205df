"""Records that get the time of the machine's clock, where the broker refuses that time: it is no row's fault, and no
letter is written for it.
"""

from __future__ import annotations

import pickle
import re
import time
from collections.abc import Callable

import pyarrow as pa
import pytest

from embedded_kafka.embedded import EmbeddedKafka
from kafka_core import runtime
from kafka_core.errors import InvalidRow, UserError, WrongClock
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.commit.drivers import driver_for
from pyspark_kafka_eos.model import Seal
from pyspark_kafka_eos.model.said_times import moment
from pyspark_kafka_eos.options.sink import DEFAULT_LEDGER_TOPIC
from pyspark_kafka_eos.slot.plan import SharedPlan
from pyspark_kafka_eos.slot.shared_writer import write_shared
from pyspark_kafka_eos.slot.writer import write_slot
from pyspark_kafka_eos.spark.refusals import FOR_A_PERSON
from pyspark_kafka_eos.spark.sink.tasks import FINAL
from tests.conftest import topics_of
from tests.pyspark_kafka_eos.slot.test_dead_letters import options_for
from tests.pyspark_kafka_eos.slot.test_topic_rules import alone as alone
from tests.pyspark_kafka_eos.slot.test_topic_rules import alter, embedded, open_transactions, values_of

__all__ = ["embedded"]

pytestmark = [pytest.mark.kafka, pytest.mark.embedded, pytest.mark.parametrize("scope", ["task", "batch"])]

DAY_S = 86_400
HOUR_MS = 3_600_000
HOURLY = {"message.timestamp.before.max.ms": str(HOUR_MS), "message.timestamp.after.max.ms": str(HOUR_MS)}
LETTERS = {"message.timestamp.type": "LogAppendTime"}


class Task:
    """A batch that was planned while all clocks were right."""

    def __init__(self, kafka: EmbeddedKafka, scope: str, topic: str, **more: str) -> None:
        self.options = options_for(kafka, f"p-{topic}", topic=topic, transaction__scope=scope, **more)
        driver = driver_for(Cluster.shared(self.options.client), self.options, "query")
        driver.start(0)
        self.plan = driver.plan(0)
        if isinstance(self.plan, SharedPlan):
            # A turn has the machine's time, too: it would be refused before any row.
            alter(kafka, f"{DEFAULT_LEDGER_TOPIC}-turns", **LETTERS)

    def write(self, rows: dict[str, pa.Array]) -> Seal:
        batch = pa.RecordBatch.from_pydict(rows)
        if isinstance(self.plan, SharedPlan):
            return write_shared(self.plan, 0, [batch])
        return write_slot(self.plan, 0, [batch])


@pytest.fixture
def off_by(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Puts the clock of this process, which is no broker's, out by so many seconds."""

    def put(seconds: int) -> None:
        monkeypatch.setattr(runtime, "time", lambda: time.time() + seconds)

    return put


@pytest.mark.parametrize(
    ("days", "setting"),
    [(1, "message.timestamp.after.max.ms"), (-1, "message.timestamp.before.max.ms")],
)
def test_rows_without_a_time_of_their_own_are_refused_for_the_clock_of_the_machine(
    embedded: EmbeddedKafka, off_by: Callable[[int], None], scope: str, days: int, setting: str
) -> None:
    name, dead = topics_of(embedded)(1, **HOURLY), topics_of(embedded)(1, **LETTERS)
    task = Task(embedded, scope, name, dead__letter__topic=dead)
    off_by(days * DAY_S)
    earliest = int(runtime.time() * 1000)

    with pytest.raises(WrongClock) as refused:
        task.write({"value": pa.array(["1", "2"])})

    said, facts = refused.value.message, refused.value.facts
    shown = facts["machine_time_ms"]
    assert isinstance(shown, int) and earliest <= shown <= runtime.time() * 1000
    assert f"shows {moment(shown)}" in said and setting in said
    assert "set that clock right" in said and "of their own" in said
    assert not re.search("correct|drop|dead.letter", said)
    assert (facts["topic"], facts["code"]) == (name, "INVALID_TIMESTAMP")
    assert facts["host"]
    assert "clock" in WrongClock.who_acts and not isinstance(refused.value, UserError)
    assert pickle.loads(pickle.dumps(refused.value)) == refused.value
    assert values_of(embedded, name) == values_of(embedded, dead) == []
    assert (open_transactions(embedded, task.options) if scope == "task" else []) == []


def test_a_dead_letter_that_is_refused_for_the_clock_blames_no_row(
    embedded: EmbeddedKafka, off_by: Callable[[int], None], scope: str
) -> None:
    name, dead = topics_of(embedded)(1, **LETTERS), topics_of(embedded)(1, **HOURLY)
    task = Task(embedded, scope, name, dead__letter__topic=dead)
    off_by(DAY_S)

    with pytest.raises(WrongClock) as refused:
        task.write({"value": pa.array(["1", "2"]), "partition": pa.array([0, 7], pa.int32())})

    assert refused.value.facts["topic"] == dead
    assert values_of(embedded, name) == values_of(embedded, dead) == []


def test_rows_with_a_time_of_their_own_are_refused_for_it_and_the_brokers_clock_is_named(
    embedded: EmbeddedKafka, off_by: Callable[[int], None], scope: str
) -> None:
    """By the clock of the machine they are two days old, as `judged_ms` has it; the leader's own clock says
    otherwise.
    """
    name = topics_of(embedded)(1, **HOURLY)
    task = _planned_off(embedded, scope, name, off_by)
    at = pa.array([int(runtime.time() * 1000)], pa.timestamp("ms", tz="UTC")).cast(pa.timestamp("us", tz="UTC"))

    with pytest.raises(
        InvalidRow, match="or the clock of the broker or of the driver's machine where that one is wrong"
    ):
        task.write({"value": pa.array(["1"]), "timestamp": at})


def test_rows_that_are_judged_by_a_clock_that_is_wrong_are_told_what_it_shows(
    embedded: EmbeddedKafka, off_by: Callable[[int], None], scope: str
) -> None:
    name = topics_of(embedded)(1, **HOURLY)
    task = _planned_off(embedded, scope, name, off_by)
    at = pa.array([int(time.time() * 1000)], pa.timestamp("ms", tz="UTC")).cast(pa.timestamp("us", tz="UTC"))

    with pytest.raises(InvalidRow) as refused:
        task.write({"value": pa.array(["1"]), "timestamp": at})

    judged = refused.value.facts["judged_ms"]
    assert isinstance(judged, int)
    assert (
        f"the batch's planning, which was at {moment(judged)} by the clock of the driver's machine"
        in refused.value.message
    )
    assert "or that clock where it is wrong" in refused.value.message


def _planned_off(kafka: EmbeddedKafka, scope: str, topic: str, off_by: Callable[[int], None]) -> Task:
    """A batch that is planned by a wrong clock, which the topics of the ledger and of the turns do not mind."""
    Task(kafka, scope, topics_of(kafka)(1))  # makes those topics
    alter(kafka, DEFAULT_LEDGER_TOPIC, **LETTERS)
    off_by(DAY_S)
    return Task(kafka, scope, topic)


def test_another_machine_may_do_what_this_one_cannot(scope: str) -> None:
    """Its clock may be right: Spark tries the task again elsewhere. With one transaction for all the batch is what is
    tried again.
    """
    assert not issubclass(WrongClock, FINAL)
    assert issubclass(WrongClock, FOR_A_PERSON)
