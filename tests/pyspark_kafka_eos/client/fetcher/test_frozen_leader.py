"""A fetch that a leader leaves unanswered is given up where another one was elected, and the range is read on there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.reading import fetcher
from pyspark_kafka_eos.client.reading.fetch_progress import OffsetRange
from pyspark_kafka_eos.client.reading.fetcher import Fetcher
from tests.pyspark_kafka_eos.client.fetcher.scripted import Log, ScriptedCluster, ScriptedKafka

T0 = TopicPartition("t", 0)
RECORDS = [b"a", b"b", b"c"]


@pytest.mark.parametrize("late", [False, True], ids=["never answered", "answered in the end"])
def test_the_range_is_read_on_from_the_new_leader_once(monkeypatch: pytest.MonkeyPatch, late: bool) -> None:
    monkeypatch.setattr(fetcher, "LOOK_AFTER_S", 0.01)
    log = Log()
    for value in RECORDS:
        log.write(value)
    kafka = ScriptedKafka(t=[log])
    kafka.brokers = [1, 2]
    cluster = ScriptedCluster(kafka)
    cluster.settings = replace(cluster.settings, request_timeout_ms=1_000)
    send, held = cluster.network.send_on_loop, list[Callable[[], None]]()

    def frozen(node: object, request: Any, done: Any, timeout_ms: int | None = None) -> None:
        if node == 1:
            send(node, request, lambda answer: held.append(lambda: done(answer)))  # type: ignore[arg-type]
            log.elect(2)
            return
        if late:
            for answer in held:
                answer()
        send(node, request, done)

    cluster.network.send_on_loop = frozen  # type: ignore[method-assign]

    batches = list(Fetcher(cluster).read_ranges([OffsetRange(T0, 0, len(RECORDS))]))

    assert len(held) == 1
    assert [value for batch in batches for value in batch.column("value").to_pylist()] == RECORDS
