"""The sink by format in a streaming query: rows, columns, restart, refusals. librdkafka reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.brokers import AnyKafka
from tests.spark.sink_query import run_sink

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

Run = Callable[..., str]


@pytest.fixture
def run(spark, kafka: AnyKafka, tmp_path: Path) -> Run:
    """run(options, shape, batches=1, rows=10): what Spark says of the query's failure, "" where it did not fail."""

    def call(options: dict[str, Any], *args: Any, folder: Path = tmp_path, **more: Any) -> str:
        return run_sink(
            spark, folder, {"kafka.bootstrap.servers": kafka.bootstrap_servers, **options}, *args, **more
        )

    return call


def counted(messages) -> Counter[int]:
    return Counter(int(message.value()) for message in messages)


@pytest.mark.versions
def test_every_row_of_several_batches_is_there_once(run: Run, read_topic, topic) -> None:
    name = topic()

    said = run({"topic": name, "pipeline": f"p-{name}"}, batches=3, rows=50)

    assert said == ""
    assert counted(read_topic(name)) == dict.fromkeys(range(150), 1)
