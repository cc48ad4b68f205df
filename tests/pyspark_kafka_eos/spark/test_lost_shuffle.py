"""A shuffle's files are lost between the seal of one task and the start of the next, and the rows are others the second
time.
"""

from __future__ import annotations

import itertools
import json
import os
import socket
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest

from embedded_kafka.child.processes import spawn
from embedded_kafka.real.java import require_java
from tests.conftest import topics_of
from tests.pyspark_kafka_eos.commit.judge import read_all
from tests.pyspark_kafka_eos.spark.lost_shuffle_job import ROWS
from tests.support.brokers import AnyKafka

# Played on every version of Spark: 4.0 and 4.1 go on with two attempts of the stage, 4.2 and 4.3 fail the job by
# themselves.
pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.versions]

ALL = Counter(str(number) for number in range(ROWS))
WITHIN_S = 300.0
"""For a start of Spark, and for one play; either takes about 10 s."""

Play = Callable[..., dict[str, Any]]
Record = Callable[[str, object], None]


@pytest.fixture(scope="module")
def play(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Play]:
    """Has an application of its own do one play. One for all of them: what Spark takes to start is most of the time."""
    home = tmp_path_factory.mktemp("lost")
    log = home / "application.log"
    settings = {
        "spark.master": "local[1]",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.local.dir": str(home / "local"),
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
    }
    root = str(Path(__file__).parents[3])
    environ = {**os.environ, **require_java().environ(), "PYTHONPATH": root}
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        command = [
            sys.executable,
            "-m",
            "tests.pyspark_kafka_eos.spark.lost_shuffle_job",
            str(port),
            json.dumps(settings),
        ]
        child = spawn(command, log_path=log, env=environ, cwd=home)
        try:
            server.settimeout(WITHIN_S)
            connection, _ = server.accept()
            connection.settimeout(WITHIN_S)
            with connection, connection.makefile("rw") as lines:

                def ask(**settings: Any) -> dict[str, Any]:
                    lines.write(json.dumps(settings) + "\n")
                    lines.flush()
                    answer = lines.readline()
                    assert answer, log.read_text()[-3000:]
                    found: dict[str, Any] = json.loads(answer)
                    return found

                yield ask
            child.wait(20_000)
        finally:
            child.kill_tree()


# `make versions` plays all of them, on the older Sparks, which go on.
FEW = {("foreachBatch", "task", False), ("format", "batch", False), ("df.write", "task", False)}


@pytest.mark.parametrize(
    ("way", "scope", "declared"),
    [
        pytest.param(*each, marks=() if each in FEW else pytest.mark.long)
        for each in itertools.product(("foreachBatch", "format", "df.write"), ("task", "batch"), (False, True))
    ],
)
def test_no_row_is_missing_or_there_twice_where_a_shuffle_is_lost_under_a_plan_that_is_not_reproducible(
    kafka: AnyKafka, play: Play, tmp_path: Path, record_property: Record, way: str, scope: str, declared: bool
) -> None:
    topic = topics_of(kafka)(2)
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "topic": topic,
        "pipeline": f"lost-{topic}",
        "transaction.scope": scope,
    }
    settings = {"folder": str(tmp_path), "way": way, "options": options, "declared": declared}

    ended = play(**settings, lose=True)

    assert ended["deleted"], "no file was lost"
    said, visible = ended["said"], read_all(kafka, topic)
    seen = f"{visible.total()} rows, {len(visible)} different ones; {said}"
    record_property("seen", f"{pyspark.__version__}, {way}, {scope}, {'declared' if declared else 'salt'}: {seen}")
    assert visible == (Counter() if said else ALL)
    if said:
        named = (
            "in 2 attempts, because files of a shuffle were lost",
            "shuffle map stage with indeterminate output",
        )
        assert any(words in said for words in named), said
        assert play(**settings, lose=False)["said"] == ""
        assert read_all(kafka, topic) == ALL
