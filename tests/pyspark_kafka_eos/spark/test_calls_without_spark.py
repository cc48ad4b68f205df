"""What the ways of writing find out before anything is decided, called with stand-ins for what Spark passes: no session
is needed to see that each way asks.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import TaskContext

from kafka_core.errors import AttemptRefused, OptionsError
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.commit.dataframe_write import Begun
from pyspark_kafka_eos.commit.run import Handover
from pyspark_kafka_eos.model import Seal, StageTask
from pyspark_kafka_eos.options import SinkOptions
from pyspark_kafka_eos.slot.plan import WritePlan
from pyspark_kafka_eos.spark.sink import batch_sink, foreach_batch, sink
from pyspark_kafka_eos.spark.sink.batch_sink import BatchWriter
from pyspark_kafka_eos.spark.sink.foreach_batch import ExactlyOnceWriter
from pyspark_kafka_eos.spark.sink.query_identity import QueryIdentity
from pyspark_kafka_eos.spark.sink.sink import KafkaSinkWriter
from pyspark_kafka_eos.spark.sink.tasks import SlotMessage

# Nobody answers there, so a way that does not ask first fails with another error.
GIVEN = {
    "kafka.bootstrap.servers": "127.0.0.1:1",
    "pipeline": "p",
    "topic": "t",
    "kafka.max.block.ms": "10",
    "checkpointLocation": "/no/such/checkpoint",
}
STAGE = 7


def options(**more: str) -> SinkOptions:
    given = GIVEN | {name.replace("_", "."): value for name, value in more.items()}
    if "batch.id" in given:
        del given["checkpointLocation"]
    return SinkOptions.parse(given, "batch" if "batch.id" in given else "stream")


# ---- the attempts of a stage

SEALS = [Seal(f"p:{slot}", slot, None, 0, stage=StageTask(STAGE, 10 * slot)) for slot in range(2)]
"""Between the numbers of their tasks there is room for another attempt."""
HANDOVER = Handover("query", 3, None, 0.0)


def by_format(ask: Callable[[int], int | None], patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sink, "ask_driver", lambda: ask)
    KafkaSinkWriter(options(), {}).commit([SlotMessage(seal, None, HANDOVER) for seal in SEALS], 3)


def by_data_frame(ask: Callable[[int], int | None], patch: pytest.MonkeyPatch) -> None:
    patch.setattr(batch_sink, "ask_driver", lambda: ask)
    begun = Begun(options(batch_id="3"), 3, None, HANDOVER)
    BatchWriter(begun, {}).commit([SlotMessage(seal) for seal in SEALS])


def by_foreach_batch(ask: Callable[[int], int | None], patch: pytest.MonkeyPatch) -> None:
    patch.setattr(foreach_batch, "ask_spark", lambda context: ask)
    patch.setattr(foreach_batch, "select_columns", lambda frame, topic: frame)
    results = [(seal.slot, json.dumps(seal.to_driver()), None) for seal in SEALS]
    sealing = SimpleNamespace(collect=lambda: results)
    frame: Any = SimpleNamespace(
        schema=SimpleNamespace(fields=[]),
        sparkSession=SimpleNamespace(_sc=None),
        mapInArrow=lambda task, schema: sealing,
    )
    given_up: list[list[Seal]] = []
    driver: Any = SimpleNamespace(
        plan=lambda batch_id, only: WritePlan.for_batch(options(), batch_id, only),
        abandon=lambda batch_id, seals, reason: given_up.append(seals),
    )
    try:
        ExactlyOnceWriter(GIVEN)._run_slots(driver, frame, 3, None)
    finally:
        assert given_up == [SEALS], "what the tasks have open is not aborted"


@pytest.mark.parametrize("way", [by_format, by_data_frame, by_foreach_batch])
def test_each_way_asks_for_the_attempts_of_its_stage_before_it_decides(
    way: Callable[[Callable[[int], int | None], pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def second_attempt(stage: int) -> int | None:
        asked.append(stage)
        return 1

    with pytest.raises(AttemptRefused, match=f"stage {STAGE} in 2 attempts"):
        way(second_attempt, monkeypatch)

    assert asked == [STAGE]


# ---- a function of foreachBatch


@pytest.mark.parametrize("batch_id", [None, "5"])
def test_a_data_frame_write_in_a_micro_batch_is_refused_by_its_tasks_where_nothing_numbers_it(
    monkeypatch: pytest.MonkeyPatch, batch_id: str | None
) -> None:
    context = object.__new__(TaskContext)  # its constructor would keep it for the whole process
    context._localProperties = {"streaming.sql.batchId": "4", "sql.streaming.queryId": "query"}
    chosen = options(batch_id=batch_id or "0")
    begun = Begun(chosen if batch_id else _without_number(chosen), 0, None)

    if batch_id is not None:
        batch_sink._refuse_unnumbered(begun, context)
        return
    with pytest.raises(OptionsError, match=r"batch\.id is missing.* micro-batch 4 ") as refused:
        batch_sink._refuse_unnumbered(begun, context)
    assert refused.value.facts == {"pipeline": "p", "batch": 4, "query": "query"}
    # Outside of a query nothing runs the write again.
    context._localProperties = {}
    batch_sink._refuse_unnumbered(begun, context)


def _without_number(chosen: SinkOptions) -> SinkOptions:
    given = {name: value for name, value in GIVEN.items() if name != "checkpointLocation"}
    without = SinkOptions.parse(given, "batch")
    assert without.batch_id is None and chosen.batch_id is not None
    return without


class Session:
    """A session of Spark's JVM. `queries`: those that run, with the session that each one's batches have."""

    def __init__(self) -> None:
        self.queries: dict[str, Session] = {}

    def sharedState(self) -> Any:  # noqa: N802  Spark's name
        queries = [
            SimpleNamespace(
                sparkSessionForStream=lambda session=session: SimpleNamespace(equals=lambda other: other is session),
                id=lambda name=name: SimpleNamespace(toString=lambda: name),
                runId=lambda name=name: SimpleNamespace(toString=lambda: f"run of {name}"),
                resolvedCheckpointRoot=lambda name=name: f"/checkpoint of {name}",
            )
            for name, session in self.queries.items()
        ]
        return SimpleNamespace(activeStreamingQueries=lambda: SimpleNamespace(values=lambda: queries))


def test_in_a_thread_of_the_function_the_query_is_found_by_the_frames_session() -> None:
    of_the_batch, another = Session(), Session()
    of_the_batch.queries = {"another": another, "mine": of_the_batch}
    # A thread that Spark does not know has none of the query's properties.
    spark: Any = SimpleNamespace(_sc=SimpleNamespace(getLocalProperty=lambda name: None), _jsparkSession=of_the_batch)
    given = {name: value for name, value in GIVEN.items() if name != "checkpointLocation"}

    found = QueryIdentity.of_session(spark, SinkOptions.parse(given))

    assert (found.query_id, found.run_id, found.checkpoint) == ("mine", "run of mine", "/checkpoint of mine")
    of_the_batch.queries = {"another": another}
    with pytest.raises(OptionsError, match="no micro-batch of a running query"):
        QueryIdentity.of_session(spark, SinkOptions.parse(given))


def test_a_pipelines_name_in_a_process_is_of_its_cluster_and_its_ledger(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clusters = {
        "127.0.0.1:1": "one",
        "127.0.0.1:2": "two",
        "127.0.0.1:3": "one",
        "127.0.0.1:4": "",
        "127.0.0.1:5": "",
    }

    def shared(settings: Any, deadline_ms: int) -> Any:
        return SimpleNamespace(cluster_id=lambda: clusters[settings.bootstrap_servers[0]])

    monkeypatch.setattr(Cluster, "shared", shared)

    def name(port: int, **more: str) -> tuple[str, str, str]:
        return foreach_batch._name_of(options(kafka_bootstrap_servers=f"127.0.0.1:{port}", **more))

    assert name(1) == name(3) != name(2), "other bootstrap servers may be the same cluster's"
    assert name(1) != name(1, ledger_topic="another")
    assert name(4) != name(5), "a cluster without an id is told by its servers"
