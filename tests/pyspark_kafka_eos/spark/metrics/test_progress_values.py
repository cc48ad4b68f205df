"""What is read out of Spark's progress and a commit's report, and what is left unknown."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from kafka_core.values import ProducerIdentity, TopicPartition
from pyspark_kafka_eos.model import Decision, Seal, Traffic
from pyspark_kafka_eos.spark.metrics.progress import Lag, read_progress
from tests.pyspark_kafka_eos.spark.metrics.examples import batch, published, spark_json

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


def source_with(**changed: Any) -> dict[str, Any]:
    return {**spark_json()["sources"][0], **changed}


def test_the_lag_has_the_names_and_the_arithmetic_of_sparks_own_kafka_source() -> None:
    progress = read_progress(spark_json())

    assert progress.lag == Lag(minimum=0, maximum=40, average=20.0, total=40)
    assert progress.as_metrics() == {
        "batchId": 7,
        "minOffsetsBehindLatest": 0,
        "maxOffsetsBehindLatest": 40,
        "avgOffsetsBehindLatest": 20.0,
    }


def test_a_report_adds_what_the_commit_did() -> None:
    progress = read_progress(spark_json(), published())

    assert progress.pipeline == "orders"
    commit = {name: progress.as_metrics()[name] for name in list(progress.as_metrics())[4:]}
    assert commit == {
        "commitMs": 21.5, "visibleMs": 30.0, "secondsLeft": 890.0, "records": 90, "bytes": 4096, "retries": 2,
        "fences": 3, "repaired": 1, "redone": 1, "produceRequests": 4, "requestLatencyAvgMs": 2.5, "requestLatencyMaxMs": 4.5,
        "throttleMs": 300, "batchSizeAvgBytes": 256.0, "connections": 3,
    }  # fmt: skip


def test_a_decision_in_the_ledger_adds_what_it_knows_and_leaves_the_rest_unknown() -> None:
    seal = Seal("orders:0", 0, ProducerIdentity(5, 0), 2, records=90, bytes=4096, retries=2, attempt=1)
    traffic = Traffic(requests=2, record_batches=2, sent_bytes=100, waited_us=3_000, longest_us=2_000, connections=1)
    decision = Decision("orders", "6d4f", 7, (seal,), decided_ms=1_700_000_000_000, traffic=traffic)

    progress = read_progress(spark_json(), None, decision)

    assert (progress.records, progress.bytes, progress.slots) == (90, 4096, 1)
    assert progress.as_metrics()["requestLatencyAvgMs"] == 1.5
    assert (progress.retries, progress.fences, progress.decided_ms) == (2, 1, 1_700_000_000_000)
    assert progress.commit_ms is progress.visible_ms is progress.left_s is progress.redone is None
    assert "commitMs" not in progress.as_metrics()


def test_transactions_without_a_timeout_leave_plain_json() -> None:
    progress = read_progress(spark_json(), published(left_ms=math.inf))

    assert progress.left_s == math.inf
    assert "secondsLeft" not in json.loads(json.dumps(progress.as_metrics(), allow_nan=False))


def test_a_partition_that_is_new_is_behind_by_all_it_has() -> None:
    body = spark_json(sources=[source_with(endOffset={"orders": {"0": 60}})])

    assert read_progress(body).lag == Lag(0, 100, 50.0, 100)


def test_a_partition_that_ends_before_the_batch_is_not_behind() -> None:
    body = spark_json(sources=[source_with(latestOffset={"orders": {"0": 55, "1": 61}})])

    assert read_progress(body).lag == Lag(0, 1, 0.5, 1)


def test_offsets_as_text_are_read_like_offsets_as_json() -> None:
    plain = source_with()
    text = {name: json.dumps(plain[name]) for name in ("startOffset", "endOffset", "latestOffset")}

    assert read_progress(spark_json(sources=[source_with(**text)])) == read_progress(spark_json())


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(source_with(latestOffset=None), id="not reported"),
        pytest.param(source_with(latestOffset="null"), id="null as text"),
        pytest.param(
            source_with(description="org.apache.spark.sql.execution.datasources.v2.python.PythonMicroBatchStream@1"),
            id="before pyspark 4.2, which gives the end of the batch as the source's",
        ),
    ],
)  # fmt: skip
def test_where_spark_does_not_say_how_far_a_source_goes_the_lag_is_unknown_until_a_broker_is_asked(
    source: dict[str, Any],
) -> None:
    body = spark_json(sources=[source])

    assert read_progress(body).lag is None
    assert read_progress(body, latest={P0: 61, P1: 63}).lag == Lag(1, 3, 2.0, 4)


def test_one_source_without_an_end_leaves_the_lag_of_all_unknown() -> None:
    other = source_with(endOffset={"other": {"0": 5}}, latestOffset=None)

    assert read_progress(spark_json(sources=[source_with(), other])).lag is None


@pytest.mark.parametrize("offset", [None, 5, "5", "not JSON", [1], {"a": 1}, {"a": {"0": "1"}}, {"a": {"x": 1}}])
def test_a_source_that_is_not_kafka_has_no_lag(offset: object) -> None:
    body = spark_json(sources=[source_with(startOffset=offset, endOffset=offset, latestOffset=offset)])

    assert (read_progress(body).end, read_progress(body).lag) == (None, None)


def test_a_source_that_is_not_kafka_does_not_hide_one_that_is() -> None:
    rate = {"description": "RateStreamV2", "startOffset": 1, "endOffset": 2, "latestOffset": 2}

    assert read_progress(spark_json(sources=[rate, source_with()])).lag == Lag(0, 40, 20.0, 40)


def test_a_progress_with_nothing_but_its_names_can_be_read() -> None:
    progress = read_progress({"id": "q", "runId": "r", "batchId": 0})

    assert progress.as_metrics() == {"batchId": 0}
    assert progress.label == "q"


def test_the_label_is_the_querys_name_where_it_has_one() -> None:
    assert batch().label == "clean-orders"
    assert batch(name=None).label == "6d4f"
