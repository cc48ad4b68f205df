"""The proof of a decided batch, function by function: what the log shows against what was decided. No Spark."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from connector.client.cluster import Cluster
from connector.commit.drivers import pipeline_driver
from connector.commit.per_task import PerTask
from connector.commit.whole_batch.driver import WholeBatch
from connector.model import Seal
from connector.operations.audit import Finding, Verdict, verify
from connector.operations.history import newest_first
from connector.options import SinkOptions
from connector.records import HEADERS_TYPE
from connector.slot.dead_letters import PREFIX
from connector.slot.plan import SharedPlan
from connector.slot.shared_writer import write_shared
from connector.slot.writer import write_slot
from tests.brokers import AnyKafka
from tests.commit.judge import messages_of
from tests.conftest import MakeTopic

pytestmark = pytest.mark.kafka

Driver = PerTask | WholeBatch
NOON = dt.datetime(2026, 3, 4, 12, tzinfo=dt.timezone.utc)


def options_for(kafka: AnyKafka, pipeline: str, **more: str) -> SinkOptions:
    named = {name.replace("__", "."): value for name, value in more.items()}
    return SinkOptions.parse(
        {"kafka.bootstrap.servers": kafka.bootstrap_servers, "pipeline": pipeline, **named}
    )


def driver_of(options: SinkOptions) -> Driver:
    return pipeline_driver(Cluster.shared(options.client), options, "query")


def write(options: SinkOptions, *slots: dict[str, Any], batch: int = 0) -> None:
    """One micro-batch, a task for each dict of columns, from the start of a run to its end."""
    driver = driver_of(options)
    assert driver.start(batch) is None

    def tasks(only: frozenset[int] | None) -> list[Seal]:
        plan = driver.plan(batch, only)
        one: Callable[..., Seal] = write_shared if isinstance(plan, SharedPlan) else write_slot
        return [one(plan, slot, [pa.RecordBatch.from_pydict(rows)]) for slot, rows in enumerate(slots)]

    driver.process(batch, tasks, (), {})


def proven(options: SinkOptions) -> list[Finding]:
    """The verdicts on the newest batch."""
    cluster = Cluster.shared(options.client)
    (page,) = (page for page in newest_first(cluster, options.ledger_topic, options.pipeline, 1) if page)
    assert page[0].decision is not None
    return verify(cluster, page[0].decision)


# ---- dead letters


def _forwarded(pipeline: str, batch: int) -> list[dict[str, Any]]:
    """The headers of a dead letter that is written on as a row."""
    said = {"pipeline": pipeline, "batch": str(batch)}
    return [{"key": PREFIX + name, "value": value.encode()} for name, value in said.items()]


@pytest.mark.parametrize("scope", ["task", "batch"])
@pytest.mark.parametrize("stamped", [True, False], ids=["stamped", "plain"])
def test_a_batch_with_dead_letters_matches_whether_or_not_its_rows_have_times_and_whatever_else_is_in_that_topic(
    kafka: AnyKafka, topic: MakeTopic, scope: str, stamped: bool
) -> None:
    small, dead = topic(partitions=1, **{"max.message.bytes": "1000"}), topic(partitions=1)
    options = options_for(kafka, f"buried-{small}", dead__letter__topic=dead, transaction__scope=scope)
    # The last row is good and goes beside the dead letters, with the headers of an older one.
    rows: dict[str, Any] = {
        "value": ["a", "b" * 3000, "c", "d"],
        "topic": [small, small, small, dead],
        "headers": pa.array([None, None, None, _forwarded(options.pipeline, 7)], HEADERS_TYPE),
    }
    if stamped:
        rows["timestamp"] = pa.array([NOON] * 4, pa.timestamp("us", "UTC"))
    write(options, rows, rows)

    found = proven(options)

    assert len(messages_of(kafka, small)) == 4
    assert len(messages_of(kafka, dead)) == 4
    assert {each.verdict for each in found} == {Verdict.MATCHES}
    assert sum(each.found_records for each in found) == 8
