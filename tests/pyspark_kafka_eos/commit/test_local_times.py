"""Times without a zone, whose meaning is the session's: a decision keeps the zone, and a repair in another session has
it.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from pyspark import TaskContext

from kafka_core.errors import OptionsError
from pyspark_kafka_eos import crash_points
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.commit.per_task import PerTask
from pyspark_kafka_eos.commit.run import Run
from pyspark_kafka_eos.model import Basis, Seal
from pyspark_kafka_eos.options import SinkOptions
from pyspark_kafka_eos.slot.plan import WritePlan
from pyspark_kafka_eos.spark.sink.rows import SESSION_ZONE, LocalTimes
from pyspark_kafka_eos.spark.sink.tasks import read_results, slot_task
from tests.pyspark_kafka_eos.commit.judge import messages_of, settings_for
from tests.pyspark_kafka_eos.commit.test_repair import abort_slot
from tests.support.brokers import AnyKafka

NOON_MS = 1_720_008_000_000
"""2024-07-03 12:00 on a clock that is in no zone."""
HOUR_MS = 3_600_000


class Killed(Exception):
    """Stands for the end of the driver."""


def rows(slot: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "value": pa.array([f"{slot}"] * 3),
            "timestamp": pa.array([NOON_MS * 1000] * 3, pa.int64()).cast(pa.timestamp("us")),
        }
    )


class Session:
    """A run of a pipeline of two slots, in a session with a time zone."""

    def __init__(self, settings: dict, zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
        options = SinkOptions.parse(settings["options"])
        self.zone, self._patch = zone, monkeypatch
        self.driver = PerTask(Run(Cluster(options.client), options, "query-1"))

    def write(self, only: frozenset[int] | None = None) -> list[Seal]:
        task, results = slot_task(self.driver.plan(0, only)), []
        for slot in range(2):
            context = object.__new__(TaskContext)  # its constructor would keep it for the whole process
            context._attemptNumber, context._partitionId = 0, slot
            context._stageId, context._taskAttemptId = 0, slot
            context._localProperties = {SESSION_ZONE: self.zone}
            self._patch.setattr(TaskContext, "_taskContext", context)
            results += next(task([rows(slot)])).to_pylist()
        seals, failures = read_results((row["slot"], row["seal"], row["failure"]) for row in results)
        assert failures == []
        return seals

    def close(self) -> None:
        self.driver.run.cluster.close()


@pytest.mark.kafka
def test_a_repair_in_a_session_of_another_zone_writes_the_decided_times(
    broker: AnyKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_for(broker)
    first = Session(settings, "America/New_York", monkeypatch)
    assert first.driver.start(0) is None
    crash_points.arm("before-end", 1, _killed)
    with pytest.raises(Killed):
        first.driver.commit(0, first.write(), ("-",), {})
    first.close()
    abort_slot(broker, settings, 1)

    second = Session(settings, "Asia/Tokyo", monkeypatch)
    resumed = second.driver.start(0, second.write, ("-",))
    second.close()

    assert resumed is not None
    assert resumed.repaired == 1
    written = messages_of(broker, settings["options"]["topic"])
    assert [each.timestamp()[1] for each in written] == [NOON_MS + 4 * HOUR_MS] * 6


def test_a_plan_takes_the_sessions_zone_only_where_its_batch_is_not_decided_with_one() -> None:
    settings = {"kafka.bootstrap.servers": "localhost:1", "pipeline": "p", "topic": "t"}
    plan = WritePlan.for_batch(SinkOptions.parse(settings), 0, None)
    decided = replace(plan, basis=Basis("America/New_York"))

    assert plan.in_zone("Asia/Tokyo").basis.time_zone == "Asia/Tokyo"
    assert decided.in_zone("Asia/Tokyo").basis.time_zone == "America/New_York"


def _killed() -> None:
    raise Killed


@pytest.mark.parametrize(
    ("zone", "said"),
    [(None, "the session's zone is not known here"), ("Mars/Olympus", "has no time zone 'Mars/Olympus'")],
)
def test_a_time_whose_zone_is_not_known_is_refused_with_the_way_out(zone: str | None, said: str) -> None:
    times = LocalTimes(zone)

    with pytest.raises(OptionsError, match=said) as refused:
        times.to_instants(rows(0))

    assert "cast(timestamp as timestamp)" in refused.value.message
    assert times.used == ""


@pytest.mark.parametrize(
    ("known", "said", "not_said"),
    [
        ({"Europe/Berlin"}, "set spark.sql.session.timeZone to a zone of the tz database", "at all"),
        (set(), "install the package tzdata there, as no time zones are there at all", "newest"),
    ],
)
def test_a_zone_that_is_javas_alone_is_told_from_a_machine_without_zones(
    monkeypatch: pytest.MonkeyPatch, known: set[str], said: str, not_said: str
) -> None:
    monkeypatch.setattr("pyspark_kafka_eos.spark.sink.rows.available_timezones", lambda: known)

    with pytest.raises(OptionsError) as refused:
        LocalTimes("SystemV/PST8PDT").to_instants(rows(0))

    assert said in refused.value.message and not_said not in refused.value.message


@pytest.mark.parametrize(
    "column",
    [None, pa.array([NOON_MS * 1000] * 3, pa.int64()).cast(pa.timestamp("us", tz="Asia/Tokyo"))],
)
def test_rows_without_local_times_are_as_they_were_and_need_no_zone(column: pa.Array | None) -> None:
    columns = {"value": pa.array(["a"] * 3)} | ({} if column is None else {"timestamp": column})
    batch = pa.RecordBatch.from_pydict(columns)
    times = LocalTimes(None)

    assert times.to_instants(batch) is batch
    assert times.used == ""


def test_a_null_stays_one() -> None:
    column = pa.array([None, 0], pa.timestamp("us"))

    read = LocalTimes("Asia/Tokyo").to_instants(pa.RecordBatch.from_pydict({"timestamp": column}))

    assert read.column("timestamp").cast(pa.int64()).to_pylist() == [None, -9 * HOUR_MS * 1000]
